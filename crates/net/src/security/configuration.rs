//! The settings that both ways to identify a peer have in common: TLS 1.3 alone, no resumption, no early data.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::client::{ResolvesClientCert, Resumption};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{CipherSuite, ClientConfig, ServerConfig};

/// Name of what is spoken inside (ALPN, RFC 7301). Its versions are told apart by `Join`, which can say what differs.
const PROTOCOL: &[u8] = b"libra";

/// The two ends of streams.
#[derive(Debug)]
pub(super) struct Configurations {
    pub(super) client: ClientConfig,
    pub(super) server: ServerConfig,
}

/// The library of cryptography, chosen here and nowhere else. AES-128-GCM is first: processors have instructions for it.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

pub(super) fn client(
    verifier: Arc<dyn ServerCertVerifier>,
    shown: Arc<dyn ResolvesClientCert>,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has suites of TLS 1.3");
    let mut client =
        builder.dangerous().with_custom_certificate_verifier(verifier).with_client_cert_resolver(shown);
    client.resumption = Resumption::disabled();
    // Names are not verified: members are called by address, and known by key or role.
    client.enable_sni = false;
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client
}

pub(super) fn server(
    verifier: Arc<dyn ClientCertVerifier>,
    shown: Arc<dyn ResolvesServerCert>,
) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has suites of TLS 1.3");
    let mut server = builder.with_client_cert_verifier(verifier).with_cert_resolver(shown);
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server
}
