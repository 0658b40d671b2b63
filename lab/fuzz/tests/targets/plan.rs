//! Plans, which people write and change.

use libra_faultsim::HarnessConfig;
use libra_fuzz::{Outcome, Target};
use libra_plan::{Plan, PlanError};

pub(crate) fn read(bytes: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(bytes) else { return Outcome::refused("no text") };
    match Plan::from_toml(text) {
        Ok(plan) => {
            let written = plan.to_toml();
            assert_eq!(Plan::from_toml(&written).as_ref(), Ok(&plan), "{written}");
            Outcome::beyond("ok")
        }
        Err(PlanError::Syntax { line, .. }) => {
            assert!(line <= 1 + text.matches('\n').count());
            Outcome::refused("syntax")
        }
        Err(PlanError::Invalid { line, fault }) => {
            assert!(line <= 1 + text.matches('\n').count());
            Outcome::of::<(), _>(&Err(fault)).past_the_first_check()
        }
        Err(other) => panic!("a new kind of error: {other}"),
    }
}

pub(crate) fn target() -> Target {
    let plan = HarnessConfig::small(1, 1, 1).plan.unwrap();
    Target::new("plan", vec![plan.to_toml().into_bytes()])
}
