//! Look-ups, pooling and accumulation against naive models over maps.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;

use libra_lookup::{
    Accumulator, Bags, IdSpace, Lookup, Mode, Pass, RowSums, Rows, WorkingSet, add_rows, frequency_scales,
    gather,
};
use proptest::collection::vec;
use proptest::prelude::*;

const ROWS: i64 = 12;
const SPACE: IdSpace = IdSpace::Bounded { rows: 12 };

/// The value of a row in a table that has never changed.
fn value(id: u64, column: usize) -> f32 {
    let number = (id * 7 + column as u64 * 3) % 11;
    f32::from(u8::try_from(number).unwrap()) - 5.0
}

fn load(set: &mut WorkingSet) {
    let width = set.width();
    let read = |ids: &[u64], values: &mut [f32]| {
        for (index, id) in ids.iter().enumerate() {
            for column in 0..width {
                values[index * width + column] = value(*id, column);
            }
        }
        Ok::<(), ()>(())
    };
    set.load(read).unwrap();
}

/// Sizes of bags, their ids, and numbers to take weights and gradients from.
#[derive(Debug, Clone)]
struct Case {
    bags: Vec<Vec<i64>>,
    width: usize,
    /// Values between the rows of the gradient.
    gap: usize,
    padding: Option<i64>,
    mode: Mode,
    weighted: bool,
    by_frequency: bool,
    numbers: Vec<f32>,
}

/// Values by row and column.
type ByRow = BTreeMap<(u64, usize), f64>;

fn cases() -> impl Strategy<Value = Case> {
    let mode = prop_oneof![Just(Mode::Sum), Just(Mode::Mean), Just(Mode::Max)];
    let bags = vec(vec(0..ROWS, 0..6), 0..6);
    let numbers = vec((-8_i8..=8).prop_map(|number| f32::from(number) / 4.0), 64);
    // Some widths have loops of their own.
    let width = prop_oneof![1_usize..5, Just(8), Just(16), Just(32), Just(64)];
    let sizes = (width, 0_usize..3);
    (bags, sizes, proptest::option::of(0..ROWS), mode, any::<bool>(), any::<bool>(), numbers).prop_map(
        |(bags, (width, gap), padding, mode, weighted, by_frequency, numbers)| {
            let weighted = weighted && mode == Mode::Sum;
            let by_frequency = by_frequency && mode != Mode::Max && !weighted;
            Case { bags, width, gap, padding, mode, weighted, by_frequency, numbers }
        },
    )
}

impl Case {
    fn ids(&self) -> Vec<i64> {
        self.bags.concat()
    }

    fn offsets(&self) -> Vec<i64> {
        let mut offsets = vec![0];
        for bag in &self.bags {
            offsets.push(offsets.last().unwrap() + i64::try_from(bag.len()).unwrap());
        }
        offsets
    }

    fn weight(&self, position: usize) -> f32 {
        if self.weighted { self.numbers[position % 37] } else { 1.0 }
    }

    fn gradient(&self, bag: usize, column: usize) -> f32 {
        self.numbers[(bag * 5 + column * 11 + 3) % self.numbers.len()]
    }

    fn count(&self, id: i64) -> f64 {
        let count = self.ids().iter().filter(|other| **other == id).count();
        f64::from(u32::try_from(count).unwrap())
    }

