//! Mounts a power-cut file system, and speaks to a mounted one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use corelog_tests::power_cut::{Options, PowerCut, control};

/// A file system that forgets what was not made durable.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Mounts it and serves until `unmount` is sent.
    Mount {
        /// Directory that the durable state comes from and goes back to; in memory only without it.
        #[arg(long)]
        backing: Option<PathBuf>,
        /// Existing directory to mount at.
        #[arg(long)]
        mount: PathBuf,
        /// Unix socket for commands.
        #[arg(long)]
        control: PathBuf,
        /// Lets a cut keep or tear unsynced changes by chance; without it they are all forgotten.
        #[arg(long)]
        seed: Option<u64>,
        /// Space of the disk in MiB.
        #[arg(long, default_value_t = 8192)]
        capacity_mib: u64,
        /// How long a sync takes at least, in microseconds.
        #[arg(long, default_value_t = 100)]
        sync_delay_us: u64,
    },
    /// Sends one command: cut, restore, status, stats, fail-sync and full (with a number), space, unmount.
    Send {
        /// Unix socket of the mounted file system.
        #[arg(long)]
        control: PathBuf,
        /// The command and its argument.
        #[arg(required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().action) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("power-cut: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> std::io::Result<()> {
    match action {
        Action::Mount {
            backing,
            mount,
            control,
            seed,
            capacity_mib,
            sync_delay_us,
        } => {
            let options = Options {
                seed,
                capacity_bytes: capacity_mib << 20,
                sync_delay: Duration::from_micros(sync_delay_us),
                backing,
                ..Options::default()
            };
            let mounted = PowerCut::mount(&mount, options)?;
            mounted.serve_control(&control)?;
            mounted.unmount()
        }
        Action::Send { control, command } => {
            println!("{}", control::send(&control, &command.join(" "))?);
            Ok(())
        }
    }
}
