//! Lines of tab-separated text, with errors that name the place.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::DataError;

/// Largest id that a file may hold: arrays are as long as the largest id.
pub(crate) const ID_MAX: u32 = (1 << 26) - 1;

/// Text of a bad line is shown up to this many characters.
const SHOWN_MAX: usize = 60;

/// One file, read whole.
pub(crate) struct TextFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TextFile {
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self { path: path.to_owned(), bytes }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(DataError::Missing { path: path.to_owned() })
            }
            Err(source) => Err(DataError::Unreadable { path: path.to_owned(), source }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lines that are not blank.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.bytes
            .split(|&byte| byte == b'\n')
            .map(|bytes| bytes.strip_suffix(b"\r").unwrap_or(bytes))
            .enumerate()
            .filter(|(_, bytes)| !bytes.iter().all(u8::is_ascii_whitespace))
            .map(|(index, bytes)| Line { path: &self.path, number: index + 1, bytes })
    }
}

/// One line and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    path: &'a Path,
    pub(crate) number: usize,
    bytes: &'a [u8],
}

impl<'a> Line<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The fields between tabs.
    pub(crate) fn fields(self) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.split(|&byte| byte == b'\t')
    }

    /// Exactly `N` fields.
    pub(crate) fn exactly<const N: usize>(self, expected: &'static str) -> Result<[&'a [u8]; N], DataError> {
        let mut fields = self.fields();
        let mut found = [&b""[..]; N];
        for field in &mut found {
            *field = fields.next().ok_or_else(|| self.malformed(expected, self.bytes))?;
        }
        if fields.next().is_some() {
            return Err(self.malformed(expected, self.bytes));
        }
        Ok(found)
    }

    /// A number that counts users or items.
    pub(crate) fn id(self, field: &[u8], expected: &'static str) -> Result<u32, DataError> {
        let number: u64 = self.number(field, expected)?;
        u32::try_from(number).ok().filter(|&id| id <= ID_MAX).ok_or_else(|| DataError::IdTooLarge {
            path: self.path.to_owned(),
            line: self.number,
            found: number,
            limit: ID_MAX,
        })
    }

    /// Any number.
    pub(crate) fn number<T: std::str::FromStr>(
        self,
        field: &[u8],
        expected: &'static str,
    ) -> Result<T, DataError> {
        let text = std::str::from_utf8(field).ok();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| self.malformed(expected, field))
    }

    pub(crate) fn malformed(self, expected: &'static str, found: &[u8]) -> DataError {
        let text = String::from_utf8_lossy(found);
        let mut shown: String = text.chars().take(SHOWN_MAX).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        DataError::Malformed { path: self.path.to_owned(), line: self.number, expected, found: shown }
    }
}
