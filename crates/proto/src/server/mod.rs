//! The server: it owns one shard of the rows, and applies what workers and switches send.

mod growth;
mod journal;
mod memory_limit;
mod opening;
mod refusals;
mod restore;
mod restoring;
mod shard;
mod snapshot;
mod status;

pub use self::memory_limit::MemoryLimit;
pub(crate) use self::refusals::REFUSALS_MAX;
pub use self::restore::{RestoreError, Restored};
pub use self::restoring::{RESTORING_INTERVAL, RestoringServer};
pub(crate) use self::shard::{PAGE_BYTES_MAX, first_bad_state};

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::opening::Phase;
use self::shard::{ProtocolViolation, Shard};
use crate::admission;
use crate::cluster::Peer;
use crate::membership::{EndCause, Membership, MembershipEvent};
use crate::message::{Answered, Hello, Kind, Message};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role, StrangerCount, Strangers};
use crate::statistics::{ServerStatistics, Statistics};
use crate::status::{Details, MemberStatus, ServerDetails};
use crate::storage::{StorageEvent, StorageRequest};
use crate::time::Instant;

/// Pause of a server whose log cannot be written before it tries to restart it, with a checkpoint.
const RESUME_PAUSE: Duration = Duration::from_secs(5);
/// The same of one that is to end and whose checkpoint cannot be written.
const SAVE_PAUSE: Duration = Duration::from_secs(1);

/// Events that a server or switch reports to its user.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// The cluster is complete, this is the member's place in it. A switch that was taken for dead starts again.
    Started {
        /// The place.
        you: Peer,
    },
    /// The user of the controller asks it to end in order, as SIGTERM does: its own user sees to that.
    DrainAsked,
    /// The job is done.
    Finished(Statistics),
    /// It was asked to end, and the others go on without it, or wait for it.
    Drained {
        /// The reason for which it could not save what it holds, in words for a person.
        unsaved: Option<String>,
    },
    /// The job ended before it was done.
    Ended {
        /// The member that ended it, and its reason.
        reason: String,
        /// Whether the member may come back.
        cause: EndCause,
    },
}

/// Events that a server reports to its driver and its user.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// An event that any member reports.
    Member(MemberEvent),
    /// Something is to be done on its disk.
    Storage(StorageRequest),
    /// Its log cannot be written, and it goes on without: until it can again, a crash loses what came since.
    LogSuspended {
        /// Reason that the disk reported.
        reason: String,
    },
    /// The log is written again, and has everything.
    LogResumed,
    /// It is to end, and the checkpoint of what it has answered cannot be written. It tries again.
    SaveFailed {
        /// Reason that the disk reported.
        reason: String,
    },
    /// Its rows cannot be moved between memory and disk, or take more memory than they may: it sends and writes nothing any more, and must be
    /// started again.
    StoreFailed {
        /// The reason, in words for a person.
        reason: String,
    },
    /// The disk is full: rows stay in memory above the limit.
    MemoryLimitExceeded,
    /// There is room on the disk again.
    MemoryLimitKept,
    /// Streams were closed on which nothing arrived, or nothing that a member sends. Reported each time their number has doubled.
    Strangers(Strangers),
}

/// Commands to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerCommand {
    /// The result of a [request](ServerEvent::Storage) to its disk.
    Storage(StorageEvent),
    /// End in order: [`MemberEvent::Drained`] comes when everything that it has answered is on its disk (rule L9).
    Drain,
}

/// A server as a state machine without I/O but that of its [memory limit](Self::with_memory_limit), with which
/// it has no copy: `clone` panics.
#[derive(Debug, Clone)]
pub struct Server {
    membership: Membership,
    shard: Option<Shard>,
    /// For the shard that is to come.
    memory_limit: Option<MemoryLimit>,
    failure_reported: bool,
    disk_is_full: bool,
    phase: Phase,
    callers: BTreeMap<Link, Peer>,
    actions: VecDeque<Action>,
    events: VecDeque<ServerEvent>,
    /// Time of the next attempt to restart the log.
    resume_at: Option<Instant>,
    /// The checkpoint that the controller has asked for, while it is being written.
    asked_checkpoint: Option<u64>,
    /// The last checkpoint of a job that is done, while it is uploaded.
    last_upload: Option<u64>,
    /// The view that the controller is sent as acted on once the log has this record.
    viewing: Option<u64>,
    /// Messages that violated the protocol, and streams that were closed without one.
    dropped: u64,
    strangers: StrangerCount,
    /// Bytes of a page of a scan, at most.
    page_bytes_max: usize,
}