    /// Output, gradients of rows and gradients of weights, written down from the definitions.
    fn naive(&self) -> (Vec<f64>, ByRow, Vec<f64>) {
        let (mut output, mut rows, mut weights) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut start = 0;
        for (bag, ids) in self.bags.iter().enumerate() {
            let kept: Vec<(usize, i64)> =
                (start..).zip(ids.iter().copied()).filter(|(_, id)| Some(*id) != self.padding).collect();
            for column in 0..self.width {
                let of = |id: i64| f64::from(value(id.cast_unsigned(), column));
                let gradient = f64::from(self.gradient(bag, column));
                let weighted: Vec<f64> =
                    kept.iter().map(|(position, id)| f64::from(self.weight(*position)) * of(*id)).collect();
                let count = f64::from(u32::try_from(kept.len().max(1)).unwrap());
                let largest = weighted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                output.push(match self.mode {
                    Mode::Sum => weighted.iter().sum(),
                    Mode::Mean => weighted.iter().sum::<f64>() / count,
                    Mode::Max if kept.is_empty() => 0.0,
                    Mode::Max => largest,
                });
                let first = weighted.iter().position(|value| *value == largest);
                for (index, (position, id)) in kept.iter().enumerate() {
                    let part = match self.mode {
                        Mode::Sum => f64::from(self.weight(*position)),
                        Mode::Mean => 1.0 / count,
                        Mode::Max => f64::from(u8::from(first == Some(index))),
                    };
                    let part = if self.by_frequency { part / self.count(*id) } else { part };
                    if part != 0.0 || self.mode != Mode::Max {
                        *rows.entry((id.cast_unsigned(), column)).or_insert(0.0) += part * gradient;
                    }
                }
            }
            for id in ids {
                let product = |column| {
                    f64::from(value(id.cast_unsigned(), column)) * f64::from(self.gradient(bag, column))
                };
                let is_padding = Some(*id) == self.padding;
                weights.push(if is_padding { 0.0 } else { (0..self.width).map(product).sum() });
            }
            start += ids.len();
        }
        (output, rows, weights)
    }
}

fn close(found: &[f32], expected: &[f64]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| (f64::from(*found) - expected).abs() < 1e-4)
}

/// Rows and columns of sums that are not 0.
fn by_row(sums: &RowSums, width: usize) -> ByRow {
    let values = sums.values().iter().enumerate();
    let place = |index: usize| (sums.ids()[index / width], index % width);
    values
        .map(|(index, value)| (place(index), f64::from(*value)))
        .filter(|(_, value)| *value != 0.0)
        .collect()
}

fn same(found: &ByRow, expected: &ByRow) -> bool {
    let keys = found.keys().chain(expected.keys());
    let of = |map: &ByRow, key| map.get(key).copied().unwrap_or(0.0);
    keys.into_iter().all(|key| (of(found, key) - of(expected, key)).abs() < 1e-4)
}

/// A lookup, with all values loaded.
fn look_up(set: &mut WorkingSet, ids: &[i64], padding: Option<i64>) -> Lookup {
    let lookup = set.assign(ids, SPACE, padding).unwrap();
    load(set);
    lookup
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn bags_are_pooled_as_defined(case in cases()) {
        let (output, rows, of_weights) = case.naive();
        let mut set = WorkingSet::of_table(case.width, SPACE);
        // Slots that are not those of this look-up alone.
        look_up(&mut set, &[3, 1], None);
        let lookup = look_up(&mut set, &case.ids(), case.padding);
        let bags = Bags::from_offsets(&case.offsets(), true, case.ids().len()).unwrap();
        prop_assert_eq!(bags.len(), case.bags.len());
        let weights: Vec<f32> = (0..case.ids().len()).map(|position| case.weight(position)).collect();
        let weights = case.weighted.then_some(&weights[..]);

        let mut found = vec![9.0; output.len()];
        bags.pool(case.mode, set.values(), case.width, lookup.slots(), weights, &mut found);
        prop_assert!(close(&found, &output), "{:?} {:?}", found, output);

        let stride = case.width + case.gap;
        let gradient: Vec<f32> = (0..case.bags.len())
            .flat_map(|bag| (0..stride).map(move |column| (bag, column)))
            .map(|(bag, column)| if column < case.width { case.gradient(bag, column) } else { f32::NAN })
            .collect();
        let span = Rows::span(case.bags.len(), case.width, stride);
        let gradient = Rows::with_stride(&gradient[..span], case.width, stride);
        let mut sums = RowSums::new(case.width);
        if case.mode == Mode::Max {
            let largest = bags.largest(set.values(), case.width, lookup.slots());
            bags.add_gradient_of_largest(&largest, lookup.slots(), gradient, set.ids(), &mut sums);
        } else {
            let scales = case.by_frequency.then(|| frequency_scales(lookup.slots()));
            let scales = scales.as_deref().or(weights);
            bags.add_gradient(case.mode, lookup.slots(), scales, gradient, set.ids(), &mut sums);
        }
        prop_assert!(same(&by_row(&sums, case.width), &rows));

        let mut found = vec![9.0; case.ids().len()];
        bags.weights_gradient(set.values(), lookup.slots(), gradient, &mut found);
        prop_assert!(close(&found, &of_weights));
    }

    #[test]
    fn rows_are_gathered_as_defined(ids in vec(0..ROWS, 0..20), padding in proptest::option::of(0..ROWS)) {
        let mut set = WorkingSet::new(2);
        look_up(&mut set, &[5, 11], None);
        let lookup = look_up(&mut set, &ids, padding);
        let mut output = vec![9.0; 2 * ids.len()];
        gather(set.values(), 2, lookup.slots(), Some(&[0.25, 0.5]), &mut output);
        let mut expected = Vec::new();
        for id in &ids {
            let row = [value(id.cast_unsigned(), 0), value(id.cast_unsigned(), 1)];
            expected.extend(if Some(*id) == padding { [0.25, 0.5] } else { row });
        }
        prop_assert_eq!(output, expected);
    }
}

