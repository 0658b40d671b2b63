//! Messages of applications between a scheduler, servers and workers, each once and in order: the van and the post office of ps-lite.
//!
//! The roles of `libra-proto` handle rows and gradients, and may give up the order of operations for speed. Programs that were written for
//! ps-lite send what they like, answer when they like, and rely on the order. Nothing here looks into their messages.
//!
//! ```text
//!  worker ── node ── link ──────── TCP: numbered frames ──────── link ── node ── server
//!              └──── link ── TCP ── link ── node: scheduler ────────────────┘
//! ```
//!
//! Each process has a [`Node`]. A stream to another has two threads (`link`), which hand over messages, in order, to a [`Mailbox`]. A message
//! that is lost behind a stream, as `PS_DROP_MSG` wants it, is sent again (`flow`). The scheduler numbers nodes and holds the barriers
//! (`scheduler`). A stream that ends without a last message is a death: all processes are told of it. With a token streams are in TLS
//! ([`libra_net::BlockingStream`]), and an end without it never gets to its first message.

mod batch;
mod control;
mod error;
mod flow;
mod frame;
mod link;
mod message;
mod node;
mod roster;
mod scheduler;
mod threads;

pub use error::MeshError;
pub use message::{Bytes, Meta, OutgoingMessage, Payload, Received};
pub use node::{Mailbox, Node, NodeSettings};
pub use roster::{
    EVERYBODY, NodeRole, SCHEDULER, SERVER_GROUP, WORKER_GROUP, ids_of, is_in, rank_of, server_id, worker_id,
};
pub use threads::thread_number;

#[cfg(test)]
mod tests;
