//! Work whose phases are added while the job runs, and what must be true of them: a phase that was added stays as it is.

use core::time::Duration;
use std::collections::BTreeMap;

use libra_proto::{AddedPhase, AddedPhases, ControllerCommand, Role};

use crate::disks::ASLEEP_PAUSE;
use crate::network::Host;
use crate::process::AnyRole;
use crate::random::Random;
use crate::runner::{ScenarioRunner, Scheduled};

/// The longest time after which the front end adds others.
const INTERVAL_MAX: Duration = Duration::from_millis(300);

/// The front end of the controller.
#[derive(Debug)]
pub(crate) struct OpenWork {
    random: Random,
    /// All phases, as controllers reported them.
    phases: BTreeMap<u64, AddedPhase>,
    /// Texts are numbered.
    texts: u64,
}

impl OpenWork {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, phases: BTreeMap::new(), texts: 0 }
    }

    /// Number of chunks of a phase.
    pub(crate) fn chunks(&self, phase: u64) -> u32 {
        self.phases.get(&phase).map_or(0, |phase| phase.chunks)
    }

    /// Takes note of what a controller reports, when the users have passed so many phases. Returns one of these that is another than before: what no server had
    /// yet when its controller died may be.
    fn learn(&mut self, added: &AddedPhases, passed: u64) -> Option<u64> {
        let mut changed = None;
        for (number, phase) in (added.done..).zip(&added.phases) {
            let known = self.phases.insert(number, phase.clone());
            let is_other = known.is_some_and(|known| known != *phase);
            changed = changed.or_else(|| (is_other && number < passed).then_some(number));
        }
        changed
    }

    /// The command that adds some.
    fn add(&mut self, behind: u64) -> ControllerCommand {
        let mut phases = Vec::new();
        for _ in 0..self.random.within(1..=3) {
            self.texts += 1;
            phases
                .push(AddedPhase { chunks: self.random.small(1..=12).into(), text: self.texts.to_string() });
        }
        ControllerCommand::AddPhases { behind, phases, is_complete: false }
    }
}

impl ScenarioRunner {
    /// A controller reports the phases of the work. Its front end adds others after a while.
    pub(crate) fn phases_added(&mut self, host: Host, added: &AddedPhases) {
        // The first of two controllers may not have received what the second has added.
        if host != self.controller {
            return;
        }
        let passed = self.users.values().map(|user| user.next_barrier).max().unwrap_or(0);
        let Some(work) = &mut self.open_work else { return };
        if let Some(phase) = work.learn(added, passed) {
            return self.violate("phases", format!("phase {phase} was added twice"));
        }
        let at = self.world.now() + work.random.up_to(INTERVAL_MAX);
        self.schedule(at, Scheduled::AddPhases(host, added.count()));
    }

    /// The front end of a controller adds phases behind those that it knows. It is asleep while its controller is.
    pub(crate) fn add_phases(&mut self, host: Host, behind: u64) {
        if host != self.controller || !self.world.is_alive(host) {
            return;
        }
        if !self.world.is_awake(host) {
            return self.schedule(self.world.now() + ASLEEP_PAUSE, Scheduled::AddPhases(host, behind));
        }
        let Some(command) = self.open_work.as_mut().map(|work| work.add(behind)) else { return };
        self.world.act(host, |role, now| {
            if let AnyRole::Controller(controller) = role {
                controller.handle_command(now, command);
            }
        });
    }
}
