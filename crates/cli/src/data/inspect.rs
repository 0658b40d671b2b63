//! `libra data inspect`: a data set without its rows.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use libra_data::{Chunk, ColumnSummary, DataSet, Description, Fault, Proposal};
use libra_launch::report::group;

use super::{Source, bytes, count};
use crate::output::Output;

/// Shows files, rows, columns and row groups
///
/// Of Parquet, only footers are read. Without a dataset.toml, one is proposed for it. A text is read once, for its index.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Inspection {
    files: usize,
    bytes: u64,
    rows: u64,
    chunks: usize,
    chunk_rows_min: u64,
    chunk_rows_median: u64,
    chunk_rows_max: u64,
    fingerprint: String,
    columns: Vec<ColumnSummary>,
}

/// Columns of a set without description.
#[derive(Serialize)]
struct Undescribed {
    columns: Vec<Typed>,
    proposal: Option<Description>,
}

#[derive(Serialize)]
struct Typed {
    name: String,
    r#type: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { source, output } = arguments;
    output.begin()?;
    let options = source.options()?;
    let set = match source.open(&options, output) {
        Err(error) if lacks_description(&error) => return propose(source, output),
        set => set?,
    };
    let inspection = Inspection::new(&set);
    inspection.print(output);
    output.write(&inspection)
}

fn lacks_description(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<libra_data::DataError>()
        .is_some_and(|error| matches!(error.fault, Fault::NoDescription))
}

/// Shows the columns, and a description that fits them.
fn propose(source: &Source, output: &Output) -> Result<()> {
    let Proposal { columns, description } = DataSet::propose(&source.place, &source.options()?)?;
    let rows = columns.iter().map(|(name, kind)| vec![name.clone(), kind.clone()]);
    output.print_table(&["column", "type"], &[], rows);
    match &description {
        Some(description) => {
            output.print(
                "A dataset.toml beside the data could be as follows; look whether the roles are right.\n",
            );
            output.print(&description.to_toml());
        }
        None => {
            output.print("No column has a name such as `label`, by which a dataset.toml could be proposed.")
        }
    }
    output.print("Note: there is no dataset.toml beside the data. With one, or with --dataset FILE, the set can be read.");
    let columns = columns.into_iter().map(|(name, r#type)| Typed { name, r#type }).collect();
    output.write(&Undescribed { columns, proposal: description })
}

impl Inspection {
    fn new(set: &DataSet) -> Self {
        let mut rows: Vec<u64> = set.chunks().iter().map(|Chunk { rows, .. }| *rows).collect();
        rows.sort_unstable();
        let at = |position: usize| rows.get(position).copied().unwrap_or(0);
        Self {
            files: set.files().count(),
            bytes: set.files().map(|file| file.bytes).sum(),
            rows: set.rows(),
            chunks: rows.len(),
            chunk_rows_min: at(0),
            chunk_rows_median: at(rows.len() / 2),
            chunk_rows_max: at(rows.len().saturating_sub(1)),
            fingerprint: format!("{:016x}", set.fingerprint()),
            columns: set.columns(),
        }
    }

    fn print(&self, output: &Output) {
        output.print(&format!(
            "{} in {}, {}; {} of {} to {} rows, {} at the median; fingerprint {}",
            count(self.rows, "row", "rows"),
            count(self.files as u64, "file", "files"),
            bytes(self.bytes),
            count(self.chunks as u64, "chunk", "chunks"),
            group(self.chunk_rows_min),
            group(self.chunk_rows_max),
            group(self.chunk_rows_median),
            self.fingerprint,
        ));
        let unknown = || "-".to_owned();
        let rows = self.columns.iter().map(|column| {
            let kind = column.kind.map_or_else(unknown, |kind| format!("{kind:?}").to_lowercase());
            let nulls = column.nulls.map_or_else(unknown, |nulls| percent(nulls, self.rows));
            let size = column.bytes.map_or_else(unknown, bytes);
            vec![column.name.clone(), column.role.to_owned(), kind, nulls, size]
        });
        output.print_table(&["column", "role", "values", "missing", "compressed"], &[3, 4], rows);
    }
}

/// A part of all, for people.
pub(super) fn percent(part: u64, all: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / all.max(1) as f64)
}
