//! Recorded inputs of a role in a simulation, so that they can be replayed to the role alone, with a clock beside it.
//!
//! A role does the same from the same inputs, so it does in a replay what it did in the simulation. That makes any run a measurement of one
//! role: with the work of each step known, prices can be [fitted](crate::fit).

use libra_proto::{Instant, Link, Message, Outgoing, Role, WorkerCommand};

use crate::costs::{CostKind, Work};
use crate::member::{Run, Streamed, Turn, drain, work_of_message};
use libra_faultsim::{AnyRole, with_role};

/// Something that is handed to a role.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Start,
    Timeout,
    Run(Run),
    Streamed(Link, Streamed),
    Command(WorkerCommand),
}

impl Input {
    pub(crate) fn work(&self) -> Work {
        match self {
            Self::Start | Self::Timeout | Self::Streamed(_, Streamed::Event(_)) => Work::default(),
            Self::Run(run) => Work::of(CostKind::RunIn, 1.0)
                .with(CostKind::PacketIn, run.bytes.len().div_ceil(run.stride.max(1)) as f64)
                .with(CostKind::PacketByteIn, run.bytes.len() as f64),
            Self::Streamed(_, Streamed::Message(bytes)) => match Message::decode(bytes) {
                Ok(message) => work_of_message(&message, bytes.len(), true),
                Err(_) => Work::default(),
            },
            Self::Command(command) => {
                let work = Work::of(CostKind::Command, 1.0);
                match command {
                    WorkerCommand::Push { keys, gradients, .. }
                    | WorkerCommand::PushPull { keys, gradients, .. } => work
                        .with(CostKind::Pair, keys.len() as f64)
                        .with(CostKind::Value, gradients.len() as f64),
                    WorkerCommand::Pull { keys, .. } => work.with(CostKind::Pair, keys.len() as f64),
                    _ => work,
                }
            }
        }
    }

    pub(crate) fn hand_in(self, role: &mut AnyRole, now: Instant) {
        match self {
            Self::Start => with_role!(role, role => role.handle_start(now)),
            Self::Timeout => role.handle_timeout(now),
            Self::Run(Run { from, mut bytes, stride }) => {
                with_role!(role, role => role.handle_datagrams(now, from, &mut bytes, stride));
            }
            Self::Streamed(link, Streamed::Event(event)) => role.handle_link(now, link, event),
            Self::Streamed(link, Streamed::Message(bytes)) => {
                let message = Message::decode(&bytes).expect("it was encoded by the same code");
                role.handle_message(now, link, message);
            }
            Self::Command(command) => {
                if let AnyRole::Worker(role) = role {
                    role.handle_command(now, command);
                }
            }
        }
    }
}

/// One turn of a role's loop.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) now: Instant,
    pub(crate) inputs: Vec<Input>,
    pub(crate) work: Work,
}

/// All that one role was handed.
#[derive(Debug)]
pub struct Recording {
    pub(crate) steps: Vec<Step>,
    pub(crate) measured_from: usize,
    pub(crate) fresh: fn(usize) -> AnyRole,
    pub(crate) number: usize,
}

impl Recording {
    /// Hands everything to a new role, alone. `clock` returns the time in nanoseconds; it is asked before and after each step, and what lies
    /// between is the role, with its messages encoded and decoded and without any kernel. Returns for each step since the measurement began what it
    /// did and how long that took.
    ///
    /// # Panics
    /// If the role does something else than in the simulation: that is a bug of the role.
    pub fn replay(&self, mut clock: impl FnMut() -> u64) -> Vec<(Work, f64)> {
        let mut role = (self.fresh)(self.number);
        let own = libra_faultsim::address_of(self.number);
        let mut outgoing = Outgoing::default();
        let mut samples = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let mut turn = Turn { work: Work::of(CostKind::Turn, 1.0), forgets: true, ..Turn::default() };
            for input in &step.inputs {
                turn.work += input.work();
            }
            // What a kernel has just copied is in the caches of this core.
            let inputs = step.inputs.clone();
            let begin = clock();
            inputs.into_iter().for_each(|input| input.hand_in(&mut role, step.now));
            drain(&mut role, step.now, &mut outgoing, &mut turn, own);
            let end = clock();
            assert_eq!(turn.work, step.work, "a role does the same from the same inputs");
            if number >= self.measured_from {
                samples.push((turn.work, end.saturating_sub(begin) as f64));
            }
        }
        samples
    }
}
