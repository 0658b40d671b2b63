//! A small model for the unit tests of the roles.

use core::time::Duration;

use libra_plan::{Budget, HotRow, Plan, Provenance, Scale, TableShape};
use libra_store::{Init, Optimizer, TableSpec};

use crate::cluster::{Cluster, HotPath};

/// Rows of the only table.
pub(crate) const ROWS: u64 = 40;
/// The first of them are hot.
pub(crate) const HOT_ROWS: u64 = 20;
/// Values of a row.
pub(crate) const WIDTH: usize = 2;
pub(crate) const JOB: u16 = 9;
pub(crate) const PLAN: u16 = 4;

/// Gradient descent at rate 1 from zero: a row is minus the sum of its gradients.
pub(crate) fn cluster(workers: u16) -> Cluster {
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table = TableSpec { name: "rows".into(), keys: 0..ROWS, width: WIDTH, rule, init: Init::Zero };
    let shape = TableShape {
        name: table.name.clone(),
        keys: table.keys.clone(),
        width: u32::try_from(WIDTH).unwrap(),
        hot: true,
    };
    let plan = Plan {
        number: PLAN,
        provenance: Provenance::default(),
        tables: vec![shape],
        budget: Budget::default(),
        headroom_bits: 12,
        predicted_share: 0.5,
        rows: (0..HOT_ROWS).map(|key| HotRow { key, count: 1000 - key, scale: Scale(0) }).collect(),
    };
    let hot_path = HotPath { round_time_max: Duration::from_millis(3), ..HotPath::for_workers(workers) };
    Cluster::new(JOB, vec![table], Some(plan), hot_path)
}
