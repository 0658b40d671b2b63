//! The part that is common to all members but the controller: join, learn the cluster, send heartbeats, end.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use crate::authentication::{Pass, TagKind};
use crate::cluster::{Cluster, Peer, RETURN_MAX, View};
use crate::dial::{Dial, LinkNumbers};
use crate::message::{Join, Kind, Message, Rejoin, Restoring, Start, VERSION, brief};
use crate::role::{Action, Callee, Link, LinkEvent};
use crate::shared::Shared;
use crate::statistics::Statistics;
use crate::time::Instant;
use crate::work::WorkDone;

/// Interval of the reports of a server or worker to the controller. Switches are asked, and more often (rule M4).
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Why a job has ended for a member before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// The job has failed, or cannot have this member: started again, it would end again.
    Failed,
    /// The member has lost the cluster, or has not found it or a place in it: started again, it may be in.
    Lost,
}

/// Decisions of the controller.
#[derive(Debug)]
pub(crate) enum MembershipEvent {
    /// There is a new stream to the controller, and this member must identify itself: see [`Membership::identify`].
    Connected,
    Started(Box<Start>),
    Changed(Shared<View>),
    Retire,
    /// The user of the controller wants this member to end in order.
    DrainAsked,
    Released {
        number: u64,
    },
    Clocks {
        barrier: u64,
        least: u64,
        view: u64,
    },
    Leased {
        phase: u64,
        chunks: Vec<u32>,
        clock: u64,
    },
    WorkDone(WorkDone),
    CheckpointComplete {
        number: u64,
    },
    Checkpoint {
        number: u64,
    },
    Restoring {
        server: u16,
    },
    Finish,
    Ended {
        reason: String,
        cause: EndCause,
    },
}

/// A member's connection to the controller.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    dial: Dial,
    links: LinkNumbers,
    join: Join,
    /// The job, for a controller that takes its tables from workers.
    proposal: Option<Box<Cluster>>,
    /// It can keep something, at least until its process ends.
    has_disk: bool,
    /// This member and its share, once it is in.
    you: Option<(Peer, u16)>,
    /// The instance of the job.
    instance: u64,
    /// The evidence for the controller that it is this member.
    pass: Pass,
    view: u64,
    heartbeat_at: Option<Instant>,
    /// The newest probe, to be answered with the next heartbeat.
    probe: Option<u64>,
    finished: bool,
    actions: VecDeque<Action>,
}

impl Membership {
    pub(crate) fn new(
        kind: Kind,
        stream: Option<SocketAddr>,
        datagrams: Option<SocketAddr>,
        receive_bytes: u32,
    ) -> Self {
        Self {
            dial: Dial::new(Callee::Controller, RETURN_MAX),
            links: LinkNumbers::default(),
            join: Join {
                version: VERSION,
                kind,
                stream,
                shards: 1,
                datagrams,
                receive_bytes,
                is_restartable: false,
                is_slow: false,
                tags: TagKind::Off,
                http: None,
            },
            proposal: None,
            has_disk: false,
            you: None,
            instance: 0,
            pass: Pass::default(),
            view: 0,
            heartbeat_at: None,
            probe: None,
            finished: false,
            actions: VecDeque::new(),
        }
    }

    /// The process can be started again when it ends, and goes on.
    pub(crate) fn set_restartable(&mut self) {
        (self.join.is_restartable, self.has_disk) = (true, true);
    }

    /// Another process comes in its place if its own ends.
    pub(crate) fn set_restarted(&mut self, is_restarted: bool) {
        self.join.is_restartable = is_restarted;
    }

    /// It has a disk, and what is there goes with its process.
    pub(crate) fn set_temporary_disk(&mut self) {
        self.has_disk = true;
    }

    /// Its process has so many shards.
    pub(crate) fn set_shards(&mut self, shards: u16) {
        self.join.shards = shards;
    }

    /// It takes seconds for what others do at once.
    pub(crate) fn set_slow_device(&mut self) {
        self.join.is_slow = true;
    }

