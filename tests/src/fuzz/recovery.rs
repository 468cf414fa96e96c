//! Recovery of a whole log from damaged files.
//!
//! An input names a life of a log ([`super::log_scenarios`]) and a list of damages to its files, each of eight
//! bytes: what, which file, where (3), value (3). Some damages make the checksum right again, so that
//! what stands behind it is believed.

use bytes::Bytes;
use corelog_batch::{Codec, HEADER_BYTES, batches, verify_stored_batch};
use corelog_engine::disk::LogFile;
use corelog_engine::identity::{LeaderEpoch, Offset};
use corelog_engine::log::{LogPhase, Started, TimeQuery};
use corelog_engine::publish::VerifiedBatches;

use super::batches::{batch, repair_one};
use super::log_disk::{Files, LogOnDisk};
use super::log_scenarios::scenarios;
use super::{Allowance, Target, note};

const DAMAGES_MAX: usize = 16;
/// Kinds of damages.
const KINDS: u8 = 14;
const FRAME_HEAD_BYTES: usize = 20;
/// From one slot of the state file to the other.
const SLOT_BYTES: usize = 16 << 10;
/// An offset beyond which nothing is appended here: a log that claims to be nearly out of offsets is read only.
const OFFSET_MAX: u64 = 1 << 60;

pub(super) const TARGETS: &[Target] = &[Target {
    name: "log_recovery",
    run: recover,
    samples,
    dictionary: DAMAGES,
    repair: None,
    // Files of some hundred kilobytes, which a recovery reads by the megabyte.
    allowance: Allowance {
        allocation_bytes_max: 16 << 20,
        ..Allowance::DEFAULT
    },
}];

/// One of each kind.
const DAMAGES: &[&[u8]] = &[
    &[0, 0, 0, 0, 60, 0, 1, 7],
    &[1, 1, 0, 0, 60, 0, 1, 7],
    &[2, 2, 0, 0, 60, 0, 1, 7],
    &[3, 3, 0, 0, 60, 0, 1, 7],
    &[4, 1, 0, 0, 60, 0, 1, 7],
    &[5, 2, 0, 0, 60, 0, 1, 7],
    &[6, 0, 0, 0, 60, 0, 1, 7],
    &[7, 0, 0, 0, 60, 0, 1, 7],
    &[8, 3, 0, 0, 60, 0, 1, 7],
    &[9, 1, 0, 0, 60, 0, 1, 7],
    &[10, 1, 0, 0, 60, 0, 1, 7],
    &[11, 2, 0, 0, 60, 0, 1, 7],
    &[12, 0, 0, 0, 60, 0, 1, 7],
    &[13, 1, 0, 0, 60, 0, 1, 7],
];

/// One damage, as its eight bytes say.
struct Damage {
    what: u8,
    file: u8,
    place: usize,
    value: usize,
}

fn damages(bytes: &[u8]) -> impl Iterator<Item = Damage> + '_ {
    let pieces = bytes.chunks_exact(8).take(DAMAGES_MAX);
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    pieces.map(move |piece| Damage {
        what: piece[0],
        file: piece[1],
        place: number(&piece[2..5]),
        value: number(&piece[5..8]),
    })
}

/// It ends ready, corrupt or failed. Ready, it serves whole batches that verify, in order of offset; takes an append;
/// and, unless a small file lies under a right checksum, is the same after another start.
fn recover(input: &[u8]) {
    let Some((&life, rest)) = input.split_first() else {
        return;
    };
    let index = usize::from(life) % scenarios().len();
    let mut files = scenarios()[index].clone();
    let mut is_forged = false;
    for damage in damages(rest) {
        apply(&damage, &mut files);
        is_forged |= matches!(damage.what % KINDS, 7 | 8);
    }
    let begun = index > 0 && life < 0x80;
    note((index, begun));
    let mut log = LogOnDisk::open(files, begun);
    note(log.log.phase() as u8);
    match log.log.phase() {
        LogPhase::Ready => {}
        LogPhase::Corrupt | LogPhase::Failed => return,
        phase => unreachable!("recovery ended {phase:?}"),
    }
    let (start, end) = (log.log.start(), log.log.end());
    assert!(start <= end, "a log from {start} to {end}");
    assert_eq!(
        log.log.durable_end(),
        end,
        "recovery leaves nothing to be synced"
    );
    let read = read_all(&mut log);
    note(read.is_whole);
    find(&mut log);
    if log.log.phase() != LogPhase::Ready {
        return note("stopped by a read");
    }
    let appended = append(&mut log, is_forged);
    let end = log.log.durable_end();
    let begun = begun || log.files.is_some();
    let mut again = LogOnDisk::open(log.files, begun);
    if is_forged {
        return note(
            "a small file lies under a right checksum: what it is believed the second time is its own affair",
        );
    }
    assert_eq!(
        again.log.phase(),
        LogPhase::Ready,
        "not ready again: {:?}",
        again.progress
    );
    assert_eq!(
        again.log.durable_end(),
        end,
        "another end after another start"
    );
    let read_again = read_all(&mut again);
    if read.is_whole && appended {
        assert!(read_again.is_whole, "what was readable no longer is");
    }
    let shared = read.batches.len().min(read_again.batches.len());
    assert!(
        read.batches[..shared] == read_again.batches[..shared],
        "other batches after another start"
    );
}

