//! Pushes that are applied, and not answered yet.

use std::collections::VecDeque;

use crate::keys::Keys;
use crate::role::Link;

/// A push whose answer waits until the log has it, and switches have the new values of its rows.
#[derive(Debug, Clone)]
pub(super) struct WaitingPush {
    pub(super) link: Link,
    pub(super) number: u64,
    /// The record that the log must have.
    pub(super) record: u64,
    /// The rows whose values the answer holds; `None` if they were not asked for.
    pub(super) keys: Option<Keys>,
    /// Changes of regions that switches must have installed.
    pub(super) changes: Vec<(u8, u64)>,
}

/// Pushes in the order in which they came. None is looked at again before what it waits for can have come.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingPushes {
    /// Those that wait for the log: records rise, so those that it has are in front.
    unlogged: VecDeque<WaitingPush>,
    /// Those before them, which wait for switches.
    uninstalled: VecDeque<WaitingPush>,
}

impl WaitingPushes {
    /// Adds the newest push, of which the log has the record or not.
    pub(super) fn add(&mut self, push: WaitingPush, is_logged: bool) {
        if is_logged { self.uninstalled.push_back(push) } else { self.unlogged.push_back(push) }
    }

    /// Hands pushes out, in order, of which the log has the record: it has those up to `kept`. What `answer` does not answer waits for switches.
    pub(super) fn answer(&mut self, kept: u64, mut answer: impl FnMut(&mut WaitingPush) -> bool) {
        self.uninstalled.retain_mut(|push| push.record > kept || !answer(push));
        while let Some(mut push) = self.unlogged.pop_front_if(|push| push.record <= kept) {
            if !answer(&mut push) {
                self.uninstalled.push_back(push);
            }
        }
    }

    /// Forgets changes that need not be waited for any more: their regions have other owners now.
    pub(super) fn forget_changes(&mut self, is_done: impl Fn((u8, u64)) -> bool) {
        for push in self.uninstalled.iter_mut().chain(&mut self.unlogged) {
            push.changes.retain(|change| !is_done(*change));
        }
    }

    /// A stream is gone: nothing is answered on it.
    pub(super) fn close(&mut self, link: Link) {
        self.uninstalled.retain(|push| push.link != link);
        self.unlogged.retain(|push| push.link != link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(number: u64, changes: &[u64]) -> WaitingPush {
        let changes = changes.iter().map(|change| (0, *change)).collect();
        WaitingPush { link: Link(number % 2), number, record: number, keys: None, changes }
    }

    /// Numbers of the pushes that are answered, when the log has records up to `kept` and switches changes up to `installed`; and how many were
    /// looked at.
    fn answered(pushes: &mut WaitingPushes, kept: u64, installed: u64) -> (Vec<u64>, usize) {
        let (mut answered, mut looks) = (Vec::new(), 0);
        pushes.answer(kept, |push| {
            looks += 1;
            push.changes.retain(|(_, change)| *change > installed);
            let is_answered = push.changes.is_empty();
            answered.extend(is_answered.then_some(push.number));
            is_answered
        });
        (answered, looks)
    }

    #[test]
    fn pushes_are_answered_in_order_and_once() {
        let mut pushes = WaitingPushes::default();
        for number in 1..=6 {
            pushes.add(push(number, if number % 3 == 0 { &[7] } else { &[] }), false);
        }
        assert_eq!(answered(&mut pushes, 0, 7), (vec![], 0));
        assert_eq!(answered(&mut pushes, 4, 6), (vec![1, 2, 4], 4));
        pushes.add(push(7, &[8]), true);
        assert_eq!(answered(&mut pushes, 6, 6), (vec![5], 3));
        pushes.close(Link(0));
        pushes.forget_changes(|(_, change)| change == 8);
        assert_eq!(answered(&mut pushes, 9, 6), (vec![7], 2));
        assert_eq!(answered(&mut pushes, 9, 7), (vec![3], 1));
        assert_eq!(answered(&mut pushes, 9, 9), (vec![], 0));
    }

    #[test]
    fn pushes_are_looked_at_once_however_many_wait_for_the_log() {
        let mut pushes = WaitingPushes::default();
        for number in 1..=1000 {
            pushes.add(push(number, &[]), false);
            assert_eq!(answered(&mut pushes, 0, 0).1, 0);
        }
        assert_eq!(answered(&mut pushes, 1000, 0).1, 1000);
    }
}
