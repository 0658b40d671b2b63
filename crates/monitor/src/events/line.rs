//! The events that are written, and how they follow from those of roles.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use libra_proto::{
    ControllerEvent, ControllerStatus, MemberEvent, MemberStatus, Outcome, PathChange, Refusal, ServerEvent,
    Strangers,
};
use serde::Serialize;
use serde_json::Value;

use crate::document::{Counts, Document, Progress, Totals};

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The member has its place, and the cluster is complete.
    MemberStarted,
    /// A process was taken in (controller).
    MemberJoined {
        /// The member.
        peer: String,
        /// Address of the caller.
        remote: SocketAddr,
    },
    /// The cluster is complete (controller).
    JobStarted,
    /// The controller has taken over the cluster of another.
    JobTakenOver,
    /// A member is gone, and the others go on.
    MemberLost {
        /// The member.
        peer: String,
        /// Reason why it is taken for gone.
        reason: String,
    },
    /// A server is gone that can come back.
    MemberAway {
        /// The member.
        peer: String,
        /// Reason why its stream broke.
        reason: String,
    },
    /// A server reads its disk.
    MemberRestoring {
        /// The member.
        peer: String,
        /// Bytes that are read.
        bytes_read: u64,
        /// Bytes that are to be read.
        bytes_total: u64,
    },
    /// A server is back.
    MemberReturned {
        /// The member.
        peer: String,
        /// Duration of its absence.
        seconds: f64,
    },
    /// All members act on a view.
    ViewSettled {
        /// Its number.
        view: u64,
        /// Regions that have moved.
        regions_moved: usize,
        /// Time since the fault was noticed.
        seconds: f64,
    },
    /// All servers have written a checkpoint.
    CheckpointWritten {
        /// Its number.
        number: u64,
        /// Its duration.
        seconds: f64,
    },
    /// A checkpoint failed.
    CheckpointFailed {
        /// Its number.
        number: u64,
        /// The reason.
        reason: String,
    },
    /// The user of the job wants so many workers: an engine starts those that are missing (controller).
    ScaleAsked {
        /// Number of workers.
        workers: u16,
    },
    /// Phases were added to the work of a job that follows its data (controller).
    PhasesAdded {
        /// Number of phases that it has now.
        phases: u64,
        /// Those behind them are never added.
        complete: bool,
    },
    /// A server refused a gradient that is not finite: the first one of this worker and table.
    GradientRefused {
        /// The server.
        server: u16,
        /// The worker; none if a sum was not finite.
        worker: Option<u16>,
        /// The table.
        table: String,
        /// The row.
        key: u64,
    },
    /// Streams were closed that are of no member.
    Strangers {
        /// Number of streams so far.
        count: u64,
        /// The other end of the last one.
        remote: SocketAddr,
        /// Reason why that one was closed.
        reason: String,
    },
    /// A switch has other tags than MACs.
    TagsReduced {
        /// The switch.
        peer: String,
    },
    /// Packets of a worker to a switch have another length from now on.
    PathChanged {
        /// The switch.
        switch: u16,
        /// Its address.
        remote: SocketAddr,
        /// Bytes of IP packets before, at most.
        bytes_before: usize,
        /// Bytes that they have now.
        bytes: usize,
    },
    /// A check of the machine has found what costs speed or a job, at the start of the member.
    MachineFinding {
        /// The check, as `libra doctor` names it.
        check: &'static str,
        /// `warn` or `bad`.
        verdict: &'static str,
        /// The state of the machine.
        found: String,
        /// Its cost.
        costs: Option<String>,
        /// The command that mends it.
        mend: Option<String>,
    },
    /// A server's log cannot be written.
    LogSuspended {
        /// The reason.
        reason: String,
    },
    /// A server's log is written again.
    LogResumed,
    /// A server cannot save what it has answered, though it is to end.
    SaveFailed {
        /// The reason.
        reason: String,
    },
    /// Rows of a server take more memory than they may.
    MemoryLimitExceeded,
    /// They do no more.
    MemoryLimitKept,
    /// The counts of a member.
    Counts {
        /// The newest view that it acts on.
        view: u64,
        /// The counts.
        counts: Counts,
    },
    /// The counts of a job.
    JobCounts {
        /// The phase of the job.
        phase: String,
        /// The newest view.
        view: u64,
        /// The progress of the training.
        progress: Progress,
        /// Counts of all members together.
        totals: Box<Totals>,
    },
    /// A worker has evaluated its part of the test data after an epoch.
    EpochEvaluated {
        /// The epoch, from 0.
        epoch: u32,
        /// Measures by name.
        quality: BTreeMap<String, f64>,
    },
    /// The member has ended in order, as it was asked to.
    MemberDrained {
        /// The reason for which it could not save what it held.
        unsaved: Option<String>,
    },
    /// The member has come to the end of the job.
    MemberDone {
        /// Its last counts; those of a worker are in the line before.
        #[serde(skip_serializing_if = "Option::is_none")]
        counts: Option<Counts>,
    },
    /// The member has ended before the job was done.
    MemberFailed {
        /// The reason.
        reason: String,
    },
    /// The job is done; the last event of a controller.
    JobDone {
        /// Seconds since its process began.
        seconds: f64,
        /// Counts of all members together.
        totals: Box<Totals>,
        /// Results of the front end: of models of `libra`, loss and quality of each epoch.
        epochs: Value,
    },
    /// The job has failed; the last event of a controller.
    JobFailed {
        /// The reason.
        reason: String,
    },
    /// Lines were lost before this one: the disk was full, or too slow.
    LinesLost {
        /// Their number.
        count: u64,
    },
    /// Nothing more is written.
    #[serde(skip)]
    End,
}

