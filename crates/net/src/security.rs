//! Identity of the other end of a stream: verified by TLS 1.3, or by nothing on a machine of one's own.
//!
//! With a [`Token`] both ends show one key that follows from it, as a raw public key (RFC 7250): there are no names, no dates
//! and no files, and a controller that is started again needs nothing but the token. Who has the token may play any role. With
//! certificates of an operator's authority a peer may play the roles that its certificate names.

mod certificates;
mod configuration;
mod environment;
mod raw_key;
pub(crate) mod roles;
mod token;

use core::fmt;
use core::net::IpAddr;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use libra_proto::Callee;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError as Verdict, ClientConfig, Error, InvalidMessage, PeerIncompatible,
    ServerConfig,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

pub use self::certificates::CertificateError;
use self::configuration::Configurations;
pub use self::environment::{TOKEN_VARIABLE, hide_token};
use self::roles::{Role, Roles};
pub use self::token::{Token, TokenError};
use crate::endpoint::Endpoint;
use crate::stream::{Buffered, Stream, buffered};

const TOKEN_AND_CERTIFICATE: &str = "one end has a token, the other a certificate";

/// Protection of the streams of a member. All members of a cluster need the same.
#[derive(Clone, Default)]
pub struct Security(Option<Arc<Tls>>);

/// Both ends of protected streams.
struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    identity: Identity,
}

/// The proof of what a peer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
    Token,
    Certificate,
}

impl Security {
    /// None: any process that reaches a port may join, and one on the path may read and change messages.
    pub const NONE: Self = Self(None);

    /// Members with the same token.
    pub fn with_token(token: &Token) -> Self {
        Self::new(raw_key::configurations(token), Identity::Token)
    }

    /// Members with the token in the variable `LIBRA_TOKEN`; no protection if it is not set or empty.
    ///
    /// # Errors
    /// The variable has something else.
    pub fn from_environment() -> Result<Self, TokenError> {
        let text = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
        let token = Token::of_variable(&text.to_string_lossy())?;
        Ok(token.map_or(Self::NONE, |token| Self::with_token(&token)))
    }

