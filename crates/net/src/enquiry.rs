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

async fn ask(address: SocketAddr, security: &Security) -> io::Result<Enquiry> {
    let socket = TcpStream::connect(address).await?;
    match security.call(socket, Role::Controller).await? {
        Stream::Plain(stream) => exchange(stream).await,
        Stream::Secure(stream) => exchange(*stream).await,
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Enquiry> {
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
    };
    let mut frame = Message::Join(join).encode_behind(&NO_LENGTH);
    seal(&mut frame);
    write_frames(&mut stream, &[frame], |_| ()).await?;
    let mut frames = FrameReader::new(stream);
    let answer = frames.next(ANSWER_BYTES_MAX).await?;
    let answer =
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it closes the stream"))?;
    match Message::decode(answer) {
        Ok(Message::Abort { reason }) if reason.starts_with("the controller speaks version") => {
            Ok(Enquiry::OtherVersion(reason))
        }
        Ok(Message::Abort { .. }) => Ok(Enquiry::SameVersion),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is none of a controller")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use libra_proto::{Cluster, HotPath, Sizes};
    use tokio::sync::mpsc;

    use super::*;
    use crate::node::ControllerNode;
    use crate::security::Token;

    const TIME: Duration = Duration::from_secs(10);

    /// A controller that waits for members for as long as the test runs.
    fn controller(security: Security) -> SocketAddr {
        let node = ControllerNode::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap().with_security(security);
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
