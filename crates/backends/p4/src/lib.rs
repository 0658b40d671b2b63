//! The control plane of a P4 switch: files generated for its program, and the packets and table entries of its agent.
//!
//! The program is in `program`, for Tofino and for bmv2. [`generate`] writes the sizes and codes of `libra-dataplane` into it. [`Agent`]
//! opens, flips, drains and fills regions by packets; [`P4Plane`] is an agent as `libra switch` uses it. This crate opens no socket and
//! starts no process: the way to a switch is a [`Link`], which others make. `libra-p4model`, in the laboratory, is the program in Rust.
//!
//! ```
//! use std::convert::Infallible;
//! use libra_dataplane::{Arithmetic, Header, Kind, PacketWriter, RegionConfig, packet_bytes};
//! use libra_p4::{Agent, Cookie, Link, Sizes, TableChange};
//! use libra_p4model::{Port, Switch};
//!
//! /// A switch in this process.
//! struct Here(Switch);
//!
//! impl Link for Here {
//!     type Error = Infallible;
//!     fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Infallible> {
//!         Ok(packets.iter().filter_map(|packet| self.0.process(Port::Agent, packet)).collect())
//!     }
//!     fn change(&mut self, changes: &[TableChange]) -> Result<(), Infallible> {
//!         changes.iter().for_each(|change| self.0.change(change));
//!         Ok(())
//!     }
//! }
//!
//! let sizes = Sizes::default();
//! let mut agent = Agent::new(Here(Switch::new(sizes)), sizes);
//! let config = RegionConfig {
//!     job: 1, region: 0, plan: 1, view: 1, lanes: 16, cells: 10, flows: 2, bank_packets_max: 4096,
//!     arithmetic: Arithmetic::Fixed { bound: (1 << 19) - 1 },
//! };
//! agent.open(config, 0, [])?;
//! let address = "10.0.0.2:5000".parse()?;
//! agent.change(&[TableChange::AddWorker { address, job: 1, worker: 0, cookie: Cookie::default() }])?;
//!
//! // A push of 42 to cell 3 of lane 0; the other lanes get padding. It comes twice.
//! let header = Header { job: 1, plan: 1, view: 1, ..Header::of_kind(Kind::Push) };
//! let mut packet = vec![0; packet_bytes(16)];
//! let mut writer = PacketWriter::new(header, &mut packet);
//! writer.push(3, 42);
//! (1..16).for_each(|_| assert!(writer.push(9, 0)));
//! writer.finish();
//! for _ in 0..2 {
//!     assert!(agent.link().0.process(Port::Worker(address), &packet).is_some());
//! }
//!
//! // The agent closes the round: slot 3 * 16 has it once, and the acked set names the packet.
//! assert_eq!(agent.flip((1, 0))?.map(|(round, taken)| (round, taken.pushes)), Some((1, 1)));
//! assert_eq!(agent.drain((1, 0))?, [(48, 42)]);
//! assert_eq!(agent.acked((1, 0), 0), [0..1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod adder;
mod agent;
pub mod bfrt;
mod bmv2;
pub mod packet;
mod plane;
mod program;
mod resources;
mod sizes;
mod tables;

pub use agent::{Agent, AgentError, Link, Name};
pub use bmv2::{ARP_REQUEST, Bmv2Tables, ECHO_REQUEST, Refused, Setup};
pub use plane::P4Plane;
pub use program::{Generated, generate};
pub use resources::{Array, Limits, PhvBits, Resources, TOFINO, TableSize};
pub use sizes::{BARE_BYTES, IP_HEADER_BYTES, OutOfRange, Sizes, Sums, UDP_HEADER_BYTES};
pub use tables::{Cookie, DoesNotFit, RegionEntry, Rooms, TableChange};