impl Server {
    /// A server that will join a cluster, and that accepts streams at `stream`. It has no disk.
    pub fn new(stream: SocketAddr) -> Self {
        Self::with(Membership::new(Kind::Server, Some(stream), None, 0), None, Phase::Joining)
    }

    /// The same, with a disk: its driver carries out what [`ServerEvent::Storage`] asks.
    #[must_use]
    pub fn with_disk(mut self) -> Self {
        self.membership.set_restartable();
        self
    }

    /// The same, with a disk whose contents go with the process: for checkpoints that are uploaded. One that was started again would
    /// have nothing, so it is not waited for.
    #[must_use]
    pub fn with_temporary_disk(mut self) -> Self {
        self.membership.set_temporary_disk();
        self
    }

    /// The same, which answers requests over HTTP at this address.
    #[must_use]
    pub fn with_http(mut self, http: Option<SocketAddr>) -> Self {
        self.membership.set_http(http);
        self
    }

    /// The same, one of so many shards of a process: the others join with the same address. A shard that returns has its place already.
    ///
    /// # Panics
    /// `shards` is 0.
    #[must_use]
    pub fn among(mut self, shards: u16) -> Self {
        assert!(shards > 0, "a process of a server has a shard");
        self.membership.set_shards(shards);
        self
    }

    /// The same, with a limit of the memory that its rows take. The others are in a file, which it reads and writes itself, before and after
    /// it uses them. A shard that returns has its limit already.
    #[must_use]
    pub fn with_memory_limit(mut self, limit: MemoryLimit) -> Self {
        self.memory_limit = Some(limit);
        self
    }

    /// Makes pages of scans smaller than workers expect, so that there are many of few rows (rule C13).
    pub fn set_page_bytes_max(&mut self, bytes: usize) {
        self.page_bytes_max = bytes.min(PAGE_BYTES_MAX);
    }

    /// The successor of a server that stopped.
    fn returning(stream: SocketAddr, shard: Shard) -> Self {
        let membership = Membership::new(Kind::Server, Some(stream), None, 0)
            .returning(Peer::Server(shard.number), &shard.cluster);
        let mut server = Self::with(membership, Some(shard), Phase::Returning);
        server.membership.set_restartable();
        server
    }

    fn with(membership: Membership, shard: Option<Shard>, phase: Phase) -> Self {
        Self {
            membership,
            shard,
            memory_limit: None,
            failure_reported: false,
            disk_is_full: false,
            phase,
            callers: BTreeMap::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            resume_at: None,
            asked_checkpoint: None,
            last_upload: None,
            viewing: None,
            dropped: 0,
            strangers: StrangerCount::default(),
            page_bytes_max: PAGE_BYTES_MAX,
        }
    }

    fn handle_membership(&mut self, now: Instant, event: MembershipEvent) {
        match event {
            MembershipEvent::Started(start) => self.start(now, *start),
            // One that ends receives the newest view when it is back.
            MembershipEvent::Changed(_) if matches!(self.phase, Phase::Draining(_)) => {}
            MembershipEvent::Changed(view) => {
                let has_servers = |shard: &&mut Shard| shard.cluster.view.servers.len() == view.servers.len();
                let Some(shard) = self.shard.as_mut().filter(has_servers) else { return self.dropped += 1 };
                shard.enter(view.into_inner());
                if self.phase == Phase::Returning {
                    self.phase = Phase::Serving;
                }
                self.report_viewed();
            }
            MembershipEvent::WorkDone(done) => match &mut self.shard {
                Some(shard) => shard.work_done = done,
                None => self.dropped += 1,
            },
            MembershipEvent::CheckpointComplete { number } => match &mut self.shard {
                Some(shard) => shard.complete_checkpoint = Some(number),
                None => self.dropped += 1,
            },
            MembershipEvent::Checkpoint { number } => self.begin_checkpoint(now, number),
            MembershipEvent::DrainAsked => {
                self.events.push_back(ServerEvent::Member(MemberEvent::DrainAsked));
            }
            MembershipEvent::Connected => {
                let shard = self.shard.as_ref();
                let cluster = shard.map(|shard| shard.cluster.clone());
                let work_done = shard.map(|shard| shard.work_done.clone()).unwrap_or_default();
                self.membership.identify(0, cluster, work_done);
                if let Some(shard) = &mut self.shard {
                    shard.refusals.forget_reported();
                }
                self.report_refusals();
            }
            MembershipEvent::Retire
            | MembershipEvent::Released { .. }
            | MembershipEvent::Clocks { .. }
            | MembershipEvent::Leased { .. }
            | MembershipEvent::Restoring { .. } => self.dropped += 1,
            MembershipEvent::Finish => {
                self.report_refusals();
                let statistics = Statistics::Server(self.statistics());
                self.membership.heartbeat(now, statistics);
                self.finish(now, MemberEvent::Finished(statistics));
            }
            MembershipEvent::Ended { reason, cause } => {
                self.finish(now, MemberEvent::Ended { reason, cause });
            }
        }
    }

