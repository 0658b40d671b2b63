//! Ordered reliable streams: TCP, one frame a message.

use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use libra_proto::{Link, LinkEvent, Message};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant as Deadline;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

/// No message is larger. The largest that are sent are a few MB: drained regions and pulls of whole tables in pieces.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// How many messages of all streams wait for the role before the kernel holds the senders back.
const QUEUE: usize = 1024;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long written messages may take to leave at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What comes out of a stream.
pub(crate) enum Input {
    Event(LinkEvent),
    Message(Message),
}

/// All streams of one role.
pub(crate) struct Links {
    senders: HashMap<Link, mpsc::UnboundedSender<Message>>,
    inputs: mpsc::Receiver<(Link, Input)>,
    report: mpsc::Sender<(Link, Input)>,
    tasks: JoinSet<()>,
    accepted: u32,
    /// How long to try to reach a peer that does not listen yet.
    patience: Duration,
    bytes: Arc<AtomicU64>,
}

impl Links {
    pub(crate) fn new(patience: Duration) -> Self {
        let (report, inputs) = mpsc::channel(QUEUE);
        Self {
            senders: HashMap::new(),
            inputs,
            report,
            tasks: JoinSet::new(),
            accepted: Link::ACCEPTED,
            patience,
            bytes: Arc::default(),
        }
    }

    /// Counts what messages take, in both directions.
    pub(crate) fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// The next thing that happened on any stream.
    pub(crate) async fn next(&mut self) -> (Link, Input) {
        self.inputs.recv().await.expect("self holds a sender")
    }

    /// The next thing that has happened already.
    pub(crate) fn try_next(&mut self) -> Option<(Link, Input)> {
        self.inputs.try_recv().ok()
    }

    pub(crate) fn connect(&mut self, link: Link, address: SocketAddr) {
        let (patience, report, bytes) = (self.patience, self.report.clone(), Arc::clone(&self.bytes));
        let messages = self.register(link);
        self.tasks.spawn(async move {
            match connect(address, patience).await {
                Ok(stream) => converse(link, stream, address, messages, report, &bytes).await,
                Err(error) => {
                    let reason = error.to_string();
                    let _ = report.send((link, Input::Event(LinkEvent::Closed { reason }))).await;
                }
            }
        });
    }

    pub(crate) fn accept(&mut self, stream: TcpStream, remote: SocketAddr) {
        let link = Link(self.accepted);
        self.accepted += 1;
        let (report, bytes) = (self.report.clone(), Arc::clone(&self.bytes));
        let messages = self.register(link);
        self.tasks.spawn(async move { converse(link, stream, remote, messages, report, &bytes).await });
    }

    fn register(&mut self, link: Link) -> mpsc::UnboundedReceiver<Message> {
        let (sender, messages) = mpsc::unbounded_channel();
        self.senders.insert(link, sender);
        messages
    }

    pub(crate) fn send(&mut self, link: Link, message: Message) {
        // A stream that has just closed: the role will hear of it, and what it said to it is lost with it.
        if let Some(sender) = self.senders.get(&link) {
            let _ = sender.send(message);
        }
    }

    pub(crate) fn close(&mut self, link: Link) {
        self.senders.remove(&link);
    }

    /// Lets what was written leave, then closes everything.
    pub(crate) async fn finish(mut self) {
        self.senders.clear();
        self.inputs.close();
        let _ =
            tokio::time::timeout(FAREWELL, async { while self.tasks.join_next().await.is_some() {} }).await;
    }
}

async fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let deadline = Deadline::now() + patience;
    loop {
        let attempt =
            tokio::time::timeout_at(deadline.max(Deadline::now() + RETRY_PAUSE), TcpStream::connect(address));
        let error = match attempt.await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::from(io::ErrorKind::TimedOut),
        };
        if Deadline::now() + RETRY_PAUSE >= deadline {
            let message = format!("{error} (tried for {:.1} s)", patience.as_secs_f64());
            return Err(io::Error::new(error.kind(), message));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec()
}

/// Reads and writes one stream until either end closes it.
async fn converse(
    link: Link,
    stream: TcpStream,
    remote: SocketAddr,
    messages: mpsc::UnboundedReceiver<Message>,
    report: mpsc::Sender<(Link, Input)>,
    bytes: &AtomicU64,
) {
    let _ = stream.set_nodelay(true);
    // A machine that vanishes sends no FIN: without this its peers would wait for it forever.
    let keepalive =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2));
    let _ = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(3));
    if report.send((link, Input::Event(LinkEvent::Opened { remote }))).await.is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let mut frames = FramedRead::new(reader, codec());
    let reason = {
        let (read, write) = (read(link, &mut frames, &report, bytes), write(writer, messages, bytes));
        tokio::pin!(read, write);
        tokio::select! {
            biased;
            reason = &mut read => Some(reason),
            written = &mut write => match written {
                Ok(()) => None,
                // What the other end has said before is there to be read: it may say why.
                Err(error) => {
                    let read = tokio::time::timeout(FAREWELL, read).await;
                    Some(read.unwrap_or_else(|_| error.to_string()))
                }
            },
        }
    };
    match reason {
        Some(reason) => drop(report.send((link, Input::Event(LinkEvent::Closed { reason }))).await),
        // We closed it. What the other end still says has no reader; but a stream that is dropped with something unread is
        // reset, and the other end may lose what we have said last.
        None => drop(
            tokio::time::timeout(FAREWELL, async { while let Some(Ok(_)) = frames.next().await {} }).await,
        ),
    }
}

/// Hands messages over until the stream ends. Returns why it did.
async fn read(
    link: Link,
    frames: &mut FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    report: &mpsc::Sender<(Link, Input)>,
    bytes: &AtomicU64,
) -> String {
    while let Some(frame) = frames.next().await {
        let message = frame.map_err(|error| error.to_string()).and_then(|frame| {
            count(bytes, frame.len());
            Message::decode(&frame).map_err(|error| error.to_string())
        });
        match message {
            // Nobody listens while a role says its farewells, and those must still leave.
            Ok(message) => drop(report.send((link, Input::Message(message))).await),
            Err(reason) => return reason,
        }
    }
    "the connection was closed".to_owned()
}

/// Writes messages until nobody will send another.
async fn write(
    writer: OwnedWriteHalf,
    mut messages: mpsc::UnboundedReceiver<Message>,
    bytes: &AtomicU64,
) -> io::Result<()> {
    let encode = |message: Message| {
        let frame = Bytes::from(message.encode());
        count(bytes, frame.len());
        frame
    };
    let mut frames = FramedWrite::new(writer, codec());
    while let Some(message) = messages.recv().await {
        frames.feed(encode(message)).await?;
        while let Ok(message) = messages.try_recv() {
            frames.feed(encode(message)).await?;
        }
        SinkExt::<Bytes>::flush(&mut frames).await?;
    }
    SinkExt::<Bytes>::close(&mut frames).await
}

/// Counts one frame, with the length that goes before it.
fn count(bytes: &AtomicU64, frame: usize) {
    bytes.fetch_add(frame as u64 + 4, Ordering::Relaxed);
}
