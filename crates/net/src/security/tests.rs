//! Streams between members with the same token or authority, and with others.

use core::time::Duration;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use libra_proto::{Callee, Join, Keys, Kind, LinkEvent, Message, Values};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::door::{self, Callers, Door, Entrance, Tally};
use crate::links::{Input, Links};

/// A controller's port.
struct House {
    door: Door,
    tally: Arc<Tally>,
    address: SocketAddr,
}

impl House {
    async fn new(security: Security) -> Self {
        Self::at(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), security)
    }

    fn at(listener: TcpListener, security: Security) -> Self {
        let (address, tally) = (listener.local_addr().unwrap(), Arc::<Tally>::default());
        let entrance = Entrance::Listener(listener, Callers::Members, security);
        Self { door: Door::open(entrance, Arc::clone(&tally)), tally, address }
    }

    /// Waits until a stream is turned away. Returns why.
    async fn turned_away(&mut self) -> String {
        loop {
            if let Some(strangers) = self.tally.take() {
                return strangers.reason;
            }
            tokio::select! {
                _ = self.door.next() => panic!("it is let in"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
    }
}

fn join(kind: Kind) -> Message {
    Message::Join(Join { kind, ..door::tests::join() })
}

fn member(house: &House, security: Security) -> Links {
    let calls = Calls { security, controller: Some(house.address.into()) };
    let mut links = Links::new(Duration::from_secs(5)).with_calls(calls);
    links.connect(libra_proto::Link(0), Callee::Controller);
    links
}

async fn event(links: &mut Links) -> LinkEvent {
    let input = tokio::time::timeout(Duration::from_secs(10), links.next()).await;
    match input.expect("something happens").1 {
        Input::Event(event) => event,
        Input::Message(message) => panic!("{message:?}"),
    }
}

/// The reason for which a member's stream was closed.
async fn closed(links: &mut Links) -> String {
    loop {
        match event(links).await {
            LinkEvent::Opened { .. } => {}
            LinkEvent::Closed { reason } | LinkEvent::Refused { reason } => {
                // Without the place that was called, if it was never open.
                let called = reason.split_once(": ").filter(|(place, _)| place.parse::<SocketAddr>().is_ok());
                return called.map_or(reason.as_str(), |(_, reason)| reason).to_owned();
            }
        }
    }
}

fn token() -> Security {
    Security::with_token(&Token::random().unwrap())
}

/// A member joins, and messages of all sizes go both ways.
async fn converse(ours: Security, theirs: Security) {
    let mut house = House::new(ours).await;
    let mut member = member(&house, theirs);
    assert!(matches!(event(&mut member).await, LinkEvent::Opened { .. }));
    member.send(libra_proto::Link(0), &join(Kind::Worker));
    let caller = tokio::time::timeout(Duration::from_secs(5), house.door.next()).await.expect("it is let in");
    let mut controller = Links::new(Duration::ZERO);
    controller.accept(caller);
    let (link, _) = controller.next().await;
    controller.admit(link, libra_proto::MESSAGE_BYTES_MAX);
    assert!(matches!(controller.next().await.1, Input::Message(Message::Join(_))));
    for values in [1, 1000, 70_000, 3_000_000] {
        let keys: Vec<u64> = (0..values).collect();
        member
            .send(libra_proto::Link(0), &Message::Pull { number: values, keys: Keys::from(keys.as_slice()) });
        let Input::Message(Message::Pull { number, keys: read }) = controller.next().await.1 else {
            panic!()
        };
        assert_eq!((number, read.len()), (values, keys.len()));
        let answer: Vec<f32> = keys.iter().map(|key| *key as f32).collect();
        controller.send(link, &Message::Pulled { number, values: Values::from(answer.clone()) });
        let Input::Message(Message::Pulled { values: read, .. }) = member.next().await.1 else { panic!() };
        assert!(read.into_vec() == answer);
    }
    controller.close(link);
    assert_eq!(closed(&mut member).await, "the connection was closed");
}

#[tokio::test]
async fn members_with_the_same_token_exchange_messages() {
    let token = Token::random().unwrap();
    converse(Security::with_token(&token), Security::with_token(&token)).await;
    converse(Security::NONE, Security::NONE).await;
}

#[tokio::test]
async fn a_controller_that_listens_and_is_busy_is_called_again() {
    let security = token();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let calls = Calls { security: security.clone(), controller: Some(listener.local_addr().unwrap().into()) };
    let mut member = Links::new(Duration::from_secs(30)).with_calls(calls);
    member.connect(libra_proto::Link(0), Callee::Controller);
    tokio::time::sleep(door::FIRST_MESSAGE_MAX + Duration::from_millis(200)).await;
    let _house = House::at(listener, security);
    assert!(matches!(event(&mut member).await, LinkEvent::Opened { .. }));
}

#[tokio::test]
async fn a_controller_that_is_killed_in_a_handshake_is_called_again() {
    let security = token();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let calls = Calls { security: security.clone(), controller: Some(address.into()) };
    let mut member = Links::new(Duration::from_secs(10)).with_calls(calls);
    member.connect(libra_proto::Link(0), Callee::Controller);
    let (mut called, _) = listener.accept().await.unwrap();
    called.read_exact(&mut [0; 10]).await.unwrap();
    drop((called, listener));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let _house = House::at(TcpListener::bind(address).await.unwrap(), security);
    assert!(matches!(event(&mut member).await, LinkEvent::Opened { .. }));
}

// rule S6
#[tokio::test]
async fn another_token_is_said_at_both_ends() {
    let mut house = House::new(token()).await;
    let mut member = member(&house, token());
    assert_eq!(closed(&mut member).await, "it has another token");
    assert_eq!(house.turned_away().await, "it has another token, and refuses that of this end");
}

#[tokio::test]
async fn a_member_without_a_token_and_one_that_needs_none_hear_of_it() {
    let mut house = House::new(token()).await;
    let mut plain = member(&house, Security::NONE);
    assert!(matches!(event(&mut plain).await, LinkEvent::Opened { .. }));
    plain.send(libra_proto::Link(0), &join(Kind::Worker));
    assert_eq!(closed(&mut plain).await, "it speaks TLS, and this end has no token");
    assert_eq!(house.turned_away().await, "it has no token: it does not speak TLS");

    let mut house = House::new(Security::NONE).await;
    let mut secure = member(&house, token());
    assert_eq!(
        closed(&mut secure).await,
        "it closed the stream instead of showing its token: it has no token, or another one"
    );
    assert_eq!(house.turned_away().await, "it speaks TLS, and this end has no token");
}

/// A first message of TLS 1.2 (RFC 5246): it lists no other version.
pub(crate) fn hello_of_tls_12() -> Vec<u8> {
    let extensions = [
        // Groups: x25519. Signatures: Ed25519 and ECDSA.
        [0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x1d].as_slice(),
        &[0x00, 0x0d, 0x00, 0x06, 0x00, 0x04, 0x08, 0x07, 0x04, 0x03],
    ]
    .concat();
    let mut hello = vec![0x03, 0x03];
    hello.extend([7; 32]);
    // No session, ECDHE-ECDSA-AES128-GCM-SHA256, no compression.
    hello.extend([0x00, 0x00, 0x02, 0xc0, 0x2b, 0x01, 0x00, 0x00, u8::try_from(extensions.len()).unwrap()]);
    hello.extend(extensions);
    let length = u8::try_from(hello.len()).unwrap();
    [&[0x16, 0x03, 0x01, 0x00, length + 4, 0x01, 0x00, 0x00, length], hello.as_slice()].concat()
}

#[tokio::test]
async fn tls_12_is_turned_away() {
    let mut house = House::new(token()).await;
    let mut caller = TcpStream::connect(house.address).await.unwrap();
    caller.write_all(&hello_of_tls_12()).await.unwrap();
    assert_eq!(house.turned_away().await, "it offers no TLS 1.3");
    // An alert, and the end.
    let mut answer = Vec::new();
    let _ = caller.read_to_end(&mut answer).await;
    assert!(answer.starts_with(&[0x15, 0x03]), "{answer:?}");
}

#[tokio::test]
async fn a_stream_that_stops_in_its_handshake_takes_no_place_for_long() {
    let mut house = House::new(token()).await;
    let mut callers = Vec::new();
    for _ in 0..70 {
        let mut caller = TcpStream::connect(house.address).await.unwrap();
        caller.write_all(&[0x16, 0x03, 0x01, 0x02]).await.unwrap();
        callers.push(caller);
    }
    assert_eq!(house.turned_away().await, "it was silent while others came");
}

/// Files of an operator.
struct Authority {
    files: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { files, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn write(&self, names: &[&str]) {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.subject_alt_names =
            names.iter().map(|name| SanType::URI((*name).try_into().unwrap())).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path("member.pem"), certificate.pem()).unwrap();
        fs::write(self.path("member.key"), key.serialize_pem()).unwrap();
    }

    fn security(&self, names: &[&str]) -> Security {
        self.write(names);
        self.read().unwrap()
    }

    fn read(&self) -> Result<Security, CertificateError> {
        Security::with_certificates(&self.path("ca.pem"), &self.path("member.pem"), &self.path("member.key"))
    }
}

const CONTROLLER: &str = "libra://role/controller";
const WORKER: &str = "libra://role/worker";
const SERVER: &str = "libra://role/server";

#[tokio::test]
async fn members_with_certificates_exchange_messages() {
    let authority = Authority::new();
    converse(authority.security(&[CONTROLLER]), authority.security(&[WORKER, SERVER])).await;
}

#[tokio::test]
async fn a_certificate_of_another_role_is_turned_away() {
    let authority = Authority::new();
    let mut house = House::new(authority.security(&[CONTROLLER])).await;
    let mut server = member(&house, authority.security(&[SERVER]));
    assert!(matches!(event(&mut server).await, LinkEvent::Opened { .. }));
    server.send(libra_proto::Link(0), &join(Kind::Worker));
    assert_eq!(
        house.turned_away().await,
        "its certificate is that of server, and it says that it is a worker"
    );
    let Input::Message(Message::Abort { reason }) = server.next().await.1 else { panic!() };
    assert_eq!(reason, "the certificate of this worker is that of server");

    let house = House::new(authority.security(&[SERVER])).await;
    let mut worker = member(&house, authority.security(&[WORKER]));
    assert_eq!(
        closed(&mut worker).await,
        "its certificate is that of server, and it was called as the controller"
    );
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_turned_away() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let mut house = House::new(ours.security(&[CONTROLLER])).await;
    let mut worker = member(&house, theirs.security(&[WORKER]));
    assert_eq!(closed(&mut worker).await, "its certificate is of another authority");
    let refused = "it refuses the certificate of this end, which is of another authority";
    assert_eq!(house.turned_away().await, refused, "the caller refuses first");
    // One that knows the authority, which has not signed its certificate.
    fs::copy(ours.path("ca.pem"), theirs.path("ca.pem")).unwrap();
    let mut worker = member(&house, theirs.read().unwrap());
    assert!(matches!(event(&mut worker).await, LinkEvent::Opened { .. }), "its part is over");
    assert_eq!(event(&mut worker).await, LinkEvent::Refused { reason: refused.to_owned() });
    assert_eq!(house.turned_away().await, "its certificate is of another authority");
    let mut with_token = member(&house, token());
    assert_eq!(closed(&mut with_token).await, TOKEN_AND_CERTIFICATE);
    assert_eq!(house.turned_away().await, TOKEN_AND_CERTIFICATE);
}

#[test]
fn files_that_do_not_fit_are_named() {
    let authority = Authority::new();
    let error = |authority: &Authority| authority.read().unwrap_err().to_string();
    assert!(error(&authority).contains("cannot read a certificate in"));
    authority.write(&[]);
    assert!(error(&authority).contains("names no role"));
    authority.write(&[WORKER]);
    fs::write(authority.path("member.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(
        error(&authority).contains("member.pem cannot be used") || error(&authority).contains("member.key")
    );
    fs::write(authority.path("ca.pem"), "").unwrap();
    assert!(error(&authority).contains("ca.pem has no certificate"));
}
