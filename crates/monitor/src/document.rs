//! Documents of status for machines: what `GET /status` answers with, as JSON.

use core::net::SocketAddr;
use core::time::Duration;

use libra_net::Inspected;
use libra_proto::{
    CheckpointStatus, ControllerStatus, JobPhase, Kind, KnownMember, Lost, MemberState, MemberStatus,
    Outcome, Peer, ServerStatistics, Statistics, SwitchStatistics, TagKind, WorkStatus, WorkerStatistics,
};
use serde::{Deserialize, Serialize};

/// Version of the documents. Fields are added without a change of it; one that goes, or gets another meaning, changes it.
pub const VERSION: u32 = 1;

/// Status of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Document {
    /// Of a controller.
    Controller(Box<JobDocument>),
    /// Of a worker.
    Worker(ProcessDocument),
    /// Of a server.
    Server(ProcessDocument),
    /// Of a switch.
    Switch(ProcessDocument),
}

/// Status of a process that is a member, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessDocument {
    /// [`VERSION`].
    pub version: u32,
    /// Seconds since the process began to watch.
    pub uptime_seconds: f64,
    /// It can do its part: see `GET /readyz`.
    pub is_ready: bool,
    /// Milliseconds until its slowest loop had answered.
    pub loop_lag_ms: f64,
    /// Loops that did not answer.
    pub silent_loops: usize,
    /// Its members; the shards of a server are one each.
    pub members: Vec<OwnMember>,
}

/// A member of the process itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnMember {
    /// Its place, as in `server 0`; none before it has one.
    pub member: Option<String>,
    /// The newest view that it acts on.
    pub view: u64,
    /// It acts on the newest view, and can do its part.
    pub is_ready: bool,
    /// Its counts.
    pub counts: Counts,
}

/// Counts of one member, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counts {
    /// Of a worker.
    Worker(WorkerStatistics),
    /// Of a server.
    Server(ServerStatistics),
    /// Of a switch.
    Switch(SwitchStatistics),
}

/// Status of a job, as its controller knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDocument {
    /// [`VERSION`].
    pub version: u32,
    /// Number of the job.
    pub job: u16,
    /// Phase: `gathering`, `recovering`, `running`, `finishing`, `over`.
    pub phase: String,
    /// Seconds since the controller began to watch.
    pub uptime_seconds: f64,
    /// Milliseconds until its loop had answered.
    pub loop_lag_ms: f64,
    /// Number of the newest view.
    pub view: u64,
    /// All members act on it.
    pub is_settled: bool,
    /// The members that have come, in the phase `gathering`; none before the controller knows its job, and in other phases.
    #[serde(default)]
    pub gathering: Option<Gathering>,
    /// Progress of the training.
    pub progress: Progress,
    /// Progress of the work in chunks; none if it is not dealt so.
    #[serde(default)]
    pub work: Option<WorkStatus>,
    /// The members that are there, or may come back.
    pub members: Vec<MemberDocument>,
    /// Counts of all members together, those included that went.
    pub totals: Totals,
    /// Members that were given up.
    pub lost: Lost,
    /// Regions that have moved.
    pub regions_moved: u64,
    /// Checkpoints.
    pub checkpoints: Checkpoints,
    /// Tags of packets: `off`, `cookie`, `mac`.
    pub tags: String,
    /// Streams of strangers that were closed.
    pub strangers: u64,
    /// Reason why the job has failed.
    pub failure: Option<String>,
}

/// Members that have come, of those with which a job begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathering {
    /// Servers all of whose shards have come.
    pub servers: Places,
    /// Switches.
    pub switches: Places,
    /// Workers.
    pub workers: Places,
}

/// Places of members of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Number of members that have come.
    pub there: u16,
    /// Number of members with which the job begins.
    pub expected: u16,
}

/// Progress of the training of all workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Samples that were trained on.
    pub samples: u64,
    /// Samples that are to be trained on.
    pub samples_planned: u64,
    /// Their ratio; none before workers have planned.
    pub ratio: Option<f64>,
    /// Mean loss of the present epoch; none before there is one, or where the front end reports none.
    pub loss: Option<f64>,
}

/// Counts of all members together, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Of workers.
    pub worker: WorkerStatistics,
    /// Of servers.
    pub server: ServerStatistics,
    /// Of switches.
    pub switch: SwitchStatistics,
}

/// Checkpoints of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// Number of the newest that all servers have written; 0: none since this controller began.
    pub newest: u64,
    /// Seconds since it was there.
    pub age_seconds: Option<f64>,
    /// Seconds between two of them.
    pub interval_seconds: Option<f64>,
    /// Number of those that were written since this controller began.
    pub written: u64,
    /// Number of those that failed.
    pub failed: u64,
}

/// A member, as the controller knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberDocument {
    /// Its place, as in `switch 1`.
    pub member: String,
    /// Its kind: `server`, `switch`, `worker`.
    pub kind: String,
    /// State: `joining`, `entering` (a view), `active`, `standby`, `retired`, `away`, `leaving`, `done`.
    pub state: String,
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
    /// Milliseconds since its last message.
    pub silent_ms: f64,
    /// Its newest counts.
    pub counts: Option<Counts>,
}

