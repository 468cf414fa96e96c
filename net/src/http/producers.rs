//! `POST /v1/producers`: an identity for exactly one writer.

use corelog_engine::identity::{Producer, ProducerEpoch, ProducerId};

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::problem::Problem;

/// The body: empty object for a new producer, or the identity whose epoch shall rise (KIP-360).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerBody {
    producer_id: Option<u64>,
    producer_epoch: Option<u16>,
}

impl ProducerBody {
    /// The identity to raise, if one was named.
    ///
    /// # Errors
    ///
    /// 400 if only one of the two fields is there, or one is out of range.
    pub fn producer(&self) -> Result<Option<Producer>, Problem> {
        producer(self.producer_id, self.producer_epoch)
    }
}

/// Both fields or neither.
pub(super) fn producer(id: Option<u64>, epoch: Option<u16>) -> Result<Option<Producer>, Problem> {
    match (id, epoch) {
        (None, None) => Ok(None),
        (Some(id), Some(epoch))
            if i64::try_from(id).is_ok() && epoch <= ProducerEpoch::MAX.get() =>
        {
            Ok(Some(Producer {
                id: ProducerId(id),
                epoch: ProducerEpoch(epoch),
            }))
        }
        (Some(_), Some(_)) => Err(Problem::invalid(
            "producer_id is at most 2^63 - 1 and producer_epoch at most 2^15 - 1",
        )),
        _ => Err(Problem::invalid(
            "producer_id and producer_epoch go together; take both from POST /v1/producers",
        )),
    }
}

/// 200 with `producer_id` and `producer_epoch`.
pub fn producer_answer(producer: Producer) -> Answer {
    #[derive(Serialize)]
    struct Body {
        producer_id: u64,
        producer_epoch: u16,
    }
    Answer::json(
        200,
        &Body {
            producer_id: producer.id.get(),
            producer_epoch: producer.epoch.get(),
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::super::parse_body;
    use super::*;

    #[test]
    fn a_new_or_a_whole_identity_is_read_and_half_a_one_refused() {
        let read = |body: &str| parse_body::<ProducerBody>(body.as_bytes())?.producer();
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(
            read(r#"{"producer_id":7,"producer_epoch":2}"#).unwrap(),
            Some(Producer {
                id: ProducerId(7),
                epoch: ProducerEpoch(2)
            })
        );
        for refused in [
            r#"{"producer_id":7}"#,
            r#"{"producer_epoch":7}"#,
            r#"{"producer_id":7,"producer_epoch":32768}"#,
            r#"{"producer_id":9223372036854775808,"producer_epoch":0}"#,
            r#"{"producer_id":-1,"producer_epoch":0}"#,
            r#"{"epoch":1}"#,
        ] {
            assert_eq!(read(refused).unwrap_err().status(), 400, "{refused}");
        }
    }

    #[test]
    fn the_answer_names_both() {
        let answer = producer_answer(Producer {
            id: ProducerId(7),
            epoch: ProducerEpoch(0),
        });
        assert_eq!(&answer.body[..], br#"{"producer_id":7,"producer_epoch":0}"#);
    }
}
