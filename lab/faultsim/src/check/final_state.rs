//! The end: what every row is, against what was applied and what was pushed.

use std::collections::BTreeMap;

use libra_proto::{ColdPush, Peer};

use super::{Checkers, Verdict};
use crate::rows::{Rows, Sums};

/// Ways to explain what dead workers left behind are tried one by one, so many at most.
const EXPLANATIONS_MAX: usize = 200_000;

/// Final state of a job, as far as the checkers know it.
#[derive(Debug)]
pub struct FinalState<'a> {
    /// The rows.
    pub rows: &'a Rows,
    /// For each worker that lived to the end what it pushed, by its own account.
    pub live: &'a BTreeMap<u16, Sums>,
    /// For each worker that died or left what was reported to it as visible, and all that it pushed.
    pub gone: &'a BTreeMap<u16, (Sums, Sums)>,
    /// True if no gradient is negative: then more pushes never hide that one is missing.
    pub positive: bool,
    /// Rows as they were read: minus the sums.
    pub read: &'a Sums,
}

impl Checkers {
    /// Compares the end with everything that came before.
    pub fn final_state(&self, final_state: &FinalState<'_>) -> Verdict {
        self.all_of_the_living_is_applied(final_state)?;
        self.rows_are_what_was_applied(final_state)?;
        self.the_dead_keep_what_was_visible(final_state)
    }

    fn all_of_the_living_is_applied(&self, final_state: &FinalState<'_>) -> Verdict {
        for (worker, pushed) in final_state.live {
            let mut applied = self.cold.applied(final_state.rows, Some(*worker));
            for ((_, region), flow) in self.packets.flows().filter(|((of, _), _)| of == worker) {
                if let Some(seq) = flow.unapplied().next() {
                    let told =
                        if flow.acknowledged_in(seq).is_some() { ", and was acknowledged" } else { "" };
                    return Err(format!("worker {worker}, region {region}: {seq} is not applied{told}"));
                }
            }
            if let Some(shard) = self.cold.unanswered(*worker).next() {
                return Err(format!("shard {shard} has not answered all pushes of worker {worker}"));
            }
            applied.add_all(&self.hot_sums(*worker));
            if let Some(lane) = first_difference(&applied, pushed) {
                return Err(format!(
                    "worker {worker} pushed {} to value {lane}, {} of it is applied",
                    pushed.0[lane], applied.0[lane]
                ));
            }
        }
        match self.taken_and_unapplied() {
            Some(taken) => Err(format!("{taken}, and is not applied")),
            None => Ok(()),
        }
    }

    /// Returns a packet that a switch has acknowledged and no shard has applied. While the switch holds the region it is not lost, and is applied
    /// with its round, also if its worker has died.
    pub fn taken_and_unapplied(&self) -> Option<String> {
        let newest = self.roster.newest()?;
        self.packets.flows().find_map(|((worker, region), flow)| {
            let ownership = newest.ownership(region);
            let is_taken = |seq: &u32| flow.acknowledged_in(*seq) == Some(ownership.view_on_wire());
            let seq = flow.unapplied().find(is_taken)?;
            let owner = ownership.owner.map(Peer::Switch);
            Some(format!(
                "worker {worker}, region {region}: {seq} was taken by {owner:?}, which still holds the region"
            ))
        })
    }

    /// The sums of the packets of a worker that are applied.
    fn hot_sums(&self, worker: u16) -> Sums {
        let mut sums = Sums(vec![0.0; self.rounds.applied().0.len()]);
        for ((_, region), flow) in self.packets.all_flows().filter(|((of, _), _)| *of == worker) {
            self.rounds.add_flow(region, flow, &mut sums);
        }
        sums
    }

