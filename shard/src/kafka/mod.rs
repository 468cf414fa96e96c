//! Kafka connections: frames in, frames out, in order.

use std::rc::Rc;

use crate::shard::Shard;
use crate::uring::Stream;

/// Serves one connection to its end.
pub async fn serve(shard: &Rc<Shard>, stream: Stream) {
    let _ = (shard, stream);
}
