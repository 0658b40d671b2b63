//! net
#![forbid(unsafe_code)]
mod datagrams;
mod driver;
mod faults;
mod links;
mod node;
mod worker;

pub use faults::{FaultRates, InvalidRate};
pub use node::{ControllerNode, NodeError, NodeOptions, ServerNode, SwitchNode};
pub use worker::WorkerNode;
