//! Settings of object stores, from the environment.

use std::collections::BTreeMap;
use std::fmt;

use url::Url;

use crate::fault::Fault;
use crate::place::{Kind, without_secrets};

/// Variables with the URL of a server. The client of a store panics in its first request if one is no URL.
const ENDPOINTS: [&str; 10] = [
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_METADATA_ENDPOINT",
    "AZURE_ENDPOINT",
    "AZURE_IDENTITY_ENDPOINT",
    "AZURE_MSI_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_BASE_URL",
];

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

    /// The variables for a kind of storage, in lower case. An endpoint that is empty is none.
    pub(crate) fn settings(&self, kind: &Kind) -> impl Iterator<Item = (String, &String)> {
        let is_unset = |name: &str, value: &str| value.is_empty() && is_endpoint(name);
        self.of(kind)
            .filter(move |(name, value)| !is_unset(name, value))
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
    }

    /// Looks that each endpoint for a kind of storage is a URL.
    ///
    /// # Errors
    /// One is not.
    pub(crate) fn check_endpoints(&self, kind: &Kind) -> Result<(), Fault> {
        let is_url = |value: &str| {
            let url = Url::parse(value).ok();
            let is_server = |url: Url| matches!(url.scheme(), "http" | "https") && url.has_host();
            url.is_some_and(is_server) && !value.contains(char::is_whitespace)
        };
        let mut endpoints = self.of(kind).filter(|(name, value)| is_endpoint(name) && !value.is_empty());
        match endpoints.find(|(_, value)| !is_url(value)) {
            Some((name, value)) => {
                // One without a scheme may have a password, too.
                let host = value.rsplit('@').next().filter(|_| !value.contains("://"));
                let value = without_secrets(host.unwrap_or(value));
                Err(Fault::Endpoint { variable: name.clone(), value })
            }
            None => Ok(()),
        }
    }

    fn of(&self, kind: &Kind) -> impl Iterator<Item = (&String, &String)> {
        let prefix = kind.prefix();
        self.0.iter().filter(move |(name, _)| prefix.is_some_and(|prefix| name.starts_with(prefix)))
    }

    /// The region in which a bucket is looked for.
    pub(crate) fn region(&self) -> String {
        let region = self.0.get("AWS_REGION").or_else(|| self.0.get("AWS_DEFAULT_REGION"));
        region.cloned().unwrap_or_else(|| "us-east-1".to_owned())
    }
}

fn is_endpoint(name: &str) -> bool {
    ENDPOINTS.iter().any(|endpoint| name.eq_ignore_ascii_case(endpoint))
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
