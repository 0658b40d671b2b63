//! Reads data sets for training, wherever they are and in whichever format; it knows no model, no cluster and no message of Libra.
//!
//! A [`DataSet`] is opened from a place (path, directory, pattern or URL) and falls into chunks: row groups of Parquet, or runs of
//! lines. A chunk is read into [`Columns`], whatever the format. A [`Selection`] of the rows gives the pieces of a part of an epoch by a seed, and
//! [`Shuffle`] draws rows from several pieces at once. [`ReadAhead`] has a thread, the only one here, that reads while others compute.
//!
//! ```text
//!  place ──▶ Store: list, ranges, retries ──▶ footers / index ──▶ chunks ──▶ Selection ──▶ Shuffle ──▶ batches
//!                                             dataset.toml    ──▶ roles        └─────▶ readers ──▶ rows in the order of the file
//! ```
//!
//! Opening reads footers of Parquet; a text is read once, and an index of it kept beside it or in a cache.
//!
//! ```
//! use libra_data::{Columns, DataSet, Make, Options, Output, Selection, Shuffle};
//!
//! let directory = tempfile::tempdir()?;
//! let place = directory.path().to_str().expect("a path in ASCII");
//! Make { rows: 1000, seed: 7, ..Make::default() }.write(directory.path(), &Output::default(), &mut |_| {})?;
//!
//! let set = DataSet::open(place, &Options::default())?;
//! let selection = Selection::new(set.chunks().to_vec());
//! let (mut batch, mut rows) = (Columns::default(), 0);
//! for part in 0..2 {
//!     let mut shuffle = Shuffle::new(&set, selection.part(part, 2, 1).into_iter(), 1);
//!     while shuffle.next_batch(256, &mut batch)? {
//!         rows += batch.rows();
//!     }
//! }
//! assert_eq!(rows, 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod ahead;
mod check;
mod columns;
mod dataset;
mod description;
mod destination;
mod error;
mod followed;
mod hash;
mod make;
mod parquet_file;
mod place;
mod scatter;
mod selection;
mod shuffle;
mod store;
mod text_file;
mod write;

pub use ahead::{Ordered, ReadAhead, Source};
pub use check::{CategoryFigures, Check, NumberFigures};
pub use columns::{Columns, Ids};
pub use dataset::{
    Chunk, ChunkReader, ColumnKind, ColumnSummary, Counts, DataSet, Options, Proposal, Readers, Schema, Split,
};
pub use description::{Category, Description, FILE_NAME, Keys, Text};
pub use destination::Destination;
pub use error::{At, DataError, Fault, Row};
pub use followed::{Followed, FollowedFile, Listing, order_of_names};
pub use hash::Field;
pub use libra_objects::Environment;
pub use make::Make;
pub use scatter::shuffle_on_disk;
pub use selection::Selection;
pub use shuffle::{Shuffle, ShuffleSettings};
pub use store::FileInfo;
pub use write::{Output, OutputFormat, Writer};
