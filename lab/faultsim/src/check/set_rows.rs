//! Rows that workers set, reset and scan: what each shard answers, against a naive model of its table.
//!
//! A shard applies what workers send in the order in which it arrives, each number once. A server that starts again goes on from what
//! its log has: everything that it had answered, and any part from the beginning of the rest. So the model of a shard is a set of
//! possible histories, and each answer leaves those that explain it. One that was asked to end applies nothing more. Rounds are not followed: of a hot row, which gets them, only
//! what it was set to is compared.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use libra_proto::{Assign, ColdPush, Message, TablePage};

use super::Verdict;
use crate::process::Actor;
use crate::rows::{Rows, SetTable, base_of};

/// One change of the table.
#[derive(Debug, PartialEq)]
enum Change {
    /// Gradients of the rows of the table; a push may have none.
    Push {
        keys: Vec<u64>,
        gradients: Vec<f32>,
    },
    /// Values, and states unless they are those of rows that never had a gradient.
    Set {
        keys: Vec<u64>,
        values: Vec<f32>,
        states: Vec<f32>,
    },
    Reset,
}

/// A change that a shard applies, once.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    worker: u16,
    number: u64,
    /// When it arrived, by the clock of the model.
    at: u64,
    change: Arc<Change>,
}

/// A row that is kept.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    /// Since then, by the clock of the model.
    since: u64,
    values: Vec<f32>,
    /// The state of its optimizer: the last gradient.
    state: Vec<f32>,
}

/// The table in one shard at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct Table {
    /// The last number that was applied of each worker.
    applied: BTreeMap<u16, u64>,
    rows: BTreeMap<u64, Row>,
}

/// A history of a shard that is possible.
#[derive(Debug, Clone, Default, PartialEq)]
struct History {
    /// The table up to the last record that a crash cannot take back.
    durable: Table,
    /// The records after it.
    open: VecDeque<Record>,
    /// The table with those.
    now: Table,
}

#[derive(Debug)]
struct Shard {
    /// The process of its server.
    server: Actor,
    /// It was asked to end.
    drains: bool,
    histories: Vec<History>,
}

/// A request that is answered with values or a page.
#[derive(Debug)]
enum Asked {
    Values(Vec<u64>),
    Page { after: Option<u64>, begun: u64 },
}

/// The table in all shards.
#[derive(Debug)]
pub(super) struct SetRows {
    rows: Rows,
    set: SetTable,
    shards: BTreeMap<u16, Shard>,
    /// By shard, worker and number.
    asked: BTreeMap<(u16, u16, u64), Asked>,
    /// When the newest scan of a worker in a shard began.
    scans: BTreeMap<(u16, u16), u64>,
    clock: u64,
}

impl Table {
    fn apply(&mut self, set: SetTable, record: &Record) {
        self.applied.insert(record.worker, record.number);
        let row = |since| Row { since, values: vec![0.0; set.width], state: vec![0.0; set.width] };
        match &*record.change {
            Change::Push { keys, gradients } => {
                for (key, gradients) in keys.iter().zip(gradients.chunks(set.width)) {
                    if set.is_hot(*key) {
                        continue;
                    }
                    let row = self.rows.entry(*key).or_insert_with(|| row(record.at));
                    row.values.iter_mut().zip(gradients).for_each(|(value, gradient)| *value -= gradient);
                    row.state.copy_from_slice(gradients);
                }
            }
            Change::Set { keys, values, states } => {
                for (index, key) in keys.iter().enumerate() {
                    let range = index * set.width..(index + 1) * set.width;
                    let row = self.rows.entry(*key).or_insert_with(|| row(record.at));
                    row.values.copy_from_slice(&values[range.clone()]);
                    match states.get(range) {
                        Some(state) => row.state.copy_from_slice(state),
                        None => row.state.fill(0.0),
                    }
                }
            }
            Change::Reset => self.rows.clear(),
        }
    }

    /// Checks the values of a row of an answer.
    fn check(&self, set: SetTable, key: u64, values: &[f32]) -> Verdict {
        let none = vec![0.0; set.width];
        let expected = self.rows.get(&key).map_or(&none, |row| &row.values);
        let is_right = if set.is_hot(key) {
            values.iter().map(|value| base_of(*value)).eq(expected.iter().copied())
        } else {
            values == expected
        };
        if is_right { Ok(()) } else { Err(format!("row {key} is {values:?}, and it must be {expected:?}")) }
    }

