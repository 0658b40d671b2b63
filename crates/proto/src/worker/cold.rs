//! The cold path of a worker: rows go to their shards in messages, so many at a time.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::AssignedRows;
use super::rows::{ColdRow, spans};
use crate::bulk::Bulk;
use crate::keys::Keys;
use crate::message::{Answered, Assign, ColdPush, Message, Reset};
use crate::server::PAGE_BYTES_MAX;
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
    Assign {
        table: u16,
        /// Of all rows of the operation, as the states are.
        values: Arc<Vec<f32>>,
        states: Arc<Vec<f32>>,
        /// States of a row.
        words: usize,
    },
    Reset {
        table: u16,
        steps: u64,
    },
    Scan {
        table: u16,
        after: Option<u64>,
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
        matches!(self.order, Order::Pull | Order::Push { answer: true, .. })
    }

    /// Returns true if its answer is a page of a table.
    pub(crate) fn is_scan(&self) -> bool {
        matches!(self.order, Order::Scan { .. })
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
                let gradients = Values::new(format, self.values_of(gradients));
                Message::Push(ColdPush { number, keys, gradients, answer: *answer })
            }
            Order::Assign { table, values, states, words } => {
                let mut of_rows = Vec::with_capacity(rows.len() * words);
                for row in rows {
                    let index = (row.offset / row.width) as usize;
                    of_rows.extend_from_slice(&states[index * words..][..*words]);
                }
                let (table, values, states) = (*table, Bulk(self.values_of(values)), Bulk(of_rows));
                Message::Assign(Assign { number, table, keys, values, states })
            }
            Order::Reset { table, steps } => Message::Reset(Reset { number, table: *table, steps: *steps }),
            Order::Scan { table, after } => Message::Scan { number, table: *table, after: *after },
        }
    }

    /// Returns the values of its rows out of those of the operation.
    fn values_of(&self, of_operation: &[f32]) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.piece.values);
        for span in self.spans() {
            values.extend_from_slice(&of_operation[span]);
        }
        values
    }
}

impl Order {
    /// Returns the bytes of a row in request and answer together.
    fn row_bytes(&self, width: u32) -> usize {
        let width = width as usize;
        let values = match self {
            Self::Push { answer: true, .. } => 2 * width,
            Self::Assign { words, .. } => width + words,
            _ => width,
        };
        size_of::<u64>() + size_of::<f32>() * values
    }

    /// Returns true if a shard applies it once, under its number.
    fn is_numbered(&self) -> bool {
        matches!(self, Self::Push { .. } | Self::Assign { .. } | Self::Reset { .. })
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

    /// Sets rows of a table, which are sorted by shard. Returns how many answers there will be.
    pub(crate) fn assign(
        &mut self,
        operation: u64,
        rows: Vec<ColdRow>,
        of: AssignedRows,
        words: usize,
    ) -> u32 {
        let AssignedRows { table, values, states, keys: _ } = of;
        let words = if states.is_empty() { 0 } else { words };
        let (values, states) = (Arc::new(values), Arc::new(states));
        self.each_shard(operation, rows, &Order::Assign { table, values, states, words })
    }

    /// Resets a table in all shards. Returns how many answers there will be.
    pub(crate) fn reset(&mut self, operation: u64, table: u16, steps: u64) -> u32 {
        let shards = u16::try_from(self.shards.len()).expect("shards are numbered by u16");
        for shard in 0..shards {
            self.ask(operation, shard, Order::Reset { table, steps }, 0);
        }
        shards.into()
    }

    /// Reads a page of a table in a shard.
    pub(crate) fn scan(&mut self, operation: u64, shard: u16, table: u16, after: Option<u64>) {
        self.ask(operation, shard, Order::Scan { table, after }, PAGE_BYTES_MAX);
    }

    /// Sends a request that names no rows.
    fn ask(&mut self, operation: u64, shard: u16, order: Order, bytes: usize) {
        let pieces = [Piece { rows: 0..0, values: 0, together: true, bytes }].into();
        let waiting = Waiting { operation, order, rows: Arc::default(), pieces };
        self.shards[usize::from(shard)].waiting.push_back(waiting);
        self.send(shard);
    }

    fn each_shard(&mut self, operation: u64, rows: Vec<ColdRow>, order: &Order) -> u32 {
        let rows = Arc::new(rows);
        let (mut answers, mut start) = (0, 0);
        while start < rows.len() {
            let number = rows[start].shard;
            let pieces = pieces(&rows, start, order);
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
        if request.order.is_numbered() {
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
        if !request.order.is_numbered() || request.rows().iter().all(|row| row.key != key) {
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
fn pieces(rows: &[ColdRow], start: usize, order: &Order) -> VecDeque<Piece> {
    let empty = |start| Piece { rows: start..start, values: 0, together: true, bytes: 0 };
    let shard = rows[start].shard;
    let mut pieces = VecDeque::with_capacity(1);
    let (mut piece, mut end) = (empty(start), rows[start].offset);
    for row in rows[start..].iter().take_while(|row| row.shard == shard) {
        let bytes = order.row_bytes(row.width);
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
