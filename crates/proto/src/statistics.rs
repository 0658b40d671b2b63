//! Counters of members. The controller gets them with every heartbeat.

use serde::{Deserialize, Deserializer, Serialize};

/// The counts of one member, since it started.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Statistics {
    /// Of a worker.
    Worker(WorkerStatistics),
    /// Of a server.
    Server(ServerStatistics),
    /// Of a switch.
    Switch(SwitchStatistics),
}

/// Counters of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatistics {
    /// Pushes.
    pub pushes: u64,
    /// Rows in those pushes; a row counts once a push.
    pub rows: u64,
    /// Rows of them that went to a switch.
    pub rows_hot: u64,
    /// Rows of them that went to a shard.
    pub rows_cold: u64,
    /// Of those, rows that the plan has as hot and whose gradient was too large for the plan's bound.
    pub rows_too_large: u64,
    /// Rows pulled, and how many of them were read in a switch.
    pub rows_pulled: u64,
    /// Rows that were read in a switch.
    pub rows_pulled_hot: u64,
    /// Packets sent on the hot path, retransmissions included.
    pub packets: u64,
    /// Retransmissions.
    pub retransmits: u64,
    /// Packets that a switch refused for a while.
    pub refused: u64,
    /// Datagrams that were no answer to anything.
    pub dropped: u64,
    /// Datagrams from a switch without the right tag, in a job with keys.
    pub forged: u64,
    /// Mean round-trip time of packets of the hot path at the end, in microseconds, smoothed as in RFC 6298.
    pub round_trip_us: u64,
    /// Its training, as far as it tells.
    pub training: TrainingCounts,
}

/// Progress of a worker's training, and the time that it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingCounts {
    /// Samples that it has trained on.
    pub samples: u64,
    /// Samples that it will have trained on at the end of the job.
    pub samples_planned: u64,
    /// Mean loss of the samples of its present epoch so far.
    #[serde(deserialize_with = "number_or_none")]
    pub loss: f64,
    /// Microseconds by what it did or waited for.
    pub step_us: StepTimes,
    /// Its reads of data sets that it does not have in memory.
    pub reads: ReadCounts,
}

/// Reads of a data set, by one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCounts {
    /// Requests to a server, retries included.
    pub requests: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Bytes that were read, from servers and disks.
    pub bytes: u64,
}

impl core::ops::AddAssign for ReadCounts {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.retries += other.retries;
        self.bytes += other.bytes;
    }
}

/// Microseconds of a worker's steps. They add up to the time since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTimes {
    /// It read and prepared samples.
    pub data: u64,
    /// It waited for rows.
    pub pull: u64,
    /// It computed, or did what it says nothing about.
    pub compute: u64,
    /// It handed gradients over, or waited since too many pushes were under way, or for pushes to be visible.
    pub push: u64,
    /// It waited for other workers.
    pub clock: u64,
}

/// Reads a number. JSON has none for a loss that is infinite or no number: there it is `null`, and read as no number.
fn number_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    if deserializer.is_human_readable() {
        return Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN));
    }
    f64::deserialize(deserializer)
}

impl core::ops::AddAssign for TrainingCounts {
    /// The loss is that of the last one that has one.
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.samples_planned += other.samples_planned;
        if other.samples > 0 {
            self.loss = other.loss;
        }
        self.step_us += other.step_us;
        self.reads += other.reads;
    }
}