    /// Its data plane can check and make such tags.
    pub(crate) fn set_tags(&mut self, tags: TagKind) {
        self.join.tags = tags;
    }

    /// It answers requests over HTTP there.
    pub(crate) fn set_http(&mut self, http: Option<SocketAddr>) {
        self.join.http = http;
    }

    /// It describes the job to the controller when it joins.
    pub(crate) fn set_proposal(&mut self, job: Box<Cluster>) {
        self.proposal = Some(job);
    }

    /// Returns true if it can be started again.
    pub(crate) fn is_restartable(&self) -> bool {
        self.join.is_restartable
    }

    /// Returns true if it has a disk, be it a temporary one.
    pub(crate) fn has_disk(&self) -> bool {
        self.has_disk
    }

    /// It was a member already, in a process before this one, and acted on this view.
    pub(crate) fn returning(mut self, you: Peer, cluster: &Cluster) -> Self {
        (self.you, self.instance, self.view) = (Some((you, 0)), cluster.instance, cluster.view.number);
        self.pass = cluster.pass(you, Peer::Controller);
        self.dial.set_return_max(cluster.return_max);
        self
    }

    pub(crate) fn handle_start(&mut self, now: Instant) {
        let connect = self.dial.connect(now, &mut self.links);
        self.actions.push_back(connect);
    }

    /// Opens a stream to another member.
    pub(crate) fn connect(&mut self, now: Instant, dial: &mut Dial) {
        let connect = dial.connect(now, &mut self.links);
        self.actions.push_back(connect);
    }

    /// Opens a stream to another member again, if it broke long enough ago.
    pub(crate) fn reconnect(&mut self, now: Instant, dial: &mut Dial) {
        self.actions.extend(dial.handle_timeout(now, &mut self.links));
    }

    /// Opens streams to all servers of a cluster.
    pub(crate) fn dial_servers(&mut self, now: Instant, cluster: &Cluster) -> Vec<Dial> {
        let servers = cluster.view.servers.iter();
        let mut dials: Vec<Dial> =
            servers.map(|address| Dial::new(Callee::Server(*address), cluster.return_max)).collect();
        dials.iter_mut().for_each(|dial| self.connect(now, dial));
        dials
    }

    /// Opens streams to those servers that have returned at another address.
    pub(crate) fn follow(&mut self, now: Instant, dials: &mut [Dial], servers: &[SocketAddr]) {
        for (dial, address) in dials.iter_mut().zip(servers) {
            self.actions.extend(dial.move_to(now, Callee::Server(*address)));
            self.reconnect(now, dial);
        }
    }

    /// Sends the controller a message. Nothing is kept for one that is gone: a member that rejoins repeats what still matters.
    pub(crate) fn send(&mut self, message: Message) {
        if let Some(link) = self.dial.open_link() {
            self.actions.push_back(Action::Send { link, message });
        }
    }

    /// Reports to the controller that this member acts on a view.
    pub(crate) fn viewed(&mut self, number: u64) {
        self.view = number;
        self.send(Message::Viewed { number });
    }

    /// Ends the job for all members.
    pub(crate) fn abort(&mut self, reason: &str) {
        self.send(Message::Abort { reason: reason.to_owned() });
    }

    pub(crate) fn is_controller(&self, link: Link) -> bool {
        self.dial.is(link)
    }

    pub(crate) fn handle_link(&mut self, now: Instant, event: LinkEvent) -> Option<MembershipEvent> {
        match event {
            LinkEvent::Opened { .. } => {
                self.dial.opened();
                if self.join.kind != Kind::Switch {
                    self.heartbeat_at = Some(now + HEARTBEAT_INTERVAL);
                }
                Some(MembershipEvent::Connected)
            }
            LinkEvent::Closed { .. } | LinkEvent::Refused { .. } if self.finished => None,
            LinkEvent::Refused { reason } if self.you.is_none() => {
                Some(self.without_controller("", &reason, EndCause::Failed))
            }
            LinkEvent::Closed { reason } | LinkEvent::Refused { reason } => {
                self.heartbeat_at = None;
                let first = self.you.is_none() && self.dial.open_link().is_none();
                // The first attempt reports at once that there is no controller: the driver has tried already.
                if self.dial.closed(now) && !first {
                    return None;
                }
                let tried = if first {
                    String::new()
                } else {
                    format!(" (for {} s)", self.dial.return_max().as_secs())
                };
                Some(self.without_controller(&tried, &reason, EndCause::Lost))
            }
        }
    }

