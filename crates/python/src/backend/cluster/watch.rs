//! What a worker shows to those who watch it, as the environment says: `LIBRA_HTTP` and `LIBRA_EVENTS`.

use std::env;
use std::net::SocketAddr;

use libra_client::{ClientError, Inspector, MemberStatus};
use libra_monitor::{Event, HttpPort, Kind, MemberWatch, WatchError};

use crate::failure::Failure;

const HTTP: &str = "LIBRA_HTTP";
const EVENTS: &str = "LIBRA_EVENTS";

/// The watched side of a worker.
pub(super) struct Watch(MemberWatch);

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
        let events = option(EVENTS).map(|text| text.parse().unwrap_or_else(|never| match never {}));
        let tell = |trouble: &str| eprintln!("libra: {trouble}");
        let watch = MemberWatch::start(Kind::Worker, port.transpose()?, events.as_ref(), tell);
        watch.map(Self).map_err(|error| match error {
            WatchError::Http(error) => Failure::Runtime(error.to_string()),
            WatchError::Events(error) => Failure::Value(format!("{EVENTS}: {error}: {}", error.source)),
        })
    }

    pub(super) fn inspector(&self) -> Option<Inspector<MemberStatus>> {
        self.0.inspector.clone()
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
        if let Some(events) = &self.0.events {
            events.sender().send(None, event);
        }
    }
}

fn option(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}
