//! `libra data`: data sets, before a job trains on them.

mod check;
mod convert;
mod inspect;
mod make;
mod shuffle;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;

use libra_data::{DataSet, Description, Destination, Environment, Keys, Options, OutputFormat};
use libra_launch::arguments::parse_bytes;

use crate::output::{Output, bytes, count};

/// Inspects, checks, converts, shuffles and makes data sets
///
/// PLACE is a file, a directory, a pattern in quotes, or a URL: file, s3, gs, az, http, https. Credentials come from the environment
/// (AWS_ACCESS_KEY_ID and so on). Formats are Parquet and Criteo's text (Kaggle, terabyte), plain, .gz or .zst; the roles of columns
/// are in a dataset.toml beside the data, which Criteo's do not need.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  libra data make --rows 1000000 --to ads              rows in Criteo's form, with a planted model
  libra data inspect s3://bucket/ads                   files, columns and row groups
  libra data check 'ads/day_*.gz'                      reads all; exit code 1 if a row is bad
  libra data convert ads --to ads-parquet              text to Parquet
  libra data shuffle ads-parquet --to shuffled --memory 4GiB
                                                       a random order of all rows")]
pub(crate) enum Command {
    Inspect(inspect::Arguments),
    Check(check::Arguments),
    Convert(convert::Arguments),
    Shuffle(shuffle::Arguments),
    Make(make::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Convert(arguments) => convert::run(arguments),
        Command::Shuffle(arguments) => shuffle::run(arguments),
        Command::Make(arguments) => make::run(arguments),
    }
}

/// The data set that is read.
#[derive(Args, Debug)]
struct Source {
    /// A file, directory, pattern or URL
    place: String,
    /// Roles of the columns, instead of the dataset.toml beside the data
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Directory of the indexes of texts, instead of a hidden file beside each
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
}

impl Source {
    fn options(&self) -> Result<Options> {
        let description = self.dataset.as_deref().map(read_description).transpose()?;
        Ok(Options { description, index_directory: self.index_dir.clone(), ..Options::default() })
    }

    /// Opens the set; a text without an index is read, with a bar.
    fn open(&self, options: &Options, output: &Output) -> Result<DataSet> {
        let bar = output.bars().bytes_bar("open", 0);
        let set = DataSet::open_with_progress(&self.place, options, &mut |done| bar.set_position(done));
        bar.finish_and_clear();
        Ok(set?)
    }

    /// Opens the set with values as ids, as they are written, and returns the roles with the meaning of ids that the set has.
    fn open_for_copy(&self, output: &Output) -> Result<(DataSet, libra_data::Schema)> {
        let mut options = self.options()?;
        let keys = self.open(&options, output)?.schema().description.keys;
        options.keys = Some(Keys::Values);
        let set = self.open(&options, output)?;
        let mut schema = set.schema().clone();
        schema.description.keys = keys;
        Ok((set, schema))
    }
}

fn read_description(path: &Path) -> Result<Description> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Description::parse(&text).with_context(|| path.display().to_string())
}

/// The data set that is written.
#[derive(Args, Debug)]
struct Target {
    /// An empty directory, one that does not exist, or a URL below which there is nothing: file, s3, gs, az
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Format of the files
    #[arg(long, value_enum, default_value = "parquet")]
    format: Format,
    /// Rows of a file
    #[arg(long, value_name = "ROWS", default_value = "8388608", value_parser = clap::value_parser!(u64).range(1..))]
    file_rows: u64,
    /// Rows of a row group, which is what a worker takes at once
    #[arg(long, value_name = "ROWS", default_value = "65536", value_parser = clap::value_parser!(u32).range(1..))]
    group_rows: u32,
}

/// Format of a data set that is written.
#[derive(ValueEnum, Debug, Clone, Copy)]
enum Format {
    /// Parquet with zstd
    Parquet,
    /// Criteo's text
    Text,
    /// Criteo's text, packed by gzip
    Gzip,
    /// Criteo's text, packed by zstd
    Zstd,
}

impl Target {
    /// Opens the destination: a store is asked now, before the work.
    fn open(&self) -> Result<Destination> {
        Ok(Destination::open(&self.to, &Environment::of_process())?)
    }

    fn output(&self) -> libra_data::Output {
        let format = match self.format {
            Format::Parquet => OutputFormat::Parquet,
            Format::Text => OutputFormat::Text,
            Format::Gzip => OutputFormat::Gzip,
            Format::Zstd => OutputFormat::Zstd,
        };
        let group_rows = usize::try_from(self.group_rows).expect("32 bits fit");
        libra_data::Output { format, file_rows: self.file_rows, group_rows }
    }
}

/// A bar that counts rows.
fn rows_bar(output: &Output, name: &str, rows: u64) -> ProgressBar {
    let bar = output.bars().bar(name);
    bar.set_length(rows);
    bar
}

/// The result of a command that writes a set.
#[derive(serde::Serialize)]
struct Written {
    rows: u64,
    bytes: u64,
    seconds: f64,
    rows_per_second: f64,
}

impl Written {
    fn report(rows: u64, bytes: u64, target: &Target, seconds: f64, output: &Output) -> Result<()> {
        let written = Self { rows, bytes, seconds, rows_per_second: rows as f64 / seconds.max(1e-9) };
        output.print(&format!(
            "{} in {}, {}, {:.1} s, {} rows/s",
            count(rows, "row", "rows"),
            target.to,
            self::bytes(written.bytes),
            seconds,
            count_of(written.rows_per_second),
        ));
        output.write(&written)
    }
}

/// A rate, as a whole number with separators.
fn count_of(rate: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let whole = rate as u64;
    libra_launch::report::group(whole)
}