    fn statistics(&self) -> ServerStatistics {
        let mut statistics = self.shard.as_ref().map(Shard::statistics).unwrap_or_default();
        statistics.dropped += self.dropped;
        statistics
    }

    /// Sends the controller the refusals since the last report (rule C11).
    fn report_refusals(&mut self) {
        let changed = self.shard.as_mut().map(|shard| shard.refusals.take_changed());
        for message in changed.into_iter().flatten() {
            self.membership.send(message);
        }
    }

    fn handle_hello(&mut self, link: Link, hello: &Hello) -> Result<(), ProtocolViolation> {
        let is_meant =
            |shard: &&mut Shard| shard.cluster.instance == hello.instance && shard.number == hello.to;
        let shard = self.shard.as_mut().filter(is_meant).ok_or(ProtocolViolation)?;
        if self.phase != Phase::Serving {
            // Its caller comes again, when this server has the present view (rule L5).
            self.actions.push_back(Action::Close { link });
            return Ok(());
        }
        let Answered { newest, count } = hello.answered;
        if (newest | count) >> 63 != 0 {
            // No worker has pushed so often, and what counts on from it would overflow.
            return Err(ProtocolViolation);
        }
        // The controller sends servers a member before the member can call (rules M3, V3).
        let is_caller = matches!(hello.from, Peer::Worker(_) | Peer::Switch(_));
        if !is_caller || !shard.cluster.contains(hello.from) {
            return Err(ProtocolViolation);
        }
        if !shard.cluster.admits(hello.from, Peer::Server(shard.number), hello.pass) {
            return Err(ProtocolViolation);
        }
        if self.callers.get(&link).is_some_and(|known| *known != hello.from) {
            return Err(ProtocolViolation);
        }
        // A member opens a stream when the one before has broken, also if this server has not noticed. What was sent on that one may be
        // read after what was sent on the next (rule S2).
        let others = self.callers.iter().filter(|(other, peer)| **other != link && **peer == hello.from);
        if let Some(other) = others.map(|(other, _)| *other).max() {
            if other > link {
                self.actions.push_back(Action::Close { link });
                return Ok(());
            }
            self.callers.remove(&other);
            shard.close(other);
            self.actions.push_back(Action::Close { link: other });
        }
        if let Peer::Worker(worker) = hello.from {
            shard.on_hello(worker, hello.answered);
        }
        let message_bytes_max = admission::bytes_max(&shard.cluster, hello.from);
        self.callers.insert(link, hello.from);
        self.actions.push_back(Action::Admit { link, message_bytes_max });
        Ok(())
    }

    fn handle_call(&mut self, link: Link, message: Message) -> Result<(), ProtocolViolation> {
        if let Message::Hello(hello) = message {
            return self.handle_hello(link, &hello);
        }
        if self.phase != Phase::Serving {
            return Ok(());
        }
        let shard = self.shard.as_mut().ok_or(ProtocolViolation)?;
        match (self.callers.get(&link), message) {
            (Some(Peer::Worker(worker)), Message::Push(push)) => shard.push(link, *worker, push),
            (Some(Peer::Worker(_)), Message::Pull { number, keys }) => shard.pull(link, number, &keys),
            (Some(Peer::Worker(worker)), Message::Assign(assign)) => shard.assign(link, *worker, assign),
            (Some(Peer::Worker(worker)), Message::Reset(reset)) => shard.reset(link, *worker, &reset),
            (Some(Peer::Worker(_)), Message::Scan { number, table, after }) => {
                shard.scan(link, number, table, after, self.page_bytes_max)
            }
            (Some(Peer::Worker(worker)), Message::Replay(replay)) => shard.replay(link, *worker, replay),
            (Some(Peer::Switch(switch)), Message::Adopt { region, view_id, round, contents }) => {
                shard.adopt(link, *switch, region, view_id, (round, contents))
            }
            (Some(Peer::Switch(_)), Message::Drained(drained)) => {
                shard.commit(link, Arc::unwrap_or_clone(drained))
            }
            (Some(Peer::Switch(_)), Message::Installed { region, view_id, change }) => {
                shard.installed(link, region, view_id, change)
            }
            _ => Err(ProtocolViolation),
        }
    }
}

