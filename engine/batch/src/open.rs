//! Taking the codec off a batch, never past a limit and in turns.
//!
//! Invariants:
//!
//! 1. The output never holds more than the limit and one byte (by which the limit is noticed), and its memory
//!    at most doubles with what was really produced.
//! 2. Each step of a turn takes input or gives output, so a turn ends. A turn passes its budget by one step at
//!    most: 64 KiB, or one block where the codec has no smaller unit (LZ4 up to 4 MiB; Snappy the block, which is
//!    all of the body where it is not framed).
//! 3. A body is exactly one stream of its codec: readers differ in what they make of bytes after it, and what
//!    the broker checked must be what every client reads.

use std::fmt;
use std::io::{ErrorKind, Read};

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use flate2::bufread::GzDecoder;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::error::{BatchError, BodyFault};
use crate::header::{BatchHeader, Codec, HEADER_BYTES};
use crate::lz4::Lz4Frame;
use crate::snappy;

/// Output of one step where the codec can stop anywhere.
const STEP_BYTES: usize = 64 * 1024;
/// The window that every Zstandard reader is asked to support (RFC 8878, section 3.1.1.1.2), and all that
/// levels up to 19 use.
const ZSTD_WINDOW_LOG_MIN: u32 = 23;
/// Zstandard's own default limit.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Largest window, in bytes, that a Zstandard body may ask for when it is opened with this output limit; the
/// memory that an [`Opener`] may take beside its output.
pub fn zstd_window_bytes_max(output_bytes_max: usize) -> usize {
    1 << zstd_window_log(output_bytes_max)
}

fn zstd_window_log(output_bytes_max: usize) -> u32 {
    let log = usize::BITS - output_bytes_max.saturating_sub(1).leading_zeros();
    log.clamp(ZSTD_WINDOW_LOG_MIN, ZSTD_WINDOW_LOG_MAX)
}

/// What a turn came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    More,
    /// The opened body.
    Done(Bytes),
}

/// Opens the body of one batch, a turn at a time.
///
/// After [`Turn::Done`] or an error the opener is spent: further turns give [`BodyFault::Truncated`].
pub struct Opener {
    codec: Codec,
    decoder: Decoder,
    output: Output,
}

enum Decoder {
    Stored(Bytes),
    Gzip(Box<GzDecoder<Reader<Bytes>>>),
    SnappyRaw(Bytes),
    SnappyFramed(Bytes),
    Lz4Start(Bytes),
    Lz4Blocks(Lz4Frame, Bytes),
    Zstd(DCtx<'static>, Bytes),
    Spent,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("codec", &self.codec)
            .field("output_bytes", &self.output.bytes.len())
            .finish_non_exhaustive()
    }
}

impl Opener {
    /// Prepares to open `batch`, which must be one whole batch whose CRC has been verified. Nothing is reserved
    /// for the output yet.
    ///
    /// # Errors
    ///
    /// What [`BatchHeader::parse`] finds, [`BatchError::Incomplete`], [`BatchError::UnknownCodec`], and
    /// [`BatchError::OutputLimit`] for an uncompressed body above the limit.
    pub fn new(batch: &Bytes, output_bytes_max: usize) -> Result<Opener, BatchError> {
        let header = BatchHeader::parse(batch)?;
        let batch_bytes = header.batch_bytes();
        if batch.len() < batch_bytes {
            return Err(BatchError::Incomplete {
                needed_bytes: batch_bytes,
                present_bytes: batch.len(),
            });
        }
        let codec = header.codec()?;
        let body = batch.slice(HEADER_BYTES..batch_bytes);
        if codec == Codec::None && body.len() > output_bytes_max {
            return Err(BatchError::OutputLimit { output_bytes_max });
        }
        Ok(Opener {
            codec,
            decoder: Decoder::new(codec, body, output_bytes_max)
                .map_err(|fault| BatchError::Body { codec, fault })?,
            output: Output::new(output_bytes_max),
        })
    }

    /// Memory that the output takes so far, in bytes. A body that is not compressed takes none of its own.
    pub fn output_memory_bytes(&self) -> usize {
        self.output.bytes.capacity()
    }

