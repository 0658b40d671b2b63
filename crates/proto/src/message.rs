//! Messages of the bulk and control path, over ordered reliable streams.

use core::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

mod contents;
mod rows;
mod slots;

pub use self::contents::{AckedSet, RoundContents};
pub use self::rows::{Assign, Reset, TablePage};
pub use self::slots::{SlotRun, SlotValues};

use crate::authentication::{Pass, TagKind};
use crate::bulk::{Bulk, encode_onto};
use crate::cluster::{Cluster, Peer, View};
use crate::keys::Keys;
use crate::shared::Shared;
use crate::statistics::Statistics;
use crate::values::Values;
use crate::work::{LeaseRequest, WorkDone};

/// The version of the messages. Members of a cluster must have the same: the format is not self-describing.
pub const VERSION: u16 = 22;

/// No message takes more bytes: a longer one is not read.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Bytes that are kept of a reason that a peer gives: it is sent to all members, and read by people.
pub(crate) const REASON_BYTES_MAX: usize = 4096;

/// A reason that a peer gives, cut to [`REASON_BYTES_MAX`].
pub(crate) fn brief(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        reason.push_str(" ..");
        reason.shrink_to_fit();
    }
    reason
}

/// The kind of a process that joins a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Holds a shard.
    Server,
    /// Aggregates hot rows.
    Switch,
    /// Trains.
    Worker,
}

impl Kind {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Switch => "switch",
            Self::Worker => "worker",
        }
    }
}

