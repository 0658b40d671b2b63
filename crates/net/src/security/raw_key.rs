//! One key for all members: it follows from the token, and both ends of a stream show it (RFC 7250).

use std::sync::Arc;

use tokio_rustls::rustls::client::AlwaysResolvesClientRawPublicKeys;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::sign::any_eddsa_type;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
};

use super::Token;
use super::configuration::{Configurations, client, provider, server};

/// A private key of Ed25519 in PKCS #8 (RFC 8410) is these bytes and the 32 of its seed.
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Returns how members with this token call and accept.
pub(super) fn configurations(token: &Token) -> Configurations {
    let private = [PKCS8_HEAD.as_slice(), &token.derive("tls key")].concat();
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(private)).expect("any 32 bytes are a key");
    let public = key.public_key().expect("a key of Ed25519 has a public one").into_owned();
    let shown = CertificateDer::from(public.as_ref().to_vec());
    let shown = Arc::new(CertifiedKey::new(vec![shown], key));
    let same = Arc::new(SameKey { public, provider: provider() });
    Configurations {
        client: client(
            Arc::clone(&same) as Arc<dyn ServerCertVerifier>,
            Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&shown))),
        ),
        server: server(same, Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown))),
    }
}

/// Accepts the key that this end has, and no other.
#[derive(Debug)]
struct SameKey {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl SameKey {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        // It is public: that it takes longer the more bytes are right tells nothing.
        if shown.as_ref() == self.public.as_ref() {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

/// Methods of both traits of verifiers.
macro_rules! raw_keys_alone {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    raw_keys_alone!();
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    raw_keys_alone!();
}