    /// Works until about `budget_bytes` have been taken and given, or until the body is open.
    ///
    /// # Errors
    ///
    /// [`BatchError::OutputLimit`] when the output would pass the limit, [`BatchError::Body`] when the stream
    /// cannot be decoded.
    pub fn turn(&mut self, budget_bytes: usize) -> Result<Turn, BatchError> {
        let mut spent_bytes = 0;
        loop {
            match self.decoder.step(&mut self.output) {
                Ok(Step::Went(step_bytes)) => spent_bytes += step_bytes,
                Ok(Step::Ended) => {
                    self.decoder = Decoder::Spent;
                    return Ok(Turn::Done(self.output.take()));
                }
                Ok(Step::Stored(body)) => {
                    self.decoder = Decoder::Spent;
                    return Ok(Turn::Done(body));
                }
                Err(fault) => {
                    self.decoder = Decoder::Spent;
                    let output_bytes_max = self.output.bytes_max;
                    self.output.take();
                    return Err(match fault {
                        StepFault::OutputLimit => BatchError::OutputLimit { output_bytes_max },
                        StepFault::Body(fault) => BatchError::Body {
                            codec: self.codec,
                            fault,
                        },
                    });
                }
            }
            if spent_bytes >= budget_bytes {
                return Ok(Turn::More);
            }
        }
    }
}

/// Opens the body of `batch` in one go; see [`Opener`].
///
/// # Errors
///
/// As [`Opener::new`] and [`Opener::turn`].
pub fn open(batch: &Bytes, output_bytes_max: usize) -> Result<Bytes, BatchError> {
    let mut opener = Opener::new(batch, output_bytes_max)?;
    loop {
        if let Turn::Done(body) = opener.turn(usize::MAX)? {
            return Ok(body);
        }
    }
}

enum Step {
    /// Bytes taken and given.
    Went(usize),
    Ended,
    Stored(Bytes),
}

pub(crate) enum StepFault {
    OutputLimit,
    Body(BodyFault),
}

impl From<BodyFault> for StepFault {
    fn from(fault: BodyFault) -> Self {
        StepFault::Body(fault)
    }
}

impl Decoder {
    fn new(codec: Codec, body: Bytes, output_bytes_max: usize) -> Result<Decoder, BodyFault> {
        Ok(match codec {
            Codec::None => Decoder::Stored(body),
            // A batch without records holds no stream.
            _ if body.is_empty() => Decoder::Stored(body),
            Codec::Gzip => Decoder::Gzip(Box::new(GzDecoder::new(body.reader()))),
            Codec::Snappy => match snappy::framing_header_bytes(&body) {
                Some(header_bytes) => Decoder::SnappyFramed(body.slice(header_bytes..)),
                None => Decoder::SnappyRaw(body),
            },
            Codec::Lz4 => Decoder::Lz4Start(body),
            Codec::Zstd => {
                let mut context =
                    DCtx::try_create().ok_or(BodyFault::Malformed("no memory for a decoder"))?;
                context
                    .set_parameter(DParameter::WindowLogMax(zstd_window_log(output_bytes_max)))
                    .map_err(|code| BodyFault::Malformed(get_error_name(code)))?;
                Decoder::Zstd(context, body)
            }
        })
    }

    fn step(&mut self, output: &mut Output) -> Result<Step, StepFault> {
        match self {
            Decoder::Stored(body) => Ok(Step::Stored(body.clone())),
            Decoder::Gzip(decoder) => step_gzip(decoder, output),
            Decoder::SnappyRaw(body) => {
                snappy::open_raw_block(body, output)?;
                Ok(Step::Ended)
            }
            Decoder::SnappyFramed(rest) => {
                if rest.is_empty() {
                    return Ok(Step::Ended);
                }
                let before = output.as_slice().len();
                let taken = snappy::open_framed_block(rest, output)?;
                rest.advance(taken);
                Ok(Step::Went(taken + output.as_slice().len() - before))
            }
            Decoder::Lz4Start(body) => {
                let (frame, taken) = Lz4Frame::start(body)?;
                *self = Decoder::Lz4Blocks(frame, body.slice(taken..));
                Ok(Step::Went(taken))
            }
            Decoder::Lz4Blocks(frame, rest) => {
                let before = output.as_slice().len();
                let (taken, ended) = frame.block(rest, output)?;
                rest.advance(taken);
                if ended {
                    return end_of_stream(rest.len());
                }
                Ok(Step::Went(taken + output.as_slice().len() - before))
            }
            Decoder::Zstd(context, rest) => step_zstd(context, rest, output),
            Decoder::Spent => Err(BodyFault::Truncated.into()),
        }
    }
}

