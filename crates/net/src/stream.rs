//! A stream between two members: TCP, or TLS 1.3 over it.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::{self, IoSlice};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Bytes that are read at once under TLS: rustls itself asks for 4 KiB at a time.
const READ_BYTES: usize = 32 << 10;

/// A stream that is ready for messages.
pub(crate) enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<Buffered>>),
}

/// What TLS reads and writes.
pub(crate) type Buffered = BufReader<Socket>;

pub(crate) fn buffered(socket: TcpStream) -> Buffered {
    BufReader::with_capacity(READ_BYTES, Socket(Some(socket)))
}

impl Stream {
    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Secure(stream) => stream.get_ref().0.get_ref().get(),
        }
    }

    /// Takes it from the runtime of this thread.
    pub(crate) fn detach(self) -> io::Result<DetachedStream> {
        match self {
            Self::Plain(socket) => socket.into_std().map(DetachedStream::Plain),
            Self::Secure(mut stream) => {
                let socket = stream.get_mut().0.get_mut().0.take().expect(HAS_SOCKET);
                Ok(DetachedStream::Secure(stream, socket.into_std()?))
            }
        }
    }
}

/// A stream on its way from the runtime of a thread to that of another.
pub(crate) enum DetachedStream {
    Plain(std::net::TcpStream),
    Secure(Box<TlsStream<Buffered>>, std::net::TcpStream),
}

impl DetachedStream {
    /// Gives it to the runtime of this thread.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Plain(socket) => TcpStream::from_std(socket).map(Stream::Plain),
            Self::Secure(mut stream, socket) => {
                stream.get_mut().0.get_mut().0 = Some(TcpStream::from_std(socket)?);
                Ok(Stream::Secure(stream))
            }
        }
    }
}

const HAS_SOCKET: &str = "a stream is used where it is attached";

/// The socket under TLS, which can be taken out while its stream changes threads.
pub(crate) struct Socket(Option<TcpStream>);

impl Socket {
    fn get(&self) -> &TcpStream {
        self.0.as_ref().expect(HAS_SOCKET)
    }

    fn pin(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.0.as_mut().expect(HAS_SOCKET))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pin().poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pin().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pin().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_shutdown(context)
    }
}
