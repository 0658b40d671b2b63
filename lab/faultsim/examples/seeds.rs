//! Runs a range of seeds: `seeds FIRST END`, or one with its trace: `seeds SEED --trace`.
//!
//! With the feature `mutants` the environment variable `MUTANT` names a mutant to enable.
#![expect(clippy::disallowed_methods, reason = "a program has arguments")]

use std::collections::BTreeMap;

use libra_faultsim::{Options, Scenario, TraceWriter, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    #[cfg(feature = "mutants")]
    if let Ok(name) = std::env::var("MUTANT") {
        use libra_dataplane::mutants::{Mutant, enable};
        enable(Mutant::ALL.into_iter().find(|bug| bug.name() == name).expect("no such mutant"));
    }
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let first = number(0).unwrap_or(0);
    if arguments.get(1).is_some_and(|text| text == "--trace") {
        println!("{:#?}", Scenario::draw(first));
        let trace = Some(TraceWriter::new(|line| println!("{line}")));
        println!("{:#?}", run(first, Options { trace }));
        return;
    }
    let end = number(1).unwrap_or(first + 1);
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..end {
        let report = run(seed, Options::default());
        if report.violation.is_some() || end - first < 10 {
            println!("{report}");
        }
        let counts = &report.counts;
        for (name, count) in [
            ("failed", u64::from(report.violation.is_some())),
            ("virtual ms", u64::try_from(report.virtual_time.as_millis()).unwrap_or(u64::MAX)),
            ("datagrams", counts.network.datagrams),
            ("messages", counts.world.messages),
            ("operations", counts.operations),
            ("rounds", counts.rounds),
            ("retransmits", counts.retransmits),
            ("views", counts.views),
            ("renewals", counts.renewals),
        ] {
            *totals.entry(name).or_default() += count;
        }
        for (name, count) in &counts.faults {
            *totals.entry(name).or_default() += count;
        }
        for (name, time) in [
            ("max take-over ms", counts.take_over_max),
            ("max push ms", counts.push_max),
            ("max recovery ms", counts.recovery_max),
        ] {
            let most = totals.entry(name).or_default();
            *most = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(*most);
        }
    }
    println!("{totals:#?}");
}
