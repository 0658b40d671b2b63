//! Requests of a customer, and which answers they still wait for.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};

use crate::mesh::MeshError;

use crate::error::CallError;

/// Requests that were refused are remembered until a wait for them, but no more than so many.
const REFUSED_MAX: usize = 4096;
/// Requests with the same number of answers behind each other are one entry of so many.
const RUNS_MAX: usize = 4096;

/// All requests of one customer.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    next: i32,
    open: HashMap<i32, Open>,
    /// Those that are over, and failed.
    refused: BTreeMap<i32, CallError>,
    /// True once numbers have started again behind the highest.
    has_restarted: bool,
    /// From which request on so many answers belong to each.
    runs: BTreeMap<i32, usize>,
    failure: Option<MeshError>,
}

#[derive(Debug)]
struct Open {
    expected: usize,
    answers: usize,
    /// Nodes that were asked and have not answered.
    asked: Vec<i32>,
    error: Option<CallError>,
}

impl Tracker {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock()
    }

    /// Numbers a request that so many answers belong to.
    pub(crate) fn begin(&self, expected: usize) -> i32 {
        let mut requests = self.lock();
        let timestamp = requests.next;
        requests.next = timestamp.checked_add(1).unwrap_or_default();
        requests.has_restarted |= requests.next == 0;
        requests.note_run(timestamp, expected);
        let open = Open { expected, answers: 0, asked: Vec::new(), error: None };
        if expected > 0 {
            requests.open.insert(timestamp, open);
        }
        timestamp
    }

    /// A node is about to be asked.
    #[cfg(test)]
    fn begins_with(timestamp: i32) -> Self {
        let tracker = Self::default();
        tracker.lock().next = timestamp;
        tracker
    }

    pub(crate) fn asked(&self, timestamp: i32, node: i32) {
        if let Some(open) = self.lock().open.get_mut(&timestamp) {
            open.asked.push(node);
        }
    }

    /// So many answers have come, of this node or of none in particular.
    pub(crate) fn answered(&self, timestamp: i32, node: Option<i32>, count: usize, error: Option<CallError>) {
        let mut requests = self.lock();
        let Some(open) = requests.open.get_mut(&timestamp) else { return };
        open.answers += count;
        open.asked.retain(|asked| Some(*asked) != node);
        if open.error.is_none() {
            open.error = error;
        }
        if open.answers >= open.expected {
            Self::end(&mut requests, timestamp);
            drop(requests);
            self.changed.notify_all();
        }
    }

    fn end(requests: &mut Requests, timestamp: i32) {
        if let Some(error) = requests.open.remove(&timestamp).and_then(|open| open.error) {
            requests.refused.insert(timestamp, error);
            if requests.refused.len() > REFUSED_MAX {
                requests.refused.pop_first();
            }
        }
    }

    /// A request cannot come to anything any more.
    pub(crate) fn refuse(&self, timestamp: i32, error: CallError) {
        let mut requests = self.lock();
        if let Some(open) = requests.open.get_mut(&timestamp) {
            open.error = Some(error);
            Self::end(&mut requests, timestamp);
            drop(requests);
            self.changed.notify_all();
        }
    }

    /// A node has finalized, and will not answer.
    pub(crate) fn left(&self, node: i32, error: &MeshError) {
        let mut requests = self.lock();
        if requests.failure.is_some() {
            // It finalizes because of that failure, which remains the reason.
            return;
        }
        let over: Vec<i32> = requests
            .open
            .iter()
            .filter(|(_, open)| open.asked.contains(&node))
            .map(|(timestamp, _)| *timestamp)
            .collect();
        for timestamp in over {
            if let Some(open) = requests.open.get_mut(&timestamp) {
                open.error = Some(error.clone().into());
            }
            Self::end(&mut requests, timestamp);
        }
        drop(requests);
        self.changed.notify_all();
    }

    /// A process has died: all waits end.
    pub(crate) fn fail(&self, error: &MeshError) {
        self.lock().failure.get_or_insert_with(|| error.clone());
        self.changed.notify_all();
    }

    /// Returns true if answers to a request are still to come.
    pub(crate) fn is_open(&self, timestamp: i32) -> bool {
        self.lock().open.contains_key(&timestamp)
    }

    /// Waits until a request has all its answers.
    pub(crate) fn wait(&self, timestamp: i32) -> Result<(), CallError> {
        let mut requests = self.lock();
        loop {
            if let Some(error) = requests.refused.remove(&timestamp) {
                return Err(error);
            }
            if !requests.open.contains_key(&timestamp) {
                return if requests.was_given(timestamp) {
                    Ok(())
                } else {
                    Err(CallError::UnknownRequest { timestamp })
                };
            }
            if let Some(failure) = &requests.failure {
                return Err(failure.clone().into());
            }
            self.changed.wait(&mut requests);
        }
    }

    /// Returns the number of answers that have come.
    pub(crate) fn answers(&self, timestamp: i32) -> usize {
        let requests = self.lock();
        match requests.open.get(&timestamp) {
            Some(open) => open.answers,
            None => requests.runs.range(..=timestamp).next_back().map_or(0, |(_, expected)| *expected),
        }
    }
}

