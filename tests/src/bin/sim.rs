//! Runs the simulator over seeds.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::{Parser, ValueEnum};
use corelog_tests::sim::plan::{Mode, Options};
use corelog_tests::sim::teeth::Tooth;
use corelog_tests::sim::{self, Outcome};

/// Runs seeds of the simulated broker and tells of the first rule that does not hold.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after another.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Print what happened, of a single seed or of the one that fails.
    #[arg(long)]
    trace: bool,
    /// Ten times as many events in each seed.
    #[arg(long)]
    long: bool,
    /// Only this kind of faults; otherwise the seed decides.
    #[arg(long, value_enum)]
    mode: Option<ModeArgument>,
    /// Break this promise in secret: a rule should not hold.
    #[arg(long, value_enum)]
    tooth: Option<Tooth>,
    /// Seeds that run at the same time.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Go on after a violation, and list all seeds that have one.
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeArgument {
    Crash,
    Media,
}

thread_local! {
    static SEED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// What all threads share.
#[derive(Default)]
struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    events: AtomicU64,
    violations: AtomicU64,
    is_over: AtomicBool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        eprintln!("seed {}: an assertion of the engine failed", SEED.get());
        before(panic);
    }));
    let shared = Shared::default();
    std::thread::scope(|scope| {
        for thread in 0..arguments.threads.clamp(1, arguments.seeds.max(1)) {
            let (arguments, shared) = (&arguments, &shared);
            scope.spawn(move || run_seeds(arguments, shared, thread == 0));
        }
    });
    let violations = shared.violations.load(Ordering::Relaxed);
    println!(
        "{} seeds, {} events, {violations} violations",
        shared.done.load(Ordering::Relaxed),
        shared.events.load(Ordering::Relaxed),
    );
    if violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_seeds(arguments: &Arguments, shared: &Shared, tells: bool) {
    let options = Options {
        keeps_trace: arguments.trace,
        is_long: arguments.long,
        mode: arguments.mode.map(|mode| match mode {
            ModeArgument::Crash => Mode::Crash,
            ModeArgument::Media => Mode::Media,
        }),
        tooth: arguments.tooth,
    };
    let is_terminal = std::io::stderr().is_terminal();
    while !shared.is_over.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= arguments.seeds {
            return;
        }
        let seed = arguments.seed + number;
        SEED.set(seed);
        let outcome = sim::run(seed, &options);
        let done = shared.done.fetch_add(1, Ordering::Relaxed) + 1;
        shared.events.fetch_add(outcome.events, Ordering::Relaxed);
        if tells && is_terminal && done % 50 < 2 {
            eprint!("\r{done} of {} seeds", arguments.seeds);
            let _ = std::io::stderr().flush();
        }
        let is_asked_for = arguments.trace && arguments.seeds == 1;
        if outcome.violation.is_some() || is_asked_for {
            print(seed, &outcome);
        }
        if outcome.violation.is_some() {
            shared.violations.fetch_add(1, Ordering::Relaxed);
            shared.is_over.fetch_or(!arguments.all, Ordering::Relaxed);
        }
    }
}

fn print(seed: u64, outcome: &Outcome) {
    let mut out = std::io::stdout().lock();
    for line in &outcome.trace {
        let _ = writeln!(out, "{line}");
    }
    if let Some(violation) = &outcome.violation {
        let _ = writeln!(
            out,
            "seed {seed}: {violation} (after {} events)",
            outcome.events
        );
    }
}