    /// Members with certificates of one authority. Files are in PEM; the key is that of the certificate, which names roles as URIs,
    /// `libra://role/worker`.
    ///
    /// # Errors
    /// A file cannot be read, or does not fit the others.
    pub fn with_certificates(
        authority: &Path,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, CertificateError> {
        let configurations = certificates::configurations(authority, certificate, key)?;
        Ok(Self::new(configurations, Identity::Certificate))
    }

    fn new(Configurations { client, server }: Configurations, identity: Identity) -> Self {
        let connector = TlsConnector::from(Arc::new(client));
        let acceptor = TlsAcceptor::from(Arc::new(server));
        Self(Some(Arc::new(Tls { connector, acceptor, identity })))
    }

    /// Identifies the peer that was called, which must be of this role.
    pub(crate) async fn call(&self, socket: TcpStream, role: Role) -> io::Result<Stream> {
        let Some(tls) = &self.0 else { return Ok(Stream::Plain(socket)) };
        // Not sent, and not verified.
        let name = ServerName::from(IpAddr::from([127, 0, 0, 1]));
        let stream = tls.connector.connect(name, buffered(socket)).await;
        let stream = TlsStream::from(stream.map_err(|error| refusal(&error, tls.identity))?);
        let roles = roles_of(&stream, tls.identity);
        if !roles.has(role) {
            let error = format!("its certificate is that of {roles}, and it was called as the {role}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        Ok(Stream::Secure(Box::new(stream)))
    }

    /// Returns true if streams are protected.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the end that identifies callers; none if they are not identified.
    pub(crate) fn acceptor(&self) -> Option<&TlsAcceptor> {
        self.0.as_ref().map(|tls| &tls.acceptor)
    }

    /// Returns what a caller may be.
    pub(crate) fn roles_of(&self, stream: &TlsStream<Buffered>) -> Roles {
        self.0.as_ref().map_or(Roles::NONE, |tls| roles_of(stream, tls.identity))
    }

    /// Settings of threads that call; none if streams are not protected.
    pub(crate) fn client(&self) -> Option<Arc<ClientConfig>> {
        self.0.as_ref().map(|tls| Arc::clone(tls.connector.config()))
    }

    /// Settings of threads that are called.
    pub(crate) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.0.as_ref().map(|tls| Arc::clone(tls.acceptor.config()))
    }

    /// Returns the reason why a peer was not identified, in words for a person.
    pub(crate) fn refusal(&self, error: &io::Error) -> io::Error {
        refusal(error, self.0.as_ref().map_or(Identity::Token, |tls| tls.identity))
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Security").field(&self.0.as_ref().map(|tls| tls.identity)).finish()
    }
}

/// Two are the same if one was cloned from the other.
impl PartialEq for Security {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Security {}

fn roles_of(stream: &TlsStream<Buffered>, identity: Identity) -> Roles {
    match identity {
        Identity::Token => Roles::ALL,
        Identity::Certificate => {
            stream.get_ref().1.peer_certificates().map_or(Roles::NONE, certificates::roles_of)
        }
    }
}

/// The other end has closed a stream while the ends identified each other: it refuses that of this end, or was killed.
#[derive(Debug, thiserror::Error)]
#[error("it closed the stream instead of showing its {shown}: {missing}, or another one")]
struct BrokenOff {
    shown: &'static str,
    missing: &'static str,
}

/// Returns true if a call has failed since the other end has closed the stream, without a word.
pub(crate) fn is_broken_off(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<BrokenOff>())
}

/// Says in the words of the user what went wrong while the ends of a stream identified each other.
fn refusal(error: &io::Error, identity: Identity) -> io::Error {
    let (shown, missing) = match identity {
        Identity::Token => ("token", "it has no token"),
        Identity::Certificate => ("certificate", "it has no certificate"),
    };
    let of_tls = error_of_tls(error);
    let text = match of_tls {
        None if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            let broken_off = BrokenOff { shown, missing };
            return io::Error::new(io::ErrorKind::PermissionDenied, broken_off);
        }
        None => error.to_string(),
        Some(Error::InvalidCertificate(Verdict::ApplicationVerificationFailure)) => {
            "it has another token".to_owned()
        }
        Some(Error::InvalidCertificate(Verdict::UnknownIssuer | Verdict::BadSignature)) => {
            "its certificate is of another authority".to_owned()
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            format!("{missing}: it does not speak TLS")
        }
        Some(Error::NoCertificatesPresented) => missing.to_owned(),
        Some(Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired | PeerIncompatible::Tls12NotOfferedOrEnabled,
        )) => "it offers no TLS 1.3".to_owned(),
        Some(Error::PeerIncompatible(
            PeerIncompatible::IncorrectCertificateTypeExtension
            | PeerIncompatible::UnsolicitedCertificateTypeExtension,
        )) => TOKEN_AND_CERTIFICATE.to_owned(),
        Some(Error::AlertReceived(alert)) => words_of(*alert),
        Some(error) => error.to_string(),
    };
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Returns the reason for which the other end has refused this one, if it did. Who calls hears of it only when its own part of the handshake
/// is over (RFC 8446, section 4.4.2): the stream seems open.
pub(crate) fn refusal_of_peer(error: &io::Error) -> Option<String> {
    match error_of_tls(error) {
        Some(Error::AlertReceived(alert)) => Some(words_of(*alert)),
        _ => None,
    }
}

fn error_of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|error| error.downcast_ref::<Error>())
}

fn words_of(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::AccessDenied => "it has another token, and refuses that of this end",
        // Of an authority that it does not know, or that has the same name and another key.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it refuses the certificate of this end, which is of another authority"
        }
        AlertDescription::CertificateExpired => "it refuses the certificate of this end, which has expired",
        // Members of one version have the suites and groups in common.
        AlertDescription::HandshakeFailure => TOKEN_AND_CERTIFICATE,
        alert => return Error::AlertReceived(alert).to_string(),
    };
    text.to_owned()
}

/// Returns true if only who uses this machine reaches an address.
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// What a member knows of those that it calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls {
    pub(crate) security: Security,
    pub(crate) controller: Option<Endpoint>,
}

impl Calls {
    /// Returns the place and the role of a process.
    ///
    /// # Panics
    /// A process that knows no controller calls it.
    pub(crate) fn find(&self, callee: Callee) -> (Endpoint, Role) {
        match callee {
            Callee::Controller => {
                let controller = self.controller.clone();
                (controller.expect("a process that calls a controller is a member"), Role::Controller)
            }
            Callee::Server(address) => (address.into(), Role::Server),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
