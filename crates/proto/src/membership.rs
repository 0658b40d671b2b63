//! What every member but the controller does the same way: join, learn the cluster, keep in touch, end.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use crate::cluster::{Cluster, Peer};
use crate::message::{Join, Kind, Message, VERSION};
use crate::role::{Action, Link, LinkEvent};
use crate::statistics::Statistics;
use crate::time::Instant;

/// How often a member reports to the controller.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// What the controller has decided.
#[derive(Debug)]
pub(crate) enum MembershipEvent {
    Started { you: Peer, cluster: Box<Cluster> },
    Released { number: u64 },
    Finish,
    Ended { reason: String },
}

/// A member's conversation with the controller.
#[derive(Debug)]
pub(crate) struct Membership {
    controller: SocketAddr,
    join: Join,
    next_link: u32,
    heartbeat_at: Option<Instant>,
    finished: bool,
    actions: VecDeque<Action>,
}

/// The first stream a member opens.
const CONTROLLER: Link = Link(0);

impl Membership {
    pub(crate) fn new(
        controller: SocketAddr,
        kind: Kind,
        stream: Option<SocketAddr>,
        datagrams: Option<SocketAddr>,
        receive_bytes: u32,
    ) -> Self {
        let join = Join { version: VERSION, kind, stream, datagrams, receive_bytes };
        Self { controller, join, next_link: 1, heartbeat_at: None, finished: false, actions: VecDeque::new() }
    }

    pub(crate) fn handle_start(&mut self) {
        self.actions.push_back(Action::Connect { link: CONTROLLER, address: self.controller });
    }

    /// Opens a stream to another member.
    pub(crate) fn connect(&mut self, address: SocketAddr) -> Link {
        let link = Link(self.next_link);
        self.next_link += 1;
        self.actions.push_back(Action::Connect { link, address });
        link
    }

    /// Tells the controller something.
    pub(crate) fn send(&mut self, message: Message) {
        self.actions.push_back(Action::Send { link: CONTROLLER, message });
    }

    /// Ends the job for everybody.
    pub(crate) fn abort(&mut self, reason: &str) {
        self.send(Message::Abort { reason: reason.to_owned() });
    }

    pub(crate) fn is_controller(link: Link) -> bool {
        link == CONTROLLER
    }

    pub(crate) fn handle_link(&mut self, now: Instant, event: LinkEvent) -> Option<MembershipEvent> {
        match event {
            LinkEvent::Opened { .. } => {
                self.send(Message::Join(self.join.clone()));
                self.heartbeat_at = Some(now + HEARTBEAT_INTERVAL);
                None
            }
            LinkEvent::Closed { .. } if self.finished => None,
            LinkEvent::Closed { reason } => {
                self.heartbeat_at = None;
                let reason = format!("no connection to the controller at {}: {reason}", self.controller);
                Some(MembershipEvent::Ended { reason })
            }
        }
    }

    pub(crate) fn handle_message(&mut self, message: Message) -> Option<MembershipEvent> {
        match message {
            Message::Start { you, cluster } => Some(MembershipEvent::Started { you, cluster }),
            Message::Release { number } => Some(MembershipEvent::Released { number }),
            Message::Finish => {
                self.finished = true;
                Some(MembershipEvent::Finish)
            }
            Message::Abort { reason } => {
                self.finished = true;
                Some(MembershipEvent::Ended { reason })
            }
            _ => None,
        }
    }

    /// Whether it is time to report.
    pub(crate) fn is_heartbeat_due(&self, now: Instant) -> bool {
        self.heartbeat_at.is_some_and(|due| due <= now)
    }

    pub(crate) fn heartbeat(&mut self, now: Instant, statistics: Statistics) {
        self.heartbeat_at = Some(now + HEARTBEAT_INTERVAL);
        self.send(Message::Heartbeat(statistics));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.heartbeat_at
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}