impl core::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A message of one member to another outside the hot path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To the controller, first on a stream: take me in.
    Join(Join),
    /// To the controller, first on a stream: I am a member already, and lost the stream to you or to the one before you.
    Rejoin(Box<Rejoin>),
    /// From the controller: this is your place in the cluster. A switch that gets it again forgets everything.
    Start(Box<Start>),
    /// From the controller: the members or owners of regions have changed, as far as the receiver needs it ([`View::of`]).
    View(Shared<View>),
    /// To the controller: the receiver of this view acts on it. A server has fenced the owners before, a switch holds the
    /// values of all regions that are its own.
    Viewed {
        /// The view's number.
        number: u64,
    },
    /// From the controller to a switch, regularly: asks for a heartbeat.
    Probe {
        /// Number of the probe, so that the controller can measure how long the answer took.
        number: u64,
    },
    /// To the controller, regularly; from a switch as the answer to a probe.
    Heartbeat {
        /// The counts so far.
        statistics: Statistics,
        /// The probe that it answers, if it answers one.
        probe: u64,
    },
    /// From the controller to a switch: take no more pushes, and bring all that you have to the shards.
    Retire,
    /// From that switch: all of it is committed.
    Retired,
    /// From the controller: its user wants this member to end in order, as at the member's own request (rule M11).
    Drain,
    /// To the controller, first on a stream, from a process that does not join: where does it answer requests over HTTP? The stream ends
    /// with the answer (rule M21).
    Enquire {
        /// [`VERSION`] of the sender.
        version: u16,
    },
    /// From the controller: there.
    Described {
        /// [`VERSION`] of the controller.
        version: u16,
        /// The address. An unspecified one means: where the stream goes to.
        http: Option<SocketAddr>,
    },
    /// From a worker: nothing was received from this switch for long, though it was asked.
    Unreachable {
        /// The switch.
        switch: u16,
    },
    /// From a worker: it goes, with nothing left to do, and the others go on without it. From a switch: it is to end, and others
    /// are to have its regions before (rule V12). Both get [`Message::Finish`].
    Leave {
        /// True if another process is to come in its place: a job without a worker then waits for one.
        returns: bool,
    },
    /// From a worker: the numbers of its flow of pushes into a region are used up, and all of its packets are durable. It waits for the
    /// view in which the flow restarts (rule T18).
    Renew {
        /// The region.
        region: u8,
        /// The view in which the flow has begun, 0 if that was with the worker.
        view_id: u64,
    },
    /// From a worker: it has come to this barrier.
    Barrier {
        /// The barrier's number, counted from zero.
        number: u64,
    },
    /// From the controller: every worker has come to this barrier.
    Release {
        /// The barrier's number.
        number: u64,
    },
    /// From a worker: so many of its ticks since the barrier before are done (rule M15).
    Clock {
        /// The number of its next barrier: behind each, clocks restart.
        barrier: u64,
        /// Number of ticks.
        clock: u64,
    },
    /// From the controller to the workers: none of those that train is behind this (rule M16).
    Clocks {
        /// The number of their next barrier.
        barrier: u64,
        /// The least of their clocks.
        least: u64,
        /// The number of the newest view: the pushes that their clocks stand for may be with owners that only this view names.
        view: u64,
    },
    /// From a worker: what it has done of the work, and how much it wants (rule K2).
    Lease(Box<LeaseRequest>),
    /// From the controller to a worker: these are its leases, all of them (rule K2).
    Leased {
        /// The present phase of the work: all chunks of those before are done.
        phase: u64,
        /// The chunks of the phase that are its own to do.
        chunks: Vec<u32>,
        /// The tick that its clock goes on from, if it is behind that (rule K6).
        clock: u64,
    },
    /// From a worker, last: the result of its task, in a text that the roles do not read.
    Report {
        /// The worker's account.
        text: String,
        /// Its final counts.
        statistics: Statistics,
    },
    /// From the controller: every worker has reported; send a last heartbeat and stop.
    Finish,
    /// From the controller to a server: checkpoints from now on have this (rule K7).
    WorkDone(Box<WorkDone>),
    /// From the controller to a server: all shards have this checkpoint (rule L11).
    CheckpointComplete {
        /// Its number.
        number: u64,
    },
    /// From the controller to a server: write a checkpoint.
    Checkpoint {
        /// Its number, the same at all servers.
        number: u64,
    },
    /// From that server: it has everything until now, and nothing that comes.
    CheckpointBegun {
        /// Its number.
        number: u64,
    },
    /// From that server: it is there, or it failed.
    Checkpointed {
        /// Its number.
        number: u64,
        /// True if it is on the server's disk.
        is_on_disk: bool,
        /// Reason of the failure, if it is not there or was not uploaded.
        failure: Option<String>,
    },
    /// From a server to the controller: gradients that are not finite were refused (rule C11). Sent at the first one of a worker and table,
    /// and with heartbeats when there are more.
    GradientsRefused {
        /// The worker that pushed them; none if finite gradients of one round have a sum that is not.
        worker: Option<u16>,
        /// The position of the table in [`Cluster::tables`].
        table: u16,
        /// The first row.
        key: u64,
        /// Number of pushes, or sums of rows, since the server's process started.
        count: u64,
    },
    /// From any member to any other: the job has failed.
    Abort {
        /// The member that failed, and its reason.
        reason: String,
    },
    /// To a server, first on a stream: identifies the caller.
    Hello(Hello),
    /// From a worker to a shard: add these gradients, and answer with the new values if asked.
    Push(ColdPush),
    /// From a shard: the push is applied, and the owner of its rows has their new values.
    Pushed {
        /// Its number.
        number: u64,
        /// The number of the view that the shard acts on: rows may have moved to a switch that the worker has not received yet.
        view: u64,
        /// The new values of its rows, if they were asked for.
        values: Values,
    },
    /// From a shard: the push has a gradient that is not finite. Nothing of it is applied, now or ever (rule C11).
    PushRefused {
        /// Its number.
        number: u64,
        /// The first row with such a gradient.
        key: u64,
        /// The position of the value in that row.
        lane: u32,
        /// The bits of the value.
        bits: u32,
    },
    /// From a worker to a shard: read these rows.
    Pull {
        /// The request's number, counted by the worker for each shard.
        number: u64,
        /// Keys of rows of that shard.
        keys: Keys,
    },
    /// From a shard: the rows of a pull, one after the other.
    Pulled {
        /// The request's number.
        number: u64,
        /// Their values.
        values: Values,
    },
    /// From a worker to a shard: packets for a region that no switch holds any more, and that may have been taken by none.
    Replay(Replay),
    /// From a shard: the packets of a replay are applied, now or before.
    Replayed {
        /// The region.
        region: u8,
        /// The view since which it has no owner.
        view_id: u64,
        /// The packets of the worker below this sequence number are.
        below: u32,
    },
    /// From a switch to a shard: it holds the region now, and asks for the contents.
    Adopt {
        /// The region.
        region: u8,
        /// Since which view it is.
        view_id: u64,
        /// The newest round that the switch has seen committed, and the contents of it and all before it: a shard that had to go on from
        /// an old checkpoint goes on from there. 0 if there is none.
        round: u64,
        /// See `round`.
        contents: RoundContents,
    },
    /// From a shard to a switch: the state that the owner of a region needs.
    Adopted(Adopted),
    /// From a switch to a shard: a round of one of its regions. The switch keeps it until the shard has committed it.
    Drained(#[serde(with = "crate::shared::as_value")] Arc<Drained>),
    /// From a shard to a switch: the round is applied; these are the new values.
    Committed(Committed),
    /// From a shard to a switch: rows have new values that did not come from it.
    Changed(Changed),
    /// From a switch to a shard: it has these values, and answers pulls with them.
    Installed {
        /// The region.
        region: u8,
        /// Since which view it is the switch's.
        view_id: u64,
        /// The number of the newest change that is installed.
        change: u64,
    },
    /// From a worker to a shard: set rows. Answered by [`Message::Pushed`] without values, or [`Message::PushRefused`].
    Assign(Assign),
    /// From a worker to a shard: reset a table. Answered likewise.
    Reset(Reset),
    /// From a worker to a shard: read the rows of a table that are kept, by rising key.
    Scan {
        /// Counted with the pulls of the worker.
        number: u64,
        /// The position of the table in [`Cluster::tables`].
        table: u16,
        /// Reads the rows behind this key; none: from the first.
        after: Option<u64>,
    },
    /// From a shard: the rows of a scan, as many as fit.
    Scanned {
        /// The request's number.
        number: u64,
        /// The rows.
        page: TablePage,
    },
    /// From a worker to the controller, behind [`Message::Join`]: the job as far as a front end describes it, for a controller that
    /// takes its tables from workers (rule M19).
    Propose(Box<Cluster>),
    /// To the controller, first on a stream, from a server that reads its disk before it comes back; and on from the controller to the
    /// workers (rule L8).
    Restoring(Restoring),
    /// From the controller, in answer to a `Join`: all places of its kind are taken, until a member is given up (rule M22).
    NoPlace {
        /// The number of members that are there, in words.
        reason: String,
    },
}

