//! Status of a role at one moment: a copy, made when it is asked for, for those who watch.

use core::net::SocketAddr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::authentication::TagKind;
use crate::cluster::Peer;
use crate::controller::Sizes;
use crate::histogram::Histogram;
use crate::statistics::{Statistics, WorkerStatistics};

/// Status of a worker, a switch, or a shard of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberStatus {
    /// Its place in the cluster; none before it has one.
    pub member: Option<Peer>,
    /// The number of its job.
    pub job: u16,
    /// The newest view that it acts on.
    pub view: u64,
    /// It acts on the newest view that it has received, and can do its part: a server has its rows, a switch holds its regions or
    /// none.
    pub is_ready: bool,
    /// Its counts.
    pub counts: Statistics,
    /// Properties of its kind beside the counts.
    pub details: Details,
}

/// Status of one kind of member beside its counts.
#[derive(Debug, Clone, PartialEq)]
pub enum Details {
    /// Of a worker.
    Worker(Box<WorkerDetails>),
    /// Of a shard of a server.
    Server(Box<ServerDetails>),
    /// Of a switch.
    Switch(Box<SwitchDetails>),
}

/// Status of a worker beside its counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerDetails {
    /// From a push to its last acknowledgement.
    pub push_accepted: Histogram,
    /// From a push until all of it can be read; of one push at a time, ten times a second at most.
    pub push_visible: Histogram,
    /// From a pull to its last answer, of pulls whose rows were all hot.
    pub pull_hot: Histogram,
    /// The same for pulls without a hot row.
    pub pull_cold: Histogram,
    /// The same for the others.
    pub pull_mixed: Histogram,
    /// The paths to switches.
    pub paths: Vec<PathStatus>,
    /// Chunks of data that it had leases of.
    pub chunks: ChunkCounts,
}

/// Chunks of data by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Chunks whose pushes are all visible.
    pub done: u64,
    /// Chunks that another worker has done, since this one was away.
    pub reassigned: u64,
}

/// A worker's path to a switch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathStatus {
    /// The switch.
    pub switch: u16,
    /// Packets that it may have in flight.
    pub window_packets: u32,
    /// Smoothed round-trip time, once there is one (RFC 6298).
    pub round_trip: Option<Duration>,
}

/// Status of a shard of a server beside its counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerDetails {
    /// Bytes of memory of its store.
    pub store_bytes: u64,
    /// From the write of a log record to the answer that it is durable; of one record at a time.
    pub log_sync: Histogram,
    /// Duration of checkpoints.
    pub checkpoint: Histogram,
    /// Time since the newest checkpoint of this process.
    pub checkpoint_age: Option<Duration>,
    /// The log cannot be written, and training goes on without it.
    pub is_log_suspended: bool,
    /// Uploads of its checkpoints.
    pub upload: UploadStatus,
}

/// Uploads of checkpoints by a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UploadStatus {
    /// Duration of those that have come to their end.
    pub seconds: Histogram,
    /// Number of the newest checkpoint that is uploaded.
    pub number: u64,
    /// Uploads that failed.
    pub failed: u64,
    /// Bytes that were sent.
    pub bytes: u64,
}

/// Status of a switch beside its counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SwitchDetails {
    /// Regions that it holds.
    pub regions: u64,
    /// Rounds that were closed since a bank was as full as it may be.
    pub rounds_full: u64,
    /// Rounds that were closed since enough pushes were complete.
    pub rounds_pushes: u64,
    /// Rounds that were closed since they had lasted as long as they may.
    pub rounds_time: u64,
    /// Rounds that were closed since the switch gives its regions away.
    pub rounds_retiring: u64,
    /// From the first packet of a round to its drain.
    pub round: Histogram,
    /// From the drain of a round to its commit by the shard.
    pub commit: Histogram,
}

/// Phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// Members are missing that it begins with.
    Gathering,
    /// Members of a cluster that another controller made come back.
    Recovering,
    /// Workers train.
    Running,
    /// All workers have reported, and the others send their last counts.
    Finishing,
    /// It is done, or has failed.
    Over,
}

/// State of a member, as the controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// It was not sent its place yet.
    Joining,
    /// It has its place, and does not act on the newest view yet.
    Entering,
    /// It acts on the newest view.
    Active,
    /// A switch without a region.
    Standby,
    /// A switch that gets no region any more.
    Retired,
    /// Its stream is broken, and it may come back.
    Away,
    /// It has asked to go.
    Leaving,
    /// It has sent its report, or its last counts.
    Done,
}

