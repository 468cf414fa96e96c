//! `group list|describe`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::Bootstrap;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::runtime;

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List the groups.
    List(ListArguments),
    /// Show members, positions and lag of a group.
    Describe(DescribeArguments),
}

/// Arguments of `list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    #[command(flatten)]
    bootstrap: Bootstrap,
}

/// Arguments of `describe`.
#[derive(Args, Debug)]
pub struct DescribeArguments {
    /// The group.
    group: String,
    #[command(flatten)]
    bootstrap: Bootstrap,
}

#[derive(Serialize)]
struct Listed {
    group: String,
    state: String,
    protocol_type: String,
}

#[derive(Serialize)]
struct Described {
    group: String,
    state: String,
    members: Vec<DescribedMember>,
    positions: Vec<DescribedPosition>,
}

#[derive(Serialize)]
struct DescribedMember {
    member: String,
    client: String,
    host: String,
}

#[derive(Serialize)]
struct DescribedPosition {
    topic: String,
    partition: i32,
    offset: i64,
    latest: Option<i64>,
    lag_records: Option<i64>,
}

/// Runs the command.
pub fn run(command: &GroupCommand, output: &Output) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match command {
            GroupCommand::List(arguments) => list(arguments, output).await,
            GroupCommand::Describe(arguments) => describe(arguments, output).await,
        }
    })
}

async fn list(arguments: &ListArguments, output: &Output) -> Result<(), Failure> {
    let mut client = arguments.bootstrap.connect().await?;
    for group in client.groups().await? {
        let listed = Listed {
            group: group.group_id.to_string(),
            state: group.group_state.to_string(),
            protocol_type: group.protocol_type.to_string(),
        };
        output.result(&listed, |listed| {
            format!("{}\t{}", listed.group, listed.state)
        })?;
    }
    Ok(())
}

async fn describe(arguments: &DescribeArguments, output: &Output) -> Result<(), Failure> {
    let mut client = arguments.bootstrap.connect().await?;
    let (group, stored) = client.describe_group(&arguments.group).await?;
    let mut ends: BTreeMap<(String, i32), i64> = BTreeMap::new();
    let mut topics: Vec<&String> = stored.iter().map(|(topic, _, _)| topic).collect();
    topics.dedup();
    for topic in topics {
        // The topic may be gone; its positions are shown all the same, without a lag.
        if let Ok(offsets) = client.partition_offsets(topic).await {
            let of_topic = offsets.into_iter();
            ends.extend(of_topic.map(|one| ((topic.clone(), one.partition), one.latest)));
        }
    }
    let members = group.members.iter().map(|member| DescribedMember {
        member: member.member_id.to_string(),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
    });
    let positions = stored.into_iter().map(|(topic, partition, offset)| {
        let latest = ends.get(&(topic.clone(), partition)).copied();
        DescribedPosition {
            topic,
            partition,
            offset,
            latest,
            lag_records: latest.map(|latest| (latest - offset).max(0)),
        }
    });
    let described = Described {
        group: arguments.group.clone(),
        state: group.group_state.to_string(),
        members: members.collect(),
        positions: positions.collect(),
    };
    output.result(&described, describe_text)
}

fn describe_text(described: &Described) -> String {
    let mut text = format!("group {}: {}", described.group, described.state);
    for member in &described.members {
        text += &format!(
            "\n  member {} ({} at {})",
            member.member, member.client, member.host
        );
    }
    for position in &described.positions {
        let lag = position
            .lag_records
            .map_or("unknown".to_owned(), |lag| lag.to_string());
        text += &format!(
            "\n  {}/{}: at {}, lag {lag}",
            position.topic, position.partition, position.offset
        );
    }
    text
}
