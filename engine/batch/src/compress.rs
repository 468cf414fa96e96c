//! Putting a codec onto a body.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use crate::header::Codec;
use crate::snappy;

/// 0 is the library's default level.
const ZSTD_LEVEL: i32 = 0;

/// Appends `body` to `out` under `codec`.
pub(crate) fn compress(codec: Codec, body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match codec {
        Codec::None => out.extend_from_slice(body),
        Codec::Gzip => {
            let mut encoder = GzEncoder::new(out, Compression::default());
            encoder.write_all(body)?;
            encoder.finish()?;
        }
        Codec::Snappy => snappy::write_framed(body, out).map_err(io::Error::other)?,
        Codec::Lz4 => {
            // The Java client reads independent blocks only.
            let info = FrameInfo::new()
                .block_size(BlockSize::Max64KB)
                .block_mode(BlockMode::Independent);
            let mut encoder = FrameEncoder::with_frame_info(info, out);
            encoder.write_all(body)?;
            encoder.finish().map_err(io::Error::other)?;
        }
        Codec::Zstd => out.extend_from_slice(&zstd::bulk::compress(body, ZSTD_LEVEL)?),
    }
    Ok(())
}
