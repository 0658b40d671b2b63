//! Work that is dealt to workers in chunks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The work of a job: phases one after the other, each of which is dealt in chunks to the workers that ask (rules K1 to K8). Roles do
/// not know what a chunk is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Number of phases.
    pub phases: u64,
    /// Number of chunks of a phase; of phase p, those at position p modulo the length.
    pub chunks: Vec<u32>,
    /// The part that another run of the job has done before; in a new job nothing.
    pub done: WorkDone,
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
}

/// Most chunks of a phase: a controller keeps a list of those that are not done.
const CHUNKS_MAX: u32 = 1 << 20;

impl Work {
    /// Checks that a controller can deal it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_sound = |chunks: &u32| (1..=CHUNKS_MAX).contains(chunks);
        if let Some(chunks) = self.chunks.iter().find(|chunks| !is_sound(chunks)) {
            return Err(format!("a phase of the work has {chunks} chunks, and must have 1 to {CHUNKS_MAX}"));
        }
        if self.chunks.is_empty() {
            return Err("the phases of the work have no chunks".to_owned());
        }
        let phase = self.done.phase;
        if phase > self.phases {
            return Err(format!("phase {phase} of {} is done already", self.phases));
        }
        let chunks = self.chunks(phase);
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
        (self.phases, &self.chunks) == (other.phases, &other.chunks)
    }

    /// Returns the number of chunks of a phase; 0 behind the last.
    pub fn chunks(&self, phase: u64) -> u32 {
        if phase >= self.phases {
            return 0;
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
        assert_eq!((0..7).map(|phase| work.chunks(phase)).collect::<Vec<_>>(), [8, 3, 8, 3, 8, 0, 0]);
    }

    // rule K1
    #[test]
    fn work_that_cannot_be_dealt_is_refused() {
        let of = |chunks: &[u32]| Work { phases: 9, chunks: chunks.to_vec(), ..Work::default() };
        let check = |chunks: &[u32]| of(chunks).check();
        assert_eq!((check(&[1, 1 << 20]), check(&[]).is_err()), (Ok(()), true));
        assert!(check(&[3, 0]).is_err() && check(&[(1 << 20) + 1]).is_err());
        let done = |phase, chunk| {
            let records = vec![(0, record(phase, &[chunk], ""))];
            Work { done: WorkDone { phase, records, repeated: 0 }, ..of(&[5]) }.check()
        };
        assert_eq!((done(8, 4), done(9, 5).is_err(), done(8, 5).is_err()), (Ok(()), true, true));
        assert!(done(10, 0).is_err());
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
