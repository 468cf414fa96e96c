//! The HTTP face: connections in, what `corelog_net::http` makes of their requests asked of the
//! owning cores, answers out. `docs/http.md` is its reference, `docs/metrics.md` that of `/metrics`.
//!
//! The life of a request: hyper reads the head (`connection` limits how long that may take) →
//! `answer` routes it and checks the head → the handler of its route, in the file of its family,
//! reads top to bottom: authorize → admit → body → what it asks of which core → answer.
//!
//! Invariants:
//! 1. No byte of a body is kept before room for it is reserved in the core's budget; what was
//!    reserved is given back when the request, or the answer that was read out of it, is done.
//! 2. A client that is slow to send a head or a body, or to take an answer, is cut off after a time
//!    that does not depend on what it does.
//! 3. Every request passes one `authorize` for each topic or group that it names, and one `admit`.
//! 4. Nothing that a client sends can make this code panic.

mod answer;
mod body;
mod connection;
mod exchange;
mod fetch;
mod groups;
mod health;
mod lag;
mod metrics;
mod offsets;
mod producers;
mod publish;
mod reading;
mod topics;

pub use connection::serve;
