//! JSON documents: what every one begins with, and how it is written.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Version of the keys of all documents. It grows when a key changes its name or meaning, or goes.
pub const SCHEMA: u32 = 2;

/// A document: its schema, then its content, which is a struct or a map.
#[derive(Debug, Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// Returns a document as text.
///
/// # Errors
/// The content is neither a struct nor a map, or has a value that JSON cannot hold.
pub fn to_text(content: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(&Document { schema: SCHEMA, content })?)
}

/// Writes a document to a file.
///
/// # Errors
/// Those of [`to_text`], and that the file cannot be written.
pub fn write_json(path: &Path, content: &impl Serialize) -> Result<()> {
    let text = to_text(content)?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    struct Content {
        answer: u64,
    }

    #[test]
    fn the_schema_is_the_first_key_of_a_document() {
        let expected = "{\n  \"schema\": 2,\n  \"answer\": 42\n}";
        assert_eq!(to_text(&Content { answer: 42 }).unwrap(), expected);
        assert_eq!(to_text(&json!({ "answer": 42 })).unwrap(), expected);
        assert!(to_text(&[1, 2]).is_err(), "a list has no keys");
    }
}
