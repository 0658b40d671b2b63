//! A plan in a screenful, for people: sentences about the whole, and a row of cells for each table.

use std::fmt::{self, Display};

use crate::hot_set::SLOT_BYTES;
use crate::plan::Plan;
use crate::scale::Scale;

/// Shows a plan in a screenful; made by [`Plan::summary`].
///
/// As text it is the sentences about the whole plan; [`Self::HEADER`] and [`Self::rows`] are the cells of a table
/// about the tables of the model.
#[derive(Debug, Clone)]
pub struct Summary<'a> {
    plan: &'a Plan,
    tables: Vec<TableSummary<'a>>,
}

#[derive(Debug, Clone)]
struct TableSummary<'a> {
    name: &'a str,
    rows: u64,
    width: u32,
    hot_rows: u64,
    slots: u64,
    counts: Option<(u64, u64)>,
    scales: Option<(Scale, Scale)>,
}

impl Plan {
    /// Summarizes the plan in one screen: how it was made, what it promises, and for each table how much of
    /// it is hot.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        let tables = self
            .tables
            .iter()
            .map(|table| {
                let hot = || self.rows.iter().filter(|row| table.keys.contains(&row.key));
                let hot_rows = hot().count() as u64;
                TableSummary {
                    name: &table.name,
                    rows: table.keys.end.saturating_sub(table.keys.start),
                    width: table.width,
                    hot_rows,
                    slots: hot_rows.saturating_mul(u64::from(table.width)),
                    counts: hot().map(|row| row.count).max().zip(hot().map(|row| row.count).min()),
                    scales: hot().map(|row| row.scale).min().zip(hot().map(|row| row.scale).max()),
                }
            })
            .collect();
        Summary { plan: self, tables }
    }
}

impl Summary<'_> {
    /// Names of the columns of [`Self::rows`]. All but the first hold numbers.
    pub const HEADER: [&'static str; 7] =
        ["table", "rows", "width", "hot rows", "slots", "pushes per row", "scales"];

    /// Returns the cells for each table of the model, in the order of [`Self::HEADER`].
    pub fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.tables.iter().map(|table| {
            vec![
                table.name.to_owned(),
                table.rows.to_string(),
                table.width.to_string(),
                table.hot_rows.to_string(),
                table.slots.to_string(),
                table.counts.map_or_else(|| "-".into(), |(most, least)| format!("{most}..{least}")),
                table.scales.map_or_else(|| "-".into(), |(least, most)| format!("{}..{}", least.0, most.0)),
            ]
        })
    }
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let made = &plan.provenance;
        let slots: u64 = self.tables.iter().map(|table| table.slots).sum();
        let used = (slots * SLOT_BYTES) as f64 / plan.budget.on_chip_bytes.max(1) as f64;
        writeln!(f, "plan {} for {} on {}", plan.number, made.model, made.data)?;
        writeln!(
            f,
            "made by {}, seed {}: {} of the data, {} pushes of {} records",
            made.tool,
            made.seed,
            percent(made.sample),
            made.pushes,
            made.batch
        )?;
        writeln!(
            f,
            "{} hot rows are expected to take {} of the row updates (wanted: {})",
            plan.rows.len(),
            percent(plan.predicted_share),
            percent(plan.budget.p)
        )?;
        writeln!(
            f,
            "{slots} slots of 4 bytes take {} of the on-chip memory (allowed: {})",
            percent(used),
            percent(plan.budget.c)
        )?;
        write!(f, "a bank takes {} pushes; a value is at most {}", plan.pushes_per_bank_max(), plan.bound())
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