/// Counters of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatistics {
    /// Rows updated: how often the optimizer ran.
    pub row_updates: u64,
    /// Of them with the sum of a round, from a switch.
    pub row_updates_hot: u64,
    /// Rows read by pulls.
    pub row_reads: u64,
    /// Rounds applied.
    pub rounds: u64,
    /// Pushes and rounds that came again and were not applied again.
    pub duplicates: u64,
    /// Messages that violated the protocol.
    pub dropped: u64,
    /// Messages of switches and workers that acted on an old view: nothing of them was taken.
    pub fenced: u64,
    /// Pushes that were refused because a gradient is not finite; one that comes again counts again (rule C11).
    pub pushes_refused: u64,
    /// Sums of rows over a round that were refused because they are not finite, though each gradient is (rule C11).
    pub sums_refused: u64,
    /// Replays of packets that no switch could take any more.
    pub replays: u64,
    /// Pushes that were answered, and whose effect was lost when the server stopped.
    pub lost_pushes: u64,
    /// Rounds that were committed, and whose effect was lost when the server stopped.
    pub lost_rounds: u64,
    /// The newest checkpoint.
    pub checkpoint: u64,
    /// Checkpoints that failed.
    pub checkpoints_failed: u64,
    /// Bytes of the log that the newest checkpoint does not cover.
    pub log_bytes: u64,
    /// Rows in the store.
    pub rows: u64,
    /// Rows that were evicted, by the rule of their table.
    pub rows_evicted: u64,
    /// Gradients that made no row, by the rule of their table.
    pub gradients_not_admitted: u64,
    /// Of the rows in the store, those that are on disk and not in memory.
    pub rows_on_disk: u64,
    /// Rows that were read from disk since the process began.
    pub disk_rows_read: u64,
    /// Rows that were written to disk since the process began, to make room in memory.
    pub disk_rows_written: u64,
    /// Shards whose rows take more memory than they may, because the disk is full.
    pub shards_over_limit: u64,
}

/// Counters of a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatistics {
    /// Packets that arrived.
    pub packets: u64,
    /// Pushes that were added.
    pub pushes: u64,
    /// Pulls that were answered.
    pub pulls: u64,
    /// Pushes that had been added before.
    pub duplicates: u64,
    /// Pushes that workers sent again, by their mark.
    pub retransmits: u64,
    /// Packets that were refused for a while, because a bank was full or a region was not ready.
    pub refused: u64,
    /// Datagrams that were no packet, or one that a worker may not send; and messages that violated the protocol.
    pub malformed: u64,
    /// Datagrams from addresses of no worker.
    pub unknown_senders: u64,
    /// Packets without the right tag, in a job with keys.
    pub forged: u64,
    /// Packets for another region or view than there is, in a job with MACs, where these are not answered.
    pub stale: u64,
    /// Rounds that were closed.
    pub rounds: u64,
    /// Slots that were drained.
    pub slots_drained: u64,
    /// Bytes of drained sums that no shard has committed yet.
    pub queue_bytes: u64,
    /// Bytes of memory that its regions take.
    pub memory_bytes: u64,
}

/// Adds the counts of members of one kind.
macro_rules! add_counts {
    ($kind:ident: $($sum:ident),+; most $($most:ident),*) => {
        impl core::ops::AddAssign for $kind {
            fn add_assign(&mut self, other: Self) {
                $(self.$sum += other.$sum;)+
                $(self.$most = self.$most.max(other.$most);)*
            }
        }
    };
}

add_counts!(WorkerStatistics: pushes, rows, rows_hot, rows_cold, rows_too_large, rows_pulled, rows_pulled_hot, packets,
    retransmits, refused, dropped, forged, training; most round_trip_us);
add_counts!(StepTimes: data, pull, compute, push, clock; most);
add_counts!(ServerStatistics: row_updates, row_updates_hot, row_reads, rounds, duplicates, dropped, fenced,
    pushes_refused, sums_refused, replays, lost_pushes, lost_rounds, checkpoints_failed, log_bytes, rows,
    rows_evicted, gradients_not_admitted, rows_on_disk, disk_rows_read, disk_rows_written, shards_over_limit;
    most checkpoint);
add_counts!(SwitchStatistics: packets, pushes, pulls, duplicates, retransmits, refused, malformed, unknown_senders, forged, stale,
    rounds, slots_drained, queue_bytes, memory_bytes; most);
