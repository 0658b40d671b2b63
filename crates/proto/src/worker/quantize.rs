//! Turns the gradients of hot rows into the words of packets.

use libra_plan::Placement;

use super::rows::HotRow;
use crate::cluster::ArithmeticMode;

/// Conversion of gradients to words, and the remainders of rounding.
#[derive(Debug, Clone)]
pub(super) struct Quantization {
    arithmetic: ArithmeticMode,
    bound: u32,
    /// For each region what rounding has left over of each slot (error feedback).
    residues: Vec<Vec<f32>>,
    words: Vec<u32>,
    /// The residues that have become others, as they were.
    residues_before: Vec<f32>,
}

impl Quantization {
    /// Integers of up to `bound`, if they are integers.
    pub(super) fn new(arithmetic: ArithmeticMode, bound: u32, placement: &Placement) -> Self {
        let slots = placement.regions().iter().map(|region| usize::from(region.slots));
        Self {
            arithmetic,
            bound,
            residues: slots.map(|slots| vec![0.0; slots]).collect(),
            words: Vec::new(),
            residues_before: Vec::new(),
        }
    }

    /// The words of rows of one region, one behind the other; `gradients` are those of the operation. Of `rows` only those stay whose
    /// integers are within the bound, the others are handed to `too_large` (rule C5).
    pub(super) fn words(
        &mut self,
        rows: &mut Vec<HotRow>,
        gradients: &[f32],
        mut too_large: impl FnMut(&HotRow),
    ) -> &[u32] {
        self.words.clear();
        let Some(first) = rows.first() else { return &[] };
        if self.arithmetic != ArithmeticMode::Fixed {
            let values = rows.iter().flat_map(|row| &gradients[row.range()]);
            self.words.extend(values.map(|value| value.to_bits()));
            return &self.words;
        }
        let Self { bound, residues, words, residues_before, .. } = self;
        let residues = residues[usize::from(first.place.region)].as_mut_slice();
        // Nearly always all are, and then there is no need to look at each twice.
        if !quantize_all(rows, gradients, residues, *bound, words, residues_before) {
            words.clear();
            rows.retain(|row| {
                let is_within = quantize_all(
                    core::slice::from_ref(row),
                    gradients,
                    residues,
                    *bound,
                    words,
                    residues_before,
                );
                if !is_within {
                    words.truncate(words.len() - row.width());
                    too_large(row);
                }
                is_within
            });
        }
        &self.words
    }
}

/// Appends the integers of rows. `false` if one is larger than `bound`: then the residues are what they were, and the integers are invalid.
fn quantize_all(
    rows: &[HotRow],
    gradients: &[f32],
    residues: &mut [f32],
    bound: u32,
    words: &mut Vec<u32>,
    residues_before: &mut Vec<f32>,
) -> bool {
    let (first, values) = (words.len(), rows.iter().map(HotRow::width).sum::<usize>());
    words.resize(first + values, 0);
    residues_before.resize(values, 0.0);
    let mut places = words[first..].iter_mut().zip(&mut *residues_before);
    let mut all_within = true;
    // Rows of one value have a loop without another in it.
    if values == rows.len() {
        for (row, (word, before)) in rows.iter().zip(places) {
            let residue = &mut residues[usize::from(row.place.slot)];
            let quantizer = row.place.scale.quantizer(bound);
            let (integer, left, is_within) = quantizer.quantize(gradients[row.offset as usize], *residue);
            *word = integer.cast_unsigned();
            *before = core::mem::replace(residue, left);
            all_within &= is_within;
        }
    } else {
        for row in rows {
            let quantizer = row.place.scale.quantizer(bound);
            let values = gradients[row.range()].iter().zip(&mut residues[row.slot_range()]);
            for ((gradient, residue), (word, before)) in values.zip(&mut places) {
                let (integer, left, is_within) = quantizer.quantize(*gradient, *residue);
                *word = integer.cast_unsigned();
                *before = core::mem::replace(residue, left);
                all_within &= is_within;
            }
        }
    }
    if !all_within {
        let mut before = residues_before.iter();
        for row in rows {
            residues[row.slot_range()]
                .iter_mut()
                .zip(&mut before)
                .for_each(|(residue, before)| *residue = *before);
        }
    }
    all_within
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
            let mut quantization = Quantization {
                arithmetic: ArithmeticMode::Fixed,
                bound: BOUND,
                residues: vec![Vec::new(), vec![0.0; slots]],
                words: Vec::new(),
                residues_before: Vec::new(),
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
                        expected.extend(integers.into_iter().map(i32::cast_unsigned));
                        stay.push(row);
                    } else {
                        go.push(row);
                    }
                }
                let (mut left, mut too_large) = (rows(&values, scale), Vec::new());
                let words = quantization.words(&mut left, &gradients, |row| too_large.push(*row)).to_vec();
                prop_assert_eq!(words, expected);
                prop_assert_eq!((left, too_large), (stay, go));
                prop_assert_eq!(&quantization.residues[REGION], &residues);
            }
        }
    }
}
