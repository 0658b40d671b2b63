//! The cold path of a worker: rows go to their shards in messages, so many at a time.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::rows::{ColdRow, spans};
use crate::keys::Keys;
use crate::message::{Answered, ColdPush, Message};
use crate::values::{ValueFormat, Values};

/// A request has no more bytes of keys and values, the answer's included, unless one row does (rule C8). A stream that carries a
/// gigabyte a second is busy with that for a millisecond, and what else waits for it for no longer; what each message costs by
/// itself is long lost in it.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Requests to one shard that are not answered have no more bytes together (rule C9): several times what is on its way in a
/// fast network (10 GB/s for 100 us is a megabyte), so that a shard always has one more to go on with.
const WINDOW_BYTES: usize = 8 << 20;
/// And there are no more of them: a shard keeps a little of each, however small it is.
const WINDOW_REQUESTS: usize = 256;

/// A request to a shard that is not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) operation: u64,
    order: Order,
    rows: Arc<Vec<ColdRow>>,
    piece: Piece,
}

/// The operation on rows.
#[derive(Debug, Clone)]
enum Order {
    Pull,
    Push {
        /// Of all rows of the operation.
        gradients: Arc<Vec<f32>>,
        answer: bool,
    },
}

/// Some rows of an operation that go in one request.
#[derive(Debug, Clone)]
struct Piece {
    rows: Range<usize>,
    /// Number of their values.
    values: usize,
    /// True if those lie one behind the other in the caller's array: most do, and then need not be looked at one by one.
    together: bool,
    /// Bytes of request and answer together, without compression.
    bytes: usize,
}

/// Rows that an operation still has to ask of one shard.
#[derive(Debug, Clone)]
struct Waiting {
    operation: u64,
    order: Order,
    rows: Arc<Vec<ColdRow>>,
    pieces: VecDeque<Piece>,
}

/// A worker's requests to one shard.
#[derive(Debug, Clone, Default)]
struct Shard {
    numbered: u64,
    answered: Answered,
    /// Requests without an answer: should the stream break, they go again, in order (rule C1).
    open: BTreeMap<u64, Request>,
    open_bytes: usize,
    /// Operations for which the window has no room yet. They take turns, so that a large one holds up no other.
    waiting: VecDeque<Waiting>,
}

/// A worker's requests to all shards.
#[derive(Debug, Clone)]
pub(crate) struct ColdClient {
    format: ValueFormat,
    shards: Vec<Shard>,
    /// Messages to send, and the shard of each.
    pub(crate) outbox: VecDeque<(u16, Message)>,
}

impl Request {
    fn rows(&self) -> &[ColdRow] {
        &self.rows[self.piece.rows.clone()]
    }

    fn is_answered_with_values(&self) -> bool {
        !matches!(self.order, Order::Push { answer: false, .. })
    }

    /// Returns the number of values in the answer.
    pub(crate) fn answered_values(&self) -> usize {
        if self.is_answered_with_values() { self.piece.values } else { 0 }
    }

    /// Returns their places in the caller's array.
    pub(crate) fn answered_spans(&self) -> impl Iterator<Item = Range<usize>> {
        self.is_answered_with_values().then(|| self.spans()).into_iter().flatten()
    }

    /// Returns the places of the rows in the caller's array.
    fn spans(&self) -> impl Iterator<Item = Range<usize>> {
        let rows = self.rows();
        let whole = rows.first().filter(|_| self.piece.together).map(|row| {
            let start = row.range().start;
            start..start + self.piece.values
        });
        let scattered = if self.piece.together { &[] } else { rows };
        whole.into_iter().chain(spans(scattered))
    }

    /// The same whenever it is made.
    fn message(&self, number: u64, format: ValueFormat) -> Message {
        let rows = self.rows();
        let keys = Keys::new(rows.iter().map(|row| row.key));
        match &self.order {
            Order::Pull => Message::Pull { number, keys },
            Order::Push { gradients, answer } => {
                let mut values = Vec::with_capacity(self.piece.values);
                for span in self.spans() {
                    values.extend_from_slice(&gradients[span]);
                }
                Message::Push(ColdPush {
                    number,
                    keys,
                    gradients: Values::new(format, values),
                    answer: *answer,
                })
            }
        }
    }
}

impl Order {
    /// Returns the number of times that values go over the stream.
    fn transfers(&self) -> usize {
        match self {
            Self::Pull | Self::Push { answer: false, .. } => 1,
            Self::Push { answer: true, .. } => 2,
        }
    }
}

impl Shard {
    fn has_room(&self, bytes: usize) -> bool {
        self.open.is_empty() || (self.open.len() < WINDOW_REQUESTS && self.open_bytes + bytes <= WINDOW_BYTES)
    }

    /// The next request for which there is room, with its number.
    fn next(&mut self) -> Option<(u64, &Request)> {
        let bytes = self.waiting.front()?.pieces.front()?.bytes;
        if !self.has_room(bytes) {
            return None;
        }
        let mut waiting = self.waiting.pop_front()?;
        let piece = waiting.pieces.pop_front()?;
        let (operation, order, rows) = if waiting.pieces.is_empty() {
            (waiting.operation, waiting.order, waiting.rows)
        } else {
            let all = (waiting.operation, waiting.order.clone(), Arc::clone(&waiting.rows));
            self.waiting.push_back(waiting);
            all
        };
        self.numbered += 1;
        self.open_bytes += piece.bytes;
        let request = self.open.entry(self.numbered).or_insert(Request { operation, order, rows, piece });
        Some((self.numbered, request))
    }
}

