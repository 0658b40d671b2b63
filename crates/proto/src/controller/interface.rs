//! The interface of a controller to its user: what it is told, what it reports, and the outcome of a job.

use core::net::SocketAddr;
use core::time::Duration;

use libra_plan::Plan;

use super::Refusal;
use crate::authentication::TagKind;
use crate::cluster::{Cluster, Peer};
use crate::message::Restoring;
use crate::role::Strangers;
use crate::statistics::Statistics;
use crate::work::{AddedPhase, AddedPhases, WorkRecord};

/// Number of members that a cluster begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Servers, one shard each.
    pub servers: u16,
    /// Switches; none is allowed. Those that come beyond are standbys.
    pub switches: u16,
    /// Workers, one for each share of the task.
    pub workers: u16,
}

/// Events that the controller reports to its user.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerEvent {
    /// A process was taken in.
    Joined {
        /// Its place.
        peer: Peer,
        /// Address of the caller.
        remote: SocketAddr,
        /// Number of members of each kind that are still missing.
        missing: Sizes,
    },
    /// A switch can do less than MACs, and so packets have other tags.
    TagsReduced {
        /// The switch.
        peer: Peer,
        /// The tags that packets have now.
        tags: TagKind,
    },
    /// Members of a cluster call that have lost their controller, before this one knew its job: theirs goes on.
    TakesOver,
    /// All members are there and were sent the start.
    Started,
    /// This controller has taken over the cluster of one that is gone.
    Recovered,
    /// A switch or worker is gone, and the others go on.
    Lost {
        /// The member.
        peer: Peer,
        /// Reason why it is taken for gone.
        reason: String,
    },
    /// A server is gone that can come back; members that need it wait.
    Away {
        /// The member.
        peer: Peer,
        /// Reason why its stream broke.
        reason: String,
    },
    /// It was started again, and reads its disk. Reported every 10 s.
    Restoring(Restoring),
    /// It is back.
    Returned {
        /// The member.
        peer: Peer,
        /// Duration of its absence.
        took: Duration,
    },
    /// A checkpoint of all servers is there.
    Checkpointed {
        /// Its number.
        number: u64,
        /// From the moment when they were sent it to the last one's answer.
        took: Duration,
    },
    /// A checkpoint failed.
    CheckpointFailed {
        /// Its number.
        number: u64,
        /// The reason.
        reason: String,
    },
    /// Phases of open work: when the job begins, or goes on with this controller, and when some were added (rule K9).
    PhasesAdded(AddedPhases),
    /// The user wants so many workers.
    ScaleAsked {
        /// Number of workers.
        workers: u16,
    },
    /// A server refused a gradient that is not finite: the first one of this worker and table (rule C11).
    Refused(Refusal),
    /// Streams were closed on which nothing arrived, or nothing that a member sends. Reported each time their number has doubled.
    Strangers(Strangers),
    /// All members act on the present view, and switches have the regions that they hold.
    Settled {
        /// The number of the view.
        view: u64,
        /// Number of regions that have moved since the view before.
        moved: usize,
        /// Time since the fault was noticed.
        took: Duration,
    },
    /// Every worker has reported and every other member has sent its last counts.
    Finished(Outcome),
    /// The job ended before it was done.
    Failed {
        /// The member that ended it, and its reason.
        reason: String,
    },
}

/// The outcome of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The reports of the workers that came to the end, by their share.
    pub reports: Vec<String>,
    /// The record of each worker, by its number, those included that went before the end.
    pub work: Vec<(u16, WorkRecord)>,
    /// Chunks that were dealt again, as a worker was lost that may have done a part of them.
    pub repeated_chunks: u64,
    /// The last counts of all members, those included that went before the end.
    pub statistics: Vec<(Peer, Statistics)>,
    /// The gradients that servers refused, by server, worker and table; a bounded number of them (rule C11).
    pub refusals: Vec<Refusal>,
    /// The tags that packets of the hot path had.
    pub tags: TagKind,
    /// The plan of hot rows, if there was one.
    pub plan: Option<Box<Plan>>,
}

impl Outcome {
    /// Returns the number of packets of gradients that switches added up.
    pub fn packets_aggregated(&self) -> u64 {
        let of_switch = |statistics: &Statistics| match statistics {
            Statistics::Switch(switch) => Some(switch.pushes),
            Statistics::Server(_) | Statistics::Worker(_) => None,
        };
        self.statistics.iter().filter_map(|(_, statistics)| of_switch(statistics)).sum()
    }
}

/// Commands of a user to a controller.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerCommand {
    /// This is the job, for a controller that was [started without](super::Controller::awaiting_job).
    Describe {
        /// Number of members that it begins with.
        sizes: Sizes,
        /// The job.
        cluster: Box<Cluster>,
    },
    /// Move everything that a switch holds to others, without a loss and without a replay.
    Migrate {
        /// The switch.
        switch: u16,
    },
    /// Ask a member to end in order, as SIGTERM does. One that is not there is not asked.
    Drain {
        /// The member.
        peer: Peer,
    },
    /// Have so many workers from now on: those that are too many are asked to end in order. Who starts those that are too few learns it from
    /// [`ControllerEvent::ScaleAsked`].
    Scale {
        /// Number of workers.
        workers: u16,
    },
    /// Add phases to open work (rule K9), unless it has others by now.
    AddPhases {
        /// Number of phases that it has.
        behind: u64,
        /// The phases.
        phases: Vec<AddedPhase>,
        /// No other is going to be added.
        is_complete: bool,
    },
    /// Let all servers write a checkpoint, if they have a disk and write none just now.
    Checkpoint,
    /// End the job for all members.
    Abort {
        /// The reason.
        reason: String,
    },
}