/// The first message of a process to the controller (rule M1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// [`VERSION`] of the sender.
    pub version: u16,
    /// The kind of the process.
    pub kind: Kind,
    /// Address at which it accepts streams (servers). An unspecified address means: where this stream comes from.
    pub stream: Option<SocketAddr>,
    /// Number of the shards that its process has, at least 1 (servers). Each joins by itself, with the same address.
    pub shards: u16,
    /// Address at which it takes datagrams (switches) or from which it sends them (workers), likewise.
    pub datagrams: Option<SocketAddr>,
    /// Bytes of datagrams that wait for it in its machine at most (switches): all workers together must not send more
    /// before they are answered.
    pub receive_bytes: u32,
    /// True if it comes back if its process ends: with all that it had or nearly so (servers), or another in its place (workers).
    pub is_restartable: bool,
    /// True if it takes seconds for what others do at once, as its data plane is in a device (switches).
    pub is_slow: bool,
    /// The best tags that its data plane can check and make (switches).
    pub tags: TagKind,
    /// Address at which it answers requests over HTTP, for those who watch. An unspecified address means: where this stream comes from.
    pub http: Option<SocketAddr>,
}

/// The first message of a member on a new stream to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejoin {
    /// The message with which the process joined: should its place be gone, it joins again.
    pub join: Join,
    /// [`Cluster::instance`] of its job.
    pub instance: u64,
    /// The member.
    pub you: Peer,
    /// The evidence that it is.
    pub pass: Pass,
    /// Its share of the task (workers).
    pub share: u16,
    /// The number of the newest view that it acts on.
    pub view: u64,
    /// The barriers that it has passed (workers).
    pub barriers: u64,
    /// Its whole cluster (servers): a controller that has just started has nothing else to go by.
    pub cluster: Option<Box<Cluster>>,
    /// The newest part of the work that it was told is done (servers).
    pub work_done: WorkDone,
}

/// Progress of a server that reads its disk. The shards of its process are read one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoring {
    /// [`Cluster::instance`] of its job.
    pub instance: u64,
    /// The shard that is read.
    pub server: u16,
    /// Bytes of it that are read.
    pub read: u64,
    /// Bytes that are to be read, as far as it is known before.
    pub total: u64,
}

impl core::fmt::Display for Restoring {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let megabytes = |bytes: u64| bytes / 1_000_000;
        write!(formatter, "{} of {} MB", megabytes(self.read), megabytes(self.total))
    }
}

/// A member's place in a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The receiver.
    pub you: Peer,
    /// Its share of the task, below [`Cluster::shares`] (workers).
    pub share: u16,
    /// The number of the next barrier (workers): one that joins late begins there.
    pub barrier: u64,
    /// The whole picture, with the view as in [`Message::View`].
    pub cluster: Shared<Cluster>,
}

