//! Places: paths, and URLs of files, buckets and servers.

use thiserror::Error;
use url::Url;

/// A parsed place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Kind of storage, with the bucket.
    pub kind: Kind,
    /// Path, or key in the bucket.
    pub path: String,
    /// In front of a path in messages.
    prefix: String,
}

/// Kind of storage, with the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Files of this machine.
    Local,
    /// A bucket of S3, or of what speaks its protocol.
    S3(String),
    /// A bucket of Google.
    Google(String),
    /// A container of Azure.
    Azure(String),
    /// Scheme, host and port of a server.
    Http(String),
}

impl Kind {
    /// First part of the names of variables with its settings.
    pub(crate) fn prefix(&self) -> Option<&'static str> {
        match self {
            Self::S3(_) => Some("AWS_"),
            Self::Google(_) => Some("GOOGLE_"),
            Self::Azure(_) => Some("AZURE_"),
            Self::Local | Self::Http(_) => None,
        }
    }
}

/// A text that is no place.
#[derive(Debug, Error)]
#[error("{place}: {reason}")]
pub struct BadPlace {
    /// The text, without secrets.
    pub place: String,
    /// The reason.
    pub reason: &'static str,
}

impl Place {
    /// Parses what a user gave: a path, or a URL.
    ///
    /// # Errors
    /// It is no URL of a known kind, or has a secret in it, which is not repeated.
    pub fn parse(text: &str) -> Result<Self, BadPlace> {
        let bad = |reason| BadPlace { place: without_secrets(text), reason };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::local(text));
        };
        if scheme == "file" {
            let url = Url::parse(text).map_err(|_| bad("it is no URL"))?;
            let path = url.to_file_path().map_err(|()| bad("a file URL is file:///PATH"))?;
            return Ok(Self::local(path.to_str().ok_or_else(|| bad("the path is no text"))?));
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if end_of_user(rest).is_some() {
            return Err(bad("credentials belong into the environment, not into a URL"));
        }
        if host.is_empty() {
            return Err(bad("it names no bucket or host"));
        }
        let kind = match scheme {
            "s3" | "s3a" => Kind::S3(host.to_owned()),
            "gs" => Kind::Google(host.to_owned()),
            "az" => Kind::Azure(host.to_owned()),
            "http" | "https" => {
                if path.contains(['?', '#']) {
                    return Err(bad("a query may hold a secret: give a URL without one"));
                }
                Kind::Http(format!("{scheme}://{host}"))
            }
            _ => return Err(bad("the schemes are file, s3, gs, az, http and https")),
        };
        Ok(Self { kind, path: path.to_owned(), prefix: format!("{scheme}://{host}/") })
    }

    fn local(path: &str) -> Self {
        Self { kind: Kind::Local, path: path.to_owned(), prefix: String::new() }
    }

    /// Name of something at this path there, for messages.
    pub fn name_of(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// True if a text names a place by a URL, and not by a path.
    pub fn is_url(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    }
}

/// A URL without user, password and query, for messages; a path as it is.
pub fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}", &rest[end_of_user(rest).unwrap_or(0)..])
}

/// End of the user and password with which a URL goes on after its scheme, if it has them.
fn end_of_user(rest: &str) -> Option<usize> {
    let (host, _) = rest.split_once('/').unwrap_or((rest, ""));
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let at = match host.rfind('@') {
        // A password may have a slash.
        None if !host.starts_with('[') && host.split_once(':').is_some_and(|(_, port)| !is_port(port)) => {
            rest.find('@')
        }
        at => at,
    };
    at.map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_kind_bucket_and_key() {
        let place = Place::parse("s3://ads/run/1").unwrap();
        assert_eq!((place.kind.clone(), place.path.as_str()), (Kind::S3("ads".to_owned()), "run/1"));
        assert_eq!(place.name_of("run/2"), "s3://ads/run/2");
        assert_eq!(Place::parse("gs://b").unwrap().kind, Kind::Google("b".to_owned()));
        let place = Place::parse("https://host:8080/a/b").unwrap();
        assert_eq!((place.kind, place.path.as_str()), (Kind::Http("https://host:8080".to_owned()), "a/b"));
        assert_eq!(Place::parse("file:///tmp/a%20b/").unwrap().path, "/tmp/a b/");
        assert!(Place::is_url("s3://b/x") && Place::is_url("foo://b") && !Place::is_url("/a/b://c"));
    }

    #[test]
    fn secrets_in_urls_are_refused_and_not_repeated() {
        for text in [
            "https://user:pass@host/a?token=geheim",
            "http://host/a?token=geheim",
            "s3://k:geheim@b/a",
            "s3://k:geheim@geheim@b/a",
            "s3://k:geheim/geheim@b/a",
        ] {
            let error = Place::parse(text).unwrap_err().to_string();
            assert!(!error.contains("geheim") && !error.contains("pass@"), "{error}");
        }
        assert_eq!(without_secrets("s3://k:geheim@b/a@7"), "s3://b/a@7");
        for text in ["s3://b/a@7", "http://[::1]:80/a", "run#1@7", "/a?b"] {
            assert_eq!(without_secrets(text), text);
        }
        assert!(Place::parse("ftp://host/a").unwrap_err().to_string().contains("schemes"));
    }
}
