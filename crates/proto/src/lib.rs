//! proto
#![forbid(unsafe_code)]
mod bulk;
mod client;
mod cluster;
mod controller;
mod membership;
mod message;
mod role;
mod server;
mod statistics;
mod switch;
mod time;
mod transport;
mod worker;

pub use bulk::Bulk;
pub use client::{ClientError, Parameters, PullId, Pulled};
pub use cluster::{ArithmeticMode, Cluster, HotPath, Peer};
pub use controller::{Controller, ControllerCommand, ControllerEvent, Outcome, SILENCE_MAX, Sizes};
pub use membership::HEARTBEAT_INTERVAL;
pub use message::{ColdPush, Committed, Cut, Drained, FlowCut, Join, Kind, Malformed, Message, SlotRun, VERSION};
pub use role::{Action, Link, LinkEvent, Outgoing, Role};
pub use server::{MemberEvent, Server};
pub use statistics::{ServerStatistics, Statistics, SwitchStatistics, WorkerStatistics};
pub use switch::Switch;
pub use time::Instant;
pub use worker::{Level, Worker, WorkerCommand, WorkerEvent};
