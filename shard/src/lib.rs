//! corelog shard.
