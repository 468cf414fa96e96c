//! The Kafka face of a core: frames in, frames out, in order.
//!
//! A request's life: [`connection`] reads its frame, whose bytes were taken from the core's budget
//! first; [`dispatch`] decodes it and begins it, which authorizes it and hands its parts to the
//! cores that own them; what is still to come joins the connection's [`answer_queue`]. There a
//! second task awaits the answers in the order of the requests and sends them. So a client may have
//! many requests in flight, and each partition sees them in the order in which they were sent.
//!
//! One module for each family of calls; what their messages mean to the engine is said in
//! `corelog_net::kafka`.

mod answer_queue;
mod api_versions;
mod call;
mod cluster;
mod configs;
mod connection;
mod dispatch;
mod fetch;
mod fetch_sessions;
mod frame_reader;
mod group_offsets;
mod groups;
mod offsets;
mod produce;
mod topics;

use std::rc::Rc;

use crate::counts::Count;
use crate::shard::Shard;
use crate::uring::Stream;

/// Serves one connection to its end.
pub async fn serve(shard: &Rc<Shard>, stream: Stream) {
    let peer = stream.peer_address();
    let end = connection::serve(shard, stream).await;
    if let Some(reason) = end.reason() {
        shard.counts.count(Count::KafkaEnded(reason));
    }
    tracing::debug!(%peer, %end, "a Kafka connection ended");
}