    /// Checks a page of a scan that began at a time, behind a key.
    fn check_page(&self, set: SetTable, page: &TablePage, after: Option<u64>, begun: u64) -> Verdict {
        let keys = page.keys.to_vec();
        let end = page.next.unwrap_or(u64::MAX);
        let is_here = |key: u64| after.is_none_or(|after| key > after) && key <= end;
        if !keys.is_sorted_by(|one, other| one < other) || !keys.iter().all(|key| is_here(*key)) {
            return Err(format!("a page behind {after:?} and up to {:?} has the rows {keys:?}", page.next));
        }
        let lacks = |(key, row): &(&u64, &Row)| is_here(**key) && row.since < begun && !keys.contains(key);
        if let Some((key, _)) = self.rows.iter().find(lacks) {
            return Err(format!("row {key} is in no page behind {after:?} and up to {:?}", page.next));
        }
        let of_page = page.values.0.chunks(set.width).zip(page.states.0.chunks(set.width));
        if page.values.0.len() != keys.len() * set.width || page.states.0.len() != page.values.0.len() {
            return Err(format!("a page of {} rows has {} values", keys.len(), page.values.0.len()));
        }
        for (key, (values, state)) in keys.iter().zip(of_page) {
            self.check(set, *key, values)?;
            let row = self.rows.get(key);
            if !set.is_hot(*key) && row.is_none_or(|row| row.state != state) {
                return Err(format!("row {key} is scanned with the state {state:?}, and it is {row:?}"));
            }
        }
        Ok(())
    }
}

impl History {
    fn apply(&mut self, set: SetTable, record: &Record) {
        if self.now.applied.get(&record.worker).is_none_or(|last| record.number > *last) {
            self.now.apply(set, record);
            self.open.push_back(record.clone());
        }
    }

    /// The shard has answered a number of a worker: it is in the log, as everything before it.
    fn answered(&mut self, set: SetTable, worker: u16, number: u64) {
        let is_answered = |record: &Record| record.worker == worker && record.number == number;
        if let Some(last) = self.open.iter().position(is_answered) {
            for record in self.open.drain(..=last) {
                self.durable.apply(set, &record);
            }
        }
    }

    /// State after a crash that left so many of the open records.
    fn with_open(&self, set: SetTable, count: usize) -> Self {
        let (durable, mut now) = (self.durable.clone(), self.durable.clone());
        let open: VecDeque<Record> = self.open.iter().take(count).cloned().collect();
        open.iter().for_each(|record| now.apply(set, record));
        Self { durable, open, now }
    }
}

impl SetRows {
    /// A model, if there is such a table.
    pub(super) fn new(rows: &Rows) -> Option<Self> {
        let (shards, asked, scans) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Some(Self { rows: rows.clone(), set: rows.set?, shards, asked, scans, clock: 0 })
    }

    // rule L3
    /// A process is the server of a shard: the first one, or one that goes on.
    pub(super) fn server_is(&mut self, number: u16, actor: Actor) {
        let new = || Shard { server: actor, drains: false, histories: vec![History::default()] };
        let shard = self.shards.entry(number).or_insert_with(new);
        if core::mem::replace(&mut shard.server, actor) == actor {
            return;
        }
        shard.drains = false;
        let mut histories: Vec<History> = Vec::new();
        for before in core::mem::take(&mut shard.histories) {
            for count in 0..=before.open.len() {
                let history = before.with_open(self.set, count);
                if !histories.contains(&history) {
                    histories.push(history);
                }
            }
        }
        shard.histories = histories;
    }

    // rule L9
    /// A process is asked to end.
    pub(super) fn drains(&mut self, actor: Actor) {
        let shards = self.shards.values_mut().filter(|shard| shard.server == actor);
        shards.for_each(|shard| shard.drains = true);
    }

    // rules C1, C12
    /// A message of a worker reaches a shard, which applies it, or answers it at once.
    pub(super) fn arrives(&mut self, worker: u16, shard: u16, message: &Message) {
        self.clock += 1;
        let at = self.clock;
        let (number, change) = match message {
            Message::Push(push) => {
                if push.answer {
                    self.asked.insert((shard, worker, push.number), Asked::Values(push.keys.to_vec()));
                }
                (push.number, self.push(push))
            }
            Message::Assign(Assign { number, keys, values, states, table: _ }) => {
                let (keys, values, states) = (keys.to_vec(), values.0.clone(), states.0.clone());
                (*number, Change::Set { keys, values, states })
            }
            Message::Reset(reset) => (reset.number, Change::Reset),
            Message::Pull { number, keys } => {
                self.asked.insert((shard, worker, *number), Asked::Values(keys.to_vec()));
                return;
            }
            Message::Scan { number, after, .. } => {
                if after.is_none() {
                    self.scans.insert((shard, worker), at);
                }
                let begun = self.scans.get(&(shard, worker)).copied().unwrap_or(at);
                self.asked.insert((shard, worker, *number), Asked::Page { after: *after, begun });
                return;
            }
            _ => return,
        };
        let record = Record { worker, number, at, change: Arc::new(change) };
        if let Some(shard) = self.shards.get_mut(&shard).filter(|shard| !shard.drains) {
            shard.histories.iter_mut().for_each(|history| history.apply(self.set, &record));
        }
    }