impl Document {
    /// Status of a process that is a member.
    pub fn of_members(inspected: &Inspected<MemberStatus>, uptime: Duration, kind: Kind) -> Self {
        let members = inspected.statuses.iter().map(OwnMember::from).collect::<Vec<_>>();
        let document = ProcessDocument {
            version: VERSION,
            uptime_seconds: uptime.as_secs_f64(),
            is_ready: is_ready(inspected),
            loop_lag_ms: milliseconds(inspected.lag),
            silent_loops: inspected.silent,
            members,
        };
        match kind {
            Kind::Worker => Self::Worker(document),
            Kind::Server => Self::Server(document),
            Kind::Switch => Self::Switch(document),
        }
    }

    /// Status of a controller.
    pub fn of_job(status: &ControllerStatus, lag: Duration, uptime: Duration) -> Self {
        Self::Controller(Box::new(JobDocument::new(status, lag, uptime)))
    }
}

/// Returns true if all members of a process can do their part.
pub fn is_ready(inspected: &Inspected<MemberStatus>) -> bool {
    let Inspected { statuses, silent, .. } = inspected;
    *silent == 0 && !statuses.is_empty() && statuses.iter().all(|status| status.is_ready)
}

impl From<&MemberStatus> for OwnMember {
    fn from(status: &MemberStatus) -> Self {
        Self {
            member: status.member.map(|member| member.to_string()),
            view: status.view,
            is_ready: status.is_ready,
            counts: status.counts.into(),
        }
    }
}

impl From<Statistics> for Counts {
    fn from(statistics: Statistics) -> Self {
        match statistics {
            Statistics::Worker(counts) => Self::Worker(counts),
            Statistics::Server(counts) => Self::Server(counts),
            Statistics::Switch(counts) => Self::Switch(counts),
        }
    }
}

impl Totals {
    /// Adds up the last counts of all members of a job.
    pub fn of_outcome(outcome: &Outcome) -> Self {
        Self::of(outcome.statistics.iter().map(|(_, counts)| *counts))
    }

    /// Adds up the counts of members.
    pub fn of(counts: impl IntoIterator<Item = Statistics>) -> Self {
        let mut totals = Self::default();
        for counts in counts {
            match counts {
                Statistics::Worker(counts) => totals.worker += counts,
                Statistics::Server(counts) => totals.server += counts,
                Statistics::Switch(counts) => totals.switch += counts,
            }
        }
        totals
    }
}

impl JobDocument {
    fn new(status: &ControllerStatus, lag: Duration, uptime: Duration) -> Self {
        let (samples, samples_planned) = status.samples();
        let CheckpointStatus { newest, age, every, written, failed, .. } = status.checkpoints;
        Self {
            version: VERSION,
            job: status.job,
            phase: phase(status.phase).to_owned(),
            uptime_seconds: uptime.as_secs_f64(),
            loop_lag_ms: milliseconds(lag),
            view: status.view,
            is_settled: status.is_settled,
            gathering: status.gathering.as_ref().map(Gathering::from),
            work: status.work,
            progress: Progress {
                samples,
                samples_planned,
                ratio: (samples_planned > 0).then(|| samples as f64 / samples_planned as f64),
                loss: status.loss(),
            },
            members: status.members.iter().map(MemberDocument::from).collect(),
            totals: Totals::of(status.counts().map(|(_, counts)| counts)),
            lost: status.lost,
            regions_moved: status.regions_moved,
            checkpoints: Checkpoints {
                newest,
                age_seconds: age.map(|age| age.as_secs_f64()),
                interval_seconds: every.map(|every| every.as_secs_f64()),
                written,
                failed,
            },
            tags: tags(status.tags).to_owned(),
            strangers: status.strangers,
            failure: status.failure.clone(),
        }
    }
}

impl From<&libra_proto::Gathering> for Gathering {
    fn from(gathering: &libra_proto::Gathering) -> Self {
        let libra_proto::Gathering { there, expected } = gathering;
        Self {
            servers: Places { there: there.servers, expected: expected.servers },
            switches: Places { there: there.switches, expected: expected.switches },
            workers: Places { there: there.workers, expected: expected.workers },
        }
    }
}

impl From<&KnownMember> for MemberDocument {
    fn from(member: &KnownMember) -> Self {
        Self {
            member: member.peer.to_string(),
            kind: kind(member.peer).to_owned(),
            state: state(member.state).to_owned(),
            address: member.address,
            http: member.http,
            view: member.view,
            regions: member.regions,
            share: member.share,
            clock: member.clock,
            silent_ms: milliseconds(member.silent),
            counts: member.counts.map(Counts::from),
        }
    }
}

/// Returns the kind of a member.
pub(crate) fn kind(peer: Peer) -> &'static str {
    match peer {
        Peer::Controller => "controller",
        Peer::Server(_) => "server",
        Peer::Switch(_) => "switch",
        Peer::Worker(_) => "worker",
    }
}

/// Returns the name of a state.
pub(crate) fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Joining => "joining",
        MemberState::Entering => "entering",
        MemberState::Active => "active",
        MemberState::Standby => "standby",
        MemberState::Retired => "retired",
        MemberState::Away => "away",
        MemberState::Leaving => "leaving",
        MemberState::Done => "done",
    }
}

fn phase(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Gathering => "gathering",
        JobPhase::Recovering => "recovering",
        JobPhase::Running => "running",
        JobPhase::Finishing => "finishing",
        JobPhase::Over => "over",
    }
}

fn tags(tags: TagKind) -> &'static str {
    match tags {
        TagKind::Off => "off",
        TagKind::Cookie => "cookie",
        TagKind::Mac => "mac",
    }
}

fn milliseconds(duration: Duration) -> f64 {
    1e3 * duration.as_secs_f64()
}
