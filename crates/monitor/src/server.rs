//! The HTTP server of a process: on a thread and a runtime of its own, so that no role waits for a reader.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::thread;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

/// Connections at once. Those beyond are closed.
const CONNECTIONS_MAX: usize = 64;
/// Time for the head of a request; a connection without one is closed.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Life of a connection, whatever its other end does.
const CONNECTION_TIME: Duration = Duration::from_secs(600);
/// Pause if no connection can be taken, as the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// No HTTP at this address.
#[derive(Debug, Error)]
#[error("cannot answer requests over HTTP at {address} (--http chooses another, with port 0 any free one)")]
pub struct HttpError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// Error of the system.
    pub source: io::Error,
}

impl HttpError {
    /// Returns true if another process has the address, which may end.
    pub fn is_in_use(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// A port for requests, which nothing answers yet.
#[derive(Debug)]
pub struct HttpPort {
    listener: StdTcpListener,
    address: SocketAddr,
}

/// A server that answers. It ends when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    _running: oneshot::Sender<()>,
}

impl HttpServer {
    /// Returns the address at which it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl HttpPort {
    /// Listens at `address`; port 0 means any free one.
    ///
    /// # Errors
    /// The address is in use, or not of this machine.
    pub fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let listen = || {
            let listener = StdTcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        listen().map_err(|source| HttpError { address, source })
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers by these routes, on a thread of its own.
    pub(crate) fn serve(self, routes: Router) -> Result<HttpServer, HttpError> {
        let address = self.address;
        let failed = |source| HttpError { address, source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(self.listener).map_err(failed)?
        };
        let (running, ended) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, routes) => {}
                    _ = ended => {}
                }
            });
            runtime.shutdown_background();
        };
        thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(failed)?;
        Ok(HttpServer { address, _running: running })
    }
}

async fn accept(listener: TcpListener, routes: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let served = serve_connection(stream, routes.clone());
        tokio::spawn(async move {
            // What is wrong with a connection is its other end's business.
            let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
            drop(place);
        });
    }
}

async fn serve_connection(stream: TcpStream, routes: Router) -> Result<(), hyper::Error> {
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES_MAX);
    connection.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await
}
