//! Look-ups and their backward passes.

use libra_lookup::{
    Bags, IdError, IdSpace, Lookup, Mode, Pass, RowSums, Rows, WorkingSet, add_rows, frequency_scales, gather,
};
use pyo3::prelude::*;

use crate::backend::{Backend, Wanted, Whole};
use crate::border::{input, output};
use crate::failure::{Failure, bad_id};
use crate::table::Table;
use crate::team::Team;

/// A look-up as the package describes it: a tuple, which is faster to read than the attributes of an object.
#[derive(FromPyObject)]
pub(crate) struct Request(
    /// Number of the table.
    usize,
    /// Address of the ids.
    usize,
    /// Number of ids.
    usize,
    /// True if ids and offsets are of 64 bits, else of 32.
    bool,
    /// The padding id.
    Option<i64>,
    /// The shape: 0 a row for each id, 1 bags of one size, 2 bags by offsets.
    u8,
    /// The mode: 0 sum, 1 mean, 2 max.
    u8,
    /// Number of bags, or the address of the offsets.
    usize,
    /// Size of a bag, or number of offsets.
    usize,
    /// The last offset is the end of the input.
    bool,
    /// Address of an f32 for each id, or 0.
    usize,
    /// Gradients are divided by the frequency of the id.
    bool,
);

/// Ids of a table: its number, their address and number, if they are of 64 bits, and the padding id.
#[derive(FromPyObject)]
pub(crate) struct Ahead(usize, usize, usize, bool, Option<i64>);

impl Ahead {
    fn assign(&self, space: IdSpace, set: &mut WorkingSet) -> Result<Lookup, IdError> {
        let Self(_, ids, count, is_wide, padding) = *self;
        if is_wide {
            set.assign(input::<i64>(ids, count), space, padding)
        } else {
            set.assign(input::<i32>(ids, count), space, padding)
        }
    }
}

/// A look-up whose gradient may come.
#[pyclass(frozen)]
pub(crate) struct PooledLookup {
    table: usize,
    lookup: Lookup,
    pooling: Option<(Bags, Mode)>,
    weights: Option<Vec<f32>>,
    largest: Option<Vec<u32>>,
    /// Values of a look-up that had a set of its own.
    values: Option<Vec<f32>>,
    divides_by_frequency: bool,
}

impl Request {
    fn pooling(&self) -> Result<Option<(Bags, Mode)>, Failure> {
        let Self(_, _, count, is_wide, _, shape, mode, first, second, includes_last, ..) = *self;
        let mode = match mode {
            0 => Mode::Sum,
            1 => Mode::Mean,
            _ => Mode::Max,
        };
        let bags = match shape {
            0 => return Ok(None),
            1 => Bags::even(first, second),
            _ if is_wide => Bags::from_offsets(input::<i64>(first, second), includes_last, count)?,
            _ => Bags::from_offsets(input::<i32>(first, second), includes_last, count)?,
        };
        Ok(Some((bags, mode)))
    }

    fn assign(&self, table: &str, space: IdSpace, set: &mut WorkingSet) -> Result<Lookup, Failure> {
        let Self(number, ids, count, is_wide, padding, ..) = *self;
        let ids = Ahead(number, ids, count, is_wide, padding);
        ids.assign(space, set).map_err(|error| bad_id(table, &error))
    }

    fn table(&self) -> usize {
        self.0
    }

    fn count(&self) -> usize {
        self.2
    }

    fn weights(&self) -> Option<&[f32]> {
        (self.10 != 0).then(|| input::<f32>(self.10, self.count()))
    }

    fn divides_by_frequency(&self) -> bool {
        self.11
    }
}

/// A look-up on its way.
struct Task<'a> {
    /// Position among the look-ups of a call.
    position: usize,
    request: &'a Request,
    /// Address of the output.
    output: usize,
    pooling: Option<(Bags, Mode)>,
    /// Slots of the ids, once they are assigned.
    lookup: Option<Lookup>,
    /// The set of a look-up that has one of its own.
    apart: Option<WorkingSet>,
}