/// Event of a table between two forward passes.
#[derive(Debug, Clone)]
enum Action {
    /// A forward and backward pass.
    Pass(Vec<i64>),
    /// A pass that ends before its commit.
    Dies(Vec<i64>),
    /// A backward pass over the look-up of an earlier one.
    Again(usize),
    /// The handle is multiplied, as by clipping.
    Scale(u8),
    /// The gradient of the handle is cleared.
    Clear,
    /// A step of the optimizer.
    Step,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let ids = || vec(0..ROWS, 0..5);
    let action = prop_oneof![
        4 => ids().prop_map(Action::Pass),
        1 => ids().prop_map(Action::Dies),
        2 => (0_usize..8).prop_map(Action::Again),
        1 => (1_u8..4).prop_map(Action::Scale),
        1 => Just(Action::Clear),
        3 => Just(Action::Step),
    ];
    vec(action, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// The sums are those of a gradient that `zero_grad`, clipping and accumulation work on, whatever the order.
    #[test]
    fn gradients_accumulate_as_those_of_a_parameter(actions in actions()) {
        let mut set = WorkingSet::of_table(1, SPACE);
        let mut accumulator = Accumulator::new(1);
        let mut model: ByRow = BTreeMap::new();
        let mut handle = 0.0_f32;
        let mut lookups: Vec<(Lookup, Vec<i64>)> = Vec::new();
        for (task, action) in (0..).zip(actions) {
            let pass = Pass { task, thread: 1 };
            let run = |lookup: &Lookup, set: &mut WorkingSet, accumulator: &mut Accumulator| {
                let gradient: Vec<f32> = (1..=lookup.slots().len()).map(|place| place as f32).collect();
                accumulator.add(pass, set, lookup, |slots, ids, sums| {
                    add_rows(slots, Rows::new(&gradient, 1), None, ids, sums);
                });
            };
            let of_pass = match &action {
                Action::Pass(ids) | Action::Dies(ids) => {
                    let lookup = look_up(&mut set, ids, None);
                    run(&lookup, &mut set, &mut accumulator);
                    lookups.push((lookup, ids.clone()));
                    matches!(action, Action::Pass(_)).then(|| ids.clone())
                }
                Action::Again(index) => lookups.get(*index).cloned().map(|(lookup, ids)| {
                    run(&lookup, &mut set, &mut accumulator);
                    ids
                }),
                Action::Scale(factor) => {
                    handle *= f32::from(*factor) / 2.0;
                    model.values_mut().for_each(|value| *value *= f64::from(*factor) / 2.0);
                    None
                }
                Action::Clear => {
                    handle = 0.0;
                    model.clear();
                    None
                }
                Action::Step => {
                    accumulator.settle(handle);
                    accumulator.drop_pending();
                    accumulator.renew(&mut set);
                    prop_assert!(same(&by_row(accumulator.sums(), 1), &model));
                    None
                }
            };
            if let Some(ids) = of_pass {
                for (place, id) in (1_u8..).zip(ids) {
                    *model.entry((id.cast_unsigned(), 0)).or_insert(0.0) += f64::from(place);
                }
                handle = accumulator.commit(pass, handle, &mut set).unwrap();
                prop_assert!(same(&by_row(accumulator.sums(), 1), &model));
            }
        }
    }
}
