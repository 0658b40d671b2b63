//! Settings of object stores, from the environment.

use std::collections::BTreeMap;
use std::fmt;

/// Settings and credentials of object stores: variables of an environment, as `AWS_REGION`. Values are never printed.
#[derive(Clone)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(text).collect()
    }

    /// The variables that begin with one of the prefixes, in lower case.
    pub(crate) fn settings(&self, prefixes: &[&str]) -> impl Iterator<Item = (String, &String)> {
        let has = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.0
            .iter()
            .filter(move |(name, _)| has(name))
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
    }

    /// The region in which a bucket is looked for.
    pub(crate) fn region(&self) -> String {
        let region = self.0.get("AWS_REGION").or_else(|| self.0.get("AWS_DEFAULT_REGION"));
        region.cloned().unwrap_or_else(|| "us-east-1".to_owned())
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.keys()).finish()
    }
}
