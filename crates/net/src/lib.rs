//! Runs the roles of a cluster over real sockets: each on a loop of its own, with UDP for the hot path and TCP for everything else.
//!
//! It never looks into a packet, a message or a model, decides nothing of the protocol, and retries nothing but the opening of a
//! stream: what to send, and when, is decided by the roles in `libra-proto`. It alone has sockets and a clock.
//!
//! ```text
//!  caller ── commands ──▶ ┌────────── driver ──────────┐ ── datagrams, in runs (GSO) ──▶ faults ──▶ UDP
//!         ◀── events ──── │  wait, hand over, drain    │ ◀── datagrams, in runs (GRO) ──────────── UDP
//!                         │           role             │ ◀── messages ──▶ links, a task each ◀──▶ TCP
//!                         └────────────────────────────┘
//! ```
//!
//! [`ControllerNode`], [`ServerNode`] and [`SwitchNode`] block the thread that runs them until their job is over. A
//! [`WorkerNode`] has a thread for its loop, and is itself the handle of a training loop: it implements
//! [`Parameters`](libra_proto::Parameters). For processes that do something else there are [`WorkerClient`], which waits for nothing, and
//! [`ControllerThread`]. [`FaultRates`] make the network worse than it is.
//!
//! The smallest cluster, without tables and without a switch:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::thread;
//!
//! use libra_net::{ControllerNode, NodeOptions, ServerNode, WorkerNode};
//! use libra_proto::{Cluster, HotPath, Parameters, Sizes};
//! use tokio::sync::mpsc;
//!
//! let controller = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into())?;
//! let options = NodeOptions::new(controller.address());
//! let server = ServerNode::bind(options.clone(), None)?;
//! let server = thread::spawn(move || server.run(|_event| ()).expect("the job ends well"));
//! let worker = thread::spawn(move || {
//!     let mut worker = WorkerNode::join(options).expect("there is a place for one worker");
//!     assert_eq!(worker.cluster().task, "greet");
//!     worker.barrier().expect("all workers are there");
//!     worker.report("hello".to_owned()).expect("the controller receives it");
//! });
//!
//! let mut cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
//! cluster.task = "greet".to_owned();
//! let (_commands, inbox) = mpsc::unbounded_channel();
//! let outcome = controller.run(Sizes { servers: 1, switches: 0, workers: 1 }, cluster, inbox, |_event| ())?;
//! assert_eq!(outcome.reports, ["hello"]);
//! server.join().expect("the server did not panic");
//! worker.join().expect("the worker did not panic");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod blocking;
mod datagrams;
mod door;
mod drain;
mod driver;
mod endpoint;
mod enquiry;
mod faults;
mod frames;
mod front;
mod inspection;
mod links;
mod node;
mod plane_thread;
pub mod probe;
mod sched;
mod security;
mod storage;
mod stream;
mod supervisor;
mod watch;
mod worker;

pub use blocking::{Arrival, BlockingDoor, BlockingReader, BlockingStream};
pub use datagrams::ReceiveBuffer;
pub use drain::Drain;
pub use endpoint::{Endpoint, EndpointError};
pub use enquiry::{Enquiry, ask_controller, find_http};
pub use faults::{FaultRates, InvalidRate};
pub use inspection::{Inspected, Inspector};
pub use node::{
    ControllerHandle, ControllerNode, ControllerThread, NodeError, NodeOptions, PacketTags, ServerNode,
    SwitchNode,
};
pub use plane_thread::PlaneThread;
pub use security::{CertificateError, Security, TOKEN_VARIABLE, Token, TokenError, hide_token, is_local};
pub use supervisor::{Notice, Supervisor};
pub use worker::{Accepted, WorkerClient, WorkerNode};
