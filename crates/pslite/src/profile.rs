//! Hot keys of a program: its pushes, counted for a plan.

use std::fs;
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::mesh::{Node, OutgoingMessage, worker_id};
use libra_client::{Budget, DEFAULT_HEADROOM_BITS, Plan, Provenance, TableShape};
use libra_plan::{DEFAULT_P, SLOT_BYTES, SLOTS_PER_REGION};

use crate::arrays::{is_for_sums, keys_of, values_of};
use crate::error::CallError;

/// So many keys are hot at most. A round costs a server as much as it touches slots, and keys of low rank are touched by few pushes each:
/// with ten times as many a program is slower (docs/benchmarks/README.md).
const KEYS_MAX: u64 = SLOTS_PER_REGION as u64;

/// Counts the pushes of the worker of rank 0, which stands for all.
pub(crate) struct Profile {
    path: PathBuf,
    /// `None` once it is written.
    pushes: Mutex<Option<libra_client::Profile>>,
}

impl Profile {
    /// One that will be written as a plan to this file.
    pub(crate) fn new(path: PathBuf) -> Self {
        let table = TableShape { name: "keys".to_owned(), keys: 0..u64::MAX, width: 1, hot: true };
        let pushes = libra_client::Profile::new(vec![table]).expect("one table shares no keys");
        Self { path, pushes: Mutex::new(Some(pushes)) }
    }

    fn is_of(node: &Node) -> bool {
        node.id() == worker_id(0)
    }

    /// Finds out whether the file can be written, before anything is counted.
    pub(crate) fn begin(&self, node: &Node) -> Result<(), CallError> {
        if Self::is_of(node) { self.put("") } else { Ok(()) }
    }

    /// Counts a request, if it is a push for the default handler of floats.
    pub(crate) fn on_push(&self, node: &Node, outgoing: &OutgoingMessage) {
        let is_push = outgoing.meta.push && is_for_sums(outgoing);
        if !is_push || !Self::is_of(node) || !keys_of(outgoing).is_sorted_by(|one, next| one < next) {
            return;
        }
        // The highest key is of no table.
        let updates = keys_of(outgoing).zip(values_of(outgoing)).filter(|(key, _)| *key != u64::MAX);
        let (keys, values): (Vec<u64>, Vec<f32>) = updates.unzip();
        if let Some(pushes) = self.pushes.lock().as_mut() {
            pushes.record(&keys, &values);
        }
    }

    /// Writes the plan.
    pub(crate) fn end(&self, node: &Node) -> Result<(), CallError> {
        if !Self::is_of(node) {
            return Ok(());
        }
        let pushes = self.pushes.lock().take();
        let Some(pushes) = pushes else { return Ok(()) };
        let program = std::env::current_exe().ok();
        let name = program.as_ref().and_then(|path| path.file_name()).unwrap_or_default();
        let provenance = Provenance {
            model: name.to_string_lossy().into_owned(),
            data: "the pushes of its first worker".to_owned(),
            tool: concat!("libra ", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Provenance::default()
        };
        let budget = Budget { p: DEFAULT_P, c: 1.0, on_chip_bytes: KEYS_MAX * SLOT_BYTES };
        let plan = Plan::new(1, provenance, &pushes.finish(), budget, DEFAULT_HEADROOM_BITS);
        self.put(&plan.expect("such a budget and the usual headroom are sound").to_toml())
    }

    fn put(&self, text: &str) -> Result<(), CallError> {
        fs::write(&self.path, text).map_err(|error| CallError::Environment {
            name: "LIBRA_PROFILE",
            problem: format!("is {}, which cannot be written: {error}", self.path.display()),
        })
    }
}
