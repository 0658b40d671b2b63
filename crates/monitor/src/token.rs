//! The secret of those who may command a job over HTTP (a bearer token, RFC 6750).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;
use thiserror::Error;

/// Characters of a token, at least.
const LENGTH_MIN: usize = 16;

/// A file has no usable token.
#[derive(Debug, Error)]
pub enum HttpTokenError {
    /// It cannot be read.
    #[error("cannot read the token for HTTP in {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// What is in it is no token.
    #[error(
        "{} must have one line of at least {LENGTH_MIN} visible ASCII characters, as `openssl rand -hex 16` prints",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
    },
}

/// The token of those who may command a job.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpToken(String);

impl HttpToken {
    /// Reads the token in a file: its one line.
    ///
    /// # Errors
    /// The file cannot be read, or has no token in it.
    pub fn read(path: &Path) -> Result<Self, HttpTokenError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|source| HttpTokenError::Unreadable { path: path.to_owned(), source })?;
        let token = text.trim_end();
        let is_usable = token.len() >= LENGTH_MIN && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_usable {
            return Err(HttpTokenError::Unusable { path: path.to_owned() });
        }
        Ok(Self(token.to_owned()))
    }

    /// Returns the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if a caller has it. How long that takes tells nothing about the token but its length.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(self.0.as_bytes())))
    }
}

impl core::fmt::Debug for HttpToken {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("HttpToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HttpToken, HttpTokenError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        HttpToken::read(file.path())
    }

    #[test]
    fn a_token_is_one_line_that_is_long_enough() {
        assert_eq!(read("0123456789abcdef\n").unwrap().as_str(), "0123456789abcdef");
        for text in ["", "short\n", "0123456789 abcdef\n", "0123456789abcdef\nmore\n"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("openssl rand"), "{error}");
        }
        let error = HttpToken::read(Path::new("/no/such/file")).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"));
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = read("0123456789abcdef").unwrap();
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        assert!(token.is_in(&with("Bearer 0123456789abcdef")));
        for other in
            ["Bearer 0123456789abcde", "Bearer 0123456789abcdefg", "Basic 0123456789abcdef", "Bearer "]
        {
            assert!(!token.is_in(&with(other)), "{other}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert_eq!(format!("{token:?}"), "HttpToken");
    }
}
