//! `dataset.toml`: the roles of the columns.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Fault;

/// Name of the file beside the data.
pub const FILE_NAME: &str = "dataset.toml";

/// Numeric columns of Criteo's logs.
pub(crate) const CRITEO_NUMBERS: usize = 13;
/// Categories of Criteo's logs.
pub(crate) const CRITEO_CATEGORIES: usize = 26;

/// Roles of the columns of a data set; columns that are not named are not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The rule by which values of categories become ids.
    #[serde(default)]
    pub keys: Keys,
    /// The column of labels, 0 or 1.
    pub label: String,
    /// Weights of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Times of rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Numeric columns.
    #[serde(default)]
    pub numbers: Vec<String>,
    /// Categories: one id a row, or a list of ids.
    #[serde(default)]
    pub categories: Vec<Category>,
}

/// Meaning of ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// An id is the value, of one category; of a text it is a hash. Rows of parameters come from a vocabulary.
    #[default]
    Values,
    /// An id is a hash of category and value: 64 bits, a key of parameters by itself, without a first pass over the data.
    Hashed,
}

/// A column of ids. In `dataset.toml` it is a name, or a table with `name` and `text`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "CategoryToml", into = "CategoryToml")]
pub struct Category {
    /// Name of the column.
    pub name: String,
    /// Meaning of texts in it, if it has texts.
    pub text: Text,
}

/// Meaning of texts in a category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Text {
    /// Any text.
    #[default]
    Any,
    /// A number of up to 16 hexadecimal digits.
    Hex,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a name, or a table of name and text, which is any or hex")]
enum CategoryToml {
    Name(String),
    Table(CategoryTable),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CategoryTable {
    name: String,
    #[serde(default)]
    text: Text,
}

impl From<CategoryToml> for Category {
    fn from(toml: CategoryToml) -> Self {
        match toml {
            CategoryToml::Name(name) => Self { name, text: Text::Any },
            CategoryToml::Table(CategoryTable { name, text }) => Self { name, text },
        }
    }
}

impl From<Category> for CategoryToml {
    fn from(category: Category) -> Self {
        match category {
            Category { name, text: Text::Any } => Self::Name(name),
            Category { name, text } => Self::Table(CategoryTable { name, text }),
        }
    }
}

impl Description {
    /// The columns of Criteo's logs: `label`, `I1` to `I13`, `C1` to `C26`.
    pub fn criteo() -> Self {
        let category = |number| Category { name: format!("C{number}"), text: Text::Hex };
        Self {
            keys: Keys::Values,
            label: "label".to_owned(),
            weight: None,
            time: None,
            numbers: (1..=CRITEO_NUMBERS).map(|number| format!("I{number}")).collect(),
            categories: (1..=CRITEO_CATEGORIES).map(category).collect(),
        }
    }

    /// Parses the text of a `dataset.toml`.
    ///
    /// # Errors
    /// The text is no TOML, has unknown keys, or names a column twice. The error is one line, with the line of the text.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let bad = |reason: String| Fault::BadDescription { reason };
        let description: Self = toml::from_str(text).map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(start).filter(|&byte| byte == b'\n').count();
            let message = error.message().lines().collect::<Vec<_>>().join(": ");
            bad(format!("line {line}: {message}"))
        })?;
        let mut seen = BTreeSet::new();
        for name in description.names() {
            if !seen.insert(name) {
                return Err(bad(format!("column {name} is named twice")));
            }
        }
        Ok(description)
    }

    /// Returns the text of a `dataset.toml`.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("names and words are TOML")
    }

    /// Names of all columns: label, weight, time, numbers, categories.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let first = [Some(&self.label), self.weight.as_ref(), self.time.as_ref()].into_iter().flatten();
        let categories = self.categories.iter().map(|category| &category.name);
        first.chain(&self.numbers).chain(categories).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_comes_back_from_its_text() {
        let mut description = Description::criteo();
        description.keys = Keys::Hashed;
        description.time = Some("ts".to_owned());
        description.categories.push(Category { name: "tags".to_owned(), text: Text::Any });
        assert_eq!(Description::parse(&description.to_toml()).unwrap(), description);
    }

    #[test]
    fn wrong_descriptions_are_refused_with_the_key() {
        for (text, shown) in [
            ("label = \"y\"\nnumber = []", "line 2: unknown field `number`"),
            ("label = \"y\"\n\nnumbers = [\"x", "line 3: "),
            ("label = \"y\"\ncategories = [3]", "line 2: expected a name, or a table"),
            ("numbers = []", "label"),
            ("label = \"y\"\nnumbers = [\"y\"]", "column y is named twice"),
            ("label = \"y\"\nkeys = \"rows\"", "rows"),
        ] {
            let error = Description::parse(text).unwrap_err().to_string();
            assert!(error.contains(shown) && error.lines().count() == 1, "{error}");
        }
    }
}
