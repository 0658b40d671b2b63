//! One port for the shards of a process.
//!
//! Each shard has a thread with a runtime of its own, and each of its peers a stream to it. The front accepts all streams, reads which
//! shard the first message calls, and hands the stream to that thread: messages are read where they are handled.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use libra_proto::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::debug;

use crate::door::{Caller, Callers, HandedOver, Keeper, Tally};
use crate::security::Security;

/// Streams that wait for a shard to take them. Beyond, the front waits.
const HANDED_MAX: usize = 64;

/// The shards that streams are handed to, by number.
#[derive(Debug, Default)]
pub(crate) struct Shards(Mutex<BTreeMap<u16, mpsc::Sender<HandedOver>>>);

impl Shards {
    /// Returns both ends of the way to a shard, which may not know its number yet.
    pub(crate) fn way() -> (mpsc::Sender<HandedOver>, mpsc::Receiver<HandedOver>) {
        mpsc::channel(HANDED_MAX)
    }

    /// A shard has this number from now on.
    pub(crate) fn insert(&self, number: u16, way: mpsc::Sender<HandedOver>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, way);
    }

    fn get(&self, number: u16) -> Option<mpsc::Sender<HandedOver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

/// Accepts the streams of all shards of a process.
pub(crate) struct Front {
    keeper: Keeper,
    shards: Arc<Shards>,
    tally: Arc<Tally>,
}

impl Front {
    /// Counts in `tally` what is turned away. Must be called inside a runtime.
    pub(crate) fn new(
        listener: TcpListener,
        security: Security,
        shards: Arc<Shards>,
        tally: Arc<Tally>,
    ) -> Self {
        let keeper = Keeper::new(listener, Callers::Clients, security, Arc::clone(&tally));
        Self { keeper, shards, tally }
    }

    /// Hands streams to shards until it is dropped.
    pub(crate) async fn serve(mut self) -> core::convert::Infallible {
        loop {
            let caller = self.keeper.next().await;
            if let Err((remote, reason)) = self.hand(caller).await {
                self.tally.add(remote, reason);
            }
        }
    }

    async fn hand(&self, caller: Caller) -> Result<(), (SocketAddr, String)> {
        let remote = caller.remote;
        let called = match &caller.first {
            Some((Message::Hello(hello), _)) => hello.to,
            _ => return Err((remote, "its first message does not identify it".to_owned())),
        };
        let gone = || (remote, format!("it called server {called}, which is not in this process"));
        let way = self.shards.get(called).ok_or_else(gone)?;
        debug!(%remote, shard = called, "a caller is handed to a shard");
        let handed = caller.hand_over().map_err(|(remote, error)| (remote, error.to_string()))?;
        way.send(handed).await.map_err(|_| gone())
    }
}
