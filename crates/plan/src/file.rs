//! The plan as a file that a person can read and change.

use std::fmt::Write as _;
use std::ops::Range;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::hot_set::Budget;
use crate::plan::{HotRow, Invalid, Plan, Provenance};
use crate::scale::Scale;
use crate::table::TableShape;

/// Reason why a text is no plan.
#[derive(Debug, Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// It is not TOML, or a field is missing, unknown or of the wrong kind.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// Description by the TOML reader, which names the field.
        message: String,
    },
    /// It reads well, but makes no sense.
    #[error("line {line}: {fault}")]
    Invalid {
        /// The line, from 1.
        line: usize,
        /// The fault.
        #[source]
        fault: Invalid,
    },
}

/// The file as serde reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    number: Spanned<u16>,
    headroom_bits: Spanned<u8>,
    predicted_share: Spanned<f64>,
    provenance: Spanned<Provenance>,
    budget: Spanned<Budget>,
    #[serde(default)]
    tables: Vec<Spanned<TableShape>>,
    hot: HotSection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HotSection {
    rows: Vec<Spanned<(u64, u64, i8)>>,
}

impl Plan {
    /// The plan as a text that [`Plan::from_toml`] reads back to the same plan.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        self.write_toml(&mut text).expect("writing to a string does not fail");
        text
    }

    fn write_toml(&self, text: &mut String) -> std::fmt::Result {
        let Self { number, provenance, tables, budget, headroom_bits, predicted_share, rows } = self;
        let Provenance { model, data, sample, seed, batch, pushes, tool } = provenance;
        let (model, data, tool) = (quoted(model), quoted(data), quoted(tool));
        let Budget { p, c, on_chip_bytes } = budget;
        writeln!(
            text,
            "\
# A plan of Libra: which rows of a model switches aggregate, and the scales of their gradients.
# Made by `libra profile`. Every worker, shard and switch of a job must have the same one.

# The version of the plan, carried by every packet: raise it with every change. At least 1.
number = {number}
# A bank takes 2^headroom_bits pushes, so a gradient has 31 - headroom_bits bits and a sign.
headroom_bits = {headroom_bits}
# The share of row updates that the hot rows below are expected to take.
predicted_share = {predicted_share:?}

# How the plan was made: on which share of the data set, with how many records in a batch, and from
# how many pushes.
[provenance]
model = {model}
data = {data}
sample = {sample:?}
seed = {seed}
batch = {batch}
pushes = {pushes}
tool = {tool}

# The paper's Principle 1: the fewest rows that take a share p of the updates, within a share c of
# the on-chip memory, at 4 bytes for each value of a row.
[budget]
p = {p:?}
c = {c:?}
on_chip_bytes = {on_chip_bytes}

# The tables of the model: keys from start up to but not including end, how many values a row has,
# and whether rows may be hot."
        )?;
        for TableShape { name, keys: Range { start, end }, width, hot } in tables {
            let name = quoted(name);
            writeln!(
                text,
                "\
[[tables]]
name = {name}
keys = {{ start = {start}, end = {end} }}
width = {width}
hot = {hot}
"
            )?;
        }
        writeln!(
            text,
            "\
# The hot rows in rank order: [key, in how many counted pushes, scale s]. A gradient g of the row
# travels as the integer nearest to g * 2^s.
[hot]
rows = ["
        )?;
        for HotRow { key, count, scale: Scale(scale) } in rows {
            writeln!(text, "  [{key}, {count}, {scale}],")?;
        }
        writeln!(text, "]")
    }

    /// Reads a plan and checks it.
    ///
    /// # Errors
    /// The text is no TOML of the right form, or no valid plan; the error names the line.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let line_of = |span: Range<usize>| 1 + text[..span.start.min(text.len())].matches('\n').count();
        let file: PlanFile = toml::from_str(text).map_err(|error: toml::de::Error| PlanError::Syntax {
            line: line_of(error.span().unwrap_or(0..0)),
            message: error.message().to_owned(),
        })?;
        let row_spans: Vec<usize> = file.hot.rows.iter().map(|row| row.span().start).collect();
        let spans = Spans {
            number: file.number.span(),
            headroom_bits: file.headroom_bits.span(),
            predicted_share: file.predicted_share.span(),
            provenance: file.provenance.span(),
            budget: file.budget.span(),
            tables: file.tables.iter().map(Spanned::span).collect(),
        };
        let plan = Self {
            number: file.number.into_inner(),
            provenance: file.provenance.into_inner(),
            tables: file.tables.into_iter().map(Spanned::into_inner).collect(),
            budget: file.budget.into_inner(),
            headroom_bits: file.headroom_bits.into_inner(),
            predicted_share: file.predicted_share.into_inner(),
            rows: file
                .hot
                .rows
                .into_iter()
                .map(|row| {
                    let (key, count, scale) = row.into_inner();
                    HotRow { key, count, scale: Scale(scale) }
                })
                .collect(),
        };
        match plan.check() {
            Ok(()) => Ok(plan),
            Err(fault) => {
                let span = match fault.rank() {
                    Some(rank) => row_spans[rank]..row_spans[rank],
                    None => spans.of(&fault, &plan.tables),
                };
                Err(PlanError::Invalid { line: line_of(span), fault })
            }
        }
    }
}

/// Positions of the parts of a plan in the text.
struct Spans {
    number: Range<usize>,
    headroom_bits: Range<usize>,
    predicted_share: Range<usize>,
    provenance: Range<usize>,
    budget: Range<usize>,
    tables: Vec<Range<usize>>,
}

impl Spans {
    fn of(self, fault: &Invalid, tables: &[TableShape]) -> Range<usize> {
        match fault {
            Invalid::Headroom { .. } => self.headroom_bits,
            Invalid::PredictedShare { .. } => self.predicted_share,
            Invalid::Sample { .. } => self.provenance,
            Invalid::Budget(_) => self.budget,
            Invalid::Tables(fault) => {
                // The last of its name: of two tables with one name, the second is the one too many.
                let index = tables.iter().rposition(|table| table.name == fault.table()).unwrap_or(0);
                self.tables[index].clone()
            }
            _ => self.number,
        }
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
