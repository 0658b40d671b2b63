//! State of a member, as the controller keeps it.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use super::health::Health;
use super::leases::WorkerLeases;
use super::{
    HEARTBEAT_TIMEOUT, RETURN_MAX, SLOW_VIEW_MAX, SWITCH_HEARTBEAT_TIMEOUT, SWITCH_RETURN_MAX, VIEW_MAX,
};
use crate::authentication::Pass;
use crate::cluster::Peer;
use crate::message::Kind;
use crate::role::Link;
use crate::statistics::Statistics;
use crate::time::Instant;
use crate::work::WorkDone;

/// Repeated reports of a worker about a switch that it cannot reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Complaint {
    pub(super) last_at: Instant,
    pub(super) times: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    /// The stream to it, while it is open.
    pub(super) link: Option<Link>,
    /// Address at which the others reach it.
    pub(super) address: SocketAddr,
    /// Address at which it answers requests over HTTP.
    pub(super) http: Option<SocketAddr>,
    /// Its share of the task (workers).
    pub(super) share: u16,
    pub(super) received_at: Instant,
    /// When its stream broke, and why.
    pub(super) lost_at: Option<Instant>,
    pub(super) closed_because: Option<String>,
    /// When its process, started again, had last read more of its disk (servers).
    pub(super) progress_at: Option<Instant>,
    /// True once it has been sent its place.
    pub(super) started: bool,
    /// Was another member before, on the same stream, and has not acted on its new place yet (switches).
    pub(super) is_renamed: bool,
    /// Number of the view that it was started with.
    pub(super) start_view: u64,
    /// The newest view that it acts on.
    pub(super) viewed: u64,
    /// It gets no region while the cluster begins (switches).
    pub(super) standby: bool,
    /// It gets no region any more (switches).
    pub(super) retired: bool,
    pub(super) health: Health,
    /// The workers that have not reached it (switches).
    pub(super) complaints: BTreeMap<Peer, Complaint>,
    /// Time of the last report that was accepted from it alone about a switch that it cannot reach (workers).
    pub(super) lone_complaint_at: Option<Instant>,
    /// The barrier that it waits at (workers).
    pub(super) at_barrier: Option<u64>,
    /// Its clock, and the barrier before which that counts (workers).
    pub(super) clock: (u64, u64),
    /// Its leases, and what it has done (workers).
    pub(super) leases: WorkerLeases,
    /// The work that it was told is done, for a controller that takes over (servers).
    pub(super) work_done: WorkDone,
    /// It has asked to go (workers, switches).
    pub(super) leaves: bool,
    /// Another is to come in its place then, or if its process ends (workers).
    pub(super) returns: bool,
    pub(super) statistics: Option<Statistics>,
    pub(super) has_reported: bool,
    /// Nothing more is expected of it (when the job ends).
    pub(super) settled: bool,
    /// Shards of its process, which are members with the same address (servers).
    pub(super) shards: u16,
    /// It comes back if its process ends (servers).
    pub(super) is_restartable: bool,
    /// It takes seconds for what others do at once (switches).
    pub(super) is_slow: bool,
    /// It has described the job, as the others do (rule M19).
    pub(super) has_proposed: bool,
    /// The pass that it has shown to this controller, which could not check it yet.
    pub(super) pass: Pass,
}

impl Member {
    pub(super) fn new(link: Link, address: SocketAddr, share: u16, now: Instant) -> Self {
        Self {
            link: Some(link),
            address,
            http: None,
            share,
            received_at: now,
            lost_at: None,
            closed_because: None,
            progress_at: None,
            started: false,
            is_renamed: false,
            start_view: u64::MAX,
            viewed: 0,
            standby: false,
            retired: false,
            health: Health::default(),
            complaints: BTreeMap::new(),
            lone_complaint_at: None,
            at_barrier: None,
            clock: (0, 0),
            leases: WorkerLeases::default(),
            work_done: WorkDone::default(),
            leaves: false,
            returns: false,
            statistics: None,
            has_reported: false,
            settled: false,
            shards: 1,
            is_restartable: false,
            is_slow: false,
            has_proposed: false,
            pass: Pass::default(),
        }
    }

    /// Returns the longest time that it may take to act on a view (switches).
    pub(super) fn view_max(&self) -> Duration {
        if self.is_slow { SLOW_VIEW_MAX } else { VIEW_MAX }
    }

    /// Returns the longest time without a message from a member of a kind.
    pub(super) fn heartbeat_timeout(kind: Kind) -> Duration {
        if kind == Kind::Switch { SWITCH_HEARTBEAT_TIMEOUT } else { HEARTBEAT_TIMEOUT }
    }

    /// Returns the time at which it is given up if nothing is received from it until then (rule M5), with the time that a server has to return.
    pub(super) fn deadline(&self, kind: Kind, server_return_max: Duration) -> Instant {
        let return_max = if kind == Kind::Switch { SWITCH_RETURN_MAX } else { RETURN_MAX };
        let timeout = self.received_at + Self::heartbeat_timeout(kind);
        if let Some(lost_at) = self.lost_at.filter(|_| self.is_restartable) {
            return self.progress_at.unwrap_or(lost_at) + server_return_max;
        }
        self.lost_at.map_or(timeout, |lost_at| timeout.min(lost_at + return_max))
    }
}

pub(super) fn kind_of(peer: Peer) -> Kind {
    match peer {
        Peer::Server(_) => Kind::Server,
        Peer::Switch(_) => Kind::Switch,
        Peer::Worker(_) => Kind::Worker,
        Peer::Controller => unreachable!("a controller is no member of its own"),
    }
}

pub(super) fn peer_of(kind: Kind, number: u16) -> Peer {
    match kind {
        Kind::Server => Peer::Server(number),
        Kind::Switch => Peer::Switch(number),
        Kind::Worker => Peer::Worker(number),
    }
}
