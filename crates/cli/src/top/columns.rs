//! Columns of the members of each kind, and which of them fit.

use libra_proto::{ServerStatistics, SwitchStatistics, WorkerStatistics};

use super::model::Row;
use super::rates::{Rated, WorkerRates, share};
use crate::figures::{bytes, count, microseconds, percent};

/// Cells of the bar of a step.
const STEP_CELLS: usize = 10;
/// Marks of the parts of a step: data, pull, compute, push, clock.
pub(crate) const STEP_MARKS: [char; 5] = ['.', '<', '#', '>', '='];
/// Parts of a step, in the order of the marks.
pub(crate) const STEP_PARTS: [&str; 5] = ["data", "pull", "compute", "push", "clock"];
/// The part in which a worker does not wait.
const COMPUTE: usize = 2;

/// A column of a table of members.
pub(crate) struct Column<C: Rated> {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Columns with higher ranks go first where not all fit.
    rank: u8,
    pub(crate) paint: Paint,
    pub(crate) cell: fn(&Row<C>) -> String,
}

/// Alignment and colours of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A text, from the left.
    Text,
    /// The state of a member.
    State,
    /// A number, from the right.
    Number,
    /// The bar of a step.
    Step,
}

/// A kind of members with its columns.
pub(crate) trait Columns: Rated {
    /// Name of several members.
    const MANY: &'static str;

    /// All columns, from the left.
    fn all() -> Vec<Column<Self>>;
}

/// Returns the columns that fit into a width, with a blank between two.
pub(crate) fn fitting<C: Columns>(width: usize) -> Vec<Column<C>> {
    let mut columns = C::all();
    while columns.iter().map(|column| column.width + 1).sum::<usize>() > width + 1 && columns.len() > 1 {
        let last = columns.iter().enumerate().max_by_key(|(place, column)| (column.rank, *place));
        let (place, _) = last.expect("there are columns");
        columns.remove(place);
    }
    columns
}

fn text<C: Rated>(title: &'static str, width: usize, rank: u8, cell: fn(&Row<C>) -> String) -> Column<C> {
    Column { title, width, rank, paint: Paint::Text, cell }
}

fn number<C: Rated>(title: &'static str, width: usize, rank: u8, cell: fn(&Row<C>) -> String) -> Column<C> {
    Column { title, width, rank, paint: Paint::Number, cell }
}

/// The name and the state, which every table begins with.
fn name_and_state<C: Columns>() -> [Column<C>; 2] {
    let state = Column {
        title: "state",
        width: 8,
        rank: 0,
        paint: Paint::State,
        cell: |row: &Row<C>| row.member.state.clone(),
    };
    [text(C::MANY, 10, 0, |row| row.member.name.clone()), state]
}

/// The columns on the right of every table.
fn message_and_addresses<C: Columns>() -> [Column<C>; 3] {
    [
        number("silent", 7, 20, |row| row.of_one(|member| format!("{:.0}ms", member.silent_ms))),
        text("address", 21, 21, |row| row.member.address.clone()),
        text("http", 21, 22, |row| row.member.http.clone().unwrap_or_default()),
    ]
}

impl<C: Rated> Row<C> {
    /// The cell of a rate, or of what follows from rates.
    fn rate(&self, figure: impl Fn(&C::Rates) -> Option<String>) -> String {
        self.rates.as_ref().and_then(figure).unwrap_or_else(|| "-".to_owned())
    }

    fn per_second(&self, rate: impl Fn(&C::Rates) -> f64) -> String {
        self.rate(|rates| Some(count(rate(rates))))
    }

    fn count(&self, figure: impl Fn(&C) -> Option<String>) -> String {
        self.counts.as_ref().and_then(figure).unwrap_or_else(|| "-".to_owned())
    }

    /// The cell of what a single member has, and all together have not.
    fn of_one(&self, figure: impl Fn(&super::model::MemberColumns) -> String) -> String {
        if self.member.address.is_empty() { String::new() } else { figure(&self.member) }
    }
}