fn end_of_stream(remaining_bytes: usize) -> Result<Step, StepFault> {
    if remaining_bytes > 0 {
        return Err(BodyFault::BytesAfterStream.into());
    }
    Ok(Step::Ended)
}

fn step_gzip(
    decoder: &mut GzDecoder<Reader<Bytes>>,
    output: &mut Output,
) -> Result<Step, StepFault> {
    let input_before = decoder.get_ref().get_ref().len();
    let (_, room) = output.window_and_room(0, STEP_BYTES);
    let room_bytes = room.len();
    let read = decoder.read(room).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => BodyFault::Truncated,
        _ => BodyFault::Malformed("gzip stream"),
    });
    let written = *read.as_ref().unwrap_or(&0);
    output.commit(room_bytes, written)?;
    let input_after = decoder.get_ref().get_ref().len();
    if read? == 0 {
        return end_of_stream(input_after);
    }
    Ok(Step::Went(input_before - input_after + written))
}

fn step_zstd(
    context: &mut DCtx<'static>,
    rest: &mut Bytes,
    output: &mut Output,
) -> Result<Step, StepFault> {
    let (_, room) = output.window_and_room(0, STEP_BYTES);
    let room_bytes = room.len();
    let mut input = InBuffer::around(rest.get(..STEP_BYTES).unwrap_or(rest));
    let mut out = OutBuffer::around(room);
    let result = context.decompress_stream(&mut out, &mut input);
    let (taken, written) = (input.pos, out.pos());
    output.commit(room_bytes, written)?;
    rest.advance(taken);
    // The result is 0 once a frame has ended and all of it was given out.
    let expected_bytes = result.map_err(|code| BodyFault::Malformed(get_error_name(code)))?;
    if expected_bytes == 0 {
        return end_of_stream(rest.len());
    }
    if taken == 0 && written == 0 {
        return Err(BodyFault::Truncated.into());
    }
    Ok(Step::Went(taken + written))
}

/// The opened bytes so far, and the one place that makes room for more.
pub(crate) struct Output {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Output {
    fn new(bytes_max: usize) -> Self {
        Output {
            bytes: Vec::new(),
            bytes_max,
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The last `window_bytes` of the output (or fewer), and room for `wanted_bytes` after it. The room is
    /// smaller where the limit, and one byte to notice it by, leaves less. [`Self::commit`] must follow.
    pub(crate) fn window_and_room(
        &mut self,
        window_bytes: usize,
        wanted_bytes: usize,
    ) -> (&[u8], &mut [u8]) {
        let used = self.bytes.len();
        let ceiling = self.bytes_max.saturating_add(1);
        let room_bytes = wanted_bytes.min(ceiling.saturating_sub(used));
        let needed = used + room_bytes;
        if needed > self.bytes.capacity() {
            let target = self.bytes.capacity().saturating_mul(2).min(ceiling);
            self.bytes.reserve_exact(target.max(needed) - used);
        }
        self.bytes.resize(needed, 0);
        let (before, room) = self.bytes.split_at_mut(used);
        (&before[used.saturating_sub(window_bytes)..], room)
    }

    /// Keeps the first `written` of the `room_bytes` bytes that [`Self::window_and_room`] gave.
    pub(crate) fn commit(&mut self, room_bytes: usize, written: usize) -> Result<(), StepFault> {
        assert!(written <= room_bytes, "a decoder wrote past its room");
        self.bytes.truncate(self.bytes.len() - room_bytes + written);
        if self.bytes.len() > self.bytes_max {
            return Err(StepFault::OutputLimit);
        }
        Ok(())
    }

    /// Appends `piece` as it is.
    pub(crate) fn extend(&mut self, piece: &[u8]) -> Result<(), StepFault> {
        let (_, room) = self.window_and_room(0, piece.len());
        let room_bytes = room.len();
        if room_bytes < piece.len() {
            return Err(StepFault::OutputLimit);
        }
        room.copy_from_slice(piece);
        self.commit(room_bytes, room_bytes)
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.bytes))
    }
}
