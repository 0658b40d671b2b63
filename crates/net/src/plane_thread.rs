//! A data plane that takes its time, on a thread of its own: the agent beside it goes on, and is woken when there is something
//! to look at.

use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use libra_proto::{Device, Executor, Order, Plane, RegionConfig, Report, TagKind};

/// Shortest pause between two looks at the plane when no order comes: nothing in a device wakes its agent.
const LOOKS_EVERY: Duration = Duration::from_millis(1);
/// A look is a packet to the device, and no more than one part in so many of its time is for looks.
const LOOKS_SHARE: u32 = 20;

/// Checks that a region can be held; the error is the reason if not.
type Check = Box<dyn Fn(&RegionConfig) -> Result<(), String> + Send>;

/// Carries out orders on a plane, in the order in which they were given. The thread ends when this is dropped.
pub struct PlaneThread {
    orders: Sender<Order>,
    check: Check,
    tags: TagKind,
    news: Arc<Mutex<Report>>,
    woken: UnixStream,
    thread: JoinHandle<()>,
}

impl PlaneThread {
    /// Starts the thread. `check` decides without the plane, which may be busy, if a region fits. The descriptor becomes
    /// readable when there is something to look at.
    ///
    /// # Errors
    /// The machine has no more threads or descriptors.
    pub fn start<P: Plane + Send + 'static>(
        plane: P,
        check: impl Fn(&RegionConfig) -> Result<(), String> + Send + 'static,
    ) -> io::Result<(Self, OwnedFd)> {
        let (wakes, woken) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let watched = woken.try_clone()?;
        let (orders, given) = mpsc::channel();
        let news = Arc::new(Mutex::new(Report::default()));
        let told = Arc::clone(&news);
        let tags = plane.tags();
        let run = move || carry_out(Executor::new(plane), &given, &told, &wakes);
        let thread = thread::Builder::new().name("plane".to_owned()).spawn(run)?;
        Ok((Self { orders, check: Box::new(check), tags, news, woken, thread }, watched.into()))
    }
}

fn carry_out<P: Plane>(
    mut executor: Executor<P>,
    given: &Receiver<Order>,
    news: &Mutex<Report>,
    mut wakes: &UnixStream,
) {
    let mut pause = LOOKS_EVERY;
    loop {
        let order = if executor.has_regions() {
            given.recv_timeout(pause)
        } else {
            given.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match order {
            Ok(order) => executor.carry_out(order),
            Err(RecvTimeoutError::Timeout) => {
                let begun = Instant::now();
                executor.look();
                pause = LOOKS_EVERY.max(begun.elapsed() * LOOKS_SHARE);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut known = news.lock().unwrap_or_else(PoisonError::into_inner);
        if executor.report().is_news_to(&known) {
            known.take_over(executor.report());
            drop(known);
            // When it is full the agent has been woken often enough.
            _ = wakes.write(&[1]);
        }
    }
}

impl Device for PlaneThread {
    fn check(&self, config: &RegionConfig) -> Result<(), String> {
        (self.check)(config)
    }

    fn tags(&self) -> TagKind {
        self.tags
    }

    fn order(&mut self, order: Order) {
        // If the thread is gone, its report has an error.
        _ = self.orders.send(order);
    }

    fn report(&mut self, known: &mut Report) {
        let mut bytes = [0; 256];
        while self.woken.read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        known.take_over(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        if self.thread.is_finished() {
            known.give_up("the thread of the data plane has panicked, which is an error of this program");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use libra_proto::{DeferredPlane, Progress, SoftPlane};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn plane() -> (DeferredPlane<PlaneThread>, UnixStream) {
        let (thread, wakes) = PlaneThread::start(SoftPlane::default(), |_| Ok(())).unwrap();
        (DeferredPlane::new(thread), UnixStream::from(wakes))
    }

    fn wait(plane: &mut DeferredPlane<PlaneThread>, until: impl Fn(&DeferredPlane<PlaneThread>) -> bool) {
        let begun = Instant::now();
        while !until(plane) {
            assert!(begun.elapsed() < TIMEOUT);
            thread::sleep(LOOKS_EVERY);
            plane.clear_wakeups();
        }
    }

    #[test]
    fn orders_run_on_the_thread_and_wake_the_agent() {
        let (mut plane, wakes) = plane();
        plane.begin(7);
        plane.set_workers(&BTreeMap::new());
        assert_eq!(plane.progress(), Progress { asked: 2, done: 0 });
        wakes.set_nonblocking(false).unwrap();
        wakes.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert!((&wakes).read(&mut [0]).is_ok_and(|read| read == 1), "it wakes its agent");
        wait(&mut plane, |plane| plane.progress().done == 2);
        assert_eq!(plane.failure(), None);
    }

    #[test]
    fn a_thread_that_panics_is_a_plane_that_has_failed() {
        let (mut plane, _wakes) = plane();
        // No agent names a region that is not open.
        plane.settle(3, 1);
        wait(&mut plane, |plane| plane.failure().is_some());
    }
}
