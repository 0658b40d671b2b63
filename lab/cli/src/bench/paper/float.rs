//! Precision of sums of floats.

use anyhow::Result;
use libra_dataplane::{FloatTables, SplitTables};
use libra_paper::{Adder, Measure, Negotiated, PAIRS, precision_of_sums, random_bits_pairs, uniform_pairs};

use super::finding::{Claim, Finding, Source, Table, Unit};
use super::gradients;
use super::tasks::Tasks;
use libra_launch::progress::Bars;

/// Pushes and pairs of a quick run.
const PUSHES_QUICK: u64 = 40;
const PAIRS_QUICK: usize = 2000;

/// Workers that negotiate a scaling factor.
const WORKERS: u32 = 8;

/// Entries of our own tables: 32 KB.
const OURS: usize = 4096;

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let (pairs_max, pushes) =
        if tasks.quick { (PAIRS_QUICK, PUSHES_QUICK) } else { (PAIRS, gradients::PUSHES) };
    let mut papers = Box::new(FloatTables::EMPTY);
    papers.fill();
    let mut ours = Box::new(SplitTables::<OURS>::EMPTY);
    ours.fill();
    let negotiated = Negotiated { workers: WORKERS, block: None };
    let adders: [(&str, &dyn Adder); 3] = [
        ("float-to-integer, one factor negotiated by 8 workers", &negotiated),
        ("the paper's tables, 408.5 KB", &*papers),
        ("our tables, 32 KB", &*ours),
    ];

    let mut sets = Vec::new();
    for task in tasks.all()? {
        let name = format!("R1: gradients of {}", task.label());
        sets.push((name, gradients::pairs(&task, pushes, pairs_max, bars)?));
    }
    let first_of_r2 = sets.len();
    sets.push(("R2: uniform in (-1, 1)".to_owned(), uniform_pairs(pairs_max, tasks.seed)));
    sets.push(("R2: random bits, below 1".to_owned(), random_bits_pairs(pairs_max, tasks.seed)));

    let mut finding = Finding {
        title: "Precision of sums of two floats".to_owned(),
        section: "Table \"The precision of float summation\"".to_owned(),
        notes: vec![
            "The paper defines neither precision nor its random floats. Here precision is 1 less the relative error, and none below 0; the last \
             table has e to the minus relative error instead, by which a sum that is lost has 36.79%: the median that the paper reports of \
             float-to-integer and R2. With random bits more than half of the sums are lost, as one scaling factor has to do for all exponents, \
             so that is how its figures come about, as far as we can see."
                .to_owned(),
            "Uniform floats have nearly one exponent. Integers with a negotiated factor add them better than any table does, and gradients, too."
                .to_owned(),
        ],
        ..Finding::default()
    };
    for (measure, title) in [
        (Measure::Linear, "1 less the relative error"),
        (Measure::Exponential, "e to the minus relative error"),
    ] {
        let mut rows = Vec::new();
        for (place, (set, pairs)) in sets.iter().enumerate() {
            for (which, (name, adder)) in adders.iter().enumerate() {
                let found = precision_of_sums(pairs, *adder, measure);
                rows.push(vec![
                    set.clone(),
                    (*name).to_owned(),
                    Unit::Share.text(found.median),
                    Unit::Share.text(found.mean),
                    found.counted.to_string(),
                ]);
                let is_r1 = place < first_of_r2;
                if which == 1 && measure == Measure::Linear {
                    let (told, least) = if is_r1 { ("99.92%", 0.9992) } else { ("100%", 0.9995) };
                    finding.claims.push(claim(
                        format!("{set}: median by the paper's tables"),
                        told,
                        least,
                        found.median,
                    ));
                    let (told, least) = if is_r1 { ("99.87%", 0.9987) } else { ("99.84%", 0.9984) };
                    finding.claims.push(claim(
                        format!("{set}: mean by the paper's tables"),
                        told,
                        least,
                        found.mean,
                    ));
                }
            }
        }
        let head = ["pairs", "added by", "median", "mean", "sums"];
        finding.tables.push(Table {
            title: format!("Precision, {title}"),
            source: Source::Measured,
            head: head.map(str::to_owned).into(),
            rows,
        });
    }
    Ok(finding)
}

fn claim(what: String, told: &str, least: f64, ours: f64) -> Claim {
    Claim {
        what,
        paper: told.to_owned(),
        // The last digit that the paper prints.
        range: [Some(least - 0.000_05), None],
        ours,
        unit: Unit::Share,
        source: Source::Measured,
        why: "Summands of different signs that nearly cancel are where logarithms of 16 bits lose most."
            .to_owned(),
    }
}
