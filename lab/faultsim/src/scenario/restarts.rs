//! Scenarios whose members are asked to end and started again, or whose workers all die at once.

use core::time::Duration;

use super::{Fault, OPEN_WORK_FROM, Scenario};
use crate::random::Random;

impl Scenario {
    /// In a third of the scenarios members are asked to end, as an engine does that needs their machines, or servers come back elsewhere.
    pub(super) fn with_drains(mut self, random: &mut Random) -> Self {
        if !random.chance(0.33) {
            return self;
        }
        let ms = Duration::from_millis;
        for _ in 0..random.within(1..=4) {
            let at = random.up_to(self.safety.mul_f64(0.9));
            let fault = match random.below(5) {
                0 | 1 => {
                    let returns = random.chance(0.7).then(|| random.duration(ms(1)..ms(2000)));
                    Fault::SwitchDrains { returns }
                }
                2 | 3 => Fault::ServerDrains {
                    returns: random.duration(ms(1)..ms(2000)),
                    moves: random.chance(0.4),
                    machine: random.chance(0.4),
                },
                _ => Fault::ServerMoves { returns: random.duration(ms(1)..ms(2000)) },
            };
            self.faults.push((at, fault));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }

    /// From that seed on at which work may be open, all workers may die at once in a fifth of the scenarios, the controller with
    /// them or not, and others come in their place.
    pub(super) fn with_restarted_workers(mut self, random: &mut Random) -> Self {
        self.workers_return = self.seed >= OPEN_WORK_FROM && random.chance(0.2);
        for _ in 0..if self.workers_return { random.within(0..=2) } else { 0 } {
            let at = random.up_to(self.safety.mul_f64(0.9));
            let mut returns = || random.duration(Duration::from_millis(1)..Duration::from_secs(3));
            let (of_workers, of_controller) = (returns(), returns());
            let machine = random.chance(0.3);
            self.faults.push((at, Fault::AllWorkersDie { machine, returns: of_workers }));
            if random.chance(0.4) {
                self.faults.push((at, Fault::ControllerDies { machine, returns: of_controller }));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }
}
