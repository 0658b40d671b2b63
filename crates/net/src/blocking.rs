//! Streams for threads that wait: TCP, or TLS 1.3 over it.
//!
//! One thread reads, and one at a time writes. Under TLS both need the state of its session, which is behind a lock, and neither waits for the
//! socket while it has that lock. What was encrypted and not written is bytes of the socket, which go before all others.

mod door;

use core::ops::Range;
use core::time::Duration;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, Connection, Error};

pub use self::door::{Arrival, BlockingDoor};
use crate::door::FIRST_MESSAGE_MAX;
use crate::frames::{SPEAKS_TLS, speaks_tls};
use crate::security::{Security, refusal_of_peer};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// A stream whose other end is identified.
#[derive(Debug)]
pub struct BlockingStream {
    socket: TcpStream,
    session: Option<Box<Mutex<Connection>>>,
    /// Bytes of the socket that are being written.
    sealed: Mutex<Vec<u8>>,
}

impl BlockingStream {
    /// Identifies the process that was called, if this end is protected.
    ///
    /// # Errors
    /// The other end is not of the cluster (`PermissionDenied`), or the stream is broken: too many others may call it. The text has the reason, in
    /// words for a person.
    pub fn call(socket: TcpStream, security: &Security) -> io::Result<Self> {
        let Some(configuration) = security.client() else { return Ok(Self::new(socket, None)) };
        // Not sent, and not verified.
        let name = ServerName::from(IpAddr::from([127, 0, 0, 1]));
        let session = ClientConnection::new(configuration, name).map_err(io::Error::other)?;
        let mut session = Connection::from(session);
        let mut within = Within { socket: &socket, until: Instant::now() + FIRST_MESSAGE_MAX };
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut within).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => security.refusal(&error),
                kind => io::Error::new(kind, security.refusal(&error)),
            })?;
        }
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        Ok(Self::new(socket, Some(session)))
    }

    fn new(socket: TcpStream, session: Option<Connection>) -> Self {
        Self { socket, session: session.map(Mutex::new).map(Box::new), sealed: Mutex::default() }
    }

    /// The socket, for its addresses and options.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ends one or both directions.
    pub fn shutdown(&self, how: Shutdown) {
        // One that is closed already is as closed as it will be.
        let _ = self.socket.shutdown(how);
    }

    /// Writes what the socket takes without a wait. Returns the rest, as bytes of the socket: for [`write_rest`](Self::write_rest), before
    /// anything else is written.
    ///
    /// # Errors
    /// The stream is broken.
    pub fn write_some(&self, slices: &mut [IoSlice<'_>]) -> io::Result<Vec<u8>> {
        let (mut rest, mut left) = (slices, Vec::new());
        IoSlice::advance_slices(&mut rest, 0);
        let Some(session) = &self.session else {
            self.send(&mut rest, SendFlags::DONTWAIT)?;
            rest.iter().for_each(|slice| left.extend_from_slice(slice));
            return Ok(left);
        };
        let mut sealed = lock(&self.sealed);
        while !rest.is_empty() {
            sealed.clear();
            seal(&mut lock(session), &mut rest, &mut sealed)?;
            if left.is_empty() {
                let mut piece = [IoSlice::new(&sealed)];
                let mut unwritten = piece.as_mut_slice();
                self.send(&mut unwritten, SendFlags::DONTWAIT)?;
                unwritten.iter().for_each(|slice| left.extend_from_slice(slice));
            } else {
                left.extend_from_slice(&sealed);
            }
        }
        Ok(left)
    }

    /// Writes all of the slices, however long it takes.
    ///
    /// # Errors
    /// The stream is broken.
    pub fn write_all(&self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut rest = slices;
        IoSlice::advance_slices(&mut rest, 0);
        let Some(session) = &self.session else { return self.send(&mut rest, SendFlags::empty()) };
        let mut sealed = lock(&self.sealed);
        while !rest.is_empty() {
            sealed.clear();
            seal(&mut lock(session), &mut rest, &mut sealed)?;
            self.write_rest(&sealed)?;
        }
        Ok(())
    }

    /// Writes bytes of the socket that [`write_some`](Self::write_some) has left.
    ///
    /// # Errors
    /// The stream is broken.
    pub fn write_rest(&self, rest: &[u8]) -> io::Result<()> {
        let mut rest = [IoSlice::new(rest)];
        let mut rest = rest.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        self.send(&mut rest, SendFlags::empty())
    }

    /// Writes slices until there are none, or no room for them with `DONTWAIT`.
    fn send(&self, rest: &mut &mut [IoSlice<'_>], flags: SendFlags) -> io::Result<()> {
        while !rest.is_empty() {
            match send(&self.socket, rest, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !flags.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the end that reads. There must be one alone.
    pub fn reader(self: &Arc<Self>) -> BlockingReader {
        BlockingReader { stream: Arc::clone(self), received: Vec::new(), unread: 0..0, has_read: false }
    }
}

/// Encrypts the begin of some slices, as much as a session takes at once.
fn seal(session: &mut Connection, rest: &mut &mut [IoSlice<'_>], sealed: &mut Vec<u8>) -> io::Result<()> {
    let taken = session.writer().write_vectored(rest)?;
    IoSlice::advance_slices(rest, taken);
    while session.wants_write() {
        session.write_tls(sealed)?;
    }
    Ok(())
}

/// The end of a stream that reads.
#[derive(Debug)]
pub struct BlockingReader {
    stream: Arc<BlockingStream>,
    /// Bytes of the socket.
    received: Vec<u8>,
    /// Those of them that are not decrypted yet.
    unread: Range<usize>,
    has_read: bool,
}

impl Read for BlockingReader {
    /// Reads what is there, or waits until something is. A stream that ends without a farewell of TLS has ended: processes are killed.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.stream.session else {
            let read = (&self.stream.socket).read(into)?;
            if !core::mem::replace(&mut self.has_read, true) && speaks_tls(&into[..read]) {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, SPEAKS_TLS));
            }
            return Ok(read);
        };
        loop {
            let opened = open(&mut lock(session), &self.received, &mut self.unread, into);
            if let Some(read) = opened? {
                return Ok(read);
            }
            self.received.resize(READ_BYTES, 0);
            let read = (&self.stream.socket).read(&mut self.received)?;
            if read == 0 {
                return Ok(0);
            }
            self.unread = 0..read;
        }
    }
}

/// Decrypts until there is something to read; `None` if more must be received first.
fn open(
    session: &mut Connection,
    received: &[u8],
    unread: &mut Range<usize>,
    into: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        match session.reader().read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map(Some),
        }
        if unread.start == unread.end {
            return Ok(None);
        }
        unread.start += session.read_tls(&mut &received[unread.clone()])?;
        session.process_new_packets().map_err(broken)?;
    }
}

