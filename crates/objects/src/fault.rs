//! Faults of requests for objects.

use object_store::Error;
use thiserror::Error as ErrorOf;

use crate::place::Kind;

/// The reason for which a request was not carried out.
#[derive(Debug, ErrorOf)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such object.
    #[error("there is no such file or directory")]
    Missing,
    /// A server refused, or did not answer after all retries.
    #[error("{reason} (after {retries} retries)")]
    Server {
        /// The last answer.
        reason: String,
        /// Attempts after the first.
        retries: u32,
    },
    /// A variable that must be the URL of a server is none.
    #[error("{variable} = {value:?}: expected a URL as http://HOST:PORT")]
    Endpoint {
        /// Its name.
        variable: String,
        /// Its value, without secrets.
        value: String,
    },
    /// The server is asked without TLS.
    #[error("plain HTTP is not allowed: set {variable}=true")]
    PlainHttp {
        /// The variable that allows it.
        variable: String,
    },
    /// No credentials were found.
    #[error("no credentials: set {variables} in the environment")]
    NoCredentials {
        /// Those of the kind of storage.
        variables: &'static str,
    },
    /// The account of the container is not known.
    #[error("no account: set AZURE_STORAGE_ACCOUNT_NAME in the environment")]
    NoAccount,
    /// The credentials do not suffice.
    #[error("the credentials do not allow it: {reason}")]
    Denied {
        /// The answer of the server.
        reason: String,
    },
    /// The server takes a request for one of another time.
    #[error(
        "the clock of this machine is not that of the server, which refuses what it signs: set it: {reason}"
    )]
    Clock {
        /// The answer of the server.
        reason: String,
    },
    /// The bucket is in another region.
    #[error("the bucket is in another region than {region}: set AWS_REGION")]
    WrongRegion {
        /// The region that was tried.
        region: String,
    },
    /// The bucket does not exist.
    #[error("there is no such bucket")]
    NoBucket,
    /// The server sends whole files only.
    #[error("the server does not serve ranges of a file: copy it to a disk or an object store")]
    NoRanges,
    /// The object is not what it was when it was listed.
    #[error("the object has changed since it was listed")]
    Changed,
    /// The operating system refused.
    #[error("{doing} failed: {source}")]
    Io {
        /// The attempt.
        doing: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl Fault {
    /// The fault behind an error of a store, after so many retries.
    pub(crate) fn of(error: &Error, retries: u32, context: &FaultContext) -> Self {
        let text = chain(error);
        let has = |known: &[&str]| known.iter().any(|known| text.contains(known));
        if has(&["NoSuchBucket", "ContainerNotFound"]) {
            return Self::NoBucket;
        }
        if has(&[REDIRECT, "PermanentRedirect", "AuthorizationHeaderMalformed"]) {
            return Self::WrongRegion { region: context.region.clone() };
        }
        if has(&MACHINE_CREDENTIALS) || has(&["Missing AccessKeyId", "Missing SecretAccessKey"]) {
            return Self::NoCredentials { variables: context.credentials() };
        }
        if has(&["Account must be specified"]) {
            return Self::NoAccount;
        }
        if has(&[PLAIN_HTTP]) {
            let prefix = context.kind.prefix().unwrap_or_default();
            return Self::PlainHttp { variable: format!("{prefix}ALLOW_HTTP") };
        }
        if has(&[NOT_PARTIAL, "Range request not supported"]) {
            return Self::NoRanges;
        }
        if has(&["RequestTimeTooSkewed", "Request date header too old"]) {
            return Self::Clock { reason: text };
        }
        if matches!(status(&text), Some(401 | 403)) {
            return Self::Denied { reason: text };
        }
        match error {
            Error::NotFound { .. } => Self::Missing,
            Error::Precondition { .. } => Self::Changed,
            _ => Self::Server { reason: text, retries },
        }
    }
}

/// The store that a request is for, as far as its faults tell of it.
#[derive(Debug, Clone)]
pub(crate) struct FaultContext {
    pub(crate) kind: Kind,
    pub(crate) region: String,
}

impl FaultContext {
    /// The variables with credentials.
    fn credentials(&self) -> &'static str {
        match self.kind {
            Kind::S3(_) => {
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket,"
            }
            Kind::Google(_) => {
                "GOOGLE_APPLICATION_CREDENTIALS=FILE, or GOOGLE_SKIP_SIGNATURE=true for a public bucket,"
            }
            Kind::Azure(_) => {
                "AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for a public container,"
            }
            Kind::Local | Kind::Http(_) => "those of the store",
        }
    }
}

/// True if another attempt may succeed. The library keeps the type of its errors private, so their text decides.
pub(crate) fn is_transient(error: &Error) -> bool {
    if !matches!(error, Error::Generic { .. }) {
        return false;
    }
    let text = chain(error);
    if [NOT_PARTIAL, REDIRECT, PLAIN_HTTP]
        .iter()
        .chain(&MACHINE_CREDENTIALS)
        .any(|known| text.contains(known))
    {
        return false;
    }
    // 501 is what a store answers that does not have the operation.
    status(&text).is_none_or(|status| status >= 500 && status != 501 || [408, 429].contains(&status))
}

/// True if a store does not have the operation.
pub(crate) fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. } | Error::NotSupported { .. })
        || status(&chain(error)) == Some(501)
}

/// The status of the answer that an error tells of.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

const NOT_PARTIAL: &str = "Received non-partial response";
const REDIRECT: &str = "Received redirect without LOCATION";
const PLAIN_HTTP: &str = "URL scheme is not allowed";
/// Parts of the URLs at which clouds have credentials for their machines: they are asked when the environment has none.
const MACHINE_CREDENTIALS: [&str; 4] =
    ["/latest/api/token", "metadata.google.internal", "/computeMetadata/", "/metadata/identity/oauth2/token"];

/// The message of an error, with those behind it that it does not repeat, without queries of URLs, which may hold signatures.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(found) = source {
        let next = found.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = found.source();
    }
    let words = text.split(' ').map(|word| match word.find("://") {
        Some(_) => word.split('?').next().unwrap_or(word),
        None => word,
    });
    in_one_line(&words.collect::<Vec<_>>().join(" "))
}

/// A message with the answer of a server in XML, of which its code and message stay, without ends of lines.
fn in_one_line(text: &str) -> String {
    let (before, answer) = match text.find("<?xml").or_else(|| text.find("<Error>")) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let element = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let known: Vec<&str> = ["Code", "Message"].into_iter().filter_map(element).collect();
    let answer = if known.is_empty() { answer.to_owned() } else { known.join(": ") };
    format!("{before}{answer}").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_without_credentials_name_those_of_the_kind() {
        for (kind, url, variables) in [
            (Kind::S3("b".to_owned()), "latest/api/token", "AWS_ACCESS_KEY_ID and "),
            (
                Kind::Google("b".to_owned()),
                "computeMetadata/v1/instance",
                "GOOGLE_APPLICATION_CREDENTIALS=FILE, ",
            ),
            (Kind::Azure("b".to_owned()), "metadata/identity/oauth2/token", "AZURE_STORAGE_ACCOUNT_KEY, "),
        ] {
            let source = format!("GET http://169.254.169.254/{url}: non-2xx status code: 403 Forbidden");
            let error = Error::Generic { store: "cloud", source: source.into() };
            assert!(!is_transient(&error));
            let context = FaultContext { kind, region: String::new() };
            let fault = Fault::of(&error, 0, &context).to_string();
            assert!(fault.starts_with(&format!("no credentials: set {variables}")), "{fault}");
        }
    }
}
