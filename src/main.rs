//! The corelog binary: a command line over the crates that do the work.

mod bench;
mod command;
mod failure;
mod output;
mod settings;
mod signals;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::output::Output;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A distributed message queue: thread per core, honest acknowledgements.
#[derive(Debug, Parser)]
#[command(name = "corelog", version)]
struct CommandLine {
    /// Machine-readable output: one JSON object, or one on each line.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "made once, matched at once")]
enum Command {
    /// Start a broker on this machine, for development: no configuration, loopback only.
    Dev(command::broker::DevArguments),
    /// Start a broker from a configuration file.
    Serve(command::broker::ServeArguments),
    /// Create, list, describe and delete topics.
    #[command(subcommand)]
    Topic(command::topic::TopicCommand),
    /// Publish lines of a file or of the standard input.
    Publish(command::publish::PublishArguments),
    /// Print records of a topic.
    Consume(command::consume::ConsumeArguments),
    /// List and describe consumer groups.
    #[command(subcommand)]
    Group(command::group::GroupCommand),
    /// Read segment files without a broker.
    #[command(subcommand)]
    Log(command::log::LogCommand),
    /// Put load on a broker and measure it.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Measure the hardware through the broker's own code.
    #[command(subcommand)]
    Tune(command::tune::TuneCommand),
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let output = Output::new(line.json);
    match run(line.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output.failure(&failure),
    }
}

fn run(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Dev(arguments) => command::broker::dev(&arguments, output),
        Command::Serve(arguments) => command::broker::serve(arguments, output),
        Command::Topic(command) => command::topic::run(&command, output),
        Command::Publish(arguments) => command::publish::run(&arguments, output),
        Command::Consume(arguments) => command::consume::run(&arguments, output),
        Command::Group(command) => command::group::run(&command, output),
        Command::Log(command) => command::log::run(&command, output),
        Command::Bench(command) => bench::run(&command, output),
        Command::Tune(command) => command::tune::run(&command, output),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_documented_command_is_understood() {
        for line in [
            "corelog dev --data-dir d --cores 2 --kafka-port 0 --http-port 0 --json",
            "corelog serve --config f.toml",
            "corelog serve --print-settings",
            "corelog topic create t --partitions 3 --config retention.ms=1000",
            "corelog topic list --bootstrap h:1",
            "corelog topic describe t --json",
            "corelog topic delete t",
            "corelog publish t --file f --key-field 1 --field-separator ,",
            "corelog publish t --key K",
            "corelog consume t --group g --from earliest --max 5",
            "corelog consume t --from 2026-01-02T03:04:05Z",
            "corelog consume t --from 17",
            "corelog group list",
            "corelog group describe g",
            "corelog log verify p",
            "corelog log inspect p --json",
            "corelog bench publish --bootstrap h:1 --topic t --partitions 4 --producers 2 \
             --record-bytes 100 --batch-bytes 1000 --in-flight 4 --linger-ms 1 --keys 10 --rate max \
             --seconds 1 --broker-pid 1 --json",
            "corelog bench publish --topic t --rate 1000",
            "corelog bench consume --topic t --seconds 1",
            "corelog tune disk --data-dir d --seconds 12 --json",
        ] {
            let parsed = CommandLine::try_parse_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn contradictions_and_nonsense_are_usage_errors() {
        for line in [
            "corelog",
            "corelog publish",
            "corelog publish t --key K --key-field 1",
            "corelog publish t --key-field 0",
            "corelog consume t --from yesterday",
            "corelog bench publish --topic t --rate fast",
            "corelog topic create t --partitions 0",
            "corelog serve --config f --cores many",
        ] {
            let parsed = CommandLine::try_parse_from(line.split_whitespace());
            assert!(parsed.is_err(), "{line}");
        }
    }
}
