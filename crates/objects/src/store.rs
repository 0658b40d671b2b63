//! Clients of the kinds of storage.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::{ClientOptions, Error, ObjectStore, RetryConfig};

use crate::environment::Environment;
use crate::place::Kind;

/// Time for a request with its answer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client, and the same as one that takes an object in parts, if it does.
pub(crate) type Client = (Arc<dyn ObjectStore>, Option<Arc<dyn MultipartStore>>);

pub(crate) fn client(kind: &Kind, environment: &Environment) -> Result<Client, Error> {
    // The provider may have been installed by another part of the process: it is the same one.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    // Attempts are counted where requests are sent.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let client = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(REQUEST_TIMEOUT);
    /// Applies the variables that the store knows; others with its prefix are of other programs.
    macro_rules! configured {
        ($builder:expr) => {
            environment.settings(kind).fold($builder, |builder, (name, value)| match name.parse() {
                Ok(name) => builder.with_config(name, value),
                Err(_) => builder,
            })
        };
    }
    Ok(match kind {
        Kind::Local => (Arc::new(LocalFileSystem::new().with_fsync(true)), None),
        Kind::S3(bucket) => {
            let builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
            // TLS protects what is sent; to sign it, too, would take both ends a hash of all bytes.
            let builder = builder.with_unsigned_payload(true);
            in_parts(configured!(builder).with_bucket_name(bucket).build()?)
        }
        Kind::Google(bucket) => {
            let builder = GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
            in_parts(configured!(builder).with_bucket_name(bucket).build()?)
        }
        Kind::Azure(container) => {
            let builder = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
            in_parts(configured!(builder).with_container_name(container).build()?)
        }
        Kind::Http(url) => {
            let client = client.with_allow_http(true);
            let builder = HttpBuilder::new().with_client_options(client).with_retry(retry);
            (Arc::new(builder.with_url(url).build()?), None)
        }
    })
}

fn in_parts(store: impl ObjectStore + MultipartStore) -> Client {
    let store = Arc::new(store);
    (store.clone(), Some(store))
}
