//! Files of servers: object stores, and HTTP.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::{Counters, Environment, FileInfo, Found};
use crate::error::{At, DataError, Fault};
use crate::place::{Kind, Place};

/// Attempts after the first one of a request: about 25 s of waiting.
const RETRIES: u32 = 8;
/// Time until the first retry; it doubles.
const BACKOFF: Duration = Duration::from_millis(100);
/// Time for a request with its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A store behind a network, and the loop that waits for it. Callers wait, so they must not be tasks of another loop.
#[derive(Debug)]
pub(super) struct Remote {
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
    region: String,
    kind: Kind,
    prefix: String,
    retries: u32,
}

impl Remote {
    pub(super) fn open(
        place: &Place,
        environment: &Environment,
        retries: Option<u32>,
    ) -> Result<Self, DataError> {
        // The provider may have been installed by another part of the process: it is the same one.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let build = || store(&place.kind, environment);
        let store = build().map_err(|error| place.at().error(refused(&error, "")))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| place.at().error(Fault::io("starting a loop", error)))?;
        let region = environment.0.get("AWS_REGION").or_else(|| environment.0.get("AWS_DEFAULT_REGION"));
        let region = region.cloned().unwrap_or_else(|| "us-east-1".to_owned());
        let (kind, prefix) = (place.kind.clone(), place.name_of(""));
        Ok(Self { store, runtime, region, kind, prefix, retries: retries.unwrap_or(RETRIES) })
    }

    fn info(&self, meta: &ObjectMeta) -> FileInfo {
        let version = meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_string());
        let path = meta.location.to_string();
        FileInfo { name: format!("{}{path}", self.prefix), path, bytes: meta.size, version }
    }

    pub(super) fn list(&self, place: &Place, counters: &Counters) -> Result<Found, DataError> {
        if place.pattern.is_none() && !place.path.is_empty() {
            let path = Path::from(place.path.as_str());
            let head = self.request(counters, || self.store.head(&path));
            match head {
                Ok(meta) => return Ok(Found::File(self.info(&meta))),
                Err((Error::NotFound { .. }, _)) if !matches!(self.kind, Kind::Http(_)) => {}
                Err(failure) => return Err(place.at().error(self.fault(failure))),
            }
        }
        if matches!(self.kind, Kind::Http(_)) {
            return Err(place
                .at()
                .error(Fault::BadPlace { reason: "a server of HTTP lists no directories" }));
        }
        let prefix = (!place.path.is_empty()).then(|| Path::from(place.path.as_str()));
        let listed = self.request(counters, || {
            let stream = self.store.list(prefix.as_ref());
            async { futures_util::TryStreamExt::try_collect::<Vec<_>>(stream).await }
        });
        let listed = listed.map_err(|failure| place.at().error(self.fault(failure)))?;
        if listed.is_empty() && place.pattern.is_none() {
            return Err(place.at().error(Fault::Missing));
        }
        Ok(Found::Files(listed.iter().map(|meta| self.info(meta)).collect()))
    }

    pub(super) fn read_beside(
        &self,
        place: &Place,
        name: &str,
        counters: &Counters,
    ) -> Result<Option<Bytes>, DataError> {
        let directory = match crate::place::Format::of_listed(&place.path) {
            Some(_) if place.pattern.is_none() => {
                place.path.rsplit_once('/').map_or("", |(parent, _)| parent)
            }
            _ => &place.path,
        };
        let path = Path::from(directory).join(name);
        let read = self.request(counters, || async { self.store.get(&path).await?.bytes().await });
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err((Error::NotFound { .. } | Error::PermissionDenied { .. }, _)) => Ok(None),
            Err(failure) => Err(At::file(place.name_of(path.as_ref())).error(self.fault(failure))),
        }
    }

    pub(super) fn read(
        &self,
        info: &FileInfo,
        range: Range<u64>,
        counters: &Counters,
    ) -> Result<Bytes, DataError> {
        let path = Path::from(info.path.as_str());
        let is_tag = info.version.contains('"');
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: is_tag.then(|| info.version.clone()),
            ..GetOptions::default()
        };
        let read = self.request(counters, || async {
            let answer = self.store.get_opts(&path, options.clone()).await?;
            // A server may ignore the condition.
            let changed = answer.meta.e_tag.as_ref().is_some_and(|tag| is_tag && *tag != info.version);
            if changed || answer.meta.size != info.bytes {
                let source = "the file has another size or ETag".into();
                return Err(Error::Precondition { path: info.name.clone(), source });
            }
            let bytes = answer.bytes().await?;
            if bytes.len() as u64 != range.end - range.start {
                let source = "the answer is shorter than the range".into();
                return Err(Error::Generic { store: "HTTP", source });
            }
            Ok(bytes)
        });
        read.map_err(|failure| info.at().error(self.fault(failure)))
    }

    /// Sends a request until it is answered, or the retries are used up.
    fn request<T, F>(&self, counters: &Counters, attempt: impl Fn() -> F) -> Result<T, (Error, u32)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.runtime.block_on(async {
            let mut retries = 0;
            loop {
                Counters::add(&counters.requests, 1);
                let answer = timeout(REQUEST_TIMEOUT, attempt()).await.unwrap_or_else(|_| {
                    Err(Error::Generic { store: "HTTP", source: "no answer within 60 s".into() })
                });
                match answer {
                    Ok(answer) => return Ok(answer),
                    Err(error) if retries == self.retries || !is_transient(&error) => {
                        return Err((error, retries));
                    }
                    Err(_) => {
                        sleep(BACKOFF * 2u32.pow(retries)).await;
                        retries += 1;
                        Counters::add(&counters.retries, 1);
                    }
                }
            }
        })
    }

    fn fault(&self, (error, retries): (Error, u32)) -> Fault {
        match refused(&error, &self.region) {
            Fault::Server { reason, .. } => Fault::Server { reason, retries },
            fault => fault,
        }
    }
}

