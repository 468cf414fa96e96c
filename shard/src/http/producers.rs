//! `POST /v1/producers`.

use corelog_engine::admission::{Action, Load};
use corelog_net::http::producers::{ProducerBody, producer_answer};
use corelog_net::http::{Answer, Problem, parse_body};

use super::exchange::Exchange;
use super::topics::refused;

/// A new identity, or the next epoch of the named one.
pub(super) async fn init(exchange: &mut Exchange) -> Result<Answer, Problem> {
    exchange.authorize(Action::UseCluster)?;
    exchange.admit(Load::Other)?;
    let body = exchange.read_body(1).await?;
    let previous = parse_body::<ProducerBody>(&body)?.producer()?;
    let granted = exchange.shard.grant_producer(previous).await;
    Ok(producer_answer(granted.map_err(refused)?))
}
