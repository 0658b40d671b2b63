//! What the users of the roles do in a world: ask, and wait for what comes of it.

use core::time::Duration;

use libra_proto::{ControllerEvent, Level, MemberEvent, Outcome, PullId, Role, WorkerCommand, WorkerEvent};

use crate::world::{AnyRole, Event, Place, World};

/// Virtual time that anything may take, at most.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// Runs until a process says something; what it says before is forgotten.
    pub(crate) fn wait_for(&mut self, place: Place, mut wanted: impl FnMut(&Event) -> bool) -> Event {
        let deadline = self.now + PATIENCE;
        loop {
            while let Some(event) = self.nodes[place].events.pop_front() {
                if wanted(&event) {
                    return event;
                }
                let over = matches!(
                    event,
                    Event::Worker(WorkerEvent::Ended { .. }) | Event::Member(MemberEvent::Ended { .. })
                );
                assert!(!over, "{place} ended: {event:?}");
            }
            assert!(self.now < deadline, "{place} waited until {}: {:#?}", self.now, self.nodes[place].role);
            self.step();
        }
    }

    pub(crate) fn command(&mut self, worker: Place, command: WorkerCommand) {
        self.act(worker, |role, now| match role {
            AnyRole::Worker(role) => role.handle_command(now, command),
            other => panic!("{other:?} is no worker"),
        });
    }

    /// A number for the next operation.
    pub(crate) fn number(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    /// Starts a push and does not wait.
    pub(crate) fn push(&mut self, worker: Place, keys: &[u64], gradients: &[f32], level: Level) -> u64 {
        let number = self.number();
        let (keys, gradients) = (keys.to_vec(), gradients.to_vec());
        self.command(worker, WorkerCommand::Push { number, keys, gradients, level });
        number
    }

    pub(crate) fn wait_for_push(&mut self, worker: Place, push: u64) {
        self.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Pushed { number: push }));
    }

    pub(crate) fn wait_for_pull(&mut self, worker: Place, id: PullId) -> (Vec<u64>, Vec<f32>) {
        let pulled =
            |event: &Event| matches!(event, Event::Worker(WorkerEvent::Pulled(answer, _)) if *answer == id);
        match self.wait_for(worker, pulled) {
            Event::Worker(WorkerEvent::Pulled(_, pulled)) => (pulled.keys, pulled.values),
            other => unreachable!("{other:?}"),
        }
    }

    /// Pulls and waits.
    pub(crate) fn pull(&mut self, worker: Place, keys: &[u64]) -> Vec<f32> {
        let id = PullId(self.number());
        self.command(worker, WorkerCommand::Pull { id, keys: keys.to_vec() });
        let (answered, values) = self.wait_for_pull(worker, id);
        assert_eq!(answered, keys);
        values
    }

    /// Waits until every push of every worker is visible.
    pub(crate) fn flush_all(&mut self) {
        let flushes: Vec<_> = self.workers().map(|worker| (worker, self.number())).collect();
        for (worker, number) in &flushes {
            self.command(*worker, WorkerCommand::Flush { number: *number });
        }
        for (worker, number) in flushes {
            self.wait_for(worker, |event| *event == Event::Worker(WorkerEvent::Flushed { number }));
        }
    }

    /// All workers report, and the job ends.
    pub(crate) fn finish(&mut self) -> Outcome {
        for worker in self.workers() {
            self.command(worker, WorkerCommand::Report { text: format!("worker at {worker}") });
        }
        match self.wait_for(0, |event| matches!(event, Event::Controller(ControllerEvent::Finished(_)))) {
            Event::Controller(ControllerEvent::Finished(outcome)) => outcome,
            other => unreachable!("{other:?}"),
        }
    }
}
