//! Look-ups and their backward passes.

use libra_lookup::{
    Bags, IdError, IdSpace, Lookup, Mode, Pass, RowSums, WorkingSet, add_rows, frequency_scales, gather,
};
use pyo3::prelude::*;

use crate::backend::{Backend, Wanted, Whole};
use crate::border::{input, output};
use crate::failure::{Failure, bad_id};
use crate::table::Table;

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

/// Reads rows and writes the outputs of several look-ups, in one turn. With `is_apart` they use sets of their own, of which nothing is
/// left when the look-ups are gone; `keeps` says that their gradients may come.
pub(crate) fn look_up(
    tables: &mut [Table],
    backend: &Backend,
    requests: &[Request],
    outputs: &[usize],
    is_apart: bool,
    keeps: bool,
) -> Result<Vec<PooledLookup>, Failure> {
    let mut assigned = Vec::with_capacity(requests.len());
    let mut apart: Vec<WorkingSet> = Vec::new();
    for request in requests {
        let table = &mut tables[request.table()];
        let pooling = request.pooling()?;
        let lookup = if is_apart {
            let mut set = WorkingSet::new(table.width);
            let lookup = request.assign(&table.name, table.space, &mut set)?;
            apart.push(set);
            lookup
        } else {
            table.begin_step();
            request.assign(&table.name, table.space, &mut table.set)?
        };
        table.counts.ids += request.count() as u64;
        assigned.push((lookup, pooling));
    }
    load(tables, backend, requests, &mut apart)?;
    let mut apart = apart.into_iter();
    let mut lookups = Vec::with_capacity(requests.len());
    for ((request, address), (lookup, pooling)) in requests.iter().zip(outputs).zip(assigned) {
        let table = &tables[request.table()];
        let of_lookup = apart.next();
        let set = of_lookup.as_ref().unwrap_or(&table.set);
        let weights = request.weights();
        let mut largest = None;
        match &pooling {
            None => {
                let output = output::<f32>(*address, request.count() * table.width);
                gather(set.values(), table.width, lookup.slots(), table.padding_row.as_deref(), output);
            }
            Some((bags, mode)) => {
                let output = output::<f32>(*address, bags.len() * table.width);
                bags.pool(*mode, set.values(), table.width, lookup.slots(), weights, output);
                if keeps && *mode == Mode::Max {
                    largest = Some(bags.largest(set.values(), table.width, lookup.slots()));
                }
            }
        }
        let weights = if keeps { weights.map(<[f32]>::to_vec) } else { None };
        lookups.push(PooledLookup {
            table: request.table(),
            lookup,
            pooling,
            weights,
            largest,
            values: of_lookup.map(WorkingSet::retire),
            divides_by_frequency: request.divides_by_frequency(),
        });
    }
    Ok(lookups)
}

/// Reads the rows that the sets of these look-ups miss.
fn load(
    tables: &mut [Table],
    backend: &Backend,
    requests: &[Request],
    apart: &mut [WorkingSet],
) -> Result<(), Failure> {
    let mut wanted;
    let is_step = apart.is_empty();
    if is_step {
        wanted = missing(tables, requests.iter().map(Request::table));
    } else {
        wanted = Vec::with_capacity(requests.len());
        for (request, set) in requests.iter().zip(apart) {
            let table = &mut tables[request.table()];
            table.counts.rows_pulled += set.missing().len() as u64;
            wanted.push(Wanted { table: request.table(), first_key: table.first_key, set });
        }
    }
    wanted.retain(|wanted| !wanted.set.missing().is_empty());
    if wanted.is_empty() { Ok(()) } else { backend.load(wanted, is_step) }
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
    /// True if rows have a gradient.
    pub(crate) of_rows: bool,
    /// Address of the gradient of the weights, or 0.
    pub(crate) of_weights: usize,
}

/// Adds gradients to the pending sums of a pass, and writes those of weights.
pub(crate) fn backward(tables: &mut [Table], pass: Pass, gradients: &[Gradient<'_>]) -> Result<(), Failure> {
    for Gradient { lookup, address, of_rows, of_weights } in gradients {
        let table = &mut tables[lookup.table];
        let rows =
            lookup.pooling.as_ref().map_or_else(|| lookup.lookup.slots().len(), |(bags, _)| bags.len());
        let gradient = input::<f32>(*address, rows * table.width);
        if let (true, Some((bags, _))) = (*of_weights != 0, &lookup.pooling) {
            let values = match &lookup.values {
                Some(values) => values,
                None => table.set.values_of(&lookup.lookup)?,
            };
            let slots = lookup.lookup.slots();
            bags.weights_gradient(values, slots, gradient, output(*of_weights, slots.len()));
        }
        if *of_rows {
            let Table { set, accumulator, width, .. } = table;
            accumulator.add(pass, set, &lookup.lookup, |slots, ids, sums| {
                lookup.add_gradient(*width, gradient, slots, ids, sums);
            });
        }
    }
    Ok(())
}

impl PooledLookup {
    fn add_gradient(&self, width: usize, gradient: &[f32], slots: &[u32], ids: &[u64], sums: &mut RowSums) {
        let of_frequency = self.divides_by_frequency.then(|| frequency_scales(slots));
        let scales = of_frequency.as_deref().or(self.weights.as_deref());
        match (&self.pooling, &self.largest) {
            (None, _) => add_rows(slots, width, gradient, scales, ids, sums),
            (Some((bags, _)), Some(largest)) => {
                bags.add_gradient_of_largest(largest, slots, gradient, ids, sums);
            }
            (Some((bags, mode)), None) => bags.add_gradient(*mode, slots, scales, gradient, ids, sums),
        }
    }
}
