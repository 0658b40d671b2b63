//! A plan in a screenful, for people.

use std::fmt::{self, Display};

use crate::plan::Plan;
use crate::principle::SLOT_BYTES;
use crate::scale::Scale;

/// Shows a plan in a screenful; made by [`Plan::summary`].
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
        writeln!(
            f,
            "a bank takes {} pushes; a value is at most {}\n",
            plan.pushes_per_bank_max(),
            plan.bound()
        )?;

        let name_width = self.tables.iter().map(|table| table.name.chars().count()).max().unwrap_or(0).max(5);
        writeln!(
            f,
            "{:<name_width$}  {:>12}  {:>6}  {:>9}  {:>9}  {:>17}  {:>9}",
            "table", "rows", "width", "hot rows", "slots", "pushes per row", "scales"
        )?;
        for table in &self.tables {
            writeln!(
                f,
                "{:<name_width$}  {:>12}  {:>6}  {:>9}  {:>9}  {:>17}  {:>9}",
                table.name,
                table.rows,
                table.width,
                table.hot_rows,
                table.slots,
                table.counts.map_or_else(|| "-".into(), |(most, least)| format!("{most}..{least}")),
                table.scales.map_or_else(|| "-".into(), |(least, most)| format!("{}..{}", least.0, most.0)),
            )?;
        }
        Ok(())
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
