//! The operations of a worker as its caller sees them. Their rows, values and missing answers are in the ledger of the role, on the other
//! thread; here is only what the caller is answered, or waits for, without asking that thread (docs/decisions/streams.md).

use std::collections::HashMap;

use libra_proto::{PullId, Pulled};

/// Keys and values of operations under way take no more bytes, unless one alone does: the data that waits for a slow shard is then bounded,
/// and its caller waits instead (rule C9). Several times the contents of all windows of a few shards.
pub(super) const OPERATIONS_BYTES_MAX: usize = 64 << 20;

/// An operation without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    /// A pull, or a push with pull.
    Pull,
    Push,
    /// A push whose end the caller asks for.
    FollowedPush,
    /// Rows that are set, or a scan.
    Exchange,
}

impl Open {
    fn is_push(self) -> bool {
        matches!(self, Self::Push | Self::FollowedPush)
    }
}

/// Operations that are under way, or whose values the caller has not fetched.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Operations without an answer, and the bytes of each.
    open: HashMap<u64, (Open, usize)>,
    /// Bytes of all of them.
    bytes: usize,
    pushes: usize,
    followed_pushes: usize,
    pulled: HashMap<PullId, Pulled>,
}

impl Ledger {
    /// Returns true if an operation of so many bytes fits beside those under way.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= OPERATIONS_BYTES_MAX
    }

    pub(super) fn begin(&mut self, number: u64, operation: Open, bytes: usize) {
        self.bytes += bytes;
        self.pushes += usize::from(operation.is_push());
        self.followed_pushes += usize::from(operation == Open::FollowedPush);
        self.open.insert(number, (operation, bytes));
    }

    /// Returns true if an operation has no answer yet.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// Returns true if a pull has no answer yet.
    pub(super) fn is_pulling(&self, pull: PullId) -> bool {
        self.open.get(&pull.0).is_some_and(|(operation, _)| *operation == Open::Pull)
    }

    /// Takes an operation off that is done, or cannot be; `None` if it is not open.
    pub(super) fn end(&mut self, number: u64) -> Option<Open> {
        let (operation, bytes) = self.open.remove(&number)?;
        self.bytes -= bytes;
        self.pushes -= usize::from(operation.is_push());
        self.followed_pushes -= usize::from(operation == Open::FollowedPush);
        Some(operation)
    }

    /// Keeps the values of a pull until the caller fetches them.
    pub(super) fn pulled(&mut self, pull: PullId, pulled: Pulled) {
        self.end(pull.0);
        self.pulled.insert(pull, pulled);
    }

    /// Returns the values of a pull, once.
    pub(super) fn take_pulled(&mut self, pull: PullId) -> Option<Pulled> {
        self.pulled.remove(&pull)
    }

    /// Returns true if nothing is under way, and no values wait for the caller.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.pulled.is_empty()
    }

    /// Returns the number of pushes without an answer.
    pub(super) fn pushes(&self) -> usize {
        self.pushes
    }

    /// Returns the number of those of them whose end the caller asks for.
    pub(super) fn followed_pushes(&self) -> usize {
        self.followed_pushes
    }

    /// Returns the bytes of operations without an answer.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
