//! The place of the controller as its members know it: a name or an IP address, and a port.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tracing::debug;

use crate::node::NodeError;
use crate::security::is_local;

/// Pause between two look-ups of a name that has no address yet.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The next address of a name is called when the one before has not answered for so long (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// A name has no more characters (RFC 1035, section 2.3.4).
const NAME_CHARACTERS_MAX: usize = 253;

/// A host and a port, as in `ps-0.example.org:7700`, `10.0.0.1:7700` or `[::1]:7700`. A name is looked up each time that it is called,
/// as a process that was started again may have another address.
///
/// ```
/// use libra_net::Endpoint;
///
/// let controller: Endpoint = "ps-0.example.org:7700".parse()?;
/// assert_eq!(controller.to_string(), "ps-0.example.org:7700");
/// assert_eq!("[::1]:7700".parse(), Ok(Endpoint::from("[::1]:7700".parse::<std::net::SocketAddr>()?)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Endpoint {
    host: Host,
    /// Addresses of other machines do not count.
    is_local: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(SocketAddr),
    Name { name: String, port: u16 },
}

/// The reason for which a text is no [`Endpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// There is no port.
    #[error("it has no port: write HOST:PORT")]
    NoPort,
    /// The port is no number that a port has.
    #[error("the port is none of 1 to 65535")]
    Port,
    /// An IPv6 address is not in brackets.
    #[error("an IPv6 address is written in brackets, as in [::1]:7700")]
    Brackets,
    /// The host is neither an address nor a name.
    #[error("the host is neither an IP address nor a name")]
    Host,
}

impl Endpoint {
    /// The same, but only as far as it is on this machine: addresses of others are not called.
    #[must_use]
    pub fn on_this_machine(self) -> Self {
        Self { is_local: true, ..self }
    }