    /// Returns what a push is for this table.
    fn push(&self, push: &ColdPush) -> Change {
        let (mut keys, mut of_table) = (push.keys.to_vec(), Vec::new());
        let gradients = push.gradients.clone().into_vec();
        let mut rest = gradients.iter();
        for key in &keys {
            let of_row = rest.by_ref().take(self.rows.width(*key));
            if self.set.keys().contains(key) {
                of_table.extend(of_row);
            } else {
                of_row.for_each(drop);
            }
        }
        keys.retain(|key| self.set.keys().contains(key));
        Change::Push { keys, gradients: of_table }
    }

    /// A shard answers a worker.
    pub(super) fn answers(&mut self, shard: u16, worker: u16, message: &Message) -> Verdict {
        let set = self.set;
        match message {
            Message::Pushed { number, values, .. } => {
                if let Some(shard) = self.shards.get_mut(&shard) {
                    let histories = shard.histories.iter_mut();
                    histories.for_each(|history| history.answered(set, worker, *number));
                }
                let values = values.clone().into_vec();
                match self.asked.remove(&(shard, worker, *number)) {
                    Some(Asked::Values(keys)) => self.are_read(shard, &keys, &values),
                    _ => Ok(()),
                }
            }
            Message::Pulled { number, values } => {
                let values = values.clone().into_vec();
                match self.asked.remove(&(shard, worker, *number)) {
                    Some(Asked::Values(keys)) => self.are_read(shard, &keys, &values),
                    _ => Err(format!("shard {shard} answers {number}, which is no pull")),
                }
            }
            // rule C13
            Message::Scanned { number, page } => match self.asked.remove(&(shard, worker, *number)) {
                Some(Asked::Page { after, begun }) => {
                    self.narrow(shard, |table| table.check_page(set, page, after, begun))
                }
                _ => Err(format!("shard {shard} answers {number}, which is no scan")),
            },
            _ => Ok(()),
        }
    }

    /// The values of rows are in an answer.
    fn are_read(&mut self, shard: u16, keys: &[u64], values: &[f32]) -> Verdict {
        let mut start = 0;
        let mut of_table = Vec::new();
        for key in keys {
            let width = self.rows.width(*key);
            if self.set.keys().contains(key) {
                let values = values.get(start..start + width);
                of_table.push((*key, values.ok_or_else(|| format!("row {key} is not answered"))?));
            }
            start += width;
        }
        let set = self.set;
        self.narrow(shard, |table| {
            of_table.iter().try_for_each(|(key, values)| table.check(set, *key, values))
        })
    }