/// What a log serves from its start on.
struct Served {
    batches: Vec<Bytes>,
    /// Up to the end.
    is_whole: bool,
}

fn read_all(log: &mut LogOnDisk) -> Served {
    let mut served = Served {
        batches: Vec::new(),
        is_whole: false,
    };
    let mut next = log.log.start();
    let end = log.log.durable_end();
    while next < end {
        let started = log.call(|log, _, queue| log.read(next, 2_500, end, queue));
        let Ok(pieces) = log.read_result(started) else {
            return served;
        };
        assert!(!pieces.is_empty(), "nothing below the end, at {next}");
        for piece in pieces {
            for found in batches(piece) {
                let Ok((_, batch)) = found else {
                    unreachable!("half a batch was served: {found:?}");
                };
                let verified = verify_stored_batch(&batch);
                let Ok(header) = verified else {
                    unreachable!("a batch that does not verify was served: {verified:?}");
                };
                let base = Offset(header.base_offset.unsigned_abs());
                let first = served.batches.is_empty();
                assert!(
                    base == next || (first && base <= next),
                    "offset {base} was served where {next} was due"
                );
                next = Offset(header.next_offset().unsigned_abs());
                served.batches.push(batch);
            }
        }
        assert!(next <= end, "records past the end were served");
    }
    served.is_whole = true;
    served
}

fn find(log: &mut LogOnDisk) {
    let up_to = log.log.durable_end();
    for query in [TimeQuery::AtOrAfterMs(1_004), TimeQuery::Largest] {
        let started = log.call(|log, _, queue| log.find_time(query, up_to, queue));
        log.run();
        if let Started::Pending(id) = started {
            assert!(log.is_found(id), "a look-up without a result");
        }
        if log.log.phase() != LogPhase::Ready {
            return;
        }
    }
}

/// Whether it could; a log whose small files lie may stop instead.
fn append(log: &mut LogOnDisk, is_forged: bool) -> bool {
    let promised = log.log.promised();
    if log.log.end().get() > OFFSET_MAX || promised.get() == i32::MAX as u32 {
        return false;
    }
    let epoch = LeaderEpoch(promised.get() + 1);
    log.call(|log, _, queue| log.begin_epoch(epoch, queue));
    log.run();
    let own = VerifiedBatches::own(Bytes::from(batch(Codec::None, 3, None)));
    let appended = log.call(|log, now, queue| log.append(own, epoch, now, queue));
    log.run();
    if is_forged && log.log.phase() != LogPhase::Ready {
        return false;
    }
    assert_eq!(
        log.log.durable_end(),
        appended.end_offset,
        "an append that does not become durable"
    );
    true
}

fn apply(damage: &Damage, files: &mut Files) {
    let Some(there) = files else { return };
    let Some(name) = there
        .keys()
        .nth(usize::from(damage.file) % there.len().max(1))
        .copied()
    else {
        return;
    };
    let Some(bytes) = there.get_mut(&name) else {
        return;
    };
    let place = damage.place % bytes.len().max(1);
    match damage.what % KINDS {
        0 => bytes
            .iter_mut()
            .skip(place)
            .take(1)
            .for_each(|byte| *byte ^= 1 << (damage.value % 8)),
        1 => overwrite(bytes, place, damage.value),
        2 => bytes.truncate(place),
        3 => bytes.resize(bytes.len() + damage.value % 20_000, 0),
        4 => drop(there.remove(&name)),
        5 => bytes
            .iter_mut()
            .skip(place)
            .take(damage.value % 9_000)
            .for_each(|byte| *byte = 0),
        6 => copy_block(bytes, place, damage.value),
        7 | 8 => in_frame(name, bytes, |body| {
            overwrite(body, damage.place, damage.value)
        }),
        9 => in_batch(bytes, damage.place, |batch| {
            overwrite(batch, damage.value, damage.value >> 8)
        }),
        10 => in_batch(bytes, damage.place, |batch| {
            overwrite(batch, damage.value % HEADER_BYTES, damage.value >> 8);
            repair_one(batch);
        }),
        11 => {
            let copy = bytes.clone();
            there.insert(renamed(name, damage.value as u64), copy);
        }
        12 => {
            let other = scenarios()[damage.value % scenarios().len()].as_ref();
            if let Some(other) = other.and_then(|files| files.get(&name)) {
                bytes.clone_from(other);
            }
        }
        _ => bytes.rotate_left(place),
    }
}

