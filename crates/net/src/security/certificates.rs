//! Certificates of a certification authority of the operator's own, with roles as names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use webpki::EndEntityCert;

use super::configuration::{Configurations, client, provider, server};
use super::roles::Roles;

/// The reason for which certificates cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file is not what it should be.
    #[error("cannot read {what} in {}", path.display())]
    File {
        /// Its expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: pem::Error,
    },
    /// A file has nothing of its kind.
    #[error("{} has no certificate", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Certificate, key or authority cannot be used.
    #[error("{} cannot be used", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Error,
    },
    /// The certificate names no role.
    #[error("the certificate in {} names no role: one of its URIs (SAN) must be libra://role/controller, server, switch or worker", path.display())]
    NoRole {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the files of an operator (PEM) and returns how members with them call and accept.
pub(super) fn configurations(
    authority: &Path,
    certificate: &Path,
    key: &Path,
) -> Result<Configurations, CertificateError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| CertificateError::Unusable { path, source }
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(authority)? {
        roots.add(root).map_err(unusable(authority))?;
    }
    let chain = certificates(certificate)?;
    if roles_of(&chain) == Roles::NONE {
        return Err(CertificateError::NoRole { path: certificate.to_owned() });
    }
    let private = PrivateKeyDer::from_pem_file(key);
    let private =
        private.map_err(|source| CertificateError::File { what: "a key", path: key.to_owned(), source })?;
    let shown = CertifiedKey::from_der(chain, private, &provider()).map_err(unusable(key))?;
    let shown = Arc::new(SingleCertAndKey::from(shown));
    let roots = Arc::new(roots);
    let no_verifier = |error: VerifierBuilderError| unusable(authority)(Error::General(error.to_string()));
    let callers = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider()).build();
    let callers = callers.map_err(no_verifier)?;
    let signatures = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build();
    let signatures = signatures.map_err(no_verifier)?;
    let called = Arc::new(OfAuthority { roots, signatures, provider: provider() });
    let shown_by_server = Arc::clone(&shown);
    Ok(Configurations { client: client(called, shown), server: server(callers, shown_by_server) })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let file = |source| CertificateError::File { what: "a certificate", path: path.to_owned(), source };
    let read: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(file)?.collect::<Result<_, _>>().map_err(file)?;
    if read.is_empty() {
        return Err(CertificateError::Empty { path: path.to_owned() });
    }
    Ok(read)
}

/// Returns the roles that a chain of certificates names.
pub(super) fn roles_of(chain: &[CertificateDer<'_>]) -> Roles {
    let Some(Ok(certificate)) = chain.first().map(EndEntityCert::try_from) else { return Roles::NONE };
    Roles::in_names(certificate.valid_uri_names())
}

/// Accepts servers whose certificate is signed by the authority, whatever address they are called by.
#[derive(Debug)]
struct OfAuthority {
    roots: Arc<RootCertStore>,
    signatures: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OfAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}