    /// Only those histories of a shard remain in which this holds; one must.
    fn narrow(&mut self, number: u16, holds: impl Fn(&Table) -> Verdict) -> Verdict {
        let Some(shard) = self.shards.get_mut(&number) else { return Ok(()) };
        let mut wrong = None;
        let mut is_possible = |history: &History| match holds(&history.now) {
            Ok(()) => true,
            Err(text) => {
                wrong = Some(text);
                false
            }
        };
        let possible: Vec<bool> = shard.histories.iter().map(&mut is_possible).collect();
        match wrong {
            Some(text) if !possible.contains(&true) => Err(format!("shard {number}: {text}")),
            Some(_) => {
                let mut possible = possible.into_iter();
                shard.histories.retain(|_| possible.next() == Some(true));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use libra_proto::{Bulk, Keys, Values};

    use super::*;

    const ROWS: Rows = Rows {
        embedding: (1, 1),
        dense: (1, 1),
        hot: 0,
        scale: 0,
        headroom_bits: 12,
        set: Some(SetTable { rows: 4, width: 1, hot: 1 }),
    };
    const KEY: u64 = 2002;
    const HOT: u64 = 2000;

    fn model() -> SetRows {
        let mut model = SetRows::new(&ROWS).expect("there is a table");
        model.server_is(0, Actor { host: 1, before: 0 });
        model
    }

    fn assign(number: u64, key: u64, value: f32) -> Message {
        let (keys, values, states) = ([key].as_slice().into(), Bulk(vec![value]), Bulk(vec![]));
        Message::Assign(Assign { number, table: SetTable::POSITION, keys, values, states })
    }

    fn push(number: u64) -> Message {
        let (keys, gradients) = ([KEY].as_slice().into(), Values::F32(Bulk(vec![1.0])));
        Message::Push(ColdPush { number, keys, gradients, answer: false })
    }

    fn pushed(number: u64) -> Message {
        Message::Pushed { number, view: 1, values: Values::default() }
    }

    fn read(model: &mut SetRows, key: u64, value: f32) -> Verdict {
        model.arrives(9, 0, &Message::Pull { number: 1, keys: [key].as_slice().into() });
        model.answers(0, 9, &Message::Pulled { number: 1, values: Values::F32(Bulk(vec![value])) })
    }

    fn scan(model: &mut SetRows, after: Option<u64>, keys: &[u64], next: Option<u64>) -> Verdict {
        model.arrives(9, 0, &Message::Scan { number: 2, table: SetTable::POSITION, after });
        let (values, states) = (Bulk(vec![1024.0; keys.len()]), Bulk(vec![0.0; keys.len()]));
        let keys = Keys::new(keys.iter().copied());
        let page = TablePage { keys, values, states, steps: 0, next };
        model.answers(0, 9, &Message::Scanned { number: 2, page })
    }

    #[test]
    fn rows_that_are_set_twice_are_noticed() {
        let mut model = model();
        for message in [assign(1, KEY, 1024.0), push(2), assign(1, KEY, 1024.0), push(2)] {
            model.arrives(3, 0, &message);
        }
        assert_eq!(read(&mut model, KEY, 1023.0), Ok(()));
        assert!(read(&mut model, KEY, 1024.0).is_err());
        model.arrives(3, 0, &assign(3, HOT, 2048.0));
        assert_eq!(read(&mut model, HOT, 2045.0), Ok(()));
        assert!(read(&mut model, HOT, 1021.0).is_err());
    }

    #[test]
    fn a_crash_takes_back_nothing_that_was_answered() {
        for (value, is_possible) in [(0.0, false), (1024.0, true), (1023.0, true), (1022.0, false)] {
            let mut model = model();
            model.arrives(3, 0, &assign(1, KEY, 1024.0));
            model.answers(0, 3, &pushed(1)).expect("there are no values");
            model.arrives(3, 0, &push(2));
            model.server_is(0, Actor { host: 1, before: 1 });
            assert_eq!(read(&mut model, KEY, value).is_ok(), is_possible, "{value}");
            // It is sent again, and was applied before the crash, or not.
            model.arrives(3, 0, &push(2));
            assert_eq!(read(&mut model, KEY, 1023.0), Ok(()));
        }
    }

    // rule L9
    #[test]
    fn a_server_that_was_asked_to_end_applies_nothing_more() {
        let mut model = model();
        model.arrives(3, 0, &assign(1, KEY, 1024.0));
        model.drains(Actor { host: 1, before: 0 });
        let reset = Message::Reset(libra_proto::Reset { number: 2, table: 2, steps: 0 });
        model.arrives(3, 0, &reset);
        assert_eq!(read(&mut model, KEY, 1024.0), Ok(()));
        // It is sent again to the process in its place.
        model.server_is(0, Actor { host: 1, before: 1 });
        model.arrives(3, 0, &reset);
        assert!(read(&mut model, KEY, 1024.0).is_err());
    }

    #[test]
    fn a_scan_that_lacks_or_repeats_a_row_is_noticed() {
        let with_rows = || {
            let mut model = model();
            (1..).zip([2001, 2002, 2003]).for_each(|(number, key)| {
                model.arrives(3, 0, &assign(number, key, 1024.0));
            });
            model
        };
        let mut model = with_rows();
        assert_eq!(scan(&mut model, None, &[2001, 2002], Some(2002)), Ok(()));
        assert_eq!(scan(&mut model, Some(2002), &[2003], None), Ok(()));
        assert!(scan(&mut with_rows(), None, &[2001, 2003], None).is_err());
        assert!(scan(&mut with_rows(), Some(2002), &[2002, 2003], None).is_err());
        // A row that is made after the first page may be missing.
        model.arrives(3, 0, &Message::Reset(libra_proto::Reset { number: 4, table: 2, steps: 0 }));
        model.arrives(3, 0, &assign(5, 2003, 1024.0));
        assert_eq!(scan(&mut model, Some(2002), &[], None), Ok(()));
        assert_eq!(scan(&mut model, Some(2002), &[2003], None), Ok(()));
    }
}
