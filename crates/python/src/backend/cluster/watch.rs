//! What a worker shows to those who watch it, as the environment says: `LIBRA_HTTP` and `LIBRA_EVENTS`.

use std::env;
use std::net::SocketAddr;

use libra_client::{ClientError, Inspector, MemberStatus};
use libra_monitor::{Event, EventFile, HttpPort, HttpServer, Kind, Watched};

use crate::failure::Failure;

const HTTP: &str = "LIBRA_HTTP";
const EVENTS: &str = "LIBRA_EVENTS";

/// The watched side of a worker.
pub(super) struct Watch {
    inspector: Option<Inspector<MemberStatus>>,
    _http: Option<HttpServer>,
    events: Option<EventFile>,
}

impl Watch {
    /// Begins to answer requests, and to write events, if the environment wants it.
    pub(super) fn from_environment() -> Result<Self, Failure> {
        let port = option(HTTP).filter(|address| address != "off").map(|text| {
            let address: SocketAddr = text.parse().map_err(|_| {
                Failure::Value(format!("{HTTP} = {text:?} must be an address and a port, or off"))
            })?;
            HttpPort::bind(address)
                .map_err(|error| Failure::Value(format!("{HTTP}: {error}: {}", error.source)))
        });
        let port = port.transpose()?;
        let events = option(EVENTS).map(|text| text.parse().unwrap_or_else(|never| match never {}));
        if port.is_none() && events.is_none() {
            return Ok(Self { inspector: None, _http: None, events: None });
        }
        let inspector = Inspector::new(port.as_ref().map(HttpPort::address));
        let http = port.map(|port| port.serve_member(Kind::Worker, inspector.clone())).transpose();
        let http = http.map_err(|error| Failure::Runtime(error.to_string()))?;
        let watched = Watched::Members(inspector.clone());
        let tell = |trouble: &str| eprintln!("libra: {trouble}");
        let events = events.map(|to| EventFile::start(&to, "worker", watched, tell)).transpose();
        let events =
            events.map_err(|error| Failure::Value(format!("{EVENTS}: {error}: {}", error.source)))?;
        Ok(Self { inspector: Some(inspector), _http: http, events })
    }

    pub(super) fn inspector(&self) -> Option<Inspector<MemberStatus>> {
        self.inspector.clone()
    }

    /// The worker has its place.
    pub(super) fn began(&self) {
        self.send(Event::MemberStarted);
    }

    /// The worker has ended. All events are written then.
    pub(super) fn ended(self, result: &Result<(), ClientError>, is_drained: bool) {
        self.send(match result {
            Ok(()) if is_drained => Event::MemberDrained { unsaved: None },
            Ok(()) => Event::MemberDone { counts: None },
            Err(error) => Event::MemberFailed { reason: error.to_string() },
        });
    }

    fn send(&self, event: Event) {
        if let Some(events) = &self.events {
            events.sender().send(None, event);
        }
    }
}

fn option(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}
