//! When servers write checkpoints: all at the same time, under the same number.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Controller, ControllerEvent, Phase};
use crate::cluster::Peer;
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
    under_way: Option<UnderWay>,
}

/// A checkpoint that servers write.
#[derive(Debug, Clone)]
struct UnderWay {
    number: u64,
    began: Instant,
    /// Servers that have not answered.
    awaited: BTreeSet<Peer>,
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
        let newest = self.of_kind(Kind::Server).filter_map(|(_, member)| match member.statistics {
            // No honest server has come near the end of the numbers.
            Some(Statistics::Server(counts)) if counts.checkpoint >> 63 == 0 => Some(counts.checkpoint),
            _ => None,
        });
        let first = self.cluster.durability.first_checkpoint();
        let number = newest.max().unwrap_or(0).max(self.checkpoints.newest).max(first) + 1;
        let awaited: BTreeSet<Peer> = self.of_kind(Kind::Server).map(|(peer, _)| peer).collect();
        for peer in &awaited {
            self.send(*peer, Message::Checkpoint { number });
        }
        self.checkpoints.newest = number;
        self.checkpoints.under_way = Some(UnderWay { number, began: now, awaited, failure: None });
    }

    /// A server has written its part of a checkpoint, or has not.
    pub(super) fn handle_checkpointed(
        &mut self,
        now: Instant,
        peer: Peer,
        number: u64,
        failure: Option<String>,
    ) {
        let Some(under_way) = self.checkpoints.under_way.as_mut().filter(|open| open.number == number) else {
            return;
        };
        under_way.awaited.remove(&peer);
        if let Some(reason) = failure {
            under_way.failure.get_or_insert_with(|| format!("{peer}: {reason}"));
        }
        let Some(UnderWay { number, began, failure, .. }) =
            self.checkpoints.under_way.take_if(|open| open.awaited.is_empty())
        else {
            return;
        };
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
            self.handle_checkpointed(now, peer, open.number, Some("it stopped meanwhile".to_owned()));
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