/// Reads rows and writes the outputs of several look-ups, in one turn. With `is_apart` they use sets of their own, of which nothing is
/// left when the look-ups are gone; `keeps` says that their gradients may come.
pub(crate) fn look_up(
    tables: &mut [Table],
    team: &Team,
    backend: &Backend,
    requests: &[Request],
    outputs: &[usize],
    is_apart: bool,
    keeps: bool,
) -> Result<Vec<PooledLookup>, Failure> {
    let mut tasks = Vec::with_capacity(requests.len());
    for (position, (request, output)) in requests.iter().zip(outputs).enumerate() {
        let apart = is_apart.then(|| WorkingSet::new(tables[request.table()].width));
        let pooling = request.pooling()?;
        tasks.push(Task { position, request, output: *output, pooling, lookup: None, apart });
    }
    // Those of one table stay in order, as slots and sums depend on it.
    tasks.sort_by_key(|task| task.request.table());
    let values = requests.iter().map(|request| request.count() * tables[request.table()].width).sum();
    let table_of = |task: &Task<'_>| task.request.table();
    let assigned = team.map(by_table(tables, &mut tasks, table_of), values, |(table, tasks)| {
        tasks.iter_mut().try_for_each(|task| task.assign(table).map_err(|failure| (task.position, failure)))
    });
    let failures = assigned.into_iter().filter_map(Result::err);
    if let Some((_, failure)) = failures.min_by_key(|(position, _)| *position) {
        return Err(failure);
    }
    load(tables, backend, &mut tasks, is_apart)?;
    let lookups = team.map(by_table(tables, &mut tasks, table_of), values, |(table, tasks)| {
        let finished = tasks.iter_mut().map(|task| (task.position, task.finish(table, keeps)));
        finished.collect::<Vec<_>>()
    });
    let mut lookups: Vec<(usize, PooledLookup)> = lookups.into_iter().flatten().collect();
    lookups.sort_unstable_by_key(|(position, _)| *position);
    Ok(lookups.into_iter().map(|(_, lookup)| lookup).collect())
}

/// Returns the tables of items that are sorted by them, each with its own.
fn by_table<'a, T>(
    tables: &'a mut [Table],
    items: &'a mut [T],
    table_of: impl Fn(&T) -> usize,
) -> Vec<(&'a mut Table, &'a mut [T])> {
    let mut rest = tables.iter_mut().enumerate();
    let groups = items.chunk_by_mut(|one, other| table_of(one) == table_of(other));
    let with_table = groups.map(|items| {
        let number = table_of(&items[0]);
        let (_, table) = rest.find(|(table, _)| *table == number).expect("look-ups name tables that exist");
        (table, items)
    });
    with_table.collect()
}

impl Task<'_> {
    fn assign(&mut self, table: &mut Table) -> Result<(), Failure> {
        let set = if let Some(apart) = &mut self.apart {
            apart
        } else {
            table.begin_step();
            &mut table.set
        };
        self.lookup = Some(self.request.assign(&table.name, table.space, set)?);
        table.counts.ids += self.request.count() as u64;
        Ok(())
    }

    /// Writes the output, once all rows have been read.
    fn finish(&mut self, table: &Table, keeps: bool) -> PooledLookup {
        let apart = self.apart.take();
        let set = apart.as_ref().unwrap_or(&table.set);
        let lookup = self.lookup.take().expect("its ids were assigned");
        let weights = self.request.weights();
        let mut largest = None;
        match &self.pooling {
            None => {
                let output = output::<f32>(self.output, self.request.count() * table.width);
                gather(set.values(), table.width, lookup.slots(), table.padding_row.as_deref(), output);
            }
            Some((bags, mode)) => {
                let output = output::<f32>(self.output, bags.len() * table.width);
                bags.pool(*mode, set.values(), table.width, lookup.slots(), weights, output);
                if keeps && *mode == Mode::Max {
                    largest = Some(bags.largest(set.values(), table.width, lookup.slots()));
                }
            }
        }
        PooledLookup {
            table: self.request.table(),
            lookup,
            pooling: self.pooling.take(),
            weights: if keeps { weights.map(<[f32]>::to_vec) } else { None },
            largest,
            values: apart.map(WorkingSet::retire),
            divides_by_frequency: self.request.divides_by_frequency(),
        }
    }
}

/// Reads the rows that the sets of these look-ups miss.
fn load(
    tables: &mut [Table],
    backend: &Backend,
    tasks: &mut [Task<'_>],
    is_apart: bool,
) -> Result<(), Failure> {
    let mut wanted;
    if is_apart {
        wanted = Vec::with_capacity(tasks.len());
        for task in tasks {
            let table = &mut tables[task.request.table()];
            let set = task.apart.as_mut().expect("each look-up has a set of its own");
            table.counts.rows_pulled += set.missing().len() as u64;
            wanted.push(Wanted { table: task.request.table(), first_key: table.first_key, set });
        }
    } else {
        wanted = missing(tables, tasks.iter().map(|task| task.request.table()));
    }
    wanted.retain(|wanted| !wanted.set.missing().is_empty());
    if wanted.is_empty() { Ok(()) } else { backend.load(wanted, !is_apart) }
}

/// Returns the sets of these tables, which may be named more than once.
fn missing(tables: &mut [Table], of: impl Iterator<Item = usize>) -> Vec<Wanted<'_>> {
    let mut is_asked = vec![false; tables.len()];
    of.for_each(|table| is_asked[table] = true);
    let asked = tables.iter_mut().enumerate().filter(|(table, _)| is_asked[*table]);
    let wanted = asked.map(|(table, state)| {
        state.counts.rows_pulled += state.set.missing().len() as u64;
        Wanted { table, first_key: state.first_key, set: &mut state.set }
    });
    wanted.collect()
}