impl ColdClient {
    pub(crate) fn new(shards: u16, format: ValueFormat) -> Self {
        Self { format, shards: vec![Shard::default(); usize::from(shards)], outbox: VecDeque::new() }
    }

    /// There is a new stream to a shard: everything that is not answered goes again.
    pub(crate) fn reconnected(&mut self, shard: u16) {
        self.outbox.retain(|(to, _)| *to != shard);
        let open = &self.shards[usize::from(shard)].open;
        self.outbox
            .extend(open.iter().map(|(number, request)| (shard, request.message(*number, self.format))));
    }

    /// Asks for the values of rows, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn pull(&mut self, operation: u64, rows: Vec<ColdRow>) -> u32 {
        self.each_shard(operation, rows, &Order::Pull)
    }

    /// Adds gradients to rows, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn push(
        &mut self,
        operation: u64,
        rows: Vec<ColdRow>,
        gradients: Vec<f32>,
        answer: bool,
    ) -> u32 {
        // Most pushes of the hot path have none, and need no memory here.
        if rows.is_empty() {
            return 0;
        }
        self.each_shard(operation, rows, &Order::Push { gradients: Arc::new(gradients), answer })
    }

    fn each_shard(&mut self, operation: u64, rows: Vec<ColdRow>, order: &Order) -> u32 {
        let rows = Arc::new(rows);
        let (mut answers, mut start) = (0, 0);
        while start < rows.len() {
            let number = rows[start].shard;
            let pieces = pieces(&rows, start, order.transfers());
            start = pieces.back().expect("there was a row").rows.end;
            answers += pieces.len();
            let (order, rows) = (order.clone(), Arc::clone(&rows));
            self.shards[usize::from(number)].waiting.push_back(Waiting { operation, order, rows, pieces });
            self.send(number);
        }
        u32::try_from(answers).expect("an operation has fewer than 2^32 rows")
    }

    /// Sends what the window of a shard has room for (rule C9).
    fn send(&mut self, number: u16) {
        let shard = &mut self.shards[usize::from(number)];
        while let Some((request_number, request)) = shard.next() {
            self.outbox.push_back((number, request.message(request_number, self.format)));
        }
    }

    /// Returns the request that the answer of a shard with this number is for; `None` if nothing waits for it.
    pub(crate) fn answered(&mut self, number: u16, request_number: u64) -> Option<Request> {
        let shard = self.shards.get_mut(usize::from(number))?;
        let request = shard.open.remove(&request_number)?;
        shard.open_bytes -= request.piece.bytes;
        if matches!(request.order, Order::Push { .. }) {
            let Answered { newest, count } = shard.answered;
            shard.answered = Answered { newest: newest.max(request_number), count: count + 1 };
        }
        self.send(number);
        Some(request)
    }

    /// The push with this number if it waits for an answer of a shard and has this row; that was refused, and is not sent again. It does not
    /// count as answered: the shard does not count it as applied (rules C11, L4).
    pub(crate) fn refused(&mut self, number: u16, request_number: u64, key: u64) -> Option<Request> {
        let shard = self.shards.get_mut(usize::from(number))?;
        let request = shard.open.get(&request_number)?;
        let is_push = matches!(request.order, Order::Push { .. });
        if !is_push || request.rows().iter().all(|row| row.key != key) {
            return None;
        }
        let request = shard.open.remove(&request_number)?;
        shard.open_bytes -= request.piece.bytes;
        self.send(number);
        Some(request)
    }

    /// The pushes that a shard has answered (rule L4).
    pub(crate) fn answered_by(&self, shard: u16) -> Answered {
        self.shards[usize::from(shard)].answered
    }
}

/// The rows of one shard from `start` on in as few pieces as may be, none of them larger than a request (rule C8).
fn pieces(rows: &[ColdRow], start: usize, transfers: usize) -> VecDeque<Piece> {
    let empty = |start| Piece { rows: start..start, values: 0, together: true, bytes: 0 };
    let shard = rows[start].shard;
    let mut pieces = VecDeque::with_capacity(1);
    let (mut piece, mut end) = (empty(start), rows[start].offset);
    for row in rows[start..].iter().take_while(|row| row.shard == shard) {
        let bytes = size_of::<u64>() + transfers * size_of::<f32>() * row.width as usize;
        if piece.bytes + bytes > REQUEST_BYTES_MAX && !piece.rows.is_empty() {
            let next = empty(piece.rows.end);
            pieces.push_back(core::mem::replace(&mut piece, next));
        }
        piece.together &= piece.rows.is_empty() || row.offset == end;
        piece.rows.end += 1;
        piece.values += row.width as usize;
        piece.bytes += bytes;
        end = row.offset + row.width;
    }
    pieces.push_back(piece);
    pieces
}

#[cfg(test)]
mod tests;