/// The first message of a worker or switch to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`Cluster::instance`] of the caller's job.
    pub instance: u64,
    /// The caller.
    pub from: Peer,
    /// The evidence that it is.
    pub pass: Pass,
    /// Number of the server that is called: others may listen at the same address.
    pub to: u16,
    /// The pushes that the server has answered (workers).
    pub answered: Answered,
}

/// Pushes of a worker that a shard has answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The highest number of a push that was answered.
    pub newest: u64,
    /// Their number.
    pub count: u64,
}

/// Gradients on the cold path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdPush {
    /// Counted by the worker for each shard, from one: a shard applies each number once.
    pub number: u64,
    /// Rows of that shard, each once.
    pub keys: Keys,
    /// Their gradients one after the other.
    pub gradients: Values,
    /// True if the answer must hold the new values.
    pub answer: bool,
}

/// Packets of a worker for a region without an owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The region.
    pub region: u8,
    /// The view since which the region has no owner.
    pub view_id: u64,
    /// Every packet of the flow below this sequence number is in this message, in one before it, or durable.
    pub below: u32,
    /// PUSH packets as they are on the wire, in the order of their sequence numbers.
    pub packets: Vec<Bulk<u8>>,
}

impl Replay {
    pub(crate) fn bytes_about(&self) -> usize {
        self.packets.iter().map(|packet| 5 + packet.0.len()).sum()
    }
}

/// State from which the new owner of a region goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adopted {
    /// The region.
    pub region: u8,
    /// The view since which the receiver owns it.
    pub view_id: u64,
    /// The newest round that the shard has applied.
    pub round: u64,
    /// Contents of it and all before it.
    pub contents: RoundContents,
    /// The number of the newest change that is in the values.
    pub change: u64,
    /// The values of all rows.
    pub values: SlotValues,
}

/// Contents of a drained bank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drained {
    /// The region.
    pub region: u8,
    /// The view since which the sender owns it. A shard takes nothing from an owner before the present one.
    pub view_id: u64,
    /// The round, counted on for the life of the region, under any owner (rule E4).
    pub round: u64,
    /// Packets that the region has taken up to and including this round, of the flows that have one in it (rule E2).
    pub contents: RoundContents,
    /// The slots that were touched, ascending.
    pub slots: Vec<SlotRun>,
    /// Their sums, as the slots hold them: i32 under the row's scale, or the bits of an f32.
    pub sums: Bulk<u32>,
}

impl Drained {
    pub(crate) fn bytes_about(&self) -> usize {
        self.contents.bytes_about() + 6 * self.slots.len() + 4 * self.sums.0.len()
    }
}

/// A round is applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// The region.
    pub region: u8,
    /// The view since which the receiver owns it.
    pub view_id: u64,
    /// The newest round that the shard has applied.
    pub round: u64,
    /// The new values of the rows in it.
    pub values: SlotValues,
}

/// New values of rows that changed by the cold path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The region.
    pub region: u8,
    /// The view since which the receiver owns it.
    pub view_id: u64,
    /// Counted by the shard for the region.
    pub change: u64,
    /// The values.
    pub values: SlotValues,
}

/// Reason why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message of version {VERSION}: {0}")]
pub struct Malformed(postcard::Error);

impl Message {
    /// The message as the bytes of one frame.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_behind(&[])
    }

    /// Encodes one frame behind other bytes, so that a caller with a prefix need not copy the frame.
    pub fn encode_behind(&self, head: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(head.len() + self.bytes_about());
        bytes.extend_from_slice(head);
        encode_onto(bytes, self)
    }

    /// Returns the size of the message, or a little more; of what is small or rare only a guess.
    fn bytes_about(&self) -> usize {
        let large = match self {
            Self::Push(push) => push.keys.bytes() + push.gradients.bytes(),
            Self::Pull { keys, .. } => keys.bytes(),
            Self::Pushed { values, .. } | Self::Pulled { values, .. } => values.bytes(),
            Self::Replay(replay) => replay.bytes_about(),
            Self::Adopt { contents, .. } => contents.bytes_about(),
            Self::Assign(assign) => assign.bytes_about(),
            Self::Scanned { page, .. } => page.bytes_about(),
            Self::Drained(drained) => drained.bytes_about(),
            Self::Adopted(Adopted { contents, values, .. }) => contents.bytes_about() + values.bytes_about(),
            Self::Committed(Committed { values, .. }) | Self::Changed(Changed { values, .. }) => {
                values.bytes_about()
            }
            _ => 0,
        };
        large + 64
    }

    /// The message in the bytes of one frame.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        postcard::from_bytes(frame).map_err(Malformed)
    }
}

#[cfg(test)]
mod tests;
