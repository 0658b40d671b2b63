//! When servers write checkpoints: all at the same time, under the same number, with the position of the work.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Controller, ControllerEvent, Phase};
use crate::cluster::{CheckpointAt, Peer};
use crate::message::{Kind, Message};
use crate::statistics::Statistics;
use crate::time::Instant;

/// Pause before the next attempt if not every server can be reached just now.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The checkpoints of a job.
#[derive(Debug, Clone, Default)]
pub(super) struct Checkpoints {
    /// When the next is to be written.
    pub(super) next_at: Option<Instant>,
    /// The newest that was asked for.
    newest: u64,
    /// The newest that all shards have, as far as this controller knows (rule L11).
    complete: Option<u64>,
    /// One is due that no chunk may be open in: no lease is given until servers have begun it (rule K7).
    closes_leases: bool,
    under_way: Option<UnderWay>,
}

/// A checkpoint that servers write.
#[derive(Debug, Clone)]
struct UnderWay {
    number: u64,
    began: Instant,
    /// Servers that have not begun it.
    unbegun: BTreeSet<Peer>,
    /// Servers that have not answered.
    awaited: BTreeSet<Peer>,
    /// True unless a server has answered that it does not have it.
    is_on_disks: bool,
    /// Reason of the failure, from the first server that reported one.
    failure: Option<String>,
}

impl Controller {
    /// The job runs: checkpoints are due from now on.
    pub(super) fn schedule_checkpoint(&mut self, now: Instant) {
        let every = self.cluster.durability.checkpoint_every;
        self.checkpoints.next_at = every.map(|every| now + every);
    }

    /// Sends all servers the request to write a checkpoint.
    pub(super) fn begin_checkpoint(&mut self, now: Instant) {
        self.schedule_checkpoint(now);
        if self.phase != Phase::Running || !self.cluster.durability.needs_disk() {
            return;
        }
        let ready = self.of_kind(Kind::Server).all(|(_, member)| member.link.is_some());
        if !ready || !self.has_started || self.checkpoints.under_way.is_some() {
            self.checkpoints.next_at = Some(now + RETRY_PAUSE);
            return;
        }
        if self.cluster.durability.checkpoint_at == CheckpointAt::Chunks && self.cluster.work.is_some() {
            self.checkpoints.closes_leases = true;
            if self.has_leases() {
                self.checkpoints.next_at = None;
                return;
            }
        }
        let newest = self.of_kind(Kind::Server).filter_map(|(_, member)| match member.statistics {
            // No honest server has come near the end of the numbers.
            Some(Statistics::Server(counts)) if counts.checkpoint >> 63 == 0 => Some(counts.checkpoint),
            _ => None,
        });
        let first = self.cluster.durability.first_checkpoint();
        let number = newest.max().unwrap_or(0).max(self.checkpoints.newest).max(first) + 1;
        let awaited: BTreeSet<Peer> = self.of_kind(Kind::Server).map(|(peer, _)| peer).collect();
        self.prepare_checkpoint();
        for peer in &awaited {
            self.send(*peer, Message::Checkpoint { number });
        }
        self.checkpoints.newest = number;
        let unbegun = awaited.clone();
        self.checkpoints.under_way =
            Some(UnderWay { number, began: now, unbegun, awaited, is_on_disks: true, failure: None });
    }

    /// All servers serve: each has written its first checkpoint (rule L7).
    pub(super) fn first_checkpoint_is_complete(&mut self) {
        let durability = &self.cluster.durability;
        self.checkpoints.complete = durability.needs_disk().then(|| durability.first_checkpoint());
    }

    /// Sends the servers what is done of the work, which checkpoints from now on have (rule K7), and the checkpoint that they keep
    /// besides (rule L11).
    pub(super) fn prepare_checkpoint(&mut self) {
        let done = self.work_done().map(|done| Message::WorkDone(Box::new(done)));
        let complete = self.checkpoints.complete.map(|number| Message::CheckpointComplete { number });
        let servers: Vec<Peer> = self.of_kind(Kind::Server).map(|(peer, _)| peer).collect();
        for message in done.into_iter().chain(complete) {
            servers.iter().for_each(|peer| self.send(*peer, message.clone()));
        }
    }

    /// Returns true if no lease may be given, as a checkpoint is due without open chunks. It begins when the last one is done.
    pub(super) fn are_leases_closed(&mut self) -> bool {
        let closed = self.checkpoints.closes_leases;
        if closed && self.checkpoints.under_way.is_none() && !self.has_leases() {
            self.checkpoints.next_at = Some(self.looked_at);
        }
        closed
    }

    /// A server has begun a checkpoint: what is pushed from now on is not in it.
    pub(super) fn handle_checkpoint_begun(&mut self, peer: Peer, number: u64) {
        let Some(open) = self.checkpoints.under_way.as_mut().filter(|open| open.number == number) else {
            return;
        };
        open.unbegun.remove(&peer);
        if open.unbegun.is_empty() && core::mem::take(&mut self.checkpoints.closes_leases) {
            self.deal();
        }
    }

    /// A server has written its part of a checkpoint, or has not.
    pub(super) fn handle_checkpointed(
        &mut self,
        now: Instant,
        peer: Peer,
        number: u64,
        is_on_disk: bool,
        failure: Option<String>,
    ) {
        // One that failed may not have begun.
        self.handle_checkpoint_begun(peer, number);
        let Some(under_way) = self.checkpoints.under_way.as_mut().filter(|open| open.number == number) else {
            return;
        };
        under_way.awaited.remove(&peer);
        under_way.is_on_disks &= is_on_disk;
        if let Some(reason) = failure {
            under_way.failure.get_or_insert_with(|| format!("{peer}: {reason}"));
        }
        let Some(UnderWay { number, began, is_on_disks, failure, .. }) =
            self.checkpoints.under_way.take_if(|open| open.awaited.is_empty())
        else {
            return;
        };
        if is_on_disks {
            self.checkpoints.complete = Some(number);
        }
        self.events.push_back(match failure {
            None => ControllerEvent::Checkpointed { number, took: now.since(began) },
            Some(reason) => ControllerEvent::CheckpointFailed { number, reason },
        });
    }

    /// Counts the checkpoint that a server was writing when it stopped as missing.
    pub(super) fn forget_checkpoint_of(&mut self, now: Instant, peer: Peer) {
        if let Some(open) = &self.checkpoints.under_way
            && open.awaited.contains(&peer)
        {
            let reason = "it stopped meanwhile".to_owned();
            self.handle_checkpointed(now, peer, open.number, false, Some(reason));
        }
    }

    /// A server has so much log that to read it again would take long.
    pub(super) fn consider_log(&mut self, now: Instant, log_bytes: u64) {
        let too_much = log_bytes > self.cluster.durability.log_bytes_max;
        if too_much
            && self.checkpoints.under_way.is_none()
            && self.checkpoints.next_at.is_none_or(|at| at > now)
        {
            self.begin_checkpoint(now);
        }
    }
}
