//! Objects at URLs: those of a bucket, and files. Requests with a bounded number of retries, for callers that wait.
//!
//! It knows no data set, no checkpoint and no message of Libra. A [`Place`] is parsed from what a user gave; secrets in it are refused.
//! Settings and credentials are variables of an [`Environment`]. [`Objects`] are listed, read and written by path.
//!
//! ```
//! use libra_objects::{Created, Environment, Objects, Place};
//!
//! let directory = tempfile::tempdir()?;
//! let place = Place::parse(&format!("file://{}", directory.path().display()))?;
//! let objects = Objects::open(&place.kind, &Environment::of_process(), None)?;
//! let path = format!("{}/run/owner", place.path);
//! assert_eq!(objects.create(&path, "first".into())?, Created::New);
//! assert_eq!(objects.create(&path, "second".into())?, Created::Taken);
//! assert_eq!(objects.read(&path)?, "first");
//! assert_eq!(objects.list(&place.path)?.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod environment;
mod fault;
mod objects;
mod place;
mod store;
mod upload;

pub use environment::Environment;
pub use fault::Fault;
pub use objects::{Counts, Created, Object, Objects, Replaced, Version, normal};
pub use place::{BadPlace, Kind, Place, without_secrets};
pub use upload::{PART_BYTES, Upload};
