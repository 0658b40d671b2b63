//! The reliable hot transport: what the paper builds on lwIP, between a worker and a switch.
//!
//! A [`Path`](path::Path) is one worker's connection to one switch. It carries two [`Flow`](flow::Flow)s for each region of
//! that switch: pushes, which must be added exactly once, and pulls, which may be repeated. Each packet is acknowledged;
//! one whose acknowledgement does not come is sent again with the same sequence number and a retransmission mark
//! (paper section 3.6). A push is kept until the round that took it is durable. How many are on their way follows loss and
//! delay ([`CongestionWindow`](congestion_window::CongestionWindow)).

pub(crate) mod bounds;
mod congestion_window;
pub(crate) mod flow;
mod outage;
pub(crate) mod path;
pub(crate) mod path_length;
mod probe_backoff;
pub(crate) mod probes;
pub(crate) mod region;
pub(crate) mod rtt;
mod sent_packets;

#[cfg(test)]
mod tests;
