//! Peers of another make: what they send is up to the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use libra_proto::Message;

/// A stream of messages as the protocol has them: four bytes of length, and the message.
pub(crate) struct Stream(TcpStream);

impl Stream {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn send(&mut self, message: &Message) {
        self.send_frame(&message.encode());
    }

    pub(crate) fn send_frame(&mut self, frame: &[u8]) {
        self.0.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
        self.0.write_all(frame).unwrap();
    }

    /// Waits until the other end has closed it.
    pub(crate) fn wait_for_end(&mut self) {
        let mut byte = [0];
        while self.0.read(&mut byte).is_ok_and(|read| read > 0) {}
    }

    pub(crate) fn receive(&mut self) -> Message {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).unwrap();
        Message::decode(&frame).unwrap()
    }

    pub(crate) fn receive_until<T>(&mut self, wanted: impl Fn(Message) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.receive()) {
                return found;
            }
        }
    }
}
