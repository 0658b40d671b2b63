//! JSON objects with their own checksum, in the first line, and a version.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Fault;

/// The bytes of a file with this value, which is an object with a version, and their checksum.
pub(crate) fn seal(value: &impl Serialize) -> (Vec<u8>, u32) {
    let json = serde_json::to_string_pretty(value).expect("it has only values that JSON can hold");
    let rest = json.strip_prefix('{').expect("it is an object");
    let checksum = crc32c::crc32c(rest.as_bytes());
    (format!("{}{rest}\n", first_line(checksum)).into_bytes(), checksum)
}

/// Reads the bytes of [`seal`], which is to be `what` in this version.
pub(crate) fn unseal<T: DeserializeOwned>(
    bytes: &[u8],
    what: &'static str,
    version: u64,
) -> Result<(T, u32), ParseError> {
    unseal_with(bytes, what, ("version", version))
}

/// The same, with the version in another field.
pub(crate) fn unseal_with<T: DeserializeOwned>(
    bytes: &[u8],
    what: &'static str,
    (name, version): (&str, u64),
) -> Result<(T, u32), ParseError> {
    let (first, rest) = bytes.split_at(bytes.len().min(first_line(0).len()));
    let expected = checksum_of(first).ok_or(Fault::Header { expected: what })?;
    let rest = rest.strip_suffix(b"\n").ok_or(Fault::Header { expected: what })?;
    let found = crc32c::crc32c(rest);
    if found != expected {
        return Err(Fault::Checksum { expected, found }.into());
    }
    // Back to the object that was written; the first line is one line of it.
    let object = [b"{", rest].concat();
    let json = |error: serde_json::Error| Fault::Json {
        line: error.line(),
        column: error.column(),
        message: error.to_string(),
    };
    let value: serde_json::Value = serde_json::from_slice(&object).map_err(json)?;
    // Before all else: another version may have other fields.
    match value.get(name).and_then(serde_json::Value::as_u64) {
        Some(found) if found == version => {}
        Some(found) => return Err(ParseError::Version(found)),
        None => return Err(field(name, "not a number", "a number").into()),
    }
    Ok((serde_json::from_slice(&object).map_err(json)?, expected))
}

/// The reason for which bytes are no sealed value.
#[derive(Debug)]
pub(crate) enum ParseError {
    Fault(Fault),
    Version(u64),
}

impl From<Fault> for ParseError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

pub(crate) fn field(field: &str, found: impl ToString, wanted: &'static str) -> Fault {
    Fault::Field { field: field.to_owned(), found: found.to_string(), wanted }
}

/// The first line of the file, up to the bytes that the checksum covers.
fn first_line(checksum: u32) -> String {
    format!("{BEFORE_CHECKSUM}{checksum:08x}\",")
}

const BEFORE_CHECKSUM: &str = "{\n  \"checksum\": \"";

fn checksum_of(line: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(line).ok()?.strip_prefix(BEFORE_CHECKSUM)?.get(..8)?;
    // No other spelling, so that there is one manifest for one content.
    u32::from_str_radix(digits, 16).ok().filter(|checksum| first_line(*checksum).as_bytes() == line)
}

/// Checksums as eight hexadecimal digits, which people compare more easily.
pub(crate) mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(checksum: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{checksum:08x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        let checksum = u32::from_str_radix(&text, 16).map_err(D::Error::custom)?;
        if format!("{checksum:08x}") != text {
            return Err(D::Error::custom("a checksum has eight digits"));
        }
        Ok(checksum)
    }
}