impl Role for Server {
    type Command = ServerCommand;
    type Event = ServerEvent;
    type Status = MemberStatus;

    fn handle_start(&mut self, now: Instant) {
        self.membership.handle_start(now);
    }

    fn handle_datagrams(&mut self, _now: Instant, _from: SocketAddr, _datagrams: &mut [u8], _stride: usize) {
        self.dropped += 1;
    }

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_link(now, event) {
                self.handle_membership(now, event);
            }
        } else if let LinkEvent::Closed { .. } | LinkEvent::Refused { .. } = event {
            // The controller decides if that is the end of the member: it has a stream to the same process.
            self.callers.remove(&link);
            if let Some(shard) = &mut self.shard {
                shard.close(link);
            }
        }
    }

    fn handle_message(&mut self, now: Instant, link: Link, message: Message) {
        if self.membership.is_controller(link) {
            if let Some(event) = self.membership.handle_message(now, message) {
                self.handle_membership(now, event);
            }
        } else if let Err(ProtocolViolation) = self.handle_call(link, message) {
            self.dropped += 1;
            self.callers.remove(&link);
            self.actions.push_back(Action::Close { link });
        }
        if let Some(shard) = &mut self.shard {
            shard.time_log(now);
        }
        // The first refusal of a worker and table is reported at once.
        for message in self.shard.iter_mut().flat_map(|shard| shard.refusals.take_first()) {
            self.membership.send(message);
        }
    }

    fn handle_strangers(&mut self, _now: Instant, strangers: Strangers) {
        self.dropped += strangers.count;
        self.events.extend(self.strangers.add(strangers).map(ServerEvent::Strangers));
    }

    fn handle_socket_failure(&mut self, _now: Instant, _reason: &str) {}

    fn handle_command(&mut self, now: Instant, command: ServerCommand) {
        match command {
            ServerCommand::Storage(event) => self.handle_storage(now, event),
            ServerCommand::Drain => self.drain(now),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.membership.handle_timeout(now);
        if self.resume_at.is_some_and(|due| due <= now) {
            self.resume(now);
        }
        if let Some(shard) = &mut self.shard {
            shard.go_on_with_checkpoint(now);
        }
        if self.membership.is_heartbeat_due(now) {
            self.report_refusals();
            self.report_full_disk();
            self.membership.heartbeat(now, Statistics::Server(self.statistics()));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, _outgoing: &mut Outgoing) {}

    fn poll_action(&mut self) -> Option<Action> {
        if self.has_failed() {
            return None;
        }
        if let Some(action) = self.membership.poll_action().or_else(|| self.actions.pop_front()) {
            return Some(action);
        }
        let (link, message) = self.shard.as_mut()?.outbox.pop_front()?;
        Some(Action::Send { link, message })
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        if self.has_failed() {
            return self.poll_failure();
        }
        let request = self.shard.as_mut().and_then(|shard| shard.journal.requests.pop_front());
        request.map(ServerEvent::Storage).or_else(|| self.events.pop_front())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let checkpoint = self.shard.as_ref().and_then(Shard::poll_timeout);
        [self.membership.poll_timeout(), self.resume_at, checkpoint].into_iter().flatten().min()
    }

    fn status(&self, now: Instant) -> MemberStatus {
        let shard = self.shard.as_ref();
        let details = shard.map_or_else(ServerDetails::default, |shard| shard.details(now));
        MemberStatus {
            member: shard.map(|shard| Peer::Server(shard.number)),
            job: shard.map_or(0, |shard| shard.cluster.job),
            view: shard.map_or(0, |shard| shard.cluster.view.number),
            is_ready: self.phase == Phase::Serving,
            counts: Statistics::Server(self.statistics()),
            details: Details::Server(Box::new(details)),
        }
    }
}

#[cfg(test)]
mod tests;
