//! Sums that packets make in the slots of a region, in whatever order they came.

use libra_dataplane::Arithmetic;
use libra_proto::ArithmeticMode;

/// Relative error of an addition by tables at most, as a share of the larger summand.
const WRONG_BY_TABLES: f64 = 0.008;

/// One slot.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// In the order in which packets were added here.
    sum: u32,
    exact: f64,
    /// Of all that was added, without signs.
    magnitude: f64,
    /// Number of values added that are not zero.
    added: i32,
}

/// The slots of one region, and what is added to them.
#[derive(Debug)]
pub(super) struct Slots {
    arithmetic: ArithmeticMode,
    /// Value of one unit of a slot.
    unit: f64,
    slots: Vec<Slot>,
}

impl Slots {
    pub(super) fn new(arithmetic: ArithmeticMode, unit: f64) -> Self {
        Self { arithmetic, unit, slots: Vec::new() }
    }

    /// So many slots, all zero.
    pub(super) fn begin(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, Slot::default());
    }

    /// Value of a word, that of a packet or of a slot.
    pub(super) fn worth(&self, word: u32) -> f64 {
        match self.arithmetic {
            ArithmeticMode::Fixed => f64::from(word.cast_signed()) * self.unit,
            ArithmeticMode::F32 | ArithmeticMode::Table => f64::from(f32::from_bits(word)),
        }
    }

    /// Adds a word of a packet. `false` if there is no such slot.
    pub(super) fn add(&mut self, slot: u16, value: u32) -> bool {
        let worth = self.worth(value);
        let Some(slot) = self.slots.get_mut(usize::from(slot)) else { return false };
        slot.sum = match self.arithmetic {
            ArithmeticMode::Fixed => slot.sum.wrapping_add(value),
            ArithmeticMode::F32 => (f32::from_bits(slot.sum) + f32::from_bits(value)).to_bits(),
            ArithmeticMode::Table => Arithmetic::Table.add(slot.sum, value),
        };
        slot.exact += worth;
        slot.magnitude += worth.abs();
        slot.added += i32::from(worth != 0.0);
        true
    }

    /// The first slot that cannot hold what it does: that, and what was added to it.
    pub(super) fn first_wrong(&self, found: &[u32]) -> Option<(usize, u32)> {
        let mut slots = found.iter().zip(&self.slots).enumerate();
        let wrong = slots.find(|(_, (found, slot))| !self.could_be(**found, slot));
        wrong.map(|(number, (_, slot))| (number, slot.sum))
    }

    /// True if a slot can hold this after what was added; the zeros of floats are the same.
    fn could_be(&self, found: u32, slot: &Slot) -> bool {
        let same_float = f32::from_bits(found) == f32::from_bits(slot.sum);
        match self.arithmetic {
            ArithmeticMode::Fixed => found == slot.sum,
            // Of whole numbers, which are exact in any order.
            ArithmeticMode::F32 => found == slot.sum || same_float,
            // Two have the same sum in either order.
            ArithmeticMode::Table if slot.added <= 2 => same_float,
            ArithmeticMode::Table => (self.worth(found) - slot.exact).abs() <= self.error(slot),
        }
    }

    /// Error bound of a sum of what was added, in any order, and as one sum or several.
    ///
    /// The first of n summands is taken as it is. Each addition after it is wrong by a share w of no more than all magnitudes together, which
    /// errors have made larger by (1 + w)^(n-1) at most.
    fn error(&self, slot: &Slot) -> f64 {
        if self.arithmetic != ArithmeticMode::Table {
            return 0.0;
        }
        let additions = (slot.added - 1).max(0);
        let larger = (1.0 + WRONG_BY_TABLES).powi(additions) * slot.magnitude;
        f64::from(additions) * WRONG_BY_TABLES * larger
    }

    /// For each slot the right sum, and how far from it what a shard has made of it may be.
    pub(super) fn sums(&self) -> impl Iterator<Item = (f64, f64)> {
        self.slots.iter().map(|slot| (slot.exact, self.error(slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(arithmetic: ArithmeticMode, values: &[f32]) -> Slots {
        let mut slots = Slots::new(arithmetic, 1.0);
        slots.begin(1);
        assert!(values.iter().all(|value| slots.add(0, value.to_bits())));
        assert!(!slots.add(1, 0));
        slots
    }

    #[test]
    fn sums_of_tables_may_be_off_by_what_tables_are_off_and_no_more() {
        let values = [100.0, 3.0, -41.0, 0.0, 17.0, 90.0, 64.0];
        let slots = after(ArithmeticMode::Table, &values);
        for rotation in 0..values.len() {
            let mut order = values;
            order.rotate_left(rotation);
            let sum = order.iter().fold(0, |sum, value| Arithmetic::Table.add(sum, value.to_bits()));
            assert_eq!(slots.first_wrong(&[sum]), None, "{order:?}");
        }
        assert!(slots.first_wrong(&[(233.0_f32 * 1.07).to_bits()]).is_some());
        assert!(slots.first_wrong(&[f32::NAN.to_bits()]).is_some());
        assert!(slots.first_wrong(&[f32::INFINITY.to_bits()]).is_some());
    }

    #[test]
    fn one_and_two_are_exact() {
        for values in [&[5.0, 0.0][..], &[5.0, 7.0]] {
            let slots = after(ArithmeticMode::Table, values);
            let sum = Arithmetic::Table.add(values[1].to_bits(), values[0].to_bits());
            assert_eq!(slots.first_wrong(&[sum]), None);
            assert_eq!(slots.first_wrong(&[sum + 1]).map(|(slot, _)| slot), Some(0));
        }
        let (exact, error) = after(ArithmeticMode::Table, &[5.0, 7.0]).sums().next().unwrap();
        assert!(exact == 12.0 && error > 0.0, "as two sums they are exact");
        assert_eq!(after(ArithmeticMode::F32, &[5.0, 7.0]).sums().next(), Some((12.0, 0.0)));
    }
}
