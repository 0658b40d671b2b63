//! The roles of a Libra cluster as state machines without I/O: worker, server, switch and controller, and the reliable
//! transport of the hot path between a worker and a switch.
//!
//! It never opens a socket or a file, reads a clock, starts a thread, sleeps, or draws randomness from the operating
//! system. Time is an argument, addresses are names, and the same inputs give the same outputs to the bit, so that the
//! driver over real sockets (`libra-net`) and a simulator over virtual links run the same code.
//!
//! ```text
//!              hot rows, in datagrams          once a round, in messages
//!   ┌────────┐ ── PUSH, PULL ──────▶ ┌────────┐ ── Drained: the sums ──────▶ ┌────────┐
//!   │ worker │ ◀── ACK, values ───── │ switch │ ◀── Committed: new values ── │ server │
//!   └────────┘                       └────────┘                              └────────┘
//!     │    ▲                    all other rows, in messages                    │    ▲
//!     │    └─────────────────────── Pushed, Pulled ────────────────────────────┘    │
//!     └──────────────────────────── Push, Pull ─────────────────────────────────────┘
//!
//!   each of them ── Join, Heartbeat, Barrier, Report ──▶ ┌────────────┐
//!                ◀── Start, Release, Finish, Abort ───── │ controller │
//!                                                        └────────────┘
//! ```
//!
//! Each role implements [`Role`]: its driver hands in what happened, then drains what the role wants done. Everything
//! but hot packets is a [`Message`] over an ordered reliable stream; a hot packet is in
//! [`libra_dataplane`]'s format.
//!
//! The guarantee of the roles together: a gradient that a worker pushed is applied exactly once, whatever the network does to
//! datagrams, and with fixed point ([`ArithmeticMode::Fixed`]) the sum is the same to the bit in any order of arrival.
//!
//! A controller and a server, with a driver that is a loop:
//!
//! ```
//! use libra_proto::*;
//!
//! let cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
//! let mut controller = Controller::new(Sizes { servers: 1, switches: 0, workers: 1 }, cluster);
//! let address = "10.0.0.1:4700".parse()?;
//! let remote = "10.0.0.2:4700".parse()?;
//! let mut server = Server::new(remote);
//!
//! // The server wants a stream to the controller. Both learn that it is open, each by its own name for it.
//! let now = Instant::from_nanos(1_000);
//! server.handle_start(now);
//! let Some(Action::Connect { link, .. }) = server.poll_action() else { panic!("it connects first") };
//! let accepted = Link(Link::ACCEPTED);
//! controller.handle_link(now, accepted, LinkEvent::Opened { remote });
//! server.handle_link(now, link, LinkEvent::Opened { remote: address });
//!
//! // Then it asks to be taken in, and it is.
//! while let Some(Action::Send { message, .. }) = server.poll_action() {
//!     let frame = message.encode();
//!     controller.handle_message(now, accepted, Message::decode(&frame)?);
//! }
//! let missing = Sizes { servers: 0, switches: 0, workers: 1 };
//! assert_eq!(controller.poll_event(), Some(ControllerEvent::Joined { peer: Peer::Server(0), remote, missing }));
//! // Nothing more happens until it looks for heartbeats of the server.
//! let timeout = controller.poll_timeout().expect("it watches its members");
//! assert!(timeout > now && timeout <= now + HEARTBEAT_TIMEOUT);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
mod admission;
mod authentication;
mod bulk;
mod client;
mod cluster;
mod controller;
mod dial;
mod histogram;
mod keys;
mod membership;
mod message;
mod mode;
mod region;
mod role;
mod server;
mod shared;
mod statistics;
mod status;
mod storage;
mod switch;
mod time;
mod transport;
pub mod turn;
mod values;
mod work;
mod worker;

pub use admission::{FIRST_BYTES_MAX, REJOIN_BYTES_MAX, REPORT_BYTES_MAX, may_be_long};
pub use authentication::{Pass, PathTags, Secret, TagKind};
pub use bulk::Bulk;
pub use client::{ClientError, Parameters, PullId, Pulled, Tick, TrainingNote};
pub use cluster::{
    ArithmeticMode, CheckpointAt, Cluster, ColdPath, Durability, HotPath, Load, Ownership,
    PACKETS_IN_FLIGHT_MAX, Peer, RETURN_MAX, Upload, View, packets_in_flight,
};
pub use controller::{
    Controller, ControllerCommand, ControllerEvent, HEARTBEAT_TIMEOUT, HealthLimits, Outcome,
    PROCESS_SHARDS_MAX, Refusal, SWITCH_HEARTBEAT_TIMEOUT, Sizes,
};
pub use histogram::{HISTOGRAM_BOUNDS, Histogram};
pub use keys::Keys;
/// Dimensions of a region for its [`Plane`].
pub use libra_dataplane::RegionConfig;
pub use membership::{EndCause, HEARTBEAT_INTERVAL};
pub use message::{
    AckedSet, Adopted, Answered, Assign, Changed, ColdPush, Committed, Drained, Hello, Join, Kind,
    MESSAGE_BYTES_MAX, Malformed, Message, Rejoin, Replay, Reset, Restoring, RoundContents, SlotRun,
    SlotValues, Start, TablePage, VERSION,
};
pub use mode::Mode;
pub use region::{ROUNDS_BEGIN_AFTER, Round, SoftRegion, acked_set, open as open_region};
pub use role::{Action, Callee, DatagramRun, Link, LinkEvent, Outgoing, Role, Strangers};
pub use server::{
    MemberEvent, MemoryLimit, RESTORING_INTERVAL, RestoreError, Restored, RestoringServer, Server,
    ServerCommand, ServerEvent,
};
pub use shared::Shared;
pub use statistics::{
    ReadCounts, ServerStatistics, Statistics, StepTimes, SwitchStatistics, TrainingCounts, WorkerStatistics,
};
pub use status::{
    CheckpointStatus, ChunkCounts, ControllerStatus, Details, Gathering, JobPhase, KnownMember, Lost,
    MemberState, MemberStatus, PathStatus, ServerDetails, SwitchDetails, UploadStatus, WorkStatus,
    WorkerDetails,
};
pub use storage::{CheckpointHead, StorageEvent, StorageRequest};
pub use switch::{
    DeferredPlane, Device, Executor, Order, Plane, Progress, Report, SoftPlane, Switch, SwitchCommand,
    WorkerPath,
};
pub use time::Instant;
pub use transport::flow::FLOW_PACKETS_MAX;
pub use transport::probes::{is_length_probe, packet_header_bytes};
pub use values::{UnknownFormat, ValueFormat, Values};
pub use work::{AddedPhase, AddedPhases, LeaseRequest, Position, Work, WorkDone, WorkRecord};
pub use worker::{AssignedRows, Level, PathChange, Worker, WorkerCommand, WorkerEvent};

#[cfg(test)]
mod testing;
