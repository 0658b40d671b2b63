//! Turns the gradients of hot rows into the entries of packets.

use libra_plan::{Placement, Quantizer, RegionLayout};
use pulp::{Arch, NullaryFnOnce};

use super::rows::{HotRow, PacketContents, placed};
use crate::cluster::ArithmeticMode;

/// Conversion of gradients to words, and the remainders of rounding.
#[derive(Debug, Clone)]
pub(super) struct Quantization {
    arithmetic: ArithmeticMode,
    quantizer: Quantizer,
    /// Of each region, by slot.
    slots: Vec<Vec<SlotState>>,
    values: PacketValues,
    /// The rows of a packet of which some are too large that are not.
    within: Vec<HotRow>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SlotState {
    /// Remainder of rounding (error feedback).
    residue: f32,
    /// Factor of the scale of the row.
    factor: f32,
}

/// The values of a packet, in its order.
#[derive(Debug, Clone, Default)]
struct PacketValues {
    slots: Vec<u16>,
    gradients: Vec<f32>,
    states: Vec<SlotState>,
    words: Vec<u32>,
    /// The residues that become those of the slots.
    residues: Vec<f32>,
}

impl Quantization {
    /// Integers of up to `bound`, if they are integers.
    pub(super) fn new(arithmetic: ArithmeticMode, bound: u32, placement: &Placement) -> Self {
        let states = |region: &RegionLayout| {
            let mut states = Vec::with_capacity(region.slots.into());
            for row in &region.rows {
                let state = SlotState { residue: 0.0, factor: row.scale.factor() };
                states.resize(states.len() + row.width as usize, state);
            }
            states
        };
        Self {
            arithmetic,
            quantizer: Quantizer::new(bound),
            slots: placement.regions().iter().map(states).collect(),
            values: PacketValues::default(),
            within: Vec::new(),
        }
    }

    /// Drops the remainders of rounding, of at most half a unit of each value.
    pub(super) fn forget_residues(&mut self) {
        self.slots.iter_mut().flatten().for_each(|state| state.residue = 0.0);
    }

    /// Slots and words of the rows of a packet; `gradients` are those of the operation. Of the rows only those stay whose integers are within
    /// the bound, the others are handed to `too_large` (rule C5).
    pub(super) fn entries<'q>(
        &'q mut self,
        region: u8,
        rows: PacketContents<'q>,
        gradients: &[f32],
        mut too_large: impl FnMut(&HotRow),
    ) -> Entries<'q> {
        let Self { arithmetic, quantizer, slots, values, within } = self;
        let (states, quantizer) = (slots[usize::from(region)].as_mut_slice(), *quantizer);
        let mut staying = rows;
        if *arithmetic != ArithmeticMode::Fixed {
            values.gather(rows, gradients, states);
            values.words.clear();
            values.words.extend(values.gradients.iter().map(|gradient| gradient.to_bits()));
        } else if !values.quantize(rows, gradients, states, quantizer) {
            within.clear();
            rows.append_to(within);
            within.retain(|row| {
                let mut of_row = gradients[row.range()].iter().zip(&states[row.slot_range()]);
                let is_within = of_row.all(|(gradient, state)| state.quantize(quantizer, *gradient).2);
                if !is_within {
                    too_large(row);
                }
                is_within
            });
            staying = PacketContents::Placed(within);
            let are_within = values.quantize(staying, gradients, states, quantizer);
            assert!(are_within, "the others were taken off");
        }
        Entries { rows: staying, slots: &values.slots, words: &values.words }
    }
}

/// The entries of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries<'q> {
    pub(super) rows: PacketContents<'q>,
    pub(super) slots: &'q [u16],
    pub(super) words: &'q [u32],
}

impl SlotState {
    #[inline(always)]
    fn quantize(self, quantizer: Quantizer, gradient: f32) -> (i32, f32, bool) {
        quantizer.quantize(gradient, self.factor, self.residue)
    }
}

impl PacketValues {
    /// Lists slots, gradients and states of rows.
    #[inline(always)]
    fn gather(&mut self, rows: PacketContents<'_>, gradients: &[f32], states: &[SlotState]) {
        match rows {
            PacketContents::Listed { placement, rows } => {
                self.gather_rows(rows.iter().map(|row| placed(placement, row)), gradients, states);
            }
            PacketContents::Placed(rows) => self.gather_rows(rows.iter().copied(), gradients, states),
        }
    }

    #[inline(always)]
    fn gather_rows(
        &mut self,
        rows: impl ExactSizeIterator<Item = HotRow> + Clone,
        all: &[f32],
        of_slots: &[SlotState],
    ) {
        let Self { slots, gradients, states, .. } = self;
        let values = rows.clone().map(|row| row.width()).sum();
        slots.resize(values, 0);
        gradients.resize(values, 0.0);
        states.resize(values, SlotState::default());
        let mut places = slots.iter_mut().zip(gradients.iter_mut()).zip(states.iter_mut());
        // Rows of one value have a loop without another in it.
        if values == rows.len() {
            for (row, ((slot, gradient), state)) in rows.zip(places) {
                *slot = row.place.slot;
                *gradient = all[row.offset as usize];
                *state = of_slots[usize::from(row.place.slot)];
            }
        } else {
            for row in rows {
                let of_row = row.slots().zip(&all[row.range()]).zip(&of_slots[row.slot_range()]);
                for (((slot, gradient), state), place) in of_row.zip(&mut places) {
                    (*place.0.0, *place.0.1, *place.1) = (slot, *gradient, *state);
                }
            }
        }
    }

