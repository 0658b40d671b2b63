//! Turns the gradients of hot rows into the entries of packets.

use libra_plan::{Placement, Quantizer, RegionLayout};
use pulp::{Arch, NullaryFnOnce};

use super::rows::HotRow;
use crate::cluster::ArithmeticMode;

/// Conversion of gradients to words, and the remainders of rounding.
#[derive(Debug, Clone)]
pub(super) struct Quantization {
    arithmetic: ArithmeticMode,
    quantizer: Quantizer,
    /// Of each region, by slot.
    slots: Vec<Vec<SlotState>>,
    values: PacketValues,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct SlotState {
    /// What rounding has left over (error feedback).
    residue: f32,
    /// That of the scale of the row.
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
        }
    }

    /// Slots and words of rows of one region, one behind the other; `gradients` are those of the operation. Of `rows` only those stay whose
    /// integers are within the bound, the others are handed to `too_large` (rule C5).
    pub(super) fn entries(
        &mut self,
        rows: &mut Vec<HotRow>,
        gradients: &[f32],
        mut too_large: impl FnMut(&HotRow),
    ) -> (&[u16], &[u32]) {
        let Self { arithmetic, quantizer, slots, values } = self;
        let region = rows.first().map_or(0, |row| usize::from(row.place.region));
        let states = slots[region].as_mut_slice();
        if *arithmetic != ArithmeticMode::Fixed {
            values.gather(rows, gradients);
            values.words.clear();
            values.words.extend(values.gradients.iter().map(|gradient| gradient.to_bits()));
        } else if !values.quantize(rows, gradients, states, *quantizer) {
            rows.retain(|row| {
                let mut of_row = gradients[row.range()].iter().zip(&states[row.slot_range()]);
                let is_within = of_row.all(|(gradient, state)| state.quantize(*quantizer, *gradient).2);
                if !is_within {
                    too_large(row);
                }
                is_within
            });
            let are_within = values.quantize(rows, gradients, states, *quantizer);
            debug_assert!(are_within, "the others were taken off");
        }
        (&values.slots, &values.words)
    }
}

impl SlotState {
    #[inline(always)]
    fn quantize(self, quantizer: Quantizer, gradient: f32) -> (i32, f32, bool) {
        quantizer.quantize(gradient, self.factor, self.residue)
    }
}

impl PacketValues {
    /// Lists slots and gradients of rows.
    #[inline(always)]
    fn gather(&mut self, rows: &[HotRow], all: &[f32]) {
        let Self { slots, gradients, .. } = self;
        slots.clear();
        gradients.clear();
        // Rows of one value have loops without another in them.
        if rows.iter().all(|row| row.width() == 1) {
            slots.extend(rows.iter().map(|row| row.place.slot));
            gradients.extend(rows.iter().map(|row| all[row.offset as usize]));
        } else {
            for row in rows {
                slots.extend(row.slots());
                gradients.extend_from_slice(&all[row.range()]);
            }
        }
    }

    /// Turns the gradients of rows into integers. `false`, and no residue is another, if one is too large.
    fn quantize(
        &mut self,
        rows: &[HotRow],
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
    rows: &'q [HotRow],
    gradients: &'q [f32],
    states: &'q mut [SlotState],
    quantizer: Quantizer,
}

impl NullaryFnOnce for Quantize<'_> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        let Self { values, rows, gradients, states: of_slots, quantizer } = self;
        values.gather(rows, gradients);
        let PacketValues { slots, gradients, states, words, residues } = values;
        states.clear();
        states.extend(slots.iter().map(|slot| of_slots[usize::from(*slot)]));
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
                let (mut left, mut too_large) = (rows(&values, scale), Vec::new());
                let (slots, words) = quantization.entries(&mut left, &gradients, |row| too_large.push(*row));
                let entries: Vec<(u16, u32)> = slots.iter().copied().zip(words.iter().copied()).collect();
                prop_assert_eq!(entries, expected);
                prop_assert_eq!((left, too_large), (stay, go));
                let left: Vec<f32> = quantization.slots[REGION].iter().map(|state| state.residue).collect();
                prop_assert_eq!(&left, &residues);
            }
        }
    }
}
