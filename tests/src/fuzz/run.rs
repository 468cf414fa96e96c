//! The loop: change, execute, judge, keep what was new.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::allocation::{self, Usage};
use super::{Target, mutate, take_outcome};
use crate::power_cut::seeded::Seeded;

/// Inputs kept for one target and thread.
const CORPUS_MAX: usize = 2_000;
/// An execution that takes this long does not end by itself any more.
const HANG: Duration = Duration::from_secs(120);
/// Failures after which a target is given up.
const FAILURES_MAX: u64 = 5;
const THREADS_MAX: usize = 2;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The targets, in order; the time is shared equally.
    pub targets: Vec<Target>,
    /// The whole time.
    pub time: Duration,
    /// A run with the same seed makes the same inputs in the same order, as far as its time reaches.
    pub seed: u64,
    /// At most 2.
    pub threads: usize,
    /// Where failing inputs are saved.
    pub folder: PathBuf,
}

/// An input being executed, for the panic hook and the watch over hangs.
struct Execution {
    target: &'static str,
    input: Vec<u8>,
    since: Instant,
}

static EXECUTIONS: [Mutex<Option<Execution>>; THREADS_MAX] = [Mutex::new(None), Mutex::new(None)];
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);
static FAILURES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Fuzzes, and returns how many failures there were.
///
/// # Errors
/// When the folder for failing inputs cannot be made.
pub fn fuzz(plan: &Plan) -> io::Result<u64> {
    fs::create_dir_all(&plan.folder)?;
    *lock(&FOLDER) = Some(plan.folder.clone());
    report_panics();
    let share = plan.time / u32::try_from(plan.targets.len().max(1)).unwrap_or(1);
    for target in &plan.targets {
        let before = FAILURES.load(Ordering::Relaxed);
        let deadline = Instant::now() + share;
        let executions = run_threads(target, plan, deadline);
        let failures = FAILURES.load(Ordering::Relaxed) - before;
        println!(
            "{:24} {executions:>9} executions, {failures} failures",
            target.name
        );
    }
    Ok(FAILURES.load(Ordering::Relaxed))
}

/// Executes one saved input under the same rules.
///
/// # Errors
/// When the file cannot be read.
pub fn reproduce(target: &Target, file: &Path) -> io::Result<bool> {
    *lock(&FOLDER) = None;
    report_panics();
    let input = fs::read(file)?;
    execute(target, &input);
    Ok(FAILURES.load(Ordering::Relaxed) == 0)
}

/// Writes the samples of each target into a folder of its name.
///
/// # Errors
/// When they cannot be written.
pub fn write_corpus(targets: &[Target], folder: &Path) -> io::Result<()> {
    for target in targets {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, sample) in (target.samples)().iter().enumerate() {
            fs::write(folder.join(format!("sample-{number}")), sample)?;
        }
    }
    Ok(())
}

fn run_threads(target: &Target, plan: &Plan, deadline: Instant) -> u64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads.clamp(1, THREADS_MAX))
            .map(|thread| {
                let seed = plan.seed.wrapping_mul(31).wrapping_add(thread as u64);
                scope.spawn(move || {
                    THREAD.set(thread);
                    run_thread(target, seed, deadline)
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            exit_if_hanging();
            std::thread::sleep(Duration::from_millis(20));
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(0))
            .sum()
    })
}

fn run_thread(target: &Target, seed: u64, deadline: Instant) -> u64 {
    let mut random = Seeded::new(seed);
    let mut corpus = (target.samples)();
    let mut outcomes = HashSet::new();
    for sample in &corpus {
        outcomes.insert(execute(target, sample));
    }
    let failures_before = FAILURES.load(Ordering::Relaxed);
    let mut executions = corpus.len() as u64;
    while Instant::now() < deadline
        && FAILURES.load(Ordering::Relaxed) - failures_before < FAILURES_MAX
    {
        let mut input = mutate::mutated(&corpus, target.dictionary, &mut random);
        if let Some(repair) = target.repair
            && random.below(4) != 0
        {
            repair(&mut input);
        }
        let is_new = outcomes.insert(execute(target, &input));
        executions += 1;
        if is_new && corpus.len() < CORPUS_MAX {
            corpus.push(input);
        }
    }
    executions
}

/// Executes one input, reports a failure, and tells what was noted.
fn execute(target: &Target, input: &[u8]) -> u64 {
    let slot = &EXECUTIONS[THREAD.get()];
    *lock(slot) = Some(Execution {
        target: target.name,
        input: input.to_vec(),
        since: Instant::now(),
    });
    take_outcome();
    let allocation_bytes_max = target.allowance.allocation_bytes_for(input.len());
    let measured = panic::catch_unwind(AssertUnwindSafe(|| {
        allocation::measure(allocation_bytes_max, || (target.run)(input))
    }));
    match measured {
        Ok(usage) => judge(target, allocation_bytes_max, &usage),
        // The hook has reported it.
        Err(_) => drop(allocation::stop()),
    }
    *lock(slot) = None;
    take_outcome()
}

fn judge(target: &Target, allocation_bytes_max: usize, usage: &Usage) {
    if usage.largest_bytes > allocation_bytes_max {
        fail(&format!(
            "one allocation of {} bytes, {allocation_bytes_max} are explained by the input; at\n{}",
            usage.largest_bytes,
            usage.place.as_deref().unwrap_or("an unknown place")
        ));
    }
    if usage.held_bytes_most > target.allowance.held_bytes_max {
        fail(&format!(
            "{} bytes held at once, {} are allowed",
            usage.held_bytes_most, target.allowance.held_bytes_max
        ));
    }
}

/// Saves the present input of this thread and tells how to run it again.
fn fail(reason: &str) {
    report(THREAD.get(), reason);
}

/// As [`fail`], for what cannot be survived.
pub(super) fn fail_and_exit(reason: &str) -> ! {
    fail(reason);
    std::process::exit(1)
}

fn report(thread: usize, reason: &str) {
    FAILURES.fetch_add(1, Ordering::Relaxed);
    let slot = EXECUTIONS.get(thread).map(lock);
    let Some(execution) = slot.as_deref().and_then(Option::as_ref) else {
        return eprintln!("FAILURE outside of an execution: {reason}");
    };
    let mut out = io::stderr().lock();
    let _ = writeln!(out, "FAILURE of {}: {reason}", execution.target);
    let Some(folder) = lock(&FOLDER).clone() else {
        return;
    };
    let name = format!(
        "{}-{:08x}",
        execution.target,
        crc32c::crc32c(&execution.input)
    );
    let file = folder.join(name);
    let _ = match fs::write(&file, &execution.input) {
        Ok(()) => writeln!(
            out,
            "reproduce: fuzz --target {} --reproduce {}",
            execution.target,
            file.display()
        ),
        Err(error) => writeln!(out, "the input could not be saved: {error}"),
    };
}

/// Panics are reported where they happen: the release profile ends the process with the first one.
fn report_panics() {
    panic::set_hook(Box::new(|info| {
        let counted = allocation::stop();
        let place = std::backtrace::Backtrace::force_capture();
        fail(&format!("{info}\n{place}"));
        drop(counted);
        if cfg!(panic = "abort") {
            std::process::exit(1);
        }
    }));
}

fn exit_if_hanging() {
    for (thread, execution) in EXECUTIONS.iter().enumerate() {
        let is_hanging = lock(execution)
            .as_ref()
            .is_some_and(|execution| execution.since.elapsed() > HANG);
        if is_hanging {
            report(thread, "an execution that does not end");
            std::process::exit(1);
        }
    }
}
