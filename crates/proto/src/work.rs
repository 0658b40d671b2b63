//! Work that is dealt to workers in chunks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The work of a job: phases one after the other, each of which is dealt in chunks to the workers that ask (rules K1 to K9). Roles do
/// not know what a chunk is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Number of phases; 0 of open work.
    pub phases: u64,
    /// Number of chunks of a phase; of phase p, those at position p modulo the length.
    pub chunks: Vec<u32>,
    /// The work is open: its phases are those that are [added](AddedPhases) while the job runs.
    #[serde(default)]
    pub is_open: bool,
    /// The part that another run of the job has done before; in a new job nothing.
    pub done: WorkDone,
}

/// Phases of open work (rule K9).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedPhases {
    /// Number of those that are done and not kept here.
    pub done: u64,
    /// Those behind them, in their order.
    pub phases: Vec<AddedPhase>,
    /// No other is going to be added.
    pub is_complete: bool,
}

/// A phase of open work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedPhase {
    /// Number of its chunks.
    pub chunks: u32,
    /// Text of the controller's front end for that of workers, which roles do not read.
    pub text: String,
}

/// Phases before the present one that are kept: a worker may not have received yet that they are over.
const PHASES_KEPT: u64 = 2;

impl AddedPhases {
    /// Number of phases that were ever added.
    pub fn count(&self) -> u64 {
        self.done + self.phases.len() as u64
    }

    /// Returns a phase that is kept.
    pub fn get(&self, phase: u64) -> Option<&AddedPhase> {
        self.phases.get(usize::try_from(phase.checked_sub(self.done)?).ok()?)
    }

    /// Drops those that are long over when the job is in this phase.
    pub(crate) fn enter(&mut self, phase: u64) {
        let over = phase.saturating_sub(self.done + PHASES_KEPT).min(self.phases.len() as u64);
        self.phases.drain(..usize::try_from(over).expect("at most a length"));
        self.done += over;
    }
}

/// Part of the work that is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// The present phase: all before are done.
    pub phase: u64,
    /// The records of workers, with their numbers. Workers of several runs can have the same.
    pub records: Vec<(u16, WorkRecord)>,
    /// Chunks that were dealt again, or are to be, though rows have pushes of them.
    pub repeated: u64,
}

/// Position of a job, as a checkpoint has it: another job can resume there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The front end's own part: [`Cluster::task`](crate::Cluster::task).
    pub task: String,
    /// The work, with what is done of it.
    pub work: Work,
    /// Its phases, if it is open.
    #[serde(default)]
    pub added: AddedPhases,
}

/// Most chunks of a phase: a controller keeps a list of those that are not done.
const CHUNKS_MAX: u32 = 1 << 20;

impl Work {
    /// Checks that a controller can deal it, with the phases that were added.
    pub(crate) fn check(&self, added: &AddedPhases) -> Result<(), String> {
        let is_sound = |chunks: &u32| (1..=CHUNKS_MAX).contains(chunks);
        let mut all = self.chunks.iter().copied().chain(added.phases.iter().map(|phase| phase.chunks));
        if let Some(chunks) = all.find(|chunks| !is_sound(chunks)) {
            return Err(format!("a phase of the work has {chunks} chunks, and must have 1 to {CHUNKS_MAX}"));
        }
        if self.chunks.is_empty() != self.is_open {
            return Err("the phases of the work have no chunks, or it is open and has phases".to_owned());
        }
        let (phase, phases) = (self.done.phase, self.phases_with(added));
        if phase > phases {
            return Err(format!("phase {phase} of {phases} is done already"));
        }
        let chunks = self.chunks(added, phase);
        let is_known = |record: &WorkRecord| record.done_in(phase).all(|chunk| chunk < chunks);
        match self.done.records.iter().find(|(_, record)| !is_known(record)) {
            Some((worker, _)) => {
                Err(format!("worker {worker} has done chunks that phase {phase} does not have"))
            }
            None => Ok(()),
        }
    }

    /// Returns true if another work has the same phases in the same chunks, whatever is done of them.
    pub fn is_dealt_as(&self, other: &Self) -> bool {
        (self.phases, &self.chunks, self.is_open) == (other.phases, &other.chunks, other.is_open)
    }

    /// Returns the number of phases, with those that were added so far.
    pub fn phases_with(&self, added: &AddedPhases) -> u64 {
        if self.is_open { added.count() } else { self.phases }
    }

    /// Returns the number of chunks of a phase; 0 behind the last. Of an added phase that is not kept, which is done, it is the largest possible.
    pub fn chunks(&self, added: &AddedPhases, phase: u64) -> u32 {
        if phase >= self.phases_with(added) {
            return 0;
        }
        if self.is_open {
            return added.get(phase).map_or(CHUNKS_MAX, |phase| phase.chunks);
        }
        let place = usize::try_from(phase % self.chunks.len().max(1) as u64).expect("below a length");
        self.chunks.get(place).copied().unwrap_or(0)
    }
}

