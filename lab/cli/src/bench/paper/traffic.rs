//! Traffic to servers, with a switch and without.

use anyhow::Result;
use libra_paper::Model;
use libra_perfsim::System;

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};
use super::tasks::Tasks;
use super::throughput::measured;
use libra_launch::progress::Bars;

const WORKERS: u16 = 16;

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "Traffic of servers".to_owned(),
        section: "\"Sparse Deep Learning\", and the first claim of the paper: fewer active connections".to_owned(),
        notes: vec![
            "A stream is active if a server got a message on it while it was measured. Workers still bring their cold rows, so there are not fewer streams \
             than workers, but one more: what falls is what is on them. Only a model whose rows are all hot would save connections."
                .to_owned(),
        ],
        ..Finding::default()
    };
    let mut rows = Vec::new();
    let mut series: Vec<Series> = ["without a switch", "with a switch"]
        .map(|name| Series { name: name.to_owned(), source: Source::Simulated, points: Vec::new() })
        .into();
    let mut names = Vec::new();
    for (place, task) in (0u8..).zip(tasks.all()?) {
        let testbed = tasks.testbed(&task, bars)?;
        bars.line(&format!("  {}", testbed.name));
        let with = testbed.run(System::Libra, WORKERS, task.hot_parameters, measured(tasks))?;
        let without = testbed.run(System::PsSparse, WORKERS, 0, measured(tasks))?;
        for (report, series) in [&without, &with].into_iter().zip(&mut series) {
            series.points.push((f64::from(place), report.bytes_to_servers_per_pair));
        }
        rows.push(vec![
            testbed.name.clone(),
            format!("{:.2}", without.bytes_to_servers_per_pair),
            format!("{:.2}", with.bytes_to_servers_per_pair),
            without.connections.to_string(),
            with.connections.to_string(),
        ]);
        finding.claims.push(Claim {
            what: format!("{}: bytes to servers with a switch, by those without", testbed.name),
            paper: "not reported".to_owned(),
            range: [None, None],
            ours: with.bytes_to_servers_per_pair / without.bytes_to_servers_per_pair,
            unit: Unit::Share,
            source: Source::Simulated,
            why: "For the same updates of rows.".to_owned(),
        });
        names.push(task.name.to_owned());
    }
    let ncf = Model::ncf();
    finding.tables.push(Table {
        title: format!("{WORKERS} workers and one server"),
        source: Source::Simulated,
        head: [
            "task",
            "bytes a row to servers, no switch",
            "with a switch",
            "active streams, no switch",
            "with a switch",
        ]
        .map(str::to_owned)
        .into(),
        rows,
    });
    let megabytes = |bytes: f64| bytes / 1e6;
    finding.claims.push(Claim {
        what: "NCF: gradients of all embeddings".to_owned(),
        paper: "680 MB".to_owned(),
        range: [Some(670.0), Some(690.0)],
        ours: megabytes(ncf.sparse_parameters() as f64 * 4.0),
        unit: Unit::Number,
        source: Source::Computed,
        why: "In MB; sizes were chosen to be those of the paper, where it does not give them.".to_owned(),
    });
    finding.charts.push(Chart {
        title: "Bytes to servers for each update of a row".to_owned(),
        x: Axis::of_names("", names),
        y: Axis::linear("bytes"),
        kind: Kind::Bars,
        series,
    });
    Ok(finding)
}