/// The other end has sent what is no record of this session, or an alert.
fn broken(error: Error) -> io::Error {
    let error = io::Error::new(io::ErrorKind::InvalidData, error);
    match refusal_of_peer(&error) {
        Some(reason) => io::Error::new(io::ErrorKind::PermissionDenied, reason),
        None => error,
    }
}

/// A socket during a handshake, which must be over by some time.
struct Within<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl Within<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Self::too_late()) } else { Ok(left) }
    }

    fn too_late() -> io::Error {
        let reason = format!("it did not identify itself within {} s", FIRST_MESSAGE_MAX.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, reason)
    }

    fn ended(error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::WouldBlock { Self::too_late() } else { error }
    }
}

impl Read for Within<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(into).map_err(Self::ended)
    }
}

impl Write for Within<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        send(self.socket, slices, SendFlags::empty()).map_err(Self::ended)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes some of the slices.
fn send(socket: &TcpStream, slices: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    /// The kernel takes no more at once (`IOV_MAX` is 1,024).
    const SLICES_MAX: usize = 512;
    let some = &slices[..slices.len().min(SLICES_MAX)];
    // Not `write_vectored`: in a program that is not of Rust a signal would end the process if the other end is gone.
    let mut nothing_beside = SendAncillaryBuffer::default();
    Ok(sendmsg(socket, some, &mut nothing_beside, flags | SendFlags::NOSIGNAL)?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