impl Requests {
    /// Returns whether a request has had this number. Behind the highest one numbers start again, after a few hours of many small requests: then those
    /// above the next one are of before.
    fn was_given(&self, timestamp: i32) -> bool {
        timestamp >= 0 && (timestamp < self.next || self.has_restarted)
    }

    fn note_run(&mut self, timestamp: i32, expected: usize) {
        if timestamp == i32::MAX / 2 {
            // Numbers above are of requests before, which are not asked for any more.
            drop(self.runs.split_off(&timestamp));
        }
        let before = self.runs.range(..=timestamp).next_back().or_else(|| self.runs.last_key_value());
        if timestamp > 0 && before.is_some_and(|(_, last)| *last == expected) {
            return;
        }
        self.runs.insert(timestamp, expected);
        if self.runs.len() > RUNS_MAX {
            let oldest = self.runs.range(timestamp..).nth(1).or_else(|| self.runs.first_key_value());
            let oldest = oldest.map(|(oldest, _)| *oldest);
            oldest.map(|oldest| self.runs.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died() -> MeshError {
        MeshError::Died { peer: "server 1".to_owned(), reason: "killed".to_owned() }
    }

    #[test]
    fn a_request_is_over_when_all_have_answered() {
        let tracker = Tracker::default();
        let (first, second) = (tracker.begin(2), tracker.begin(2));
        assert_eq!((first, second), (0, 1));
        tracker.answered(first, Some(8), 1, None);
        assert_eq!((tracker.answers(first), tracker.answers(second)), (1, 0));
        tracker.answered(first, None, 1, None);
        assert_eq!((tracker.wait(first), tracker.answers(first)), (Ok(()), 2));
        assert_eq!(tracker.wait(7), Err(CallError::UnknownRequest { timestamp: 7 }));
        assert_eq!(tracker.wait(tracker.begin(0)), Ok(()));
    }

    #[test]
    fn numbers_restart_behind_the_highest() {
        let tracker = Tracker::begins_with(i32::MAX - 1);
        let timestamps: Vec<i32> = [2, 3, 3, 1].into_iter().map(|expected| tracker.begin(expected)).collect();
        assert_eq!(timestamps, [i32::MAX - 1, i32::MAX, 0, 1]);
        for (timestamp, expected) in timestamps.iter().copied().zip([2, 3, 3, 1]) {
            tracker.answered(timestamp, None, expected, None);
        }
        // All of them are over, on both sides of the end.
        for (timestamp, expected) in timestamps.into_iter().zip([2, 3, 3, 1]) {
            assert_eq!(
                (tracker.wait(timestamp), tracker.answers(timestamp)),
                (Ok(()), expected),
                "{timestamp}"
            );
        }
        assert_eq!(tracker.wait(-1), Err(CallError::UnknownRequest { timestamp: -1 }));
        // In time, requests before the end are forgotten.
        tracker.lock().next = i32::MAX / 2;
        tracker.begin(5);
        assert_eq!(tracker.lock().runs.keys().copied().collect::<Vec<_>>(), [0, 1, i32::MAX / 2]);
    }

    #[test]
    fn runs_are_bounded_where_numbers_restart() {
        let most = i32::try_from(RUNS_MAX).unwrap();
        let tracker = Tracker::begins_with(i32::MAX - 2 * most);
        for number in 0..5 * most {
            let expected = usize::try_from(number % 7).unwrap();
            let timestamp = tracker.begin(expected);
            tracker.answered(timestamp, None, expected, None);
            assert_eq!(tracker.answers(timestamp), expected);
            assert!(tracker.lock().runs.len() <= RUNS_MAX);
        }
    }

    #[test]
    fn a_refusal_is_the_result_of_its_request_alone() {
        let tracker = Tracker::default();
        let (first, second) = (tracker.begin(1), tracker.begin(1));
        let refused = CallError::Refused { reason: "no".to_owned() };
        tracker.answered(first, Some(8), 1, Some(refused.clone()));
        tracker.answered(second, Some(8), 1, None);
        assert_eq!((tracker.wait(second), tracker.wait(first)), (Ok(()), Err(refused)));
    }

    #[test]
    fn a_death_ends_every_wait_and_keeps_what_was_answered() {
        let tracker = Tracker::default();
        let (first, second) = (tracker.begin(1), tracker.begin(1));
        tracker.answered(first, Some(8), 1, None);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| tracker.wait(second));
            tracker.fail(&died());
            assert_eq!(wait.join().unwrap(), Err(died().into()));
        });
        assert_eq!(tracker.wait(first), Ok(()));
    }

    #[test]
    fn finalizing_fails_only_the_requests_of_that_customer() {
        let tracker = Tracker::default();
        let (first, second) = (tracker.begin(2), tracker.begin(1));
        tracker.asked(first, 8);
        tracker.asked(first, 10);
        tracker.asked(second, 10);
        tracker.answered(first, Some(10), 1, None);
        tracker.left(8, &MeshError::Left { peer: "server 0".to_owned() });
        assert!(tracker.wait(first).unwrap_err().to_string().contains("server 0 has finalized"));
        tracker.answered(second, Some(10), 1, None);
        assert_eq!(tracker.wait(second), Ok(()));
    }
}
