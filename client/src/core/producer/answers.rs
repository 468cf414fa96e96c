//! What answers, lost answers and the delivery timeout make of batches.

use corelog_wire::{ErrorCode, PartitionProduceResponse, ProduceResponse, WireString};

use super::partition_queue::{ClosedBatch, PartitionQueue};
use super::settings::{BatchOutcome, Outcome, PublishFailure, SendId};
use super::{Identity, ProducerCore};

impl ProducerCore {
    /// Request `id` was answered. An answer to a request that was given up is ignored.
    pub fn on_response(&mut self, id: SendId, response: &ProduceResponse, now_ms: u64) {
        let Some(send) = self.sends.remove(&id) else {
            return;
        };
        for (topic, partition) in send.batches {
            let found = response
                .responses
                .iter()
                .filter(|answer| answer.name == topic)
                .flat_map(|answer| &answer.partition_responses)
                .find(|answer| answer.index == partition);
            match found {
                Some(answer) => self.on_partition_answer(id, &topic, partition, answer, now_ms),
                None => self.on_lost_answer(id, &topic, partition, now_ms),
            }
        }
        self.end_flush();
    }

    /// Request `id` has no answer: its connection ended. `written`: some of it may have reached the broker.
    pub fn on_send_failed(&mut self, id: SendId, written: bool, now_ms: u64) {
        self.metadata_wanted = true;
        let Some(send) = self.sends.remove(&id) else {
            return;
        };
        for (topic, partition) in send.batches {
            if written {
                self.on_lost_answer(id, &topic, partition, now_ms);
            } else {
                self.retry(id, &topic, partition, now_ms);
            }
        }
    }

    fn on_partition_answer(
        &mut self,
        id: SendId,
        topic: &WireString,
        partition: i32,
        answer: &PartitionProduceResponse,
        now_ms: u64,
    ) {
        let code = answer.error_code;
        let idempotent = self.settings.idempotent;
        let retry_at_ms = now_ms.saturating_add(self.settings.retry_backoff_ms);
        let Some((queue, index)) = self.sent_batch(id, topic, partition) else {
            return;
        };
        if let Some(batch) = queue.in_flight.get_mut(index) {
            batch.last_refusal = Some(code).filter(|code| !code.is_none());
            batch.may_be_stored |= leaves_open(code);
        }
        let message = || answer.error_message.as_ref().map(ToString::to_string);
        match code {
            ErrorCode::NONE => {
                let base_offset = Some(answer.base_offset).filter(|offset| *offset >= 0);
                self.settle_sent(topic, partition, index, Outcome::Yes { base_offset });
            }
            ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
                let base_offset = Some(answer.base_offset).filter(|offset| *offset >= 0);
                self.settle_sent(topic, partition, index, Outcome::Yes { base_offset });
            }
            ErrorCode::PRODUCER_FENCED | ErrorCode::INVALID_PRODUCER_EPOCH => self.close(),
            // The batch before it was refused, so this one came too early: it follows in its turn.
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER if index > 0 => {
                queue.retry(index, now_ms);
            }
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID
                if idempotent =>
            {
                queue.retry(index, now_ms);
                self.identity = Identity::Wanted;
            }
            code if code.is_retriable() => {
                queue.retry(index, retry_at_ms);
                self.metadata_wanted |= asks_for_metadata(code);
            }
            code => {
                let may_be_stored = queue
                    .in_flight
                    .get(index)
                    .is_some_and(|batch| batch.may_be_stored);
                let failure = PublishFailure::Refused {
                    code,
                    message: message(),
                };
                let outcome = failed(may_be_stored, failure);
                self.settle_sent(topic, partition, index, outcome);
                self.give_up_sequence();
            }
        }
    }

    /// No answer for this batch: it may be stored.
    fn on_lost_answer(&mut self, id: SendId, topic: &WireString, partition: i32, now_ms: u64) {
        if let Some((queue, index)) = self.sent_batch(id, topic, partition)
            && let Some(batch) = queue.in_flight.get_mut(index)
        {
            batch.may_be_stored = true;
        }
        self.retry(id, topic, partition, now_ms);
    }

    fn retry(&mut self, id: SendId, topic: &WireString, partition: i32, now_ms: u64) {
        let retry_at_ms = now_ms.saturating_add(self.settings.retry_backoff_ms);
        if let Some((queue, index)) = self.sent_batch(id, topic, partition) {
            queue.retry(index, retry_at_ms);
        }
    }

    fn sent_batch(
        &mut self,
        id: SendId,
        topic: &WireString,
        partition: i32,
    ) -> Option<(&mut PartitionQueue, usize)> {
        let topic = self.topics.get_mut(topic.as_str())?;
        let queue = topic.queues.get_mut(usize::try_from(partition).ok()?)?;
        let index = queue.sent_in(id)?;
        Some((queue, index))
    }

    fn settle_sent(&mut self, topic: &WireString, partition: i32, index: usize, outcome: Outcome) {
        let queue = self
            .topics
            .get_mut(topic.as_str())
            .and_then(|topic| topic.queues.get_mut(partition as usize));
        if let Some(batch) = queue.and_then(|queue| queue.in_flight.remove(index)) {
            self.settle(topic.clone(), partition, batch, outcome);
        }
    }

    pub(super) fn settle(
        &mut self,
        topic: WireString,
        partition: i32,
        batch: ClosedBatch,
        outcome: Outcome,
    ) {
        assert!(
            batch.buffered_bytes <= self.buffered_bytes,
            "bytes leave the buffer once"
        );
        self.buffered_bytes -= batch.buffered_bytes;
        self.outcomes.push_back(BatchOutcome {
            topic,
            partition,
            publishes: batch.publishes,
            outcome,
        });
    }

    /// A sequence was used and its batch is given up: what follows it would be refused for the gap.
    fn give_up_sequence(&mut self) {
        if self.settings.idempotent && self.identity != Identity::Ended {
            self.identity = Identity::Wanted;
        }
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        let Some(opened_before_ms) = now_ms.checked_sub(self.settings.delivery_timeout_ms) else {
            return;
        };
        let mut expired = Vec::new();
        for topic in self.topics.values_mut() {
            for queue in &mut topic.queues {
                for (batch, sequenced) in queue.take_expired(opened_before_ms) {
                    expired.push((topic.name.clone(), queue.partition, batch, sequenced));
                }
            }
        }
        for (topic, partition, batch, sequenced) in expired {
            let failure = PublishFailure::TimedOut {
                last: batch.last_refusal,
            };
            let outcome = failed(batch.may_be_stored, failure);
            self.settle(topic, partition, batch, outcome);
            if sequenced {
                self.give_up_sequence();
            }
        }
        self.end_flush();
    }

    pub(super) fn end_flush(&mut self) {
        self.flushing &= !self.is_settled();
    }
}

pub(super) fn failed(may_be_stored: bool, failure: PublishFailure) -> Outcome {
    if may_be_stored {
        Outcome::Unknown(failure)
    } else {
        Outcome::No(failure)
    }
}

/// Whether a refusal leaves open that the batch was stored.
fn leaves_open(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode::NETWORK_EXCEPTION
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::UNKNOWN_SERVER_ERROR
    )
}

/// Whether a refusal says that another broker leads.
fn asks_for_metadata(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_ID
    )
}