    /// Turns the gradients of rows into integers. `false`, and no residue is another, if one is too large.
    fn quantize(
        &mut self,
        rows: PacketContents<'_>,
        gradients: &[f32],
        states: &mut [SlotState],
        quantizer: Quantizer,
    ) -> bool {
        Arch::new().dispatch(Quantize { values: self, rows, gradients, states, quantizer })
    }
}

/// Turns gradients into integers with all instructions that this processor has: several at a time. Whatever is found in memory is
/// listed before, and what goes there is after.
struct Quantize<'q> {
    values: &'q mut PacketValues,
    rows: PacketContents<'q>,
    gradients: &'q [f32],
    states: &'q mut [SlotState],
    quantizer: Quantizer,
}

impl NullaryFnOnce for Quantize<'_> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        let Self { values, rows, gradients, states: of_slots, quantizer } = self;
        values.gather(rows, gradients, of_slots);
        let PacketValues { slots, gradients, states, words, residues } = values;
        words.resize(slots.len(), 0);
        residues.resize(slots.len(), 0.0);
        let mut are_within = true;
        for ((gradient, state), (word, left)) in
            gradients.iter().zip(&*states).zip(words.iter_mut().zip(&mut *residues))
        {
            let (integer, residue, is_within) = state.quantize(quantizer, *gradient);
            (*word, *left) = (integer.cast_unsigned(), residue);
            are_within &= is_within;
        }
        if are_within {
            for (slot, residue) in slots.iter().zip(&*residues) {
                of_slots[usize::from(*slot)].residue = *residue;
            }
        }
        are_within
    }
}

#[cfg(test)]
mod tests {
    use libra_plan::{Place, Scale};
    use proptest::prelude::*;

    use super::*;

    const BOUND: u32 = (1 << 19) - 1;
    const REGION: usize = 1;

    /// Rows one behind the other, in slots and in the arrays of the operation.
    fn rows(values: &[Vec<f32>], scale: Scale) -> Vec<HotRow> {
        let mut offset = 0;
        let row = |values: &Vec<f32>| {
            let first = offset;
            offset += u16::try_from(values.len()).unwrap();
            let width = u32::try_from(values.len()).unwrap();
            let place = Place { region: u8::try_from(REGION).unwrap(), slot: first, width, scale };
            HotRow { place, offset: first.into() }
        };
        values.iter().map(row).collect()
    }

    fn gradient() -> impl Strategy<Value = f32> {
        prop_oneof![40 => -1.0_f32..1.0, 1 => any::<f32>()]
    }

    proptest! {
        // rule C5
        #[test]
        fn rows_are_quantized_like_their_values_or_not_at_all(
            values in (1_usize..4).prop_flat_map(|width| {
                prop::collection::vec(prop::collection::vec(gradient(), 1..=width), 0..12)
            }),
            scale in 0_i8..24,
            pushes in 1_usize..4,
        ) {
            let scale = Scale(scale);
            let slots = values.iter().map(Vec::len).sum();
            let state = SlotState { residue: 0.0, factor: scale.factor() };
            let mut quantization = Quantization {
                arithmetic: ArithmeticMode::Fixed,
                quantizer: Quantizer::new(BOUND),
                slots: vec![Vec::new(), vec![state; slots]],
                values: PacketValues::default(),
                within: Vec::new(),
            };
            let gradients = values.concat();
            let mut residues = vec![0.0; slots];
            for _ in 0..pushes {
                let (mut expected, mut stay, mut go) = (Vec::new(), Vec::new(), Vec::new());
                for row in rows(&values, scale) {
                    let mut left = residues[row.slot_range()].to_vec();
                    let integers: Option<Vec<i32>> = gradients[row.range()]
                        .iter()
                        .zip(&mut left)
                        .map(|(gradient, residue)| scale.quantize(*gradient, residue, BOUND))
                        .collect();
                    if let Some(integers) = integers {
                        residues[row.slot_range()].copy_from_slice(&left);
                        expected.extend(row.slots().zip(integers.into_iter().map(i32::cast_unsigned)));
                        stay.push(row);
                    } else {
                        go.push(row);
                    }
                }
                let (all, mut too_large) = (rows(&values, scale), Vec::new());
                let contents = PacketContents::Placed(&all);
                let region = u8::try_from(REGION).unwrap();
                let entries = quantization.entries(region, contents, &gradients, |row| too_large.push(*row));
                let words = entries.words.iter().copied();
                prop_assert_eq!(entries.slots.iter().copied().zip(words).collect::<Vec<_>>(), expected);
                let mut left = Vec::new();
                entries.rows.append_to(&mut left);
                prop_assert_eq!((left, too_large), (stay, go));
                let left: Vec<f32> = quantization.slots[REGION].iter().map(|state| state.residue).collect();
                prop_assert_eq!(&left, &residues);
            }
        }
    }
}
