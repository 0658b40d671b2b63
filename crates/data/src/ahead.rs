//! Reading ahead of who takes what is read, in a thread.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use crate::error::DataError;

/// Makes items of what it reads, in an order that follows from its orders alone.
pub trait Source: Send + 'static {
    /// Names items that follow one another.
    type Order: Send;
    /// An item, such as a batch.
    type Item: Send + Default;

    /// Goes to the start of what is ordered.
    ///
    /// # Errors
    /// The data cannot be read.
    fn begin(&mut self, order: Self::Order) -> Result<(), DataError>;

    /// Replaces an item, whose memory it may use, by the next one; `false` at the end.
    ///
    /// # Errors
    /// The data cannot be read.
    fn next(&mut self, item: &mut Self::Item) -> Result<bool, DataError>;
}

/// A source in a thread of its own, which reads a bounded number of items ahead. Orders are done one after the other.
///
/// An error takes the place of the item that could not be read, and ends its order. The thread ends once this is dropped, and nothing waits for it: a
/// request to a server may take long.
#[derive(Debug)]
pub struct ReadAhead<S: Source> {
    orders: Sender<Job<S>>,
    used: Sender<S::Item>,
    thread: Option<JoinHandle<()>>,
}

/// An order, and the way for what it brings.
type Job<S> = (<S as Source>::Order, SyncSender<Delivery<<S as Source>::Item>>);

/// An item, the end, or an error.
type Delivery<T> = Result<Option<T>, DataError>;

/// The items of an order. To drop them is to cancel it.
#[derive(Debug)]
pub struct Ordered<T> {
    items: Receiver<Delivery<T>>,
    has_ended: bool,
}

