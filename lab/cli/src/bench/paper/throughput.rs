//! Aggregation throughput on the testbed: five tasks, three systems, more and more workers.

use std::time::Duration;

use anyhow::Result;
use libra_perfsim::System;

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};
use super::tasks::Tasks;
use libra_launch::progress::Bars;

/// On-chip memory for aggregation, of all systems: 5% of 20 MB.
pub(super) const MEMORY: u64 = 1 << 20;

/// As in the paper.
pub(super) const WORKERS: [u16; 3] = [8, 16, 32];

/// Virtual time. What is under way at a busy server takes 30 ms with 32 workers: less than that measures how they began, as a quick run does.
pub(super) fn measured(tasks: &Tasks) -> Duration {
    Duration::from_millis(if tasks.quick { 20 } else { 120 })
}

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "Aggregation throughput".to_owned(),
        section: "Figure \"Aggregation throughput normalized by that of Libra\"".to_owned(),
        notes: NOTES.map(str::to_owned).into(),
        ..Finding::default()
    };
    let mut rows = Vec::new();
    let mut gains: Vec<Series> = Vec::new();
    let mut dense: Vec<Series> = Vec::new();
    for task in tasks.all()? {
        let testbed = tasks.testbed(&task, bars)?;
        let hot = task.hot_parameters;
        let (mut gain, mut of_dense) = (Vec::new(), Vec::new());
        for workers in WORKERS {
            if tasks.quick && workers == WORKERS[1] {
                continue;
            }
            bars.line(&format!("  {}: {workers} workers", testbed.name));
            let libra = testbed.run(System::Libra, workers, hot, measured(tasks))?.pairs_per_second;
            let sparse = testbed.run(System::PsSparse, workers, 0, measured(tasks))?.pairs_per_second;
            let switchml = testbed.run_dense(workers, MEMORY).pairs_per_second;
            rows.push(vec![
                testbed.name.clone(),
                workers.to_string(),
                million(libra),
                million(sparse),
                million(switchml),
                Unit::Share.text(sparse / libra),
                Unit::Share.text(switchml / libra),
            ]);
            gain.push((f64::from(workers), libra / sparse));
            of_dense.push((f64::from(workers), switchml / libra));
        }
        let share = testbed.hot_share(testbed.rows_of(hot));
        let why = format!("{:.0}% of the updates are of its {hot} hot parameters.", 100.0 * share);
        let claim = |what: &str, paper: &str, range, ours, why: &str| Claim {
            what: format!("{}: {what}", testbed.name),
            paper: paper.to_owned(),
            range,
            ours,
            unit: Unit::Times,
            source: Source::Simulated,
            why: why.to_owned(),
        };
        let [(_, first), .., (_, last)] = gain[..] else { continue };
        finding.claims.push(claim(
            "Libra by PS-sparse, 32 workers",
            "1.5 to 4 x",
            [Some(1.5), Some(4.0)],
            last,
            &why,
        ));
        finding.claims.push(claim(
            "that, by what it is with 8 workers",
            "grows with workers",
            [Some(1.0), None],
            last / first,
            "A round has two pushes of each worker, so with more workers more of them become one update at the server.",
        ));
        let most = of_dense.iter().map(|point| point.1).fold(0.0, f64::max);
        finding.claims.push(claim(
            "SwitchML by Libra, at most",
            "below 1 everywhere",
            [None, Some(1.0)],
            most,
            &format!(
                "It sends all {} parameters of these data, of which a push of a worker updates {}.",
                testbed.parameters(),
                testbed.updated()
            ),
        ));
        gains.push(Series { name: testbed.name.clone(), source: Source::Simulated, points: gain });
        dense.push(Series { name: testbed.name.clone(), source: Source::Simulated, points: of_dense });
    }
    let head =
        ["task", "workers", "Libra", "PS-sparse", "SwitchML", "PS-sparse by Libra", "SwitchML by Libra"];
    finding.tables.push(Table {
        title: "Million updates of rows a second, of all workers".to_owned(),
        source: Source::Simulated,
        head: head.map(str::to_owned).into(),
        rows,
    });
    for (title, y, series) in [
        ("Libra by PS-sparse", Axis::linear("times as fast"), gains),
        ("SwitchML by Libra", Axis::logarithmic("share"), dense),
    ] {
        finding.charts.push(Chart {
            title: title.to_owned(),
            x: Axis::linear("workers"),
            y,
            kind: Kind::Lines,
            series,
        });
    }
    Ok(finding)
}

const NOTES: [&str; 3] = [
    "Workers, server and agent are the roles that ship, on 8 simulated machines with two ports of 100 Gbit/s each around a switch of hardware, with one \
     server, as in the paper's first experiment. What their work costs was measured on another machine than the paper's, so only ratios mean anything. They \
     replay what real batches update; gradients have no meaning.",
    "PS-sparse is our own server without a switch. It is several times as fast as ps-lite, which the paper compares with: a faster server leaves a switch less to \
     gain.",
    "SwitchML has its pool and rounds, and processors that cost nothing: an upper bound of what it could do. It is given all embeddings of a task, as in the \
     paper, and is measured by the updates that are not zero.",
];

/// Millions, for a table.
pub(super) fn million(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}
