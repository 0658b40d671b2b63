//! Requests for the status of the roles of a process, answered by their loops.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

/// A request, to be answered with a status.
type Request<S> = oneshot::Sender<S>;

/// Asks the loops of a process for the status of their roles. Nothing is counted or copied for that until it asks, and a loop that
/// stands still does not answer. Clones ask the same roles.
#[derive(Debug)]
pub struct Inspector<S> {
    roles: Arc<Mutex<Vec<Watched<S>>>>,
    sockets: Arc<Mutex<Vec<u64>>>,
    restore: Arc<Mutex<Option<Restore>>>,
    http: Option<SocketAddr>,
}

/// The reading of a disk before roles begin: the shard and the bytes of it that were read, and when these were fewer.
#[derive(Debug, Clone, Copy)]
struct Restore {
    read: (u16, u64),
    moved_at: Instant,
}

/// A role that runs, or its last status.
#[derive(Debug)]
enum Watched<S> {
    Running(mpsc::UnboundedSender<Request<S>>),
    Ended(Box<S>),
}

/// The answers of all roles.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected<S> {
    /// The status of each role that has answered, in the order in which they began.
    pub statuses: Vec<S>,
    /// Number of roles that have not answered in time.
    pub silent: usize,
    /// Longest time that an answer took.
    pub lag: Duration,
    /// The inodes of the sockets for datagrams of the process.
    pub sockets: Vec<u64>,
    /// Of a process that reads its disk before its roles begin: the time since it last read something.
    pub restore_stands_still: Option<Duration>,
}

impl<S> Inspector<S> {
    /// An inspector of no role yet. Members tell the controller that they answer requests over HTTP at `http`.
    pub fn new(http: Option<SocketAddr>) -> Self {
        Self { roles: Arc::default(), sockets: Arc::default(), restore: Arc::default(), http }
    }

    /// Returns the address at which the process answers requests over HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    fn roles(&self) -> MutexGuard<'_, Vec<Watched<S>>> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<u64>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket for datagrams of the process: the kernel counts what it drops.
    pub(crate) fn note_socket(&self, inode: u64) {
        self.sockets().push(inode);
    }

    fn restore(&self) -> MutexGuard<'_, Option<Restore>> {
        self.restore.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process has read so many bytes of a shard.
    pub(crate) fn note_restore(&self, shard: u16, read: u64) {
        let mut restore = self.restore();
        let read = (shard, read);
        if restore.is_none_or(|restore| restore.read != read) {
            *restore = Some(Restore { read, moved_at: Instant::now() });
        }
    }

    /// The process reads its disk no more.
    pub(crate) fn end_restore(&self) {
        *self.restore() = None;
    }

    /// The requests for one more role.
    pub(crate) fn watch(&self) -> Inspections<S> {
        let (requests, inbox) = mpsc::unbounded_channel();
        let mut roles = self.roles();
        roles.push(Watched::Running(requests));
        Inspections(Some(Inspection { inbox, place: roles.len() - 1, inspector: self.clone() }))
    }
}

impl<S: Clone> Inspector<S> {
    /// Asks all roles, and waits for their answers for at most this long.
    pub async fn ask(&self, time: Duration) -> Inspected<S> {
        let began = Instant::now();
        let asked: Vec<_> = self.roles().iter().map(ask).collect();
        let until = tokio::time::Instant::now() + time;
        let sockets = self.sockets().clone();
        let restore_stands_still = self.restore().map(|restore| restore.moved_at.elapsed());
        let (statuses, lag) = (Vec::new(), Duration::ZERO);
        let mut inspected = Inspected { statuses, silent: 0, lag, sockets, restore_stands_still };
        for (place, asked) in asked.into_iter().enumerate() {
            let answer = match asked {
                Ok(status) => Some(*status),
                Err(answer) => tokio::time::timeout_at(until, answer).await.ok().and_then(Result::ok),
            };
            // It may have ended meanwhile.
            match answer.or_else(|| self.last_of(place)) {
                Some(status) => inspected.statuses.push(status),
                None => inspected.silent += 1,
            }
        }
        inspected.lag = began.elapsed();
        inspected
    }

