//! The door for front ends: training loops of any kind that keep their sparse parameters in a Libra cluster.
//!
//! A front end describes its job in a [`JobSpec`] (tables, update rules, plan of hot rows, mode), starts its controller ([`JobSpec::start_controller`]), and trains with a
//! [`Worker`], which implements [`Parameters`]: pulls and pushes of rows, flushes, barriers. Models, data and losses are its own; what
//! other settings of its workers go in [`JobSpec::front_end`]. This crate never computes a gradient, never reads a
//! data set and prints nothing.
//!
//! | for | there is |
//! |---|---|
//! | a cluster of processes | [`JobSpec::start_controller`], [`Worker`]; servers and switches are `libra server` and `libra switch` |
//! | a cluster in this process | [`LocalCluster`] |
//! | no cluster: tests, profiles | [`LocalParameters`] |
//! | the plan of hot rows | [`Profile`], [`Plan`] |
//! | callers that must not block | [`WorkerClient`] |
//!
//! The programs in `examples/` of the repository show each. The smallest, a cluster in this process without a switch:
//!
//! ```
//! use libra_client::{JobSpec, LocalCluster, LocalOptions, Optimizer, Parameters, Sizes, TableSpec};
//!
//! let table = TableSpec::new("weights", 0..1_000_000, 4, Optimizer::Sgd { rate: 0.5 });
//! let spec = JobSpec::new(Sizes { servers: 2, switches: 0, workers: 1 }, vec![table]);
//! let cluster = LocalCluster::start(&spec, LocalOptions::default(), |_event| ())?;
//! let mut worker = cluster.join()?;
//! worker.push(vec![7, 999_999], vec![1.0; 8])?;
//! worker.flush()?;
//! assert_eq!(worker.pull(vec![999_999])?.values, [-0.5; 4]);
//! worker.report("done".to_owned())?;
//! assert_eq!(cluster.finish()?.outcome.reports, ["done"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Versions
//! Not published yet. The names exported here are those that semantic versioning will cover; enums marked `non_exhaustive` grow without
//! a major version. Members of a cluster must be of one build: a controller refuses others ([`VERSION`]).

#![forbid(unsafe_code)]

mod controller;
mod local_cluster;
mod local_parameters;
mod observer;
mod profile;
mod spec;
mod widths;

pub use controller::StartError;
pub use libra_net::{
    Accepted, ControllerHandle, ControllerNode as Controller, ControllerThread, Drain, Endpoint, FaultRates,
    Inspector, NodeError, NodeOptions, PacketTags, Security, TOKEN_VARIABLE, Token, TokenError, WorkerClient,
    WorkerNode as Worker, hide_token,
};
pub use libra_plan::{
    Budget, DEFAULT_HEADROOM_BITS, Frequencies, Invalid, Plan, Provenance, SLOT_BYTES, ShapeError, TableShape,
};
pub use libra_proto::{
    ArithmeticMode, AssignedRows, ClientError, Cluster, ColdPath, ControllerCommand, ControllerEvent,
    Durability, HotPath, MemberStatus, Mode, Outcome, Parameters, Peer, PullId, Pulled, ReadCounts,
    ServerEvent, Sizes, Statistics, TablePage, Tick, TrainingNote, VERSION, ValueFormat, Work, WorkerCommand,
    WorkerEvent,
};
pub use libra_store::{
    Admission, Decay, Eviction, Init, LifecycleCounts, Optimizer, OutOfRange, RowLifecycle, Schedule, Store,
    TableError, TableSpec, UpdateRule,
};
pub use local_cluster::{LocalCluster, LocalEvent, LocalOptions, LocalOutcome, LocalSwitches};
pub use local_parameters::LocalParameters;
pub use observer::{Observed, PushObserver};
pub use profile::{Profile, ProfileError};
pub use spec::{JobSpec, SpecError, round_time};
pub use widths::Widths;
