//! The token of a cluster: who has it may join.

use core::fmt;
use core::str::FromStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE32_NOPAD;
use rand::TryRngCore;
use rand::rngs::OsRng;
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use thiserror::Error;

/// Beginning of every token, so that scanners for secrets in files find it.
const PREFIX: &str = "libra1_";
/// Random bytes of a token: 160 bits.
const SECRET_BYTES: usize = 20;
/// Characters after the prefix: the secret in base32 (RFC 4648), then a checksum of 20 bits.
const SECRET_CHARACTERS: usize = SECRET_BYTES * 8 / 5;
const CHECKSUM_CHARACTERS: usize = 4;
/// Salt of everything that follows from a token.
const SALT: &[u8] = b"libra token 1";

/// A secret that all members of a cluster have: `libra1_` and 36 characters.
///
/// ```
/// use libra_net::Token;
///
/// let token = Token::random()?;
/// let text = token.reveal();
/// assert_eq!(text.len(), 43);
/// assert_eq!(text.parse::<Token>()?, token);
/// // It does not come into a log by accident.
/// assert_eq!(format!("{token:?}"), "Token(..)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; SECRET_BYTES]);

/// The reason for which a text is no token, or a file has none. The text itself is not repeated: it may be a secret.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It has another form.
    #[error("a token is {PREFIX} and {} characters of base32: this has {characters} characters{}",
        SECRET_CHARACTERS + CHECKSUM_CHARACTERS, if *has_prefix { "" } else { ", and begins in another way" })]
    Form {
        /// Number of its characters.
        characters: usize,
        /// True if it begins as a token does.
        has_prefix: bool,
    },
    /// A character is none of base32.
    #[error("character {place} of the token is none of a to z and 2 to 7")]
    Character {
        /// Counted from 1.
        place: usize,
    },
    /// The checksum is that of another one.
    #[error("a character of the token is wrong: its checksum does not fit")]
    Checksum,
    /// The file cannot be read.
    #[error("cannot read the token in {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("others may read the token in {}: `chmod 600` it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file has something else.
    #[error("{} has no token", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        source: Box<Self>,
    },
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The machine has no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut secret = [0; SECRET_BYTES];
        OsRng.try_fill_bytes(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(secret))
    }

    /// Reads the text of the variable `LIBRA_TOKEN`; none if it is empty, as it is where it is not set.
    ///
    /// # Errors
    /// It is something else.
    pub fn of_variable(text: &str) -> Result<Option<Self>, TokenError> {
        let text = text.trim();
        if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
    }

    /// Reads the token in a file, which none but its owner may read.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let file = |source| TokenError::File { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(file)?;
        // A pipe has no mode of its own.
        let metadata = fs::metadata(path).map_err(file)?;
        if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned() });
        }
        let in_file = |source| TokenError::InFile { path: path.to_owned(), source: Box::new(source) };
        text.trim().parse().map_err(in_file)
    }

    /// Its text, for a person to give to other machines.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}{}", BASE32_NOPAD.encode(&self.0), self.checksum()).to_ascii_lowercase()
    }

    /// Derives 32 bytes for a purpose (HKDF with SHA-256, RFC 5869).
    pub(super) fn derive(&self, purpose: &str) -> [u8; 32] {
        let key: Prk = Salt::new(HKDF_SHA256, SALT).extract(&self.0);
        let mut bytes = [0; 32];
        let filled = key.expand(&[purpose.as_bytes()], HKDF_SHA256).and_then(|okm| okm.fill(&mut bytes));
        filled.expect("32 bytes are as long as one hash");
        bytes
    }

    fn checksum(&self) -> String {
        let hash = digest(&SHA256, &[PREFIX.as_bytes(), &self.0].concat());
        let mut text = BASE32_NOPAD.encode(&hash.as_ref()[..5]);
        text.truncate(CHECKSUM_CHARACTERS);
        text
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let form = |has_prefix| TokenError::Form { characters: text.chars().count(), has_prefix };
        let rest = text.strip_prefix(PREFIX).ok_or_else(|| form(false))?;
        if rest.chars().count() != SECRET_CHARACTERS + CHECKSUM_CHARACTERS {
            return Err(form(true));
        }
        let is_base32 = |character: char| character.is_ascii_alphabetic() || ('2'..='7').contains(&character);
        if let Some(place) = text.chars().skip(PREFIX.len()).position(|character| !is_base32(character)) {
            return Err(TokenError::Character { place: PREFIX.len() + place + 1 });
        }
        let rest = rest.to_ascii_uppercase();
        let (secret, checksum) = rest.split_at(SECRET_CHARACTERS);
        let secret = BASE32_NOPAD.decode(secret.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        let token = Self(secret.expect("32 characters of base32 are 20 bytes"));
        if token.checksum() != checksum {
            return Err(TokenError::Checksum);
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Token>().unwrap_err().to_string()
    }

    #[test]
    fn a_token_of_known_bytes_has_a_known_text() {
        let token = Token([7; SECRET_BYTES]);
        let text = token.reveal();
        assert_eq!(text, "libra1_a4dqobyha4dqobyha4dqobyha4dqobyhf6o4");
        assert_eq!(text.parse::<Token>().unwrap(), token);
        assert_eq!(text.to_ascii_uppercase().replace("LIBRA1_", PREFIX).parse::<Token>().unwrap(), token);
    }

    #[test]
    fn any_wrong_character_is_noticed() {
        let text = Token::random().unwrap().reveal();
        for place in PREFIX.len()..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[place] = if wrong[place] == b'a' { b'b' } else { b'a' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert!(matches!(wrong.parse::<Token>(), Err(TokenError::Checksum)), "{place}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        assert_eq!(
            refused("hunter2"),
            "a token is libra1_ and 36 characters of base32: this has 7 characters, and begins in another way"
        );
        let text = Token::random().unwrap().reveal();
        assert!(refused(&text[..42]).ends_with("this has 42 characters"));
        assert_eq!(
            refused(&format!("{}1{}", &text[..9], &text[10..])),
            "character 10 of the token is none of a to z and 2 to 7"
        );
        assert!(refused(&format!("{}é", &text[..42])).contains("character 43"));
    }

    #[test]
    fn a_file_must_be_of_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::random().unwrap();
        fs::write(&path, token.reveal() + "\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::Exposed { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Token::read(&path).unwrap(), token);
        fs::write(&path, "\n").unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::InFile { .. })));
    }

    #[test]
    fn what_is_derived_depends_on_token_and_purpose() {
        let (one, other) = (Token([1; SECRET_BYTES]), Token([2; SECRET_BYTES]));
        assert_eq!(one.derive("a"), one.derive("a"));
        assert_ne!(one.derive("a"), one.derive("b"));
        assert_ne!(one.derive("a"), other.derive("a"));
    }
}
