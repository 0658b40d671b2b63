//! Profiles of the pushes of a process alone, from which a plan of hot rows is made.

use std::sync::Mutex;

use libra_client::{Budget, JobSpec, Profile, Provenance, Sizes};

use crate::backend::Part;
use crate::backend::alone::{Alone, lock};
use crate::failure::Failure;

/// A profile that begins with the first push.
#[derive(Default)]
pub(crate) struct Recorder {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// Nothing is recorded.
    #[default]
    Off,
    /// The next push begins the profile, of the tables of that moment.
    Ready,
    /// Recording pushes of so many tables.
    Recording { profile: Box<Profile>, tables: usize },
}

impl Recorder {
    pub(crate) fn start(&self) {
        *lock(&self.state) = State::Ready;
    }

    /// Records a push.
    pub(crate) fn record(&self, stores: Option<&Alone>, parts: &[Part]) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        let Some(stores) = stores else { return Ok(()) };
        if matches!(*state, State::Ready) {
            let tables = stores.tables();
            let count = tables.len();
            let shapes = JobSpec::new(Sizes { servers: 1, switches: 1, workers: 1 }, tables).shapes();
            let profile = Profile::new(shapes).map_err(|error| Failure::Value(error.to_string()))?;
            *state = State::Recording { profile: Box::new(profile), tables: count };
        }
        if let State::Recording { profile, tables } = &mut *state {
            for part in parts {
                if part.table >= *tables {
                    let text =
                        "a profile is of the tables that there are at the first step: define all before";
                    return Err(Failure::Libra("Error", text.to_owned()));
                }
            }
            let keys: Vec<u64> = parts.iter().flat_map(|part| part.keys.iter().copied()).collect();
            let gradients: Vec<f32> = parts.iter().flat_map(|part| part.gradients.iter().copied()).collect();
            profile.record(&keys, &gradients);
        }
        Ok(())
    }

    /// Ends the profile; returns the text of its plan. `None` if nothing was pushed.
    pub(crate) fn finish(&self, seed: u64) -> Option<String> {
        match std::mem::take(&mut *lock(&self.state)) {
            State::Off | State::Ready => None,
            State::Recording { profile, .. } => {
                let provenance = Provenance {
                    model: "a model of PyTorch".to_owned(),
                    data: "the pushes of a process alone".to_owned(),
                    seed,
                    tool: concat!("libra ", env!("CARGO_PKG_VERSION")).to_owned(),
                    ..Provenance::default()
                };
                let plan =
                    profile.plan(provenance, Budget::default()).expect("the default budget is in range");
                Some(plan.to_toml())
            }
        }
    }
}