fn store(kind: &Kind, environment: &Environment) -> Result<Arc<dyn ObjectStore>, Error> {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let client = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(REQUEST_TIMEOUT);
    /// Applies the variables that the store knows; others with its prefix are of other programs.
    macro_rules! configured {
        ($builder:expr, $prefixes:expr) => {
            environment.settings($prefixes).fold($builder, |builder, (name, value)| match name.parse() {
                Ok(name) => builder.with_config(name, value),
                Err(_) => builder,
            })
        };
    }
    Ok(match kind {
        Kind::Local => unreachable!("local files have no store"),
        Kind::S3(bucket) => {
            let builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
            Arc::new(configured!(builder, &["AWS_"]).with_bucket_name(bucket).build()?)
        }
        Kind::Google(bucket) => {
            let builder = GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
            Arc::new(configured!(builder, &["GOOGLE_"]).with_bucket_name(bucket).build()?)
        }
        Kind::Azure(container) => {
            let builder = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
            Arc::new(configured!(builder, &["AZURE_"]).with_container_name(container).build()?)
        }
        Kind::Http(url) => {
            let client = client.with_allow_http(true);
            Arc::new(HttpBuilder::new().with_client_options(client).with_retry(retry).with_url(url).build()?)
        }
    })
}

/// True if another attempt may succeed. The library keeps the type of its errors private, so their text decides.
fn is_transient(error: &Error) -> bool {
    if !matches!(error, Error::Generic { .. }) {
        return false;
    }
    let text = chain(error);
    if [NOT_PARTIAL, REDIRECT].iter().chain(&MACHINE_CREDENTIALS).any(|known| text.contains(known)) {
        return false;
    }
    let status =
        text.split_once("non-2xx status code: ").and_then(|(_, rest)| rest.get(..3)?.parse::<u16>().ok());
    status.is_none_or(|status| status >= 500 || [408, 429].contains(&status))
}

/// The status of the answer that an error tells of.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

const NOT_PARTIAL: &str = "Received non-partial response";
const REDIRECT: &str = "Received redirect without LOCATION";
/// Parts of the URLs at which clouds have credentials for their machines: they are asked when the environment has none.
const MACHINE_CREDENTIALS: [&str; 3] =
    ["/latest/api/token", "metadata.google.internal", "/metadata/identity/oauth2/token"];

/// The fault behind an error.
fn refused(error: &Error, region: &str) -> Fault {
    let text = chain(error);
    if text.contains("NoSuchBucket") || text.contains("ContainerNotFound") {
        return Fault::NoBucket;
    }
    if [REDIRECT, "PermanentRedirect", "AuthorizationHeaderMalformed"]
        .iter()
        .any(|known| text.contains(known))
    {
        return Fault::WrongRegion { region: region.to_owned() };
    }
    if MACHINE_CREDENTIALS.iter().any(|known| text.contains(known)) {
        return Fault::NoCredentials;
    }
    if [NOT_PARTIAL, "Range request not supported"].iter().any(|known| text.contains(known)) {
        return Fault::NoRanges;
    }
    if matches!(status(&text), Some(401 | 403)) {
        return Fault::Denied { reason: text };
    }
    match error {
        Error::NotFound { .. } => Fault::Missing,
        Error::Precondition { .. } => Fault::Changed,
        _ => Fault::Server { reason: text, retries: 0 },
    }
}

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
    words.collect::<Vec<_>>().join(" ")
}