/// A member, as the controller sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownMember {
    /// The member.
    pub peer: Peer,
    /// Its state.
    pub state: MemberState,
    /// Address at which the others reach it.
    pub address: SocketAddr,
    /// Address at which it answers requests over HTTP.
    pub http: Option<SocketAddr>,
    /// The newest view that it acts on.
    pub view: u64,
    /// Number of regions that it owns (switches).
    pub regions: u64,
    /// Its share of the task (workers).
    pub share: u16,
    /// Its clock since the last barrier (workers).
    pub clock: u64,
    /// Time since its last message.
    pub silent: Duration,
    /// Its newest counts.
    pub counts: Option<Statistics>,
}

/// Status of a controller.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerStatus {
    /// The number of the job.
    pub job: u16,
    /// The phase of the job.
    pub phase: JobPhase,
    /// The number of the newest view.
    pub view: u64,
    /// All members act on it.
    pub is_settled: bool,
    /// The members that have come, while the job waits for others to begin; none before the controller knows its job.
    pub gathering: Option<Gathering>,
    /// The members that are there, or may come back.
    pub members: Vec<KnownMember>,
    /// The last counts of members that went.
    pub departed: Vec<(Peer, Statistics)>,
    /// Members that were given up since this controller began: servers, switches, workers.
    pub lost: Lost,
    /// Durations of changes of view, from the fault to the last member that acts on the view.
    pub view_changes: Histogram,
    /// Regions that have moved.
    pub regions_moved: u64,
    /// Progress of the work; none if it is not dealt in chunks.
    pub work: Option<WorkStatus>,
    /// Checkpoints that all servers have written, and those that failed.
    pub checkpoints: CheckpointStatus,
    /// Tags of packets of the hot path.
    pub tags: TagKind,
    /// Streams of strangers that were closed.
    pub strangers: u64,
    /// Reason why the job has failed.
    pub failure: Option<String>,
}

/// Progress of work that is dealt in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkStatus {
    /// The present phase, from 0.
    pub phase: u64,
    /// All phases.
    pub phases: u64,
    /// Chunks of the present phase.
    pub chunks: u32,
    /// Of these, those that are done.
    pub done: u32,
    /// Of these, those that workers have leases of.
    pub leased: u32,
    /// Workers that the job may have at a time.
    pub workers_max: u16,
    /// Chunks of all phases that were dealt again, as a worker was lost that may have done a part.
    pub repeated: u64,
}

/// Members with which a job begins. A server is there when all its shards are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathering {
    /// Of these, those that have come.
    pub there: Sizes,
    /// All of them.
    pub expected: Sizes,
}

/// Members that were given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Servers.
    pub servers: u64,
    /// Switches.
    pub switches: u64,
    /// Workers.
    pub workers: u64,
}

/// Checkpoints of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// The servers have disks.
    pub are_possible: bool,
    /// Number of the newest that all servers have written.
    pub newest: u64,
    /// Time since it was there.
    pub age: Option<Duration>,
    /// Interval at which they are written.
    pub every: Option<Duration>,
    /// Number of those that were written since this controller began.
    pub written: u64,
    /// Number of those that failed.
    pub failed: u64,
}

impl ControllerStatus {
    /// The newest counts of all members, those included that went.
    pub fn counts(&self) -> impl Iterator<Item = (Peer, Statistics)> {
        let present = self.members.iter().filter_map(|member| Some((member.peer, member.counts?)));
        present.chain(self.departed.iter().copied())
    }

    /// Samples that the workers have trained on, and those that they are to train on.
    pub fn samples(&self) -> (u64, u64) {
        let workers = self.worker_counts();
        workers.fold((0, 0), |(done, planned), counts| {
            (done + counts.training.samples, planned + counts.training.samples_planned)
        })
    }

    /// Mean loss of the workers in their present epoch.
    pub fn loss(&self) -> Option<f64> {
        let present = self.members.iter().filter_map(|member| match member.counts? {
            Statistics::Worker(counts) if counts.training.samples > 0 => Some(counts.training.loss),
            _ => None,
        });
        let (count, sum) = present.fold((0u32, 0.0), |(count, sum), loss| (count + 1, sum + loss));
        (count > 0).then(|| sum / f64::from(count))
    }

    fn worker_counts(&self) -> impl Iterator<Item = WorkerStatistics> {
        self.counts().filter_map(|(_, counts)| match counts {
            Statistics::Worker(counts) => Some(counts),
            Statistics::Server(_) | Statistics::Switch(_) => None,
        })
    }
}