    fn rows_are_what_was_applied(&self, final_state: &FinalState<'_>) -> Verdict {
        let mut certain = self.cold.applied(final_state.rows, None);
        certain.add_all(self.rounds.applied());
        // Rows that are set are no sums.
        let sums = final_state.rows.values_of_sums();
        let pairs = final_state.read.0.iter().zip(&certain.0).take(sums);
        let rest: Vec<f64> = pairs.map(|(read, sum)| read - sum).collect();
        let pushes = self.cold.uncertain().map(|(_, _, pushes)| {
            pushes.into_iter().map(|push| changes(final_state.rows, push).collect()).collect()
        });
        let rounds = self.rounds.unsaid(&self.packets).into_iter().map(|changes| vec![changes]);
        let mut candidates: Vec<Vec<Vec<(usize, f64)>>> = pushes.chain(rounds).collect();
        for candidate in &mut candidates {
            candidate.iter_mut().for_each(|changes| changes.retain(|(value, _)| *value < sums));
            candidate.retain(|changes| !changes.is_empty());
        }
        candidates.retain(|candidate| !candidate.is_empty());
        let ways: usize = candidates.iter().map(|candidate| candidate.len() + 1).product();
        if ways > EXPLANATIONS_MAX {
            return Err(format!("there are {ways} explanations of what dead workers left behind"));
        }
        let tolerances = self.rounds.tolerances(&self.cold.magnitudes(final_state.rows));
        let differs = |(value, tolerance): (&f64, &f64)| value.abs() > *tolerance;
        let mut taken = vec![0; candidates.len()];
        let mut rest = Sums(rest);
        let nearest = rest.clone();
        loop {
            if !rest.0.iter().zip(&tolerances).any(differs) {
                return Ok(());
            }
            // The next way, as an odometer counts.
            let Some(place) = (0..taken.len()).find(|&place| taken[place] < candidates[place].len()) else {
                let lane = nearest.0.iter().zip(&tolerances).position(differs).unwrap_or_default();
                return Err(format!(
                    "value {lane} is {}, what was applied makes {}; {} of {} values differ, and nothing that may have been applied explains it",
                    -final_state.read.0[lane],
                    -certain.0[lane],
                    nearest.0.iter().zip(&tolerances).filter(|pair| differs(*pair)).count(),
                    nearest.0.len()
                ));
            };
            for reset in 0..place {
                for changes in candidates[reset].iter().take(core::mem::take(&mut taken[reset])) {
                    add(&mut rest, changes.iter().copied(), 1.0);
                }
            }
            add(&mut rest, candidates[place][taken[place]].iter().copied(), -1.0);
            taken[place] += 1;
        }
    }

    fn the_dead_keep_what_was_visible(&self, final_state: &FinalState<'_>) -> Verdict {
        if !final_state.positive {
            return Ok(());
        }
        for (worker, (visible, pushed)) in final_state.gone {
            let mut least = self.cold.applied(final_state.rows, Some(*worker));
            least.add_all(&self.hot_sums(*worker));
            let mut most = least.clone();
            for (_, _, pushes) in self.cold.uncertain().filter(|(of, _, _)| of == worker) {
                pushes.iter().for_each(|push| add(&mut most, changes(final_state.rows, push), 1.0));
            }
            for lane in 0..most.0.len() {
                if most.0[lane] < visible.0[lane] || least.0[lane] > pushed.0[lane] {
                    return Err(format!(
                        "worker {worker}, which is gone, pushed {} to value {lane}, {} was visible, {} to {} is applied",
                        pushed.0[lane], visible.0[lane], least.0[lane], most.0[lane]
                    ));
                }
            }
        }
        Ok(())
    }
}

fn first_difference(one: &Sums, other: &Sums) -> Option<usize> {
    one.0.iter().zip(&other.0).position(|(one, other)| one != other)
}

/// The values that a push changes, and what it adds to each.
fn changes(rows: &Rows, push: &ColdPush) -> impl Iterator<Item = (usize, f64)> {
    let values = push.keys.to_vec().into_iter().flat_map(|key| rows.range(key));
    values.zip(push.gradients.clone().into_vec().into_iter().map(f64::from))
}

/// Adds changes to sums, so many times.
fn add(sums: &mut Sums, changes: impl Iterator<Item = (usize, f64)>, times: f64) {
    for (value, change) in changes {
        sums.0[value] += change * times;
    }
}
