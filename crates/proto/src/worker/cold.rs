//! The cold path of a worker: rows go to their shards in messages.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::rows::ColdRow;
use crate::bulk::Bulk;
use crate::message::{ColdPush, Message};
use crate::role::Link;

/// A request to a shard that is not answered yet.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: u64,
    /// The rows whose values the answer holds.
    pub(crate) rows: Vec<ColdRow>,
}

/// A worker's conversation with one shard.
#[derive(Debug)]
struct Shard {
    link: Link,
    numbered: u64,
    open: HashMap<u64, Request, FixedState>,
}

/// A worker's conversations with all shards.
#[derive(Debug)]
pub(crate) struct ColdClient {
    shards: Vec<Shard>,
}

impl ColdClient {
    /// `links` are the streams to the shards, by their number.
    pub(crate) fn new(links: impl IntoIterator<Item = Link>) -> Self {
        let shards = links.into_iter().map(|link| Shard { link, numbered: 0, open: HashMap::default() });
        Self { shards: shards.collect() }
    }

    /// Asks for the values of rows, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn pull(
        &mut self,
        operation: u64,
        rows: &[ColdRow],
        send: &mut impl FnMut(Link, Message),
    ) -> u32 {
        self.each_shard(rows, |shard, rows| {
            let number = shard.number(Request { operation, rows: rows.to_vec() });
            let keys = Bulk(rows.iter().map(|row| row.key).collect());
            send(shard.link, Message::Pull { number, keys });
        })
    }

    /// Adds gradients to rows, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn push(
        &mut self,
        operation: u64,
        rows: &[ColdRow],
        gradients: &[f32],
        answer: bool,
        send: &mut impl FnMut(Link, Message),
    ) -> u32 {
        self.each_shard(rows, |shard, rows| {
            let number =
                shard.number(Request { operation, rows: if answer { rows.to_vec() } else { Vec::new() } });
            let keys = Bulk(rows.iter().map(|row| row.key).collect());
            let mut values = Vec::with_capacity(rows.iter().map(|row| row.width as usize).sum());
            for row in rows {
                values.extend_from_slice(&gradients[row.range()]);
            }
            send(shard.link, Message::Push(ColdPush { number, keys, gradients: Bulk(values), answer }));
        })
    }

    fn each_shard(&mut self, rows: &[ColdRow], mut request: impl FnMut(&mut Shard, &[ColdRow])) -> u32 {
        let mut answers = 0;
        for rows in rows.chunk_by(|a, b| a.shard == b.shard) {
            request(&mut self.shards[usize::from(rows[0].shard)], rows);
            answers += 1;
        }
        answers
    }

    /// What the answer with this number on this stream is for; `None` if nothing waits for it.
    pub(crate) fn answered(&mut self, link: Link, number: u64) -> Option<Request> {
        self.shards.iter_mut().find(|shard| shard.link == link)?.open.remove(&number)
    }
}

impl Shard {
    fn number(&mut self, request: Request) -> u64 {
        self.numbered += 1;
        self.open.insert(self.numbered, request);
        self.numbered
    }
}
