//! The leases of a worker: the chunks that are its own to do, and those that it has done (rules K2 to K4).

use std::collections::{BTreeSet, VecDeque};

use crate::message::Message;
use crate::status::ChunkCounts;
use crate::work::{LeaseRequest, WorkRecord};

/// A chunk whose pushes were all handed over.
#[derive(Debug, Clone)]
struct Finished {
    chunk: u32,
    account: String,
    is_visible: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    wanted: u16,
    held: BTreeSet<u32>,
    /// In the order in which their pushes were handed over.
    finished: VecDeque<Finished>,
    record: WorkRecord,
    counts: ChunkCounts,
}

impl Leases {
    /// So many leases it wants to have at a time from now on.
    pub(super) fn want(&mut self, wanted: u16) -> Message {
        self.wanted = wanted;
        self.request(WorkRecord { phase: self.record.phase, ..WorkRecord::default() })
    }

    /// The next phase begins.
    pub(super) fn enter(&mut self, phase: u64) {
        self.record.enter(phase);
        self.counts.reassigned += self.held.len() as u64;
        self.held.clear();
        self.finished.clear();
    }

    /// The controller knows of these leases. Returns those that are new.
    pub(super) fn learn(&mut self, chunks: &[u32]) -> Vec<u32> {
        // What is done may have crossed the message.
        let is_new = |chunk: &u32| !self.record.done.contains(chunk) && !self.held.contains(chunk);
        let new: Vec<u32> = chunks.iter().copied().filter(is_new).collect();
        self.held.extend(&new);
        new
    }

    /// All pushes of a chunk were handed over.
    pub(super) fn finish(&mut self, chunk: u32, account: String) {
        self.finished.push_back(Finished { chunk, account, is_visible: false });
    }

    /// All pushes of a finished chunk are visible. Returns the message about what is done now: an account holds those before it, too, so
    /// that none is done before them.
    pub(super) fn visible(&mut self, chunk: u32) -> Option<Message> {
        self.finished.iter_mut().filter(|it| it.chunk == chunk).for_each(|it| it.is_visible = true);
        let mut news = WorkRecord { phase: self.record.phase, ..WorkRecord::default() };
        while let Some(Finished { chunk, account, .. }) = self.finished.pop_front_if(|first| first.is_visible)
        {
            self.held.remove(&chunk);
            news.done.insert(chunk);
            self.counts.done += 1;
            news.accounts.insert(news.phase, account);
        }
        self.record.add(&news);
        (!news.done.is_empty()).then(|| self.request(news))
    }

    pub(super) fn counts(&self) -> ChunkCounts {
        self.counts
    }

    /// Returns the message for a controller that has received nothing of it.
    pub(super) fn message(&self) -> Message {
        let (record, held, wanted) = (self.record.clone(), self.held.clone(), self.wanted);
        Message::Lease(Box::new(LeaseRequest { record, held, wanted }))
    }

    fn request(&self, record: WorkRecord) -> Message {
        Message::Lease(Box::new(LeaseRequest { record, held: BTreeSet::new(), wanted: self.wanted }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(message: Option<Message>) -> LeaseRequest {
        match message {
            Some(Message::Lease(request)) => *request,
            other => panic!("no request: {other:?}"),
        }
    }

    // rule K3
    #[test]
    fn chunks_are_done_in_the_order_of_their_accounts() {
        let mut leases = Leases::default();
        leases.want(2);
        assert_eq!(leases.learn(&[3, 5]), [3, 5]);
        leases.finish(3, "three".to_owned());
        leases.finish(5, "three and five".to_owned());
        assert_eq!(leases.visible(5), None, "its account holds chunk 3, too");
        let request = told(leases.visible(3));
        assert_eq!(request.record.done, BTreeSet::from([3, 5]));
        assert_eq!(request.record.accounts[&0], "three and five");
        assert_eq!((request.wanted, request.held), (2, BTreeSet::new()));
    }

    // rule K2
    #[test]
    fn a_lease_that_crosses_what_is_done_is_no_new_one() {
        let mut leases = Leases::default();
        assert_eq!(leases.learn(&[0, 1]), [0, 1]);
        leases.finish(0, String::new());
        leases.visible(0);
        assert_eq!(leases.learn(&[0, 1, 2]), [2]);
        let whole = told(Some(leases.message()));
        assert_eq!((whole.held, whole.record.done), (BTreeSet::from([1, 2]), BTreeSet::from([0])));
        leases.enter(1);
        assert_eq!(leases.learn(&[0]), [0]);
        // The phase has ended, so another has done chunks 1 and 2.
        assert_eq!(leases.counts(), ChunkCounts { done: 1, reassigned: 2 });
    }
}