/// The share of a step in which a worker waits.
fn waits(rates: &WorkerRates) -> Option<String> {
    rates.step.shares().map(|shares| percent(1.0 - shares[COMPUTE]))
}

fn part(rates: &WorkerRates, part: usize) -> Option<String> {
    rates.step.shares().map(|shares| percent(shares[part]))
}

/// Cells of a bar, each with the mark of a part. A part with a share has a cell if it fills half of one.
fn step_bar(rates: &WorkerRates) -> Option<String> {
    let shares = rates.step.shares()?;
    let (mut bar, mut end) = (String::new(), 0.0);
    for (share, mark) in shares.iter().zip(STEP_MARKS) {
        end += share * STEP_CELLS as f64;
        while (bar.len() as f64) + 0.5 < end {
            bar.push(mark);
        }
    }
    Some(bar)
}

impl Columns for WorkerStatistics {
    const MANY: &'static str = "workers";

    fn all() -> Vec<Column<Self>> {
        let [name, state] = name_and_state();
        let [silent, address, http] = message_and_addresses();
        let step = Column {
            title: "step",
            width: STEP_CELLS,
            rank: 1,
            paint: Paint::Step,
            cell: |row: &Row<Self>| row.rate(step_bar),
        };
        vec![
            name,
            state,
            number("pushes/s", 8, 3, |row| row.per_second(|rates| rates.pushes)),
            number("rows/s", 6, 5, |row| row.per_second(|rates| rates.rows)),
            number("hot", 4, 4, |row| row.rate(|rates| share(rates.rows_hot, rates.rows).map(percent))),
            number("pulled/s", 8, 17, |row| row.per_second(|rates| rates.rows_pulled)),
            number("samples/s", 9, 2, |row| row.per_second(|rates| rates.samples)),
            number("packets/s", 9, 11, |row| row.per_second(|rates| rates.packets)),
            number("resent", 6, 7, |row| {
                row.rate(|rates| share(rates.retransmits, rates.packets).map(percent))
            }),
            number("rtt", 5, 6, |row| row.count(round_trip)),
            step,
            number("wait", 4, 8, |row| row.rate(waits)),
            number("data", 4, 12, |row| row.rate(|rates| part(rates, 0))),
            number("pull", 4, 12, |row| row.rate(|rates| part(rates, 1))),
            number("compute", 7, 13, |row| row.rate(|rates| part(rates, 2))),
            number("push", 4, 12, |row| row.rate(|rates| part(rates, 3))),
            number("clock", 5, 12, |row| row.rate(|rates| part(rates, 4))),
            number("steps", 8, 14, |row| row.of_one(|member| count(member.clock as f64))),
            number("share", 5, 18, |row| row.of_one(|member| member.share.to_string())),
            silent,
            address,
            http,
        ]
    }
}

fn round_trip(counts: &WorkerStatistics) -> Option<String> {
    (counts.round_trip_us > 0).then(|| microseconds(counts.round_trip_us))
}

impl Columns for SwitchStatistics {
    const MANY: &'static str = "switches";

    fn all() -> Vec<Column<Self>> {
        let [name, state] = name_and_state();
        let [silent, address, http] = message_and_addresses();
        vec![
            name,
            state,
            number("regions", 7, 2, |row| row.member.regions.to_string()),
            number("packets/s", 9, 1, |row| row.per_second(|rates| rates.packets)),
            number("adds/s", 6, 3, |row| row.per_second(|rates| rates.adds)),
            number("pulls/s", 7, 4, |row| row.per_second(|rates| rates.pulls)),
            number("rounds/s", 8, 5, |row| row.per_second(|rates| rates.rounds)),
            number("refused/s", 9, 6, |row| row.per_second(|rates| rates.refused)),
            number("queue", 6, 7, |row| row.count(|counts| Some(bytes(counts.queue_bytes)))),
            number("memory", 6, 8, |row| row.count(|counts| Some(bytes(counts.memory_bytes)))),
            number("resent", 6, 11, |row| row.count(|counts| Some(count(counts.retransmits as f64)))),
            number("malformed", 9, 13, |row| row.count(|counts| Some(count(counts.malformed as f64)))),
            number("forged", 6, 12, |row| row.count(|counts| Some(count(counts.forged as f64)))),
            silent,
            address,
            http,
        ]
    }
}