/// Record of the work that a worker has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkRecord {
    /// The phase that it is in.
    pub phase: u64,
    /// The chunks of that phase that it has done: all pushes of them are visible.
    pub done: BTreeSet<u32>,
    /// Its accounts of the chunks that it has done, by phase: texts that the roles do not read.
    pub accounts: BTreeMap<u64, String>,
}

impl WorkRecord {
    /// Adds a later record of the same worker.
    pub(crate) fn add(&mut self, later: &Self) {
        self.enter(later.phase);
        if later.phase == self.phase {
            self.done.extend(&later.done);
        }
        self.accounts.extend(later.accounts.iter().map(|(phase, account)| (*phase, account.clone())));
    }

    /// The worker enters a phase, unless it is in it or in a later one.
    pub(crate) fn enter(&mut self, phase: u64) {
        if phase > self.phase {
            self.phase = phase;
            self.done.clear();
        }
    }

    /// Returns the chunks of a phase that are done.
    pub fn done_in(&self, phase: u64) -> impl Iterator<Item = u32> {
        self.done.iter().copied().filter(move |_| self.phase == phase)
    }
}

/// Message of a worker about the work: what it has done since the message before, and how much it wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// News of its record; on a new stream all of it.
    pub record: WorkRecord,
    /// The chunks of [`WorkRecord::phase`] that it has leases of; on a new stream alone.
    pub held: BTreeSet<u32>,
    /// Number of leases that it wants to have at a time.
    pub wanted: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(phase: u64, done: &[u32], account: &str) -> WorkRecord {
        let accounts = BTreeMap::from([(phase, account.to_owned())]);
        WorkRecord { phase, done: done.iter().copied().collect(), accounts }
    }

    #[test]
    fn phases_take_turns() {
        let work = Work { phases: 5, chunks: vec![8, 3], ..Work::default() };
        assert_eq!(
            (0..7).map(|phase| work.chunks(&AddedPhases::default(), phase)).collect::<Vec<_>>(),
            [8, 3, 8, 3, 8, 0, 0]
        );
    }

    // rule K1
    #[test]
    fn work_that_cannot_be_dealt_is_refused() {
        let of = |chunks: &[u32]| Work { phases: 9, chunks: chunks.to_vec(), ..Work::default() };
        let check = |chunks: &[u32]| of(chunks).check(&AddedPhases::default());
        assert_eq!((check(&[1, 1 << 20]), check(&[]).is_err()), (Ok(()), true));
        assert!(check(&[3, 0]).is_err() && check(&[(1 << 20) + 1]).is_err());
        let done = |phase, chunk| {
            let records = vec![(0, record(phase, &[chunk], ""))];
            Work { done: WorkDone { phase, records, repeated: 0 }, ..of(&[5]) }.check(&AddedPhases::default())
        };
        assert_eq!((done(8, 4), done(9, 5).is_err(), done(8, 5).is_err()), (Ok(()), true, true));
        assert!(done(10, 0).is_err());
    }

    // rule K9
    #[test]
    fn open_work_has_the_phases_that_were_added() {
        let work = Work { is_open: true, ..Work::default() };
        let phase = |chunks| AddedPhase { chunks, text: format!("{chunks} chunks") };
        let mut added = AddedPhases::default();
        assert_eq!((work.check(&added), work.phases_with(&added), work.chunks(&added, 0)), (Ok(()), 0, 0));
        added.phases.extend([4, 3, 2, 1].map(phase));
        assert_eq!((0..6).map(|phase| work.chunks(&added, phase)).collect::<Vec<_>>(), [4, 3, 2, 1, 0, 0]);
        added.enter(1);
        assert_eq!((added.done, added.count()), (0, 4));
        added.enter(3);
        assert_eq!((added.done, added.count(), added.get(0), added.get(1)), (1, 4, None, Some(&phase(3))));
        assert_eq!(
            (work.chunks(&added, 0), work.chunks(&added, 3), work.chunks(&added, 4)),
            (CHUNKS_MAX, 1, 0)
        );
        added.enter(9);
        assert_eq!((added.done, added.phases.len()), (4, 0));
        added.phases.push(phase(0));
        assert!(work.check(&added).is_err());
        let fixed = Work { phases: 1, chunks: vec![1], ..work };
        assert!(fixed.check(&AddedPhases::default()).is_err(), "open work has no phases of its own");
    }

    // rule K3
    #[test]
    fn records_of_a_worker_add_up() {
        let mut sum = record(0, &[1, 4], "a");
        sum.add(&record(0, &[2], "b"));
        assert_eq!(sum, record(0, &[1, 2, 4], "b"));
        sum.add(&record(2, &[7], "c"));
        assert_eq!((sum.phase, sum.done.clone()), (2, BTreeSet::from([7])));
        assert_eq!(sum.accounts, BTreeMap::from([(0, "b".to_owned()), (2, "c".to_owned())]));
        // One that was on its way since the phase before.
        sum.add(&record(0, &[9], "d"));
        assert_eq!((sum.done_in(2).collect::<Vec<_>>(), sum.done_in(0).count()), (vec![7], 0));
        assert_eq!(sum.accounts[&0], "d");
    }
}