    /// Looks its addresses up, again and again for so long if there are none.
    ///
    /// # Errors
    /// There are none.
    pub fn resolve_within(&self, patience: Duration) -> Result<Vec<SocketAddr>, NodeError> {
        let begun = Instant::now();
        loop {
            let found = match &self.host {
                Host::Address(address) => Ok(vec![*address]),
                Host::Name { name, port } => (name.as_str(), *port).to_socket_addrs().map(Iterator::collect),
            };
            let source = match found.and_then(|found: Vec<_>| self.checked(found)) {
                Ok(addresses) => return Ok(addresses),
                Err(error) => error,
            };
            if begun.elapsed() + RETRY_PAUSE >= patience {
                let tried = begun.elapsed();
                return Err(NodeError::Unknown { endpoint: self.clone(), tried, source });
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses = match &self.host {
            Host::Address(address) => vec![*address],
            Host::Name { name, port } => lookup_host((name.as_str(), *port)).await?.collect(),
        };
        self.checked(addresses)
    }

    /// The addresses that may be called.
    fn checked(&self, mut addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        let (found, other) = (addresses.len(), addresses.first().copied());
        addresses.retain(|address| !self.is_local || is_local(*address));
        match other.filter(|_| found > 0 && addresses.is_empty()) {
            Some(other) => {
                let error = format!("it was on this machine when this process began, and is at {other} now");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
            }
            None if addresses.is_empty() => Err(io::Error::new(io::ErrorKind::NotFound, "it has no address")),
            None => Ok(addresses),
        }
    }

    /// Returns true if its addresses may be others at another time.
    pub(crate) fn is_name(&self) -> bool {
        matches!(self.host, Host::Name { .. })
    }

    /// Calls it once, at each of its addresses; at those that something else has only if there are no others.
    pub(crate) async fn call(&self, strange: &BTreeSet<SocketAddr>) -> io::Result<TcpStream> {
        let addresses = without(self.resolve().await?, strange);
        debug!(endpoint = %self, ?addresses, "addresses are called");
        call_any(&addresses).await.map_err(|(address, error)| match self.host {
            Host::Address(_) => error,
            Host::Name { .. } => io::Error::new(error.kind(), format!("{address}: {error}")),
        })
    }
}

/// The addresses that are not strange, or all if there are no others.
fn without(mut addresses: Vec<SocketAddr>, strange: &BTreeSet<SocketAddr>) -> Vec<SocketAddr> {
    if !addresses.iter().all(|address| strange.contains(address)) {
        addresses.retain(|address| !strange.contains(address));
    }
    addresses
}

/// Calls several addresses, each a while after the one before, and returns the stream to the first that answers; or the last error.
async fn call_any(addresses: &[SocketAddr]) -> Result<TcpStream, (SocketAddr, io::Error)> {
    let mut calls = JoinSet::new();
    for (turn, address) in (0..).zip(addresses.iter().copied()) {
        calls.spawn(async move {
            tokio::time::sleep(NEXT_ADDRESS_AFTER * turn).await;
            TcpStream::connect(address).await.map_err(|error| (address, error))
        });
    }
    let mut failure = None;
    while let Some(called) = calls.join_next().await {
        match called.expect("no call panics, and none is aborted while one is waited for") {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.expect("there is an address"))
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Address(address), is_local: false }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { Err(EndpointError::Port) } else { Ok(Self::from(address)) };
        }
        let (name, port) = text.rsplit_once(':').ok_or(EndpointError::NoPort)?;
        if name.contains(':') && !name.starts_with('[') {
            return Err(EndpointError::Brackets);
        }
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.len() > NAME_CHARACTERS_MAX || !name.bytes().all(is_of_name) {
            return Err(EndpointError::Host);
        }
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(EndpointError::Port)?;
        Ok(Self { host: Host::Name { name: name.to_owned(), port }, is_local: false })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => address.fmt(formatter),
            Host::Name { name, port } => write!(formatter, "{name}:{port}"),
        }
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn texts_are_names_and_addresses_or_are_refused() {
        for text in ["a:1", "ps-0.job_1.example.org:7700", "10.0.0.1:65535", "[fe80::1]:7700"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<Endpoint>().unwrap_err();
        assert_eq!(error("localhost"), EndpointError::NoPort);
        assert_eq!(error("localhost:0"), EndpointError::Port);
        assert_eq!(error("10.0.0.1:0"), EndpointError::Port);
        assert_eq!(error("localhost:65536"), EndpointError::Port);
        assert_eq!(error("localhost:http"), EndpointError::Port);
        assert_eq!(error("::1:7700"), EndpointError::Brackets);
        assert_eq!(error(":7700"), EndpointError::Host);
        assert_eq!(error("a b:7700"), EndpointError::Host);
        assert_eq!(error("[::g]:7700"), EndpointError::Host);
        assert_eq!(error(&format!("{}:1", "a".repeat(254))), EndpointError::Host);
    }

    #[test]
    fn strange_addresses_are_called_when_there_are_no_others() {
        let [one, two] = [1, 2].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let strange = BTreeSet::from([one]);
        assert_eq!(without(vec![one, two], &strange), [two]);
        assert_eq!(without(vec![one], &strange), [one]);
        assert_eq!(without(vec![one, two], &BTreeSet::new()), [one, two]);
    }

    /// A socket that answers no call: its queue of calls is full.
    fn silent() -> (Socket, Vec<Socket>, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap();
        let caller = || {
            let caller = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            caller.set_nonblocking(true).unwrap();
            let _ = caller.connect(&address);
            caller
        };
        let callers = core::iter::repeat_with(caller).take(4).collect();
        (socket, callers, address.as_socket().unwrap())
    }

    #[tokio::test]
    async fn a_host_with_dead_addresses_and_a_live_one_is_reached() {
        let refuses = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (_socket, _callers, silent) = silent();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let live = listener.local_addr().unwrap();
        let addresses = [refuses, silent, live];
        let called = tokio::time::timeout(Duration::from_secs(2), call_any(&addresses));
        let stream = called.await.expect("it waits for no address that is silent").unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
        let alone = tokio::time::timeout(Duration::from_millis(500), call_any(&[refuses, silent])).await;
        assert!(alone.is_err(), "the silent address is not silent, and the test shows nothing");
    }

    #[test]
    fn an_endpoint_of_this_machine_is_never_called_elsewhere() {
        let [here, elsewhere] = [[127, 0, 0, 1], [192, 0, 2, 1]].map(|ip| SocketAddr::from((ip, 1)));
        let endpoint = Endpoint::from(here).on_this_machine();
        assert_eq!(endpoint.resolve_within(Duration::ZERO).unwrap(), [here]);
        let endpoint = Endpoint::from(elsewhere).on_this_machine();
        let Err(NodeError::Unknown { source, .. }) = endpoint.resolve_within(Duration::ZERO) else {
            panic!()
        };
        assert!(source.to_string().contains("192.0.2.1"), "{source}");
    }
}
