//! `topic create|list|describe|delete`.

use clap::{Args, Subcommand};
use corelog_client::transport::NewTopic;
use serde::Serialize;

use super::Bootstrap;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::runtime;

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create a topic.
    Create(CreateArguments),
    /// List the topics.
    List(ListArguments),
    /// Show partitions, leaders, offsets and settings of a topic.
    Describe(NameArguments),
    /// Delete a topic and all its records.
    Delete(NameArguments),
}

/// Arguments of `create`.
#[derive(Args, Debug)]
pub struct CreateArguments {
    /// The topic.
    topic: String,
    /// How many partitions; without it the broker's default.
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// How many replicas of each partition; without it the broker's default.
    #[arg(long, value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// A setting by its Kafka name, such as retention.ms=86400000. May be given several times.
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = parse_config)]
    configs: Vec<(String, String)>,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

/// Arguments of `list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// Also those that belong to the broker.
    #[arg(long)]
    internal: bool,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

/// Arguments of `describe` and `delete`.
#[derive(Args, Debug)]
pub struct NameArguments {
    /// The topic.
    topic: String,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

#[derive(Serialize)]
struct Changed<'a> {
    topic: &'a str,
    status: &'static str,
}

#[derive(Serialize)]
struct Listed {
    topic: String,
    partitions: usize,
    internal: bool,
}

#[derive(Serialize)]
struct Described {
    topic: String,
    id: String,
    partitions: Vec<DescribedPartition>,
    settings: Vec<DescribedSetting>,
}

#[derive(Serialize)]
struct DescribedPartition {
    partition: i32,
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<i32>,
    earliest: i64,
    latest: i64,
}

#[derive(Serialize)]
struct DescribedSetting {
    name: String,
    value: Option<String>,
}

fn parse_config(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("give NAME=VALUE, such as retention.ms=86400000")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the command.
pub fn run(command: &TopicCommand, output: &Output) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match command {
            TopicCommand::Create(arguments) => create(arguments, output).await,
            TopicCommand::List(arguments) => list(arguments, output).await,
            TopicCommand::Describe(arguments) => describe(arguments, output).await,
            TopicCommand::Delete(arguments) => delete(arguments, output).await,
        }
    })
}

async fn create(arguments: &CreateArguments, output: &Output) -> Result<(), Failure> {
    let mut client = arguments.bootstrap.connect().await?;
    client
        .create_topic(&NewTopic {
            name: arguments.topic.clone(),
            partitions: arguments.partitions.unwrap_or(-1),
            replication_factor: arguments.replication_factor.unwrap_or(-1),
            configs: arguments.configs.clone(),
        })
        .await?;
    let changed = Changed {
        topic: &arguments.topic,
        status: "created",
    };
    output.result(&changed, |changed| {
        format!("created topic {}", changed.topic)
    })
}

async fn list(arguments: &ListArguments, output: &Output) -> Result<(), Failure> {
    let mut client = arguments.bootstrap.connect().await?;
    client.refresh(None).await?;
    for (name, topic) in client.metadata().topics() {
        if topic.is_internal && !arguments.internal {
            continue;
        }
        let listed = Listed {
            topic: name.clone(),
            partitions: topic.partitions.len(),
            internal: topic.is_internal,
        };
        output.result(&listed, |listed| {
            format!("{}\t{} partitions", listed.topic, listed.partitions)
        })?;
    }
    Ok(())
}

async fn describe(arguments: &NameArguments, output: &Output) -> Result<(), Failure> {
    let mut client = arguments.bootstrap.connect().await?;
    let name = &arguments.topic;
    let offsets = client.partition_offsets(name).await?;
    let settings = client.topic_settings(name).await?;
    let Some(topic) = client.metadata().topic(name) else {
        return Err(Failure::new(format!("topic {name} was deleted meanwhile")));
    };
    let partitions = topic.partitions.iter().zip(offsets);
    let partitions = partitions.map(|((partition, metadata), offsets)| DescribedPartition {
        partition: *partition,
        leader: metadata.leader,
        leader_epoch: metadata.leader_epoch,
        replicas: metadata.replicas.clone(),
        earliest: offsets.earliest,
        latest: offsets.latest,
    });
    let described = Described {
        topic: name.clone(),
        id: topic.id.to_string(),
        partitions: partitions.collect(),
        settings: settings
            .into_iter()
            .map(|(name, value)| DescribedSetting { name, value })
            .collect(),
    };
    output.result(&described, describe_text)
}

fn describe_text(described: &Described) -> String {
    let mut text = format!("topic {} ({})", described.topic, described.id);
    for partition in &described.partitions {
        let leader = partition
            .leader
            .map_or("none".to_owned(), |id| id.to_string());
        text += &format!(
            "\n  partition {}: offsets {} to {}, leader {leader} (epoch {}), replicas {:?}",
            partition.partition,
            partition.earliest,
            partition.latest,
            partition.leader_epoch,
            partition.replicas
        );
    }
    for setting in &described.settings {
        let value = setting.value.as_deref().unwrap_or("(none)");
        text += &format!("\n  {} = {value}", setting.name);
    }
    text
}

async fn delete(arguments: &NameArguments, output: &Output) -> Result<(), Failure> {
    let mut client = arguments.bootstrap.connect().await?;
    client.delete_topic(&arguments.topic).await?;
    let changed = Changed {
        topic: &arguments.topic,
        status: "deleted",
    };
    output.result(&changed, |changed| {
        format!("deleted topic {}", changed.topic)
    })
}
