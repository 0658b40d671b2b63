//! Recirculations of packets through the pipeline.

use std::collections::HashMap;

use anyhow::Result;
use foldhash::fast::FixedState;
use libra_paper::{HOT_PARAMETERS, Layout, Packing, Summary, recirculations};

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};
use super::tasks::{Task, Tasks};
use libra_launch::progress::Bars;

/// Registers, and entries of a packet: those of our packets of at most 192 bytes, and such as the paper's figure can be had with.
const SIZES: [u32; 2] = [16, 24];

/// Pushes that hot parameters are found in.
const PUSHES_COUNTED: u64 = 1024;
/// Pushes that are packed.
const PUSHES_PACKED: u64 = 64;

const WAYS: [(&str, Placed, Packing); 4] = [
    ("by heat, Algorithm 1", Placed::ByHeat, Packing::Algorithm1),
    ("at random, Algorithm 1", Placed::AtRandom, Packing::Algorithm1),
    ("by heat, in order of arrival", Placed::ByHeat, Packing::Arrival),
    ("at random, in order of arrival", Placed::AtRandom, Packing::Arrival),
];

#[derive(Clone, Copy)]
enum Placed {
    ByHeat,
    AtRandom,
}

pub(super) fn find(tasks: &Tasks) -> Result<Finding> {
    let mut finding = Finding {
        title: "Recirculations of a packet".to_owned(),
        section: "\"Evaluation of Hot Parameter Layout and Orchestration\"".to_owned(),
        notes: vec![
            "A register is accessed once in a pass, so a packet that holds k gradients of its fullest register goes around k - 1 times. The paper also \
             speaks of a recirculation for each gradient that finds its register taken; those are the conflicts of the table."
                .to_owned(),
            "The paper does not say how many registers there are and how large batches are. Ten recirculations with random placement need four \
             registers or fewer, where no placement comes below one: its figure can only be of conflicts, in about as many registers as a packet \
             has entries."
                .to_owned(),
        ],
        ..Finding::default()
    };
    let industrial = tasks.industrial()?;
    let mut with_paper = Vec::new();
    let mut charts: Vec<Series> = Vec::new();
    for task in &industrial {
        let pushes = hot_pushes(task, tasks.quick)?;
        for size in SIZES {
            let summaries: Vec<Summary> = WAYS
                .iter()
                .map(|&(_, placed, packing)| {
                    let layout = match placed {
                        Placed::ByHeat => Layout::heat(HOT_PARAMETERS, size),
                        Placed::AtRandom => Layout::random(HOT_PARAMETERS, size, tasks.seed),
                    };
                    recirculations(pushes.iter().cloned(), &layout, packing, size)
                })
                .collect();
            finding.tables.push(table(task, size, &summaries));
            if size == SIZES[0] {
                with_paper.push(summaries[0].recirculations);
                finding.claims.push(claim(
                    format!("{}: recirculations of a packet, by heat and Algorithm 1", task.name),
                    "below 1",
                    [None, Some(1.0)],
                    summaries[0].recirculations,
                    format!("{size} registers and {size} entries in a packet."),
                ));
            } else {
                finding.claims.push(claim(
                    format!("{}: conflicts of a packet, at random and in order of arrival", task.name),
                    "10 (recirculations)",
                    [Some(7.5), Some(12.5)],
                    summaries[3].conflicts,
                    format!(
                        "{size} registers and entries. Counted as passes less one it is {:.2}; see the text.",
                        summaries[3].recirculations
                    ),
                ));
            }
            let points =
                summaries.iter().enumerate().map(|(way, of)| (way as f64, of.recirculations.max(1e-3)));
            let name = format!("{}, {size} registers", task.name);
            charts.push(Series { name, source: Source::Measured, points: points.collect() });
        }
    }
    if let [oa, se] = with_paper[..] {
        finding.claims.push(claim(
            "recirculations of OA by those of SE".to_owned(),
            "more in OA",
            [Some(1.0), None],
            oa / se.max(1e-9),
            "What matters more than the skew is how many hot gradients a push has: of longer pushes less is left over.".to_owned(),
        ));
    }
    finding.charts.push(Chart {
        title: "Recirculations of a packet".to_owned(),
        x: Axis::of_names("placement and packing", WAYS.map(|way| way.0.to_owned())),
        y: Axis::logarithmic("recirculations"),
        kind: Kind::Bars,
        series: charts,
    });
    Ok(finding)
}

fn claim(what: String, paper: &str, range: [Option<f64>; 2], ours: f64, why: String) -> Claim {
    Claim { what, paper: paper.to_owned(), range, ours, unit: Unit::Number, source: Source::Measured, why }
}

fn table(task: &Task, size: u32, summaries: &[Summary]) -> Table {
    let head = [
        "placement and packing",
        "recirculations",
        "worst",
        "conflicts",
        "packets that need more than one",
        "packets",
    ];
    let rows = WAYS.iter().zip(summaries).map(|((way, ..), of)| {
        vec![
            (*way).to_owned(),
            format!("{:.3}", of.recirculations),
            of.recirculations_max.to_string(),
            format!("{:.3}", of.conflicts),
            Unit::Share.text(of.beyond_limit),
            of.packets.to_string(),
        ]
    });
    Table {
        title: format!("{}, {size} registers, {size} entries in a packet", task.name),
        source: Source::Measured,
        head: head.map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

/// The ranks of the hot parameters in some pushes of a task.
fn hot_pushes(task: &Task, quick: bool) -> Result<Vec<Vec<u32>>> {
    let quiet = Bars::new(true);
    let counted = if quick { PUSHES_COUNTED / 8 } else { PUSHES_COUNTED };
    let ranked = task.counts(1.0, counted, quiet)?.ranked();
    let ranks: HashMap<u64, u32, FixedState> =
        (0..HOT_PARAMETERS).zip(ranked).map(|(rank, (key, _))| (key, rank)).collect();
    let mut pushes = Vec::new();
    task.pushes(1.0, PUSHES_PACKED, quiet, |keys| {
        pushes.push(keys.iter().filter_map(|key| ranks.get(key).copied()).collect());
    })?;
    Ok(pushes)
}
