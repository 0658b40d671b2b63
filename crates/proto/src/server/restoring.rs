//! A server while its disk is read, which may take minutes: it has no shard yet, and the others wait for it.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use crate::dial::{Dial, LinkNumbers};
use crate::message::{Message, Restoring};
use crate::role::{Action, Callee, Link, LinkEvent, Outgoing, Role, Strangers};
use crate::time::Instant;

/// A driver hands in the progress this often.
pub const RESTORING_INTERVAL: Duration = Duration::from_secs(1);

/// Tells the controller how much of its disk a server has read, as often as that has changed (rule L8). When all is read, the
/// [`Server`](super::Server) takes its place.
#[derive(Debug, Clone)]
pub struct RestoringServer {
    dial: Dial,
    links: LinkNumbers,
    /// The newest progress.
    progress: Option<Restoring>,
    actions: VecDeque<Action>,
}

/// One that has no progress to report yet.
impl Default for RestoringServer {
    fn default() -> Self {
        Self {
            // For as long as it reads.
            dial: Dial::new(Callee::Controller, Duration::MAX),
            links: LinkNumbers::default(),
            progress: None,
            actions: VecDeque::new(),
        }
    }
}

impl RestoringServer {
    fn send_progress(&mut self) {
        if let (Some(progress), Some(link)) = (self.progress, self.dial.open_link()) {
            self.actions.push_back(Action::Send { link, message: Message::Restoring(progress) });
        }
    }
}

impl Role for RestoringServer {
    type Command = Restoring;
    type Event = Infallible;
    type Status = Option<Restoring>;

    fn handle_start(&mut self, now: Instant) {
        let connect = self.dial.connect(now, &mut self.links);
        self.actions.push_back(connect);
    }

    fn handle_datagrams(&mut self, _now: Instant, _from: SocketAddr, _datagrams: &mut [u8], _stride: usize) {}

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if !self.dial.is(link) {
            return;
        }
        match event {
            LinkEvent::Opened { .. } => {
                self.dial.opened();
                self.send_progress();
            }
            // Without a controller the disk is read all the same.
            LinkEvent::Closed { .. } | LinkEvent::Refused { .. } => drop(self.dial.closed(now)),
        }
    }

    fn handle_message(&mut self, _now: Instant, link: Link, message: Message) {
        // The server receives the reason once more when it comes back.
        if self.dial.is(link) && matches!(message, Message::Abort { .. }) {
            self.actions.extend(self.dial.hang_up());
        }
    }

    fn handle_strangers(&mut self, _now: Instant, _strangers: Strangers) {}

    fn handle_socket_failure(&mut self, _now: Instant, _reason: &str) {}

    fn handle_command(&mut self, _now: Instant, progress: Restoring) {
        if self.progress.replace(progress) != Some(progress) {
            self.send_progress();
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let connect = self.dial.handle_timeout(now, &mut self.links);
        self.actions.extend(connect);
    }

    fn poll_transmit(&mut self, _now: Instant, _outgoing: &mut Outgoing) {}

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.dial.poll_timeout()
    }

    /// The newest progress.
    fn status(&self, _now: Instant) -> Option<Restoring> {
        self.progress
    }
}
