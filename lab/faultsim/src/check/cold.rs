//! Pushes by the cold path: what each contains, and how far shards have come.

use std::collections::BTreeMap;

use libra_proto::ColdPush;

use super::Verdict;
use crate::rows::{Rows, Sums};

/// The pushes of one worker to one shard.
#[derive(Debug, Default)]
struct PushStream {
    /// By number, from 1 on.
    pushes: BTreeMap<u64, ColdPush>,
    /// The highest number that reached the shard.
    arrived: u64,
    /// The highest number that the shard has answered. Streams keep the order, so all below are applied as well.
    answered: u64,
}

/// All of them, by worker and shard.
#[derive(Debug, Default)]
pub(super) struct ColdPushes {
    streams: BTreeMap<(u16, u16), PushStream>,
}

impl ColdPushes {
    fn stream(&mut self, worker: u16, shard: u16) -> &mut PushStream {
        self.streams.entry((worker, shard)).or_default()
    }

    // rule C1
    pub(super) fn sent(&mut self, worker: u16, shard: u16, push: &ColdPush) -> Verdict {
        let stream = self.stream(worker, shard);
        match stream.pushes.get(&push.number) {
            Some(before) if before.keys != push.keys || before.gradients != push.gradients => {
                Err(format!("push {} of worker {worker} to shard {shard} is two pushes", push.number))
            }
            Some(_) => Ok(()),
            None => {
                stream.pushes.insert(push.number, push.clone());
                Ok(())
            }
        }
    }

    pub(super) fn arrives(&mut self, worker: u16, shard: u16, number: u64) {
        let stream = self.stream(worker, shard);
        stream.arrived = stream.arrived.max(number);
    }

    pub(super) fn answered(&mut self, worker: u16, shard: u16, number: u64) -> Verdict {
        let stream = self.stream(worker, shard);
        if number > stream.arrived {
            return Err(format!("push {number} of worker {worker} is answered before shard {shard} has it"));
        }
        stream.answered = stream.answered.max(number);
        Ok(())
    }

    /// The sums of what is applied for certain: of one worker, or of all.
    pub(super) fn applied(&self, rows: &Rows, of: Option<u16>) -> Sums {
        let mut sums = Sums::zero(rows);
        for ((worker, _), stream) in &self.streams {
            if of.is_none_or(|of| of == *worker) {
                for push in stream.pushes.range(..=stream.answered).map(|(_, push)| push) {
                    sums.add(rows, &push.keys.to_vec(), &push.gradients.clone().into_vec());
                }
            }
        }
        sums
    }

    /// For each value the sum of everything that was sent, without signs.
    pub(super) fn magnitudes(&self, rows: &Rows) -> Sums {
        let mut sums = Sums::zero(rows);
        let pushes = self.streams.values().flat_map(|stream| stream.pushes.values());
        for push in pushes {
            let gradients: Vec<f32> = push.gradients.clone().into_vec().into_iter().map(f32::abs).collect();
            sums.add(rows, &push.keys.to_vec(), &gradients);
        }
        sums
    }

    /// Returns the pushes that reached a shard and were never answered, in the order they came, by worker and shard: the shard may have applied
    /// none of it, or some of the first, or all.
    pub(super) fn uncertain(&self) -> impl Iterator<Item = (u16, u16, Vec<&ColdPush>)> {
        self.streams.iter().filter_map(|((worker, shard), stream)| {
            let open = stream.pushes.range(stream.answered + 1..);
            let arrived = open.take_while(|(number, _)| **number <= stream.arrived);
            let pushes: Vec<&ColdPush> = arrived.map(|(_, push)| push).collect();
            (!pushes.is_empty()).then_some((*worker, *shard, pushes))
        })
    }

    /// The shards that have not answered all pushes of a worker.
    pub(super) fn unanswered(&self, worker: u16) -> impl Iterator<Item = u16> {
        let own = self.streams.range((worker, 0)..=(worker, u16::MAX));
        own.filter(|(_, stream)| {
            stream.pushes.last_key_value().is_some_and(|(last, _)| *last > stream.answered)
        })
        .map(|((_, shard), _)| *shard)
    }
}