impl<S: Source> ReadAhead<S> {
    /// Starts the thread.
    ///
    /// # Panics
    /// The system has no thread left.
    pub fn start(mut source: S) -> Self {
        let (orders, ordered) = channel::<Job<S>>();
        let (used, returned) = channel();
        let work = move || {
            while let Ok((order, into)) = ordered.recv() {
                if let Err(error) = source.begin(order) {
                    let _ = into.send(Err(error));
                    continue;
                }
                loop {
                    let mut item = returned.try_recv().unwrap_or_default();
                    let delivery = source.next(&mut item).map(|is_there| is_there.then_some(item));
                    let goes_on = matches!(delivery, Ok(Some(_)));
                    if into.send(delivery).is_err() || !goes_on {
                        break;
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("data".to_owned()).spawn(work);
        Self { orders, used, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Orders items, of which at most `ahead` wait to be taken.
    pub fn order(&mut self, order: S::Order, ahead: usize) -> Ordered<S::Item> {
        let (into, items) = sync_channel(ahead);
        if self.orders.send((order, into)).is_err() {
            self.panic();
        }
        Ordered { items, has_ended: false }
    }

    /// Replaces an item by the next one of an order, for which it waits; `false` behind the last.
    ///
    /// # Errors
    /// The item cannot be read. The order has ended then.
    ///
    /// # Panics
    /// If the source has panicked.
    pub fn next(&mut self, ordered: &mut Ordered<S::Item>, item: &mut S::Item) -> Result<bool, DataError> {
        if ordered.has_ended {
            return Ok(false);
        }
        let Ok(delivery) = ordered.items.recv() else { self.panic() };
        ordered.has_ended = !matches!(delivery, Ok(Some(_)));
        let Some(next) = delivery? else { return Ok(false) };
        // Its memory is used for a later one, unless the thread has ended.
        let _ = self.used.send(std::mem::replace(item, next));
        Ok(true)
    }

    /// The thread has ended before its orders have: it has panicked.
    fn panic(&mut self) -> ! {
        let ended = self.thread.take().map(JoinHandle::join);
        let Some(Err(panic)) = ended else { unreachable!("a thread that reads ahead ends last") };
        resume_unwind(panic)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::{At, Fault};

    /// Counts from 10 times an order on to 10 numbers; has no number that ends in 7, if it is above 20.
    #[derive(Default)]
    struct Numbers {
        next: u32,
        made: Arc<AtomicU32>,
    }

    impl Source for Numbers {
        type Order = u32;
        type Item = u32;

        fn begin(&mut self, order: u32) -> Result<(), DataError> {
            self.next = 10 * order;
            if order < 100 { Ok(()) } else { Err(At::file("numbers").error(Fault::Empty)) }
        }

        fn next(&mut self, item: &mut u32) -> Result<bool, DataError> {
            *item = self.next;
            self.next += 1;
            self.made.fetch_add(1, Ordering::SeqCst);
            match *item {
                number if number > 20 && number % 10 == 7 => Err(At::file("numbers").error(Fault::Empty)),
                number => Ok(number % 10 < 9),
            }
        }
    }

    fn eventually(is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(10), "it never is");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn all(reader: &mut ReadAhead<Numbers>, mut ordered: Ordered<u32>) -> Vec<u32> {
        let (mut item, mut found) = (0, Vec::new());
        while reader.next(&mut ordered, &mut item).unwrap() {
            found.push(item);
        }
        found
    }

    #[test]
    fn orders_are_done_in_order() {
        let mut reader = ReadAhead::start(Numbers::default());
        let (first, second) = (reader.order(1, 2), reader.order(0, 2));
        assert_eq!(all(&mut reader, first), (10..19).collect::<Vec<_>>());
        assert_eq!(all(&mut reader, second), (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn items_ahead_are_bounded() {
        let numbers = Numbers::default();
        let made = numbers.made.clone();
        let mut reader = ReadAhead::start(numbers);
        let mut ordered = reader.order(1, 2);
        // Two that wait, and one that is offered.
        eventually(|| made.load(Ordering::SeqCst) == 3);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(made.load(Ordering::SeqCst), 3);
        assert!(reader.next(&mut ordered, &mut 0).unwrap());
        eventually(|| made.load(Ordering::SeqCst) == 4);
    }

    #[test]
    fn an_order_that_is_dropped_does_not_block_the_next() {
        let mut reader = ReadAhead::start(Numbers::default());
        drop(reader.order(1, 1));
        let next = reader.order(0, 1);
        assert_eq!(all(&mut reader, next).len(), 9);
    }

    #[test]
    fn an_error_comes_in_the_place_of_its_item() {
        let mut reader = ReadAhead::start(Numbers::default());
        let (mut ordered, mut item) = (reader.order(2, 100), 0);
        for expected in 20..27 {
            assert_eq!((reader.next(&mut ordered, &mut item).unwrap(), item), (true, expected));
        }
        assert!(reader.next(&mut ordered, &mut item).is_err());
        assert!(!reader.next(&mut ordered, &mut item).unwrap(), "the order has ended");
        let mut refused = reader.order(100, 1);
        assert!(reader.next(&mut refused, &mut item).is_err());
        let next = reader.order(1, 1);
        assert_eq!(all(&mut reader, next).len(), 9);
    }

    #[test]
    fn the_thread_ends_when_its_reader_is_dropped() {
        let numbers = Numbers::default();
        let made = Arc::downgrade(&numbers.made);
        let mut reader = ReadAhead::start(numbers);
        let ordered = reader.order(1, 1);
        drop(reader);
        assert!(made.upgrade().is_some(), "it waits for an item to be taken");
        drop(ordered);
        eventually(|| made.upgrade().is_none());
    }

    #[test]
    #[should_panic(expected = "99")]
    fn a_panic_is_that_of_who_waits() {
        struct Bad;
        impl Source for Bad {
            type Order = ();
            type Item = u32;

            fn begin(&mut self, (): ()) -> Result<(), DataError> {
                Ok(())
            }

            fn next(&mut self, _: &mut u32) -> Result<bool, DataError> {
                panic!("99")
            }
        }
        let mut reader = ReadAhead::start(Bad);
        let mut ordered = reader.order((), 1);
        let _ = reader.next(&mut ordered, &mut 0);
    }
}
