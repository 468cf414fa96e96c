//! What became of each message of a publish.

use corelog_engine::rejection::Rejection;
use corelog_engine::request::{Durability, Published};
use serde::Serialize;

use super::answer::Answer;
use super::problem::{PartProblem, shared_rejection};
use super::publish_plan::PublishPlan;

#[derive(Serialize)]
struct PublishedView<'a> {
    messages: Vec<MessageView<'a>>,
    failed: usize,
    durability: &'static str,
}

#[derive(Serialize)]
struct MessageView<'a> {
    status: &'static str,
    partition: u32,
    offset: Option<u64>,
    message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<PartProblem>,
    #[serde(skip)]
    rejection: Option<Rejection>,
}

/// The answer to a publish, from the engine's answer to each planned batch, in the plan's order.
///
/// # Panics
///
/// If `outcomes` is not as long as the plan's batches: whoever publishes has an answer to each.
pub fn publish_answer(plan: &PublishPlan, outcomes: &[Result<Published, Rejection>]) -> Answer {
    assert_eq!(
        plan.batches.len(),
        outcomes.len(),
        "every planned batch has one outcome"
    );
    let mut views: Vec<MessageView<'_>> = plan
        .messages
        .iter()
        .map(|message| {
            let refusal = message.refusal.as_ref();
            MessageView {
                status: "rejected",
                partition: message.partition.get(),
                offset: None,
                message_id: Some(&message.message_id),
                error: refusal.map(|r| PartProblem::new(r.rejection, Some(r.detail.clone()))),
                rejection: refusal.map(|r| r.rejection),
            }
        })
        .collect();
    for (batch, outcome) in plan.batches.iter().zip(outcomes) {
        for (record, &index) in (0_u64..).zip(&batch.messages) {
            let (Some(view), Some(message)) = (
                views.get_mut(index as usize),
                plan.messages.get(index as usize),
            ) else {
                unreachable!("a planned batch names messages of its own request")
            };
            settle(view, outcome, record);
            if view.status == "repeat" && !message.message_id_given {
                view.message_id = None;
            }
        }
    }
    if let Some(refused) = shared_rejection(views.iter().map(|view| view.rejection)) {
        return refused.into_problem("messages", &views).into_answer();
    }
    let failed = views.iter().filter(|view| view.rejection.is_some()).count();
    // The weakest of what was reached; an old repeat no longer knows, and is at least this.
    let stored = outcomes.iter().flatten();
    let durability =
        stored
            .map(|published| published.durability)
            .min_by_key(|reached| match reached {
                Durability::OneDisk => 1,
                Durability::TwoZones => 2,
            });
    let body = PublishedView {
        messages: views,
        failed,
        durability: durability.unwrap_or(Durability::OneDisk).name(),
    };
    Answer::json(200, &body)
}

fn settle(view: &mut MessageView<'_>, outcome: &Result<Published, Rejection>, record: u64) {
    match outcome {
        Ok(published) => {
            view.status = if published.repeat { "repeat" } else { "stored" };
            view.offset = Some(published.first_offset.plus(record).get());
        }
        // Kept before, at an offset no longer remembered.
        Err(Rejection::DuplicateSequence) => view.status = "repeat",
        Err(rejection) => {
            view.status = if outcome_is_unknown(*rejection) {
                "unknown"
            } else {
                "rejected"
            };
            view.error = Some(PartProblem::new(*rejection, None));
            view.rejection = Some(*rejection);
        }
    }
}

/// Whether the records may be in the log in spite of the refusal: no answer in time, or a write that
/// failed and may yet be found by recovery.
const fn outcome_is_unknown(rejection: Rejection) -> bool {
    matches!(
        rejection,
        Rejection::RequestTimedOut | Rejection::StorageError
    )
}
