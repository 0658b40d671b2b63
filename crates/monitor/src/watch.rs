//! The watched side of a process that is a member.

use libra_net::Inspector;
use libra_proto::{Kind, MemberStatus};
use thiserror::Error;

use crate::events::{EventFile, EventsError, EventsTo, Watched};
use crate::server::{HttpError, HttpPort, HttpServer};

/// A member cannot be watched as it should be.
#[derive(Debug, Error)]
pub enum WatchError {
    /// Requests over HTTP cannot be answered.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Events cannot be written.
    #[error(transparent)]
    Events(#[from] EventsError),
}

/// Parts by which a member is watched. Those that are there end when this is dropped.
#[derive(Debug)]
pub struct MemberWatch {
    /// Asks the roles of the process; none if nothing else would.
    pub inspector: Option<Inspector<MemberStatus>>,
    /// Answers requests over HTTP.
    pub http: Option<HttpServer>,
    /// Writes events.
    pub events: Option<EventFile>,
}

impl MemberWatch {
    /// Answers requests at a port, and writes events, as far as either is wanted. `on_trouble` is that of [`EventFile::start`].
    ///
    /// # Errors
    /// There is no thread to be had, or the file of events cannot be opened.
    pub fn start(
        kind: Kind,
        port: Option<HttpPort>,
        events: Option<&EventsTo>,
        on_trouble: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, WatchError> {
        if port.is_none() && events.is_none() {
            return Ok(Self { inspector: None, http: None, events: None });
        }
        let inspector = Inspector::new(port.as_ref().map(HttpPort::address));
        let http = port.map(|port| port.serve_member(kind, inspector.clone())).transpose()?;
        let watched = Watched::Members(inspector.clone());
        let events = events.map(|to| EventFile::start(to, kind.name(), watched, on_trouble)).transpose()?;
        Ok(Self { inspector: Some(inspector), http, events })
    }
}