    fn last_of(&self, place: usize) -> Option<S> {
        match self.roles().get(place) {
            Some(Watched::Ended(status)) => Some(S::clone(status)),
            Some(Watched::Running(_)) | None => None,
        }
    }
}

/// Returns the last status of a role that has ended, or the way on which the answer comes.
fn ask<S: Clone>(role: &Watched<S>) -> Result<Box<S>, oneshot::Receiver<S>> {
    match role {
        Watched::Ended(status) => Ok(status.clone()),
        Watched::Running(requests) => {
            let (request, answer) = oneshot::channel();
            // A loop that has failed answers nothing more.
            let _ = requests.send(request);
            Err(answer)
        }
    }
}

impl<S> Clone for Inspector<S> {
    fn clone(&self) -> Self {
        Self {
            roles: Arc::clone(&self.roles),
            sockets: Arc::clone(&self.sockets),
            restore: Arc::clone(&self.restore),
            http: self.http,
        }
    }
}

/// Inspectors are equal if they ask the same roles.
impl<S> PartialEq for Inspector<S> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.roles, &other.roles)
    }
}

/// Requests to the loop of one role; none of a role that is not watched.
pub(crate) struct Inspections<S>(Option<Inspection<S>>);

struct Inspection<S> {
    inbox: mpsc::UnboundedReceiver<Request<S>>,
    place: usize,
    inspector: Inspector<S>,
}

impl<S> Inspections<S> {
    /// Those of a role that is not watched.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Those of a role that is watched if there is an inspector.
    pub(crate) fn of(inspector: Option<&Inspector<S>>) -> Self {
        inspector.map_or_else(Self::none, Inspector::watch)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Request<S> {
        match &mut self.0 {
            // Its sender is in the inspector, which this holds.
            Some(Inspection { inbox, .. }) => inbox.recv().await.expect("the sender is not dropped"),
            None => core::future::pending().await,
        }
    }

    /// The role has ended.
    pub(crate) fn end(self, status: impl FnOnce() -> S) {
        if let Some(Inspection { place, inspector, .. }) = self.0 {
            inspector.roles()[place] = Watched::Ended(Box::new(status()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_restore_stands_still_while_no_byte_is_read() {
        let inspector: Inspector<u8> = Inspector::new(None);
        let ask = || async { inspector.ask(Duration::ZERO).await.restore_stands_still };
        assert_eq!(ask().await, None);
        let began = Instant::now();
        inspector.note_restore(0, 10);
        let pause = Duration::from_millis(20);
        std::thread::sleep(pause);
        inspector.note_restore(0, 10);
        assert!(ask().await.unwrap() >= pause);
        for (shard, read) in [(0, 11), (1, 11)] {
            inspector.note_restore(shard, read);
            assert!(ask().await.unwrap() <= began.elapsed() - pause);
        }
        inspector.end_restore();
        assert_eq!(ask().await, None);
    }

    #[tokio::test]
    async fn a_silent_role_is_counted_and_one_that_ended_answers() {
        let inspector = Inspector::new(None);
        let [silent, mut busy, ended] = [(); 3].map(|()| inspector.watch());
        ended.end(|| 3);
        let answers = async {
            loop {
                busy.next().await.send(2).expect("it is waited for");
            }
        };
        let inspected = tokio::select! {
            inspected = inspector.ask(Duration::from_millis(50)) => inspected,
            never = answers => never,
        };
        assert_eq!((inspected.statuses, inspected.silent), (vec![2, 3], 1));
        assert!(inspected.lag >= Duration::from_millis(50));
        silent.end(|| 1);
        busy.end(|| 2);
        let inspected = inspector.ask(Duration::ZERO).await;
        assert_eq!((inspected.statuses, inspected.silent), (vec![1, 2, 3], 0));
    }
}