impl Event {
    /// The job is done. `epochs` is what its front end makes of the reports.
    pub fn job_done(outcome: &Outcome, took: Duration, epochs: Value) -> Self {
        let totals = Box::new(Totals::of_outcome(outcome));
        Self::JobDone { seconds: took.as_secs_f64(), totals, epochs }
    }

    /// Returns true if a member reports nothing more.
    pub(super) fn ends_member(&self) -> bool {
        matches!(self, Self::MemberDone { .. } | Self::MemberDrained { .. } | Self::MemberFailed { .. })
    }

    /// The line of an event of a controller. Its end is told by those who have the result.
    pub fn of_controller(event: &ControllerEvent) -> Option<Self> {
        Some(match event {
            ControllerEvent::Joined { peer, remote, .. } => {
                Self::MemberJoined { peer: peer.to_string(), remote: *remote }
            }
            ControllerEvent::TagsReduced { peer, .. } => Self::TagsReduced { peer: peer.to_string() },
            ControllerEvent::Started => Self::JobStarted,
            ControllerEvent::Recovered => Self::JobTakenOver,
            ControllerEvent::Lost { peer, reason } => {
                Self::MemberLost { peer: peer.to_string(), reason: reason.clone() }
            }
            ControllerEvent::Away { peer, reason } => {
                Self::MemberAway { peer: peer.to_string(), reason: reason.clone() }
            }
            ControllerEvent::Restoring(progress) => Self::MemberRestoring {
                peer: libra_proto::Peer::Server(progress.server).to_string(),
                bytes_read: progress.read,
                bytes_total: progress.total,
            },
            ControllerEvent::Returned { peer, took } => {
                Self::MemberReturned { peer: peer.to_string(), seconds: took.as_secs_f64() }
            }
            ControllerEvent::Settled { view, moved, took } => {
                Self::ViewSettled { view: *view, regions_moved: *moved, seconds: took.as_secs_f64() }
            }
            ControllerEvent::Checkpointed { number, took } => {
                Self::CheckpointWritten { number: *number, seconds: took.as_secs_f64() }
            }
            ControllerEvent::CheckpointFailed { number, reason } => {
                Self::CheckpointFailed { number: *number, reason: reason.clone() }
            }
            ControllerEvent::ScaleAsked { workers } => Self::ScaleAsked { workers: *workers },
            ControllerEvent::PhasesAdded(added) => {
                Self::PhasesAdded { phases: added.count(), complete: added.is_complete }
            }
            ControllerEvent::Refused(refusal) => Self::refused(refusal),
            ControllerEvent::Strangers(strangers) => Self::strangers(strangers),
            ControllerEvent::TakesOver | ControllerEvent::Finished(_) | ControllerEvent::Failed { .. } => {
                return None;
            }
        })
    }

    /// The line of an event of a server or switch.
    pub fn of_member(event: &MemberEvent) -> Option<Self> {
        Some(match event {
            MemberEvent::Started { .. } => Self::MemberStarted,
            MemberEvent::DrainAsked => return None,
            MemberEvent::Finished(statistics) => Self::MemberDone { counts: Some((*statistics).into()) },
            MemberEvent::Drained { unsaved } => Self::MemberDrained { unsaved: unsaved.clone() },
            MemberEvent::Ended { reason, .. } => Self::MemberFailed { reason: reason.clone() },
        })
    }

    /// The line of an event of a server alone.
    pub fn of_server(event: &ServerEvent) -> Option<Self> {
        Some(match event {
            ServerEvent::Member(event) => return Self::of_member(event),
            ServerEvent::Storage(_) => return None,
            ServerEvent::LogSuspended { reason } => Self::LogSuspended { reason: reason.clone() },
            ServerEvent::LogResumed => Self::LogResumed,
            ServerEvent::SaveFailed { reason } => Self::SaveFailed { reason: reason.clone() },
            ServerEvent::StoreFailed { reason } => Self::MemberFailed { reason: reason.clone() },
            ServerEvent::MemoryLimitExceeded => Self::MemoryLimitExceeded,
            ServerEvent::MemoryLimitKept => Self::MemoryLimitKept,
            ServerEvent::Strangers(strangers) => Self::strangers(strangers),
        })
    }

    /// The line of a new length of packets.
    pub fn path_changed(&PathChange { switch, address, before, after }: &PathChange) -> Self {
        Self::PathChanged { switch, remote: address, bytes_before: before, bytes: after }
    }

    fn refused(Refusal { server, worker, table, key, .. }: &Refusal) -> Self {
        Self::GradientRefused { server: *server, worker: *worker, table: table.clone(), key: *key }
    }

    fn strangers(Strangers { count, remote, reason }: &Strangers) -> Self {
        Self::Strangers { count: *count, remote: *remote, reason: reason.clone() }
    }
}

/// The counts of a member.
pub(super) fn counts_of_member(status: &MemberStatus) -> Event {
    Event::Counts { view: status.view, counts: status.counts.into() }
}

/// The counts of a job.
pub(super) fn counts_of_job(status: &ControllerStatus) -> Event {
    match Document::of_job(status, Duration::ZERO, Duration::ZERO) {
        Document::Controller(job) => Event::JobCounts {
            phase: job.phase,
            view: job.view,
            progress: job.progress,
            totals: Box::new(job.totals),
        },
        Document::Worker(_) | Document::Server(_) | Document::Switch(_) => {
            unreachable!("it is made of a job")
        }
    }
}
