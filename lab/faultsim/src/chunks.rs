//! Work that users do in chunks, and what must be true of it: each chunk is done once, and all of a phase is visible before the next.

use std::collections::{BTreeMap, VecDeque};

use libra_proto::{AddedPhases, Outcome, WorkerCommand};

use crate::check::Verdict;
use crate::network::Host;
use crate::random::Random;
use crate::rows::Sums;
use crate::runner::ScenarioRunner;
use crate::workload::Progress;

/// Leases that a user wants at a time, at most.
const LEASES_MAX: u16 = 3;

/// The chunks of a user.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    is_asking: bool,
    waiting: VecDeque<u32>,
    /// The chunk that it does, and the operations that are left of it.
    current: Option<(u32, u32)>,
    /// Those that it has done in this phase: its account.
    finished: Vec<u32>,
    /// All that it had pushed when it finished its last chunk of a phase.
    pushed: BTreeMap<u64, Sums>,
}

/// The next thing that a user does about its chunks.
pub(crate) enum Next {
    /// An operation of a chunk.
    Operation,
    /// A command to its worker.
    Command(WorkerCommand),
    /// Nothing, before it gets a chunk.
    Wait,
}

impl Chunks {
    /// These chunks are its own.
    pub(crate) fn leased(&mut self, chunks: Vec<u32>) {
        self.waiting.extend(chunks);
    }

    /// A phase is over. Chunks of it that it has not finished were given up with its worker.
    pub(crate) fn pass_phase(&mut self) {
        *self =
            Self { is_asking: self.is_asking, pushed: core::mem::take(&mut self.pushed), ..Self::default() };
    }

    /// True if it is in the middle of a chunk.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Decides about the next operation of a user in this phase, which has pushed this much.
    pub(crate) fn next(&mut self, phase: u64, pushed: &Sums, random: &mut Random) -> Next {
        if !core::mem::replace(&mut self.is_asking, true) {
            return Next::Command(WorkerCommand::Lease { wanted: random.small(1..=LEASES_MAX) });
        }
        let current = self.current.take();
        let Some((chunk, left)) =
            current.or_else(|| Some((self.waiting.pop_front()?, random.small(1..=6).into())))
        else {
            return Next::Wait;
        };
        if left > 0 {
            self.current = Some((chunk, left - 1));
            return Next::Operation;
        }
        self.finished.push(chunk);
        self.pushed.insert(phase, pushed.clone());
        let account = self.finished.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        Next::Command(WorkerCommand::FinishChunk { chunk, account })
    }

    /// Returns what it had pushed at its last chunk of a phase, or of one before.
    fn pushed_by(&self, phase: u64) -> Option<&Sums> {
        self.pushed.range(..=phase).next_back().map(|(_, pushed)| pushed)
    }
}

impl ScenarioRunner {
    /// A worker receives that a phase is over: what others have pushed in it must be visible.
    pub(crate) fn observe_phase(&mut self, host: Host, phase: u64) {
        let mut seen = Vec::new();
        for (&other, user) in self.users.iter().filter(|(other, _)| **other != host) {
            if !matches!(user.progress, Progress::Starting | Progress::Gone)
                && !self.given_up.contains(&user.worker)
                && self.world.is_alive(other)
                && let Some(pushed) = user.chunks.pushed_by(phase)
            {
                seen.push((user.worker, pushed.clone()));
            }
        }
        if let Some(hearer) = self.users.get_mut(&host) {
            hearer.clocks.observe(seen);
        }
    }

    /// A worker begins: in no phase before that in which the work was, when its process began, at a checkpoint that all shards had.
    pub(crate) fn check_first_phase(&mut self, host: Host, phase: u64) {
        let Some(user) = self.users.get(&host).filter(|user| phase < user.next_barrier) else { return };
        let text = format!(
            "a worker begins in phase {phase}, and a checkpoint has all before {}",
            user.next_barrier
        );
        self.violate("work", text);
    }

    /// Compares what workers are said to have done with what their users have: each chunk of a phase that is over is in one account.
    pub(crate) fn check_work(&self, outcome: &Outcome) -> Verdict {
        let Some(work) = &self.scenario.work else { return Ok(()) };
        let chunks_of = |phase| match &self.open_work {
            Some(open) => open.chunks(phase),
            None => work.chunks(&AddedPhases::default(), phase),
        };
        let mut times: BTreeMap<(u64, u32), Vec<u16>> = BTreeMap::new();
        let mut last = 0;
        for (worker, record) in &outcome.work {
            last = last.max(record.phase);
            for (phase, account) in &record.accounts {
                for chunk in account.split_whitespace() {
                    let chunk =
                        chunk.parse().map_err(|error| format!("account of worker {worker}: {error}"))?;
                    times.entry((*phase, chunk)).or_default().push(*worker);
                }
            }
        }
        // A worker that was lost may have done what is not in its record any more, and others do it again.
        let is_exact = self.given_up.is_empty() && !self.is_split;
        for phase in 0..last {
            for chunk in 0..chunks_of(phase) {
                let found = times.get(&(phase, chunk)).map_or(&[][..], Vec::as_slice);
                if found.len() != 1 && is_exact {
                    return Err(format!(
                        "chunk {chunk} of phase {phase} is in the accounts of workers {found:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
