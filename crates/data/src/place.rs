//! Places of data sets: paths and URLs, directories and patterns.

use std::cmp::Ordering;

use globset::{GlobBuilder, GlobMatcher};
use libra_objects::{BadPlace, Kind};

use crate::error::{At, DataError, Fault};

/// A parsed place.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    root: libra_objects::Place,
    /// Path, or key in the bucket, of the file or directory, or of the directory above a pattern; without a slash at the end.
    pub(crate) path: String,
    pub(crate) pattern: Option<GlobMatcher>,
}

impl Place {
    /// Parses what a user gave.
    pub(crate) fn parse(text: &str) -> Result<Self, DataError> {
        let root = parse_root(text)?;
        let path = root.path.clone();
        let is_pattern = path.contains(['*', '?', '[', '{']) && !matches!(root.kind, Kind::Http(_));
        // A file whose name looks like a pattern is a file.
        if !is_pattern || root.kind == Kind::Local && std::path::Path::new(&path).exists() {
            let trimmed = path.trim_end_matches('/');
            let path = if trimmed.is_empty() && path.starts_with('/') { "/" } else { trimmed };
            return Ok(Self { root, path: path.to_owned(), pattern: None });
        }
        let fixed = path.find(['*', '?', '[', '{']).unwrap_or(path.len());
        let directory = path[..fixed].rfind('/').map_or("", |slash| &path[..slash]).to_owned();
        let glob = GlobBuilder::new(&path).literal_separator(true).build();
        let matcher = glob
            .map_err(|_| At::file(&path).error(Fault::BadPlace { reason: "the pattern is not right" }))?
            .compile_matcher();
        Ok(Self { root, path: directory, pattern: Some(matcher) })
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.root.kind
    }

    /// A file below it.
    pub(crate) fn below(&self, name: &str) -> Self {
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            directory => format!("{}/{name}", directory.trim_end_matches('/')),
        };
        Self { root: self.root.clone(), path, pattern: None }
    }

    /// Name of one of its files, for messages.
    pub(crate) fn name_of(&self, path: &str) -> String {
        self.root.name_of(path)
    }

    /// The place itself, for messages.
    pub(crate) fn at(&self) -> At {
        let pattern = self.pattern.as_ref().map(|pattern| pattern.glob().glob());
        let name = self.name_of(pattern.unwrap_or(&self.path));
        At::file(if name.is_empty() { ".".to_owned() } else { name })
    }
}

/// Parses a place without its pattern. In a URL of a store, a question mark belongs to a pattern, unless a query follows it, which may
/// hold a signature.
pub(crate) fn parse_root(text: &str) -> Result<libra_objects::Place, DataError> {
    let refused = |BadPlace { place, reason }| At::file(place).error(Fault::BadPlace { reason });
    let root = libra_objects::Place::parse(text).map_err(refused)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let mut behind = text.split('?');
    let first = behind.next().unwrap_or_default();
    let has_query = behind.any(|rest| {
        rest.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(is_name))
    });
    if has_query && matches!(root.kind, Kind::S3(_) | Kind::Google(_) | Kind::Azure(_)) {
        let reason = "a query may hold a secret: give a URL without one";
        return Err(refused(BadPlace { place: first.to_owned(), reason }));
    }
    Ok(root)
}

/// Names of data sets are compared as people read them: `day_9` is before `day_10`.
pub(crate) fn natural_order(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    loop {
        let (a, b) = match (left.first(), right.first()) {
            (Some(a), Some(b)) => (*a, *b),
            (a, b) => return a.is_some().cmp(&b.is_some()),
        };
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (first, second) = (left.split_at(digits(left)), right.split_at(digits(right)));
            let value = |digits: &[u8]| {
                let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
                (digits.len() - zeros, digits[zeros..].to_owned())
            };
            match value(first.0).cmp(&value(second.0)).then(first.0.len().cmp(&second.0.len())) {
                Ordering::Equal => (left, right) = (first.1, second.1),
                unequal => return unequal,
            }
        } else if a == b {
            (left, right) = (&left[1..], &right[1..]);
        } else {
            return a.cmp(&b);
        }
    }
}

/// Kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    Text(Packing),
}

/// Compression of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Format {
    /// The format of a file that was named by itself: text, unless its name is one of the others.
    pub(crate) fn of_file(path: &str) -> Self {
        let ends = |suffix: &str| path.ends_with(suffix);
        if ends(".parquet") || ends(".pq") {
            Self::Parquet
        } else if ends(".gz") {
            Self::Text(Packing::Gzip)
        } else if ends(".zst") {
            Self::Text(Packing::Zstd)
        } else {
            Self::Text(Packing::Plain)
        }
    }

    /// The format of a file that was found in a directory, if it is one of a data set.
    pub(crate) fn of_listed(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        if path.split('/').any(|part| part.starts_with(['_', '.'])) {
            return None;
        }
        let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
        let is_day = plain.strip_prefix("day_").is_some_and(|day| day.bytes().all(|b| b.is_ascii_digit()));
        let format = Self::of_file(name);
        let known = format == Self::Parquet || is_day || plain.ends_with(".txt") || plain.ends_with(".tsv");
        let is_readme = name.to_ascii_uppercase().starts_with("README");
        (known && !is_readme).then_some(format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_urls_match_keys() {
        let place = Place::parse("s3://ads/criteo/day_*.parquet").unwrap();
        assert_eq!((place.kind().clone(), place.path.as_str()), (Kind::S3("ads".to_owned()), "criteo"));
        let pattern = place.pattern.as_ref().unwrap();
        assert!(pattern.is_match("criteo/day_3.parquet") && !pattern.is_match("criteo/x/day_3.parquet"));
        assert_eq!(place.at().to_string(), "s3://ads/criteo/day_*.parquet");
        let place = Place::parse("https://host:8080/a/b.parquet").unwrap();
        assert_eq!(place.path, "a/b.parquet");
        assert_eq!(Place::parse("file:///tmp/a%20b/").unwrap().path, "/tmp/a b");
    }

    #[test]
    fn secrets_in_urls_are_refused_and_not_repeated() {
        for text in [
            "s3://ads/a?X-Amz-Signature=geheim",
            "s3://ads?X-Amz-Signature=geheim",
            "gs://ads/day_?/a.parquet?x=1&sig=geheim",
            "az://ads/a/?sig=geheim/x",
        ] {
            let error = Place::parse(text).unwrap_err().to_string();
            assert!(error.contains("a query may hold a secret") && !error.contains("geheim"), "{error}");
        }
        for text in ["s3://ads/day_?.parquet", "s3://ads/hour=1?/*", "s3://ads/day_?/hour=1/*", "ads?x=1"] {
            assert!(Place::parse(text).unwrap().pattern.is_some(), "{text}");
        }
    }

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = ["day_10", "day_9", "day_9.gz", "day_09", "day_", "a"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["a", "day_", "day_9", "day_9.gz", "day_09", "day_10"]);
    }

    #[test]
    fn listed_names_show_their_format() {
        for name in
            ["_SUCCESS", ".x.parquet", "d/_temporary/a.parquet", "README.txt", "dataset.toml", "a.csv"]
        {
            assert_eq!(Format::of_listed(name), None, "{name}");
        }
        assert_eq!(Format::of_listed("day_3"), Some(Format::Text(Packing::Plain)));
        assert_eq!(Format::of_listed("x/day_3.gz"), Some(Format::Text(Packing::Gzip)));
        assert_eq!(Format::of_listed("train.txt.zst"), Some(Format::Text(Packing::Zstd)));
        assert_eq!(Format::of_listed("x/part-0.snappy.parquet"), Some(Format::Parquet));
    }
}
