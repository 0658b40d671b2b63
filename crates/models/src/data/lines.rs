//! Lines of tab-separated text, with errors that name the place.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::{DataError, DataFile};

/// Largest id that a file may hold: arrays are as long as the largest id.
pub(crate) const ID_MAX: u32 = (1 << 26) - 1;

/// Text of a bad line is shown up to this many characters.
const SHOWN_MAX: usize = 60;

/// Longest line of a file that is not read whole, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// Bytes that are read at once from a file that is not read whole: not much more than what is wanted of one place.
const READ_BYTES: usize = 1 << 16;

/// One file, read whole.
pub(crate) struct TextFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TextFile {
    pub(crate) fn read(path: &Path) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(|error| unreadable(path, error))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, for [`Workload::files`](crate::Workload::files).
    pub(crate) fn data_file(&self) -> DataFile {
        DataFile::new(&self.path, self.bytes.len() as u64)
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

/// A file read line by line, of which one line is held at a time.
pub(crate) struct LineReader {
    path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Start of the line that was read last.
    place: LinePlace,
    /// Start of the next line.
    next: LinePlace,
}

/// Start of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinePlace {
    /// Bytes before it.
    offset: u64,
    /// Lines before it.
    lines: usize,
}

impl LinePlace {
    /// The beginning of a file.
    pub(crate) const START: Self = Self { offset: 0, lines: 0 };
}

impl LineReader {
    /// Opens a file at one of its lines.
    pub(crate) fn open(path: &Path, place: LinePlace) -> Result<Self, DataError> {
        let open = || -> io::Result<File> {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(place.offset))?;
            Ok(file)
        };
        let file = open().map_err(|error| unreadable(path, error))?;
        let reader = BufReader::with_capacity(READ_BYTES, file);
        Ok(Self { path: path.to_owned(), reader, line: Vec::new(), place, next: place })
    }

    /// Returns the start of the line that was read last.
    pub(crate) fn place(&self) -> LinePlace {
        self.place
    }

    /// The file, after its last line was read.
    pub(crate) fn data_file(&self) -> DataFile {
        DataFile::new(&self.path, self.next.offset)
    }

    /// The next line that is not blank.
    pub(crate) fn read(&mut self) -> Result<Option<Line<'_>>, DataError> {
        loop {
            self.place = self.next;
            self.line.clear();
            let mut limited = (&mut self.reader).take(LINE_MAX);
            let bytes = limited.read_until(b'\n', &mut self.line).map_err(|e| unreadable(&self.path, e))?;
            if bytes == 0 {
                return Ok(None);
            }
            self.next = LinePlace { offset: self.place.offset + bytes as u64, lines: self.place.lines + 1 };
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let whole = self.line.strip_suffix(b"\n");
        let bytes = whole.unwrap_or(&self.line);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let line = Line { path: &self.path, number: self.next.lines, bytes };
        if whole.is_none() && self.line.len() as u64 == LINE_MAX {
            return Err(line.malformed("a line of text, shorter than 1 MiB", bytes));
        }
        Ok(Some(line))
    }
}

fn unreadable(path: &Path, source: io::Error) -> DataError {
    if source.kind() == ErrorKind::NotFound {
        DataError::Missing { path: path.to_owned() }
    } else {
        DataError::Unreadable { path: path.to_owned(), source }
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
