//! `bench publish|consume`: load and its measurement. It works against any broker that speaks Kafka's wire.

mod broker_process;
mod consume;
mod precise_timer;
mod producer;
mod publish;
mod report;
mod workload;

use clap::Subcommand;

use crate::failure::Failure;
use crate::output::Output;
use crate::signals::runtime;

/// Which load.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Publish on schedule and measure acknowledgements.
    Publish(publish::PublishArguments),
    /// Consume and measure throughput.
    Consume(consume::ConsumeArguments),
}

/// Runs the command, on this thread alone: the broker needs the other CPUs.
pub fn run(command: &BenchCommand, output: &Output) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match command {
            BenchCommand::Publish(arguments) => publish::run(arguments, output).await,
            BenchCommand::Consume(arguments) => consume::run(arguments, output).await,
        }
    })
}