    fn without_controller(&mut self, tried: &str, reason: &str, cause: EndCause) -> MembershipEvent {
        let reason = format!("no connection to the controller{tried}: {reason}");
        self.dial.hang_up();
        MembershipEvent::Ended { reason, cause }
    }

    /// Identifies this member, first on each stream: a newcomer, or a member since `barriers` barriers.
    pub(crate) fn identify(&mut self, barriers: u64, cluster: Option<Box<Cluster>>, work_done: WorkDone) {
        let join = self.join.clone();
        let message = match self.you {
            None => Message::Join(join),
            Some((you, share)) => {
                let Self { instance, view, pass, .. } = *self;
                Message::Rejoin(Box::new(Rejoin {
                    join,
                    instance,
                    you,
                    pass,
                    share,
                    view,
                    barriers,
                    cluster,
                    work_done,
                }))
            }
        };
        self.send(message);
        if let Some(job) = self.proposal.clone().filter(|_| self.you.is_none()) {
            self.send(Message::Propose(job));
        }
    }

    pub(crate) fn handle_message(&mut self, _now: Instant, message: Message) -> Option<MembershipEvent> {
        match message {
            Message::Start(start) => {
                self.you = Some((start.you, start.share));
                self.instance = start.cluster.instance;
                self.pass = start.cluster.pass(start.you, Peer::Controller);
                self.dial.set_return_max(start.cluster.return_max);
                self.view = 0;
                self.proposal = None;
                Some(MembershipEvent::Started(start))
            }
            Message::View(view) => Some(MembershipEvent::Changed(view)),
            Message::Retire => Some(MembershipEvent::Retire),
            Message::Drain => Some(MembershipEvent::DrainAsked),
            Message::Probe { number } => {
                self.probe = Some(number);
                None
            }
            Message::Release { number } => Some(MembershipEvent::Released { number }),
            Message::Clocks { barrier, least, view } => {
                Some(MembershipEvent::Clocks { barrier, least, view })
            }
            Message::Leased { phase, chunks, clock } => {
                Some(MembershipEvent::Leased { phase, chunks, clock })
            }
            Message::WorkDone(done) => Some(MembershipEvent::WorkDone(*done)),
            Message::CheckpointComplete { number } => Some(MembershipEvent::CheckpointComplete { number }),
            Message::Checkpoint { number } => Some(MembershipEvent::Checkpoint { number }),
            Message::Restoring(Restoring { server, .. }) => Some(MembershipEvent::Restoring { server }),
            Message::Finish => {
                self.finished = true;
                Some(MembershipEvent::Finish)
            }
            Message::Abort { reason } => {
                self.finished = true;
                Some(MembershipEvent::Ended { reason: brief(reason), cause: EndCause::Failed })
            }
            Message::NoPlace { reason } => {
                self.finished = true;
                Some(MembershipEvent::Ended { reason: brief(reason), cause: EndCause::Lost })
            }
            _ => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let connect = self.dial.handle_timeout(now, &mut self.links);
        self.actions.extend(connect);
    }

    /// Returns true if it is time to report.
    pub(crate) fn is_heartbeat_due(&self, now: Instant) -> bool {
        self.probe.is_some() || self.heartbeat_at.is_some_and(|due| due <= now)
    }

    pub(crate) fn heartbeat(&mut self, now: Instant, statistics: Statistics) {
        if self.heartbeat_at.is_some() {
            self.heartbeat_at = Some(now + HEARTBEAT_INTERVAL);
        }
        let probe = self.probe.take().unwrap_or(0);
        self.send(Message::Heartbeat { statistics, probe });
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.heartbeat_at, self.dial.poll_timeout()].into_iter().flatten().min()
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}