/// Puts a number that confuses where a field may stand.
fn overwrite(bytes: &mut [u8], place: usize, value: usize) {
    let numbers = [
        0,
        1,
        -1,
        i64::MAX,
        i64::MIN,
        0x7fff_ffff,
        0xffff_ffff,
        (value >> 8) as i64,
        bytes.len() as i64,
        (value >> 4) as i64 * 9,
    ];
    let number = numbers[value % numbers.len()].to_be_bytes();
    let width = 1 << (value / numbers.len() % 4);
    let place = place % bytes.len().max(1);
    for (byte, new) in bytes.iter_mut().skip(place).zip(&number[8 - width..]) {
        *byte = *new;
    }
}

fn copy_block(bytes: &mut [u8], place: usize, value: usize) {
    let (from, to) = (place / 512 * 512, value % bytes.len().max(1) / 512 * 512);
    let length = bytes.len() - from.max(to);
    bytes.copy_within(from..from + length.min(512 << (value % 4)), to);
}

/// Changes the body of a small file's frame (of both slots, or one, of a state file) under a right checksum.
fn in_frame(name: LogFile, bytes: &mut [u8], change: impl Fn(&mut [u8])) {
    let slots = match name {
        LogFile::State => 2,
        LogFile::Segment(_) => 0,
        _ => 1,
    };
    for slot in 0..slots {
        let Some(frame) = bytes.get_mut(slot * SLOT_BYTES..) else {
            return;
        };
        let Some(length) = frame.get(12..16).map(|length| {
            length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        }) else {
            return;
        };
        let Some(body) = frame.get_mut(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + length) else {
            continue;
        };
        change(body);
        let crc = crc32c::crc32c_append(
            crc32c::crc32c(&frame[..16]),
            &frame[FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + length],
        );
        frame[16..20].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Changes one batch of a segment.
fn in_batch(bytes: &mut [u8], which: usize, change: impl Fn(&mut [u8])) {
    let mut places = Vec::new();
    let mut start = 0;
    while let Ok(header) = verify_stored_batch_at(bytes, start) {
        places.push(start..start + header);
        start += header;
    }
    if let Some(place) = places.get(which % places.len().max(1)) {
        change(&mut bytes[place.clone()]);
    }
}

/// Length of the batch that stands at `start`.
fn verify_stored_batch_at(bytes: &[u8], start: usize) -> Result<usize, corelog_batch::BatchError> {
    let rest = bytes.get(start..).unwrap_or_default();
    let header = corelog_batch::BatchHeader::parse(rest)?;
    let batch = rest.get(..header.batch_bytes()).unwrap_or(rest);
    verify_stored_batch(batch).map(|header| header.batch_bytes())
}

/// The same kind of file under another offset.
fn renamed(name: LogFile, value: u64) -> LogFile {
    let offset = match value % 3 {
        0 => Offset(value >> 8),
        1 => Offset(i64::MAX as u64),
        _ => Offset(9 * (value >> 12)),
    };
    match name {
        LogFile::State | LogFile::Segment(_) => LogFile::Segment(offset),
        LogFile::OffsetIndex(_) => LogFile::OffsetIndex(offset),
        LogFile::TimeIndex(_) => LogFile::TimeIndex(offset),
        LogFile::Seal(_) => LogFile::Seal(offset),
        LogFile::Producers(_) => LogFile::Producers(offset),
    }
}

/// Every life, begun or not as the metadata has it. Damages are eight bytes each, so the fuzzer finds them by itself.
fn samples() -> Vec<Vec<u8>> {
    (0..scenarios().len() as u8)
        .flat_map(|life| [vec![life], vec![life | 0x80]])
        .collect()
}
