//! Commands over a Unix socket: one line in, one line out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Mutex;

use super::disk::Disk;
use super::mount::lock;

/// The longest command line that is read.
const LINE_BYTES_MAX: u64 = 256;

/// What a command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Cut the power.
    Cut,
    /// Bring it back.
    Restore,
    /// Tell whether it is on and how many changes a cut would endanger.
    Status,
    /// Tell the counts as JSON.
    Stats,
    /// Let the next syncs fail.
    FailSync(u64),
    /// Leave only so many bytes free.
    Full(u64),
    /// Take the limit of space away.
    Space,
    /// Unmount and end.
    Unmount,
}

/// Reads one command line; none when it is not one.
pub fn parse(line: &str) -> Option<Command> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["cut"] => Some(Command::Cut),
        ["restore"] => Some(Command::Restore),
        ["status"] => Some(Command::Status),
        ["stats"] => Some(Command::Stats),
        ["fail-sync"] => Some(Command::FailSync(1)),
        ["fail-sync", count] => count.parse().ok().map(Command::FailSync),
        ["full"] => Some(Command::Full(0)),
        ["full", free_bytes] => free_bytes.parse().ok().map(Command::Full),
        ["space"] => Some(Command::Space),
        ["unmount"] => Some(Command::Unmount),
        _ => None,
    }
}

/// Carries out a command on the disk and tells the answer.
pub fn carry_out(command: Command, disk: &Mutex<Disk>) -> String {
    let mut disk = lock(disk);
    match command {
        Command::Cut => disk.cut(),
        Command::Restore => disk.restore(),
        Command::FailSync(count) => disk.fail_syncs(count),
        Command::Full(free_bytes) => disk.limit_free_bytes(Some(free_bytes)),
        Command::Space => disk.limit_free_bytes(None),
        Command::Unmount => {}
        Command::Status => {
            let power = if disk.powered() { "on" } else { "cut" };
            let operations = disk.counts().operations;
            let unsynced = disk.unsynced_count();
            return format!("power={power} operations={operations} unsynced={unsynced}");
        }
        Command::Stats => {
            return serde_json::to_string(disk.counts()).unwrap_or_else(|error| error.to_string());
        }
    }
    "ok".to_owned()
}

/// Serves commands at `socket` until one of them is `unmount`.
///
/// # Errors
/// When the socket cannot be made. A broken connection ends that connection only.
pub fn serve(socket: &Path, disk: &Mutex<Disk>) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    for stream in listener.incoming() {
        if matches!(answer(stream?, disk), Ok(Some(Command::Unmount))) {
            break;
        }
    }
    std::fs::remove_file(socket)
}

fn answer(stream: UnixStream, disk: &Mutex<Disk>) -> io::Result<Option<Command>> {
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let command = parse(&line);
    let text = match command {
        Some(command) => carry_out(command, disk),
        None => {
            "error: want cut, restore, status, stats, fail-sync [N], full [BYTES], space or unmount"
                .to_owned()
        }
    };
    writeln!(&stream, "{text}")?;
    Ok(command)
}

/// Sends one command line to a mounted file system and gives the answer back.
///
/// # Errors
/// When nothing listens at `socket`.
pub fn send(socket: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}
