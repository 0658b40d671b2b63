//! Effect of more memory in the switch, or of more hot parameters.

use anyhow::Result;
use libra_perfsim::System;

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Unit};
use super::tasks::Tasks;
use super::throughput::{MEMORY, measured};
use libra_launch::progress::Bars;

/// As in the paper.
const WORKERS: u16 = 16;

/// Hot parameters of the paper's second figure, as we take them; it does not print them.
const HOT: [u64; 6] = [5000, 10_000, 20_000, 30_000, 45_000, 60_000];

/// The paper's default.
const DEFAULT: u64 = 30_000;

/// One megabyte and two.
pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "Twice the memory".to_owned(),
        section: "Figure \"Aggregation throughput with different memory caps\"".to_owned(),
        notes: vec![
            "Twice the memory is a pool of 2 MB instead of 1 for SwitchML, and 60,000 hot parameters instead of 30,000 for Libra.".to_owned(),
        ],
        ..Finding::default()
    };
    let mut series = Vec::new();
    for task in tasks.industrial()? {
        let testbed = tasks.testbed(&task, bars)?;
        bars.line(&format!("  {}", testbed.name));
        let libra = |hot| -> Result<f64> {
            Ok(testbed.run(System::Libra, WORKERS, hot, measured(tasks))?.pairs_per_second)
        };
        let (once, twice) = (libra(DEFAULT)?, libra(2 * DEFAULT)?);
        let dense = |memory| testbed.run_dense(WORKERS, memory).pairs_per_second;
        let (dense_once, dense_twice) = (dense(MEMORY), dense(2 * MEMORY));
        let (told, about) = if task.name == "OA" { ("7%", 0.07) } else { ("1.7%", 0.017) };
        let claim = |what: &str, paper: &str, range, ours, unit, why: &str| Claim {
            what: format!("{}: {what}", testbed.name),
            paper: paper.to_owned(),
            range,
            ours,
            unit,
            source: Source::Simulated,
            why: why.to_owned(),
        };
        finding.claims.push(claim(
            "what twice the hot parameters add to Libra",
            told,
            [Some(0.0), Some(2.0 * about)],
            twice / once - 1.0,
            Unit::Share,
            "As much as the updates that are no longer cold, where the server is the bottleneck. Up to twice the paper's figure is taken to hold.",
        ));
        finding.claims.push(claim(
            "SwitchML with 2 MB by that with 1 MB",
            "about 2 x",
            [Some(1.8), Some(2.3)],
            dense_twice / dense_once,
            Unit::Times,
            "A pool of twice the size has half as many rounds, as long as links are not full.",
        ));
        finding.claims.push(claim(
            "SwitchML with 2 MB by Libra with 30,000",
            "at most 45.6%",
            [None, Some(0.456)],
            dense_twice / once,
            Unit::Share,
            "Nearly all that it sends is zero.",
        ));
        let values = [once, twice, dense_once, dense_twice];
        let points = (0u8..).zip(values).map(|(place, rate)| (f64::from(place), rate / once));
        series.push(Series {
            name: testbed.name.clone(),
            source: Source::Simulated,
            points: points.collect(),
        });
    }
    let names = ["Libra, 30,000", "Libra, 60,000", "SwitchML, 1 MB", "SwitchML, 2 MB"];
    finding.charts.push(Chart {
        title: "Throughput by that of Libra with 30,000 hot parameters, 16 workers".to_owned(),
        x: Axis::of_names("", names.map(str::to_owned)),
        y: Axis::logarithmic("share"),
        kind: Kind::Bars,
        series,
    });
    Ok(finding)
}

/// More and more hot parameters.
pub(super) fn find_top_k(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "More hot parameters".to_owned(),
        section: "Figure \"Libra's throughput when increasing the number of hot parameters\"".to_owned(),
        notes: vec![
            "The paper prints no figures; it says that beyond 30,000 there is little to gain.".to_owned(),
        ],
        ..Finding::default()
    };
    let mut series = Vec::new();
    for task in tasks.industrial()? {
        let testbed = tasks.testbed(&task, bars)?;
        bars.line(&format!("  {}", testbed.name));
        let mut points = Vec::new();
        for hot in HOT {
            let rate = testbed.run(System::Libra, WORKERS, hot, measured(tasks))?.pairs_per_second;
            points.push((hot as f64, rate));
        }
        let default = points.iter().find(|point| point.0 >= DEFAULT as f64).map_or(1.0, |point| point.1);
        points.iter_mut().for_each(|point| point.1 /= default);
        let gain = points.last().map_or(1.0, |point| point.1) - 1.0;
        finding.claims.push(Claim {
            what: format!("{}: what 60,000 hot parameters add to 30,000", testbed.name),
            paper: "little".to_owned(),
            range: [None, Some(0.15)],
            ours: gain,
            unit: Unit::Share,
            source: Source::Simulated,
            why: "Less than 15% is taken for little.".to_owned(),
        });
        series.push(Series { name: testbed.name.clone(), source: Source::Simulated, points });
    }
    finding.charts.push(Chart {
        title: "Throughput by that with 30,000 hot parameters, 16 workers".to_owned(),
        x: Axis::linear("hot parameters"),
        y: Axis::linear("share"),
        kind: Kind::Lines,
        series,
    });
    Ok(finding)
}
