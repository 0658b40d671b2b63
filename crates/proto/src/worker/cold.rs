//! The cold path of a worker: rows go to their shards in messages.

use std::collections::{BTreeMap, VecDeque};

use super::rows::{ColdRow, spans};
use crate::bulk::Bulk;
use crate::message::{Answered, ColdPush, Message};

/// A request to a shard that is not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) operation: u64,
    /// The rows whose values the answer holds.
    pub(crate) rows: Vec<ColdRow>,
}

/// A worker's conversation with one shard.
#[derive(Debug, Clone, Default)]
struct Shard {
    numbered: u64,
    answered: Answered,
    /// Requests with the messages that carry them: should the stream break, they go again, in order (rule C1).
    open: BTreeMap<u64, (Request, Message)>,
}

/// A worker's conversations with all shards.
#[derive(Debug, Clone)]
pub(crate) struct ColdClient {
    shards: Vec<Shard>,
    /// What is to be sent, and to which shard.
    pub(crate) outbox: VecDeque<(u16, Message)>,
}

impl ColdClient {
    pub(crate) fn new(shards: u16) -> Self {
        Self { shards: vec![Shard::default(); usize::from(shards)], outbox: VecDeque::new() }
    }

    /// There is a new stream to a shard: everything that is not answered goes again.
    pub(crate) fn reconnected(&mut self, shard: u16) {
        self.outbox.retain(|(to, _)| *to != shard);
        let open = &self.shards[usize::from(shard)].open;
        self.outbox.extend(open.values().map(|(_, message)| (shard, message.clone())));
    }

    /// Asks for the values of rows, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn pull(&mut self, operation: u64, rows: &[ColdRow]) -> u32 {
        let request = |number, rows: &[ColdRow]| {
            let keys = Bulk(rows.iter().map(|row| row.key).collect());
            (Request { operation, rows: rows.to_vec() }, Message::Pull { number, keys })
        };
        self.each_shard(rows, request)
    }

    /// Adds gradients to rows, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn push(&mut self, operation: u64, rows: &[ColdRow], gradients: &[f32], answer: bool) -> u32 {
        let request = |number, rows: &[ColdRow]| {
            let keys = Bulk(rows.iter().map(|row| row.key).collect());
            let mut values = Vec::with_capacity(rows.iter().map(|row| row.width as usize).sum());
            for span in spans(rows) {
                values.extend_from_slice(&gradients[span]);
            }
            let push = ColdPush { number, keys, gradients: Bulk(values), answer };
            let answered = if answer { rows.to_vec() } else { Vec::new() };
            (Request { operation, rows: answered }, Message::Push(push))
        };
        self.each_shard(rows, request)
    }

    fn each_shard(
        &mut self,
        rows: &[ColdRow],
        request: impl Fn(u64, &[ColdRow]) -> (Request, Message),
    ) -> u32 {
        let mut answers = 0;
        for rows in rows.chunk_by(|a, b| a.shard == b.shard) {
            let number = rows[0].shard;
            let shard = &mut self.shards[usize::from(number)];
            shard.numbered += 1;
            let (request, message) = request(shard.numbered, rows);
            self.outbox.push_back((number, message.clone()));
            shard.open.insert(shard.numbered, (request, message));
            answers += 1;
        }
        answers
    }

    /// What the answer of a shard with this number is for; `None` if nothing waits for it.
    pub(crate) fn answered(&mut self, shard: u16, number: u64) -> Option<Request> {
        let shard = self.shards.get_mut(usize::from(shard))?;
        let (request, message) = shard.open.remove(&number)?;
        if matches!(message, Message::Push(_)) {
            let Answered { newest, count } = shard.answered;
            shard.answered = Answered { newest: newest.max(number), count: count + 1 };
        }
        Some(request)
    }

    /// The pushes that a shard has answered.
    pub(crate) fn answered_by(&self, shard: u16) -> Answered {
        self.shards[usize::from(shard)].answered
    }
}
