//! Resources of a switch.

use anyhow::Result;
use libra_paper::{HOT_PARAMETERS, ON_CHIP_BYTES, OurResources, PaperResources, Used};

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};

const WORKERS: [u16; 3] = [8, 16, 32];

#[expect(clippy::unnecessary_wraps, reason = "as all items of the evaluation")]
pub(super) fn find() -> Result<Finding> {
    let paper = PaperResources::of(HOT_PARAMETERS.into());
    let kilobytes = |bytes: u64| bytes as f64 / 1024.0;
    let claim = |what: &str, told: &str, range, ours, unit, why: &str| Claim {
        what: what.to_owned(),
        paper: told.to_owned(),
        range,
        ours,
        unit,
        source: Source::Computed,
        why: why.to_owned(),
    };
    let mut finding = Finding {
        title: "On-chip resources".to_owned(),
        section: "\"Resource consumption on Switches\"".to_owned(),
        claims: vec![
            claim(
                "the paper's memory for 30,000 parameters, as its own sizes give it",
                "656.5 KB",
                [Some(655.0), Some(657.0)],
                kilobytes(paper.total_bytes().0),
                Unit::Kilobytes,
                "117.2 KB of parameters are 118 in the paper; the 130 KB of logic are quoted.",
            ),
            claim(
                "its share of 20 MB",
                "3.21%",
                [Some(0.0319), Some(0.0322)],
                paper.share_of(ON_CHIP_BYTES).0,
                Unit::Share,
                "The same rounding.",
            ),
        ],
        notes: vec![
            "Our data plane adds integers, so it needs no tables; it keeps two accumulators and a value for each slot, and remembers in the pipeline which \
             packets it took. Its logic is not counted here; docs/operating/p4.md has what a compiler for Tofino took."
                .to_owned(),
        ],
        ..Finding::default()
    };
    let used = |used: Used| format!("{} of {}", used.used, used.of);
    finding.tables.push(Table {
        title: "The paper, 30,000 parameters".to_owned(),
        source: Source::Paper,
        head: vec!["what".to_owned(), "takes".to_owned(), "is".to_owned()],
        rows: [
            ("parameters", Unit::Kilobytes.text(kilobytes(paper.hot_bytes.0)), "computed"),
            ("tables for floats", Unit::Kilobytes.text(kilobytes(paper.tables_bytes.0)), "computed"),
            ("logic", Unit::Kilobytes.text(kilobytes(paper.logic_bytes.0)), "quoted"),
            ("stages", used(paper.stages.0), "quoted"),
            ("VLIW instructions", used(paper.vliw_instructions.0), "quoted"),
            ("hash dist units", used(paper.hash_dist_units.0), "quoted"),
        ]
        .map(|(what, takes, is)| vec![what.to_owned(), takes, is.to_owned()])
        .into(),
    });
    let mut rows = Vec::new();
    let mut points = vec![(0.0, kilobytes(paper.total_bytes().0 - paper.logic_bytes.0))];
    for (place, workers) in (1u8..).zip(WORKERS) {
        let ours = OurResources::of(HOT_PARAMETERS.into(), workers).expect("there are workers");
        points.push((f64::from(place), kilobytes(ours.total_bytes().0)));
        let of = |bytes: u64| Unit::Kilobytes.text(kilobytes(bytes));
        rows.push(vec![
            workers.to_string(),
            of(ours.sums_bytes.0),
            of(ours.values_bytes.0),
            of(ours.marks_bytes.0),
            of(ours.windows_bytes.0),
            of(ours.total_bytes().0),
            Unit::Share.text(ours.share_of(ON_CHIP_BYTES).0),
        ]);
    }
    let head = ["workers", "sums", "values", "marks", "windows", "in all", "of 20 MB"];
    finding.tables.push(Table {
        title: "Ours, 30,000 parameters".to_owned(),
        source: Source::Computed,
        head: head.map(str::to_owned).into(),
        rows,
    });
    let names =
        ["paper".to_owned()].into_iter().chain(WORKERS.map(|workers| format!("ours, {workers} workers")));
    finding.charts.push(Chart {
        title: "On-chip memory for 30,000 parameters, without logic".to_owned(),
        x: Axis::of_names("", names),
        y: Axis::linear("KB"),
        kind: Kind::Bars,
        series: vec![Series { name: "memory".to_owned(), source: Source::Computed, points }],
    });
    Ok(finding)
}