/// Reads rows that a step will look up, and the first rows of tables (table, number of rows, address), in one turn.
pub(crate) fn read_ahead(
    tables: &mut [Table],
    backend: &Backend,
    ids: &[Ahead],
    whole: &[(usize, u64, usize)],
) -> Result<(), Failure> {
    for ahead in ids {
        let table = &mut tables[ahead.0];
        table.begin_step();
        // The look-up raises what is wrong with them.
        let _ = ahead.assign(table.space, &mut table.set);
    }
    let places = whole.iter().map(|(table, rows, address)| {
        let Table { first_key, width, .. } = tables[*table];
        let count = usize::try_from(*rows).expect("its values are in memory") * width;
        Whole { table: *table, first_key, rows: *rows, values: output(*address, count) }
    });
    let places: Vec<Whole<'_>> = places.collect();
    let mut wanted = missing(tables, ids.iter().map(|ahead| ahead.0));
    wanted.retain(|wanted| !wanted.set.missing().is_empty());
    if wanted.is_empty() && places.is_empty() { Ok(()) } else { backend.load_with(wanted, places) }
}

/// A gradient of the output of a look-up.
pub(crate) struct Gradient<'a> {
    pub(crate) lookup: &'a PooledLookup,
    /// Address of the gradient.
    pub(crate) address: usize,
    /// Values from the begin of a row to that of the next; None: as many as a row has.
    pub(crate) stride: Option<usize>,
    /// True if rows have a gradient.
    pub(crate) of_rows: bool,
    /// Address of the gradient of the weights, or 0.
    pub(crate) of_weights: usize,
}

/// Adds gradients to the pending sums of a pass, and writes those of weights.
pub(crate) fn backward(
    tables: &mut [Table],
    team: &Team,
    pass: Pass,
    mut gradients: Vec<Gradient<'_>>,
) -> Result<(), Failure> {
    gradients.sort_by_key(|gradient| gradient.lookup.table);
    let values =
        |gradient: &Gradient<'_>| gradient.lookup.lookup.slots().len() * tables[gradient.lookup.table].width;
    let values = gradients.iter().map(values).sum();
    let groups = by_table(tables, &mut gradients, |gradient| gradient.lookup.table);
    let added = team.map(groups, values, |(table, gradients)| {
        gradients.iter().try_for_each(|gradient| gradient.add(table, pass))
    });
    added.into_iter().collect()
}

impl Gradient<'_> {
    fn add(&self, table: &mut Table, pass: Pass) -> Result<(), Failure> {
        let (PooledLookup { lookup, pooling, values, .. }, width) = (self.lookup, table.width);
        let rows = pooling.as_ref().map_or_else(|| lookup.slots().len(), |(bags, _)| bags.len());
        let stride = self.stride.unwrap_or(width);
        let gradient = input(self.address, Rows::span(rows, width, stride));
        let gradient = Rows::with_stride(gradient, width, stride);
        if let (true, Some((bags, _))) = (self.of_weights != 0, pooling) {
            let values = match values {
                Some(values) => values,
                None => table.set.values_of(lookup)?,
            };
            let slots = lookup.slots();
            bags.weights_gradient(values, slots, gradient, output(self.of_weights, slots.len()));
        }
        if self.of_rows {
            let Table { set, accumulator, .. } = table;
            accumulator.add(pass, set, lookup, |slots, ids, sums| {
                self.lookup.add_gradient(gradient, slots, ids, sums);
            });
        }
        Ok(())
    }
}

impl PooledLookup {
    fn add_gradient(&self, gradient: Rows<'_>, slots: &[u32], ids: &[u64], sums: &mut RowSums) {
        let of_frequency = self.divides_by_frequency.then(|| frequency_scales(slots));
        let scales = of_frequency.as_deref().or(self.weights.as_deref());
        match (&self.pooling, &self.largest) {
            (None, _) => add_rows(slots, gradient, scales, ids, sums),
            (Some((bags, _)), Some(largest)) => {
                bags.add_gradient_of_largest(largest, slots, gradient, ids, sums);
            }
            (Some((bags, mode)), None) => bags.add_gradient(*mode, slots, scales, gradient, ids, sums),
        }
    }
}
