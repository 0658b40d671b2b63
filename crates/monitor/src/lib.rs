//! Metrics, health and status of a process over HTTP, and its events as JSON Lines.
//!
//! Roles keep counts anyway. Here they are copied when someone asks, through an [`Inspector`](libra_net::Inspector), and encoded on a thread of
//! its own: a scrape adds nothing to the path of a packet, no role waits for a reader or a disk, and a loop that stands still is seen by its
//! silence. This crate decides nothing, changes nothing but by [`commands`] of those who have the token, and knows neither model nor data.
//!
//! ```text
//!  Prometheus, probes, `libra top` ──▶ routes ──▶ Inspector ──▶ the loops of the roles
//!                                        │  ▲                        │
//!                                        │  └── metrics, document ◀──┘ MemberStatus, ControllerStatus
//!           POST with the token ──▶ commands ──▶ the controller
//!
//!        events of roles, counts once a second ──▶ EventFile ──▶ a file, standard output
//! ```
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{Ipv4Addr, TcpStream};
//!
//! use libra_monitor::{HttpPort, Kind};
//! use libra_net::Inspector;
//!
//! let port = HttpPort::bind((Ipv4Addr::LOCALHOST, 0).into())?;
//! // Goes into `NodeOptions::inspector`: the member then tells the controller where it answers.
//! let inspector = Inspector::new(Some(port.address()));
//! let server = port.serve_member(Kind::Switch, inspector)?;
//!
//! let mut stream = TcpStream::connect(server.address())?;
//! stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod commands;
pub mod document;
pub mod events;
mod exposition;
mod family;
mod metrics;
mod process;
mod routes;
mod server;
mod token;
mod watch;

pub use document::{
    Checkpoints, Counts, Document, Gathering, JobDocument, MemberDocument, OwnMember, Places,
    ProcessDocument, Progress, Totals, VERSION,
};
pub use events::{Event, EventFile, EventSender, EventsError, EventsTo, Watched};
pub use libra_proto::{Kind, Lost};
pub use server::{HttpError, HttpPort, HttpServer};
pub use token::{HttpToken, HttpTokenError};
pub use watch::{MemberWatch, WatchError};