impl Columns for ServerStatistics {
    const MANY: &'static str = "servers";

    fn all() -> Vec<Column<Self>> {
        let [name, state] = name_and_state();
        let [silent, address, http] = message_and_addresses();
        vec![
            name,
            state,
            number("updates/s", 9, 1, |row| row.per_second(|rates| rates.row_updates)),
            number("hot", 4, 2, |row| {
                row.rate(|rates| share(rates.row_updates_hot, rates.row_updates).map(percent))
            }),
            number("reads/s", 7, 3, |row| row.per_second(|rates| rates.row_reads)),
            number("rounds/s", 8, 4, |row| row.per_second(|rates| rates.rounds)),
            number("rows", 6, 5, |row| row.count(|counts| Some(count(counts.rows as f64)))),
            number("log", 6, 6, |row| row.count(|counts| Some(bytes(counts.log_bytes)))),
            number("checkpoint", 10, 7, |row| row.count(checkpoint)),
            number("on disk", 7, 13, |row| row.count(|counts| Some(count(counts.rows_on_disk as f64)))),
            number("refused", 7, 11, |row| {
                row.count(|counts| Some(count((counts.pushes_refused + counts.sums_refused) as f64)))
            }),
            number("lost", 6, 12, |row| {
                row.count(|counts| Some(count((counts.lost_pushes + counts.lost_rounds) as f64)))
            }),
            silent,
            address,
            http,
        ]
    }
}

fn checkpoint(counts: &ServerStatistics) -> Option<String> {
    (counts.checkpoint > 0).then(|| counts.checkpoint.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::rates::StepRates;
    use super::*;

    fn titles<C: Columns>(width: usize) -> Vec<&'static str> {
        fitting::<C>(width).iter().map(|column| column.title).collect()
    }

    #[test]
    fn columns_are_cut_by_their_rank() {
        let narrow = titles::<WorkerStatistics>(80);
        assert_eq!(
            narrow,
            ["workers", "state", "pushes/s", "rows/s", "hot", "samples/s", "resent", "rtt", "step", "wait"]
        );
        assert_eq!(titles::<WorkerStatistics>(31), ["workers", "state", "step"]);
        assert_eq!(titles::<WorkerStatistics>(3), ["workers"]);
        assert!(titles::<SwitchStatistics>(80).contains(&"queue"));
        assert!(titles::<ServerStatistics>(80).contains(&"checkpoint"));
        for width in 20..250 {
            let columns = fitting::<WorkerStatistics>(width);
            assert!(columns.iter().map(|column| column.width + 1).sum::<usize>() <= width + 1);
        }
        assert_eq!(titles::<WorkerStatistics>(250).len(), WorkerStatistics::all().len());
    }

    #[test]
    fn the_bar_of_a_step_has_its_parts_in_proportion() {
        let bar = |[data, pull, compute, push, clock]: [f64; 5]| {
            let step = StepRates { data, pull, compute, push, clock };
            step_bar(&WorkerRates { step, ..WorkerRates::default() }).unwrap_or_default()
        };
        assert_eq!(bar([0.1, 0.2, 0.5, 0.1, 0.1]), ".<<#####>=");
        assert_eq!(bar([0.0, 0.0, 2.0, 0.0, 0.0]), "##########");
        assert_eq!(bar([0.01, 0.01, 0.96, 0.01, 0.01]), "##########");
        assert_eq!(bar([0.0; 5]), "");
        for pull in 0..100 {
            assert_eq!(bar([0.3, f64::from(pull), 7.0, 0.1, 2.0]).len(), STEP_CELLS);
        }
    }
}
