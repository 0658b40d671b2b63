//! A controller that is asked what it is, by a process that does not join its cluster.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;

use libra_proto::{Join, Kind, Message, TagKind, VERSION};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::frames::{FrameReader, NO_LENGTH, seal, write_frames};
use crate::node::runtime;
use crate::security::Security;
use crate::security::roles::Role;
use crate::stream::Stream;

/// Bytes of a refusal.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Answer of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enquiry {
    /// It speaks this version of the messages.
    SameVersion,
    /// It speaks another; its own words.
    OtherVersion(String),
}

/// Asks the controller at an address, within a time, by a `Join` that it refuses: one that gives no address. So it takes no place.
///
/// # Errors
/// There is no controller, or it does not take this end for a member; the reason, in words for a person.
pub fn ask_controller(address: SocketAddr, security: &Security, time: Duration) -> io::Result<Enquiry> {
    let runtime = runtime().map_err(io::Error::other)?;
    let asked = async { tokio::time::timeout(time, ask(address, security)).await };
    runtime.block_on(asked).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Asks the controller at an address, within a time, where it answers requests over HTTP (rule M21). None: nowhere.
///
/// # Errors
/// There is no controller, it speaks another version, or it does not take this end for one that may ask.
pub fn find_http(address: SocketAddr, security: &Security, time: Duration) -> io::Result<Option<SocketAddr>> {
    let runtime = runtime().map_err(io::Error::other)?;
    let asked = exchange(address, security, Message::Enquire { version: VERSION });
    let asked = runtime.block_on(async { tokio::time::timeout(time, asked).await });
    match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
        Message::Described { version: VERSION, http } => Ok(http.map(|mut http| {
            if http.ip().is_unspecified() {
                http.set_ip(address.ip());
            }
            http
        })),
        Message::Described { version, .. } => Err(invalid(format!(
            "the controller speaks version {version} of the messages, this program speaks {VERSION}"
        ))),
        _ => Err(invalid(NO_CONTROLLER)),
    }
}

const NO_CONTROLLER: &str = "its answer is none of a controller";

fn invalid(reason: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

async fn ask(address: SocketAddr, security: &Security) -> io::Result<Enquiry> {
    let join = Join {
        version: VERSION,
        kind: Kind::Worker,
        stream: None,
        shards: 1,
        datagrams: None,
        receive_bytes: 0,
        is_restartable: false,
        is_slow: false,
        tags: TagKind::Off,
        http: None,
    };
    match exchange(address, security, Message::Join(join)).await? {
        Message::Abort { reason } if reason.starts_with("the controller speaks version") => {
            Ok(Enquiry::OtherVersion(reason))
        }
        Message::Abort { .. } => Ok(Enquiry::SameVersion),
        _ => Err(invalid(NO_CONTROLLER)),
    }
}

/// Sends a message and returns the answer.
async fn exchange(address: SocketAddr, security: &Security, message: Message) -> io::Result<Message> {
    let socket = TcpStream::connect(address).await?;
    match security.call(socket, Role::Controller).await? {
        Stream::Plain(stream) => exchange_on(stream, message).await,
        Stream::Secure(stream) => exchange_on(*stream, message).await,
    }
}

async fn exchange_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    message: Message,
) -> io::Result<Message> {
    let mut frame = message.encode_behind(&NO_LENGTH);
    seal(&mut frame);
    write_frames(&mut stream, &[frame], |_| ()).await?;
    let mut frames = FrameReader::new(stream);
    let answer = frames.next(ANSWER_BYTES_MAX).await?;
    let answer =
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it closes the stream"))?;
    Message::decode(answer).map_err(|_| invalid(NO_CONTROLLER))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use libra_proto::{Cluster, HotPath, Sizes};
    use tokio::sync::mpsc;

    use super::*;
    use crate::inspection::Inspector;
    use crate::node::ControllerNode;
    use crate::security::Token;

    const TIME: Duration = Duration::from_secs(10);

    /// A controller that waits for members for as long as the test runs.
    fn controller(security: Security) -> SocketAddr {
        let node = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        serve(node.with_security(security))
    }

    fn serve(node: ControllerNode) -> SocketAddr {
        let address = node.address();
        thread::spawn(move || {
            let cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
            let (_commands, inbox) = mpsc::unbounded_channel();
            drop(node.run(Sizes { servers: 1, switches: 0, workers: 1 }, cluster, inbox, |_| ()));
        });
        address
    }

    #[test]
    fn a_controller_answers_and_gives_no_place() {
        let address = controller(Security::NONE);
        for _ in 0..3 {
            assert_eq!(ask_controller(address, &Security::NONE, TIME).unwrap(), Enquiry::SameVersion);
        }
    }

    /// As rule M21 says.
    #[test]
    fn a_controller_tells_where_it_answers_over_http() {
        let address = controller(Security::NONE);
        assert_eq!(find_http(address, &Security::NONE, TIME).unwrap(), None);
        let node = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let http = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9100));
        let node = node.with_inspector(Some(Inspector::new(Some(http))));
        let address = serve(node);
        for _ in 0..3 {
            let found = find_http(address, &Security::NONE, TIME).unwrap();
            assert_eq!(found, Some((Ipv4Addr::LOCALHOST, 9100).into()), "an unspecified address");
        }
    }

    #[test]
    fn a_controller_with_another_token_is_told() {
        let [one, other] = [(); 2].map(|()| Security::with_token(&Token::random().unwrap()));
        let address = controller(one.clone());
        assert_eq!(ask_controller(address, &one, TIME).unwrap(), Enquiry::SameVersion);
        let refusal = ask_controller(address, &other, TIME).unwrap_err().to_string();
        assert!(refusal.contains("another token"), "{refusal}");
        assert!(ask_controller(address, &Security::NONE, TIME).is_err());
    }

    #[test]
    fn a_port_without_a_controller_is_an_error() {
        let silent = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = silent.local_addr().unwrap();
        let error = ask_controller(address, &Security::NONE, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(silent);
        assert!(ask_controller(address, &Security::NONE, TIME).is_err());
    }
}
