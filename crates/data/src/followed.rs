//! Directories to which files are added while they are read.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use libra_objects::Kind;

use crate::dataset::{DataSet, Options, described};
use crate::error::{DataError, Fault};
use crate::parquet_file::FirstTypes;
use crate::place::{Place, natural_order};
use crate::store::Store;
use crate::write::SUCCESS;

/// A directory to which files are added, each whole at once: in an object store they are, on a disk they are renamed to a name of a data file, or moved to the
/// directory, when they are complete. They come in the natural order of their names.
#[derive(Debug)]
pub struct Followed {
    place: Place,
    store: Arc<Store>,
    options: Options,
    types: Mutex<FirstTypes>,
}

/// A file of a [`Followed`] directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedFile {
    /// Its path below the directory.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// The files that a [`Followed`] directory has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The files, in their order.
    pub files: Vec<FollowedFile>,
    /// No other is going to be added: there is a `_SUCCESS`.
    pub is_complete: bool,
}

impl Followed {
    /// Opens a directory, or the objects below a URL: `file`, `s3`, `gs` or `az`. There need not be a file yet.
    ///
    /// # Errors
    /// The place is none whose files can be listed.
    pub fn open(place: &str, options: &Options) -> Result<Self, DataError> {
        let place = Place::parse(place)?;
        if place.pattern.is_some() || matches!(place.kind(), Kind::Http(_)) {
            let reason =
                "files are added to a directory: give its path or URL, without a pattern, not of HTTP";
            return Err(place.at().error(Fault::BadPlace { reason }));
        }
        let store = options.store(&place)?;
        let followed = Self { place, store, options: options.clone(), types: Mutex::default() };
        followed.list()?;
        Ok(followed)
    }

    /// Returns the files that are there now.
    ///
    /// # Errors
    /// The directory cannot be listed, or is a file.
    pub fn list(&self) -> Result<Listing, DataError> {
        // Before the files: those that are listed afterwards are all that there are then.
        let is_complete = self.store.read_beside(&self.place, SUCCESS)?.is_some();
        let is_remote = *self.place.kind() != Kind::Local;
        let files = match self.store.list(&self.place) {
            Ok(files) => files,
            Err(DataError { fault: Fault::NoFiles, .. }) => Vec::new(),
            // A prefix without objects is none.
            Err(DataError { fault: Fault::Missing, .. }) if is_remote => Vec::new(),
            Err(error) => return Err(error),
        };
        if files.iter().any(|(file, _)| file.path == self.place.path) {
            let reason = "files are added to a directory, and this is a file";
            return Err(self.place.at().error(Fault::BadPlace { reason }));
        }
        let below = |path: &str| {
            path.strip_prefix(&self.place.path).unwrap_or(path).trim_start_matches('/').to_owned()
        };
        let files =
            files.into_iter().map(|(file, _)| FollowedFile { name: below(&file.path), bytes: file.bytes });
        Ok(Listing { files: files.collect(), is_complete })
    }

    /// Opens one of the files, whose columns mean what those of the files that were opened before do.
    ///
    /// # Errors
    /// Those of [`DataSet::open`], for all these files together.
    pub fn file(&self, name: &str) -> Result<DataSet, DataError> {
        let description = match &self.options.description {
            Some(description) => Some(description.clone()),
            None => described(&self.store, &self.place)?.map(|(_, description)| description),
        };
        let options = Options { description, ..self.options.clone() };
        let set = DataSet::open_at(&self.place.below(name), &options, &mut |_| {})?;
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that is refused may be replaced: it is none to compare others with.
        let mut compared = types.clone();
        set.compare_types(&mut compared)?;
        *types = compared;
        drop(types);
        Ok(set)
    }
}

/// Compares names of files as [`Listing`] has them.
pub fn order_of_names(left: &str, right: &str) -> Ordering {
    natural_order(left, right)
}
