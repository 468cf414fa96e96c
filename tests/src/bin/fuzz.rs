//! Throws hostile bytes at every decoder and at the recovery of logs; see `corelog_tests::fuzz`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use corelog_tests::fuzz::allocation::Counting;
use corelog_tests::fuzz::{run, target_named, targets};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Parser)]
#[command(about = "Throws hostile bytes at every decoder and at the recovery of logs")]
struct Arguments {
    /// The whole time, shared by the targets.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// One target alone; may be given more than once.
    #[arg(long)]
    target: Vec<String>,
    /// What the inputs follow from; drawn from the clock without it.
    #[arg(long)]
    seed: Option<u64>,
    /// List the targets.
    #[arg(long)]
    list: bool,
    /// Execute one saved input of the one target given.
    #[arg(long, value_name = "FILE")]
    reproduce: Option<PathBuf>,
    /// Write the valid inputs of the targets to folders in this one, for other fuzzers to begin from.
    #[arg(long, value_name = "FOLDER")]
    write_corpus: Option<PathBuf>,
    /// Where failing inputs are saved.
    #[arg(long, default_value = "fuzz-failures")]
    failures: PathBuf,
    /// At most 2.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for target in targets() {
            println!("{}", target.name);
        }
        return ExitCode::SUCCESS;
    }
    let mut chosen = Vec::new();
    for name in &arguments.target {
        let Some(target) = target_named(name) else {
            eprintln!("no target {name}; --list shows them");
            return ExitCode::from(2);
        };
        chosen.push(target);
    }
    if let Some(file) = &arguments.reproduce {
        let [target] = chosen.as_slice() else {
            eprintln!("--reproduce needs one --target");
            return ExitCode::from(2);
        };
        return verdict(run::reproduce(target, file).map(|passed| u64::from(!passed)));
    }
    if chosen.is_empty() {
        chosen = targets();
    }
    if let Some(folder) = &arguments.write_corpus {
        return verdict(run::write_corpus(&chosen, folder).map(|()| 0));
    }
    let from_clock = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    };
    let seed = arguments.seed.unwrap_or_else(from_clock);
    println!("seed {seed}");
    verdict(run::fuzz(&run::Plan {
        targets: chosen,
        time: Duration::from_secs(arguments.seconds),
        seed,
        threads: arguments.threads,
        folder: arguments.failures,
    }))
}

fn verdict(failures: std::io::Result<u64>) -> ExitCode {
    match failures {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            eprintln!("{failures} failures");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}
