//! Look-ups without pooling: a row for each id.

use crate::sums::RowSums;
use crate::working_set::PADDING;

/// Rows of one width at equal distances in memory: a matrix, or neighbouring columns of one.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    values: &'a [f32],
    width: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    /// Returns rows that lie one after the other.
    pub fn new(values: &'a [f32], width: usize) -> Self {
        Self::with_stride(values, width, width)
    }

    /// Returns rows of which each begins `stride` values after the one before.
    pub fn with_stride(values: &'a [f32], width: usize, stride: usize) -> Self {
        Self { values, width, stride }
    }

    /// Returns the number of values in memory from the first one of `count` rows to the last one.
    pub fn span(count: usize, width: usize, stride: usize) -> usize {
        count.checked_sub(1).map_or(0, |before_last| before_last * stride + width)
    }

    /// # Panics
    /// There are fewer rows, or more.
    pub(crate) fn assert_count(&self, count: usize) {
        assert_eq!(
            self.values.len(),
            Self::span(count, self.width, self.stride),
            "a row for each position or bag"
        );
    }

    /// Returns the number of values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// # Panics
    /// There are not so many rows.
    #[inline]
    pub(crate) fn row(&self, index: usize) -> &'a [f32] {
        &self.values[index * self.stride..][..self.width]
    }
}

/// Copies the row of each position to the output. The padding id reads as `padding`, or as 0.
///
/// # Panics
/// The output has not `width` values for each slot.
pub fn gather(values: &[f32], width: usize, slots: &[u32], padding: Option<&[f32]>, output: &mut [f32]) {
    assert_eq!(output.len(), slots.len() * width, "a row of output for each position");
    let look_up = LookUp { values, width, slots, padding };
    match width {
        0 => {}
        // A call that copies takes longer than these do.
        8 => look_up.copy_rows(output, copy_row::<8>),
        16 => look_up.copy_rows(output, copy_row::<16>),
        32 => look_up.copy_rows(output, copy_row::<32>),
        64 => look_up.copy_rows(output, copy_row::<64>),
        _ => look_up.copy_rows(output, <[f32]>::copy_from_slice),
    }
}

/// Arguments of [`gather`].
struct LookUp<'a> {
    values: &'a [f32],
    width: usize,
    slots: &'a [u32],
    padding: Option<&'a [f32]>,
}

impl LookUp<'_> {
    #[inline(always)]
    fn copy_rows(&self, output: &mut [f32], copy: impl Fn(&mut [f32], &[f32])) {
        for (row, slot) in output.chunks_exact_mut(self.width).zip(self.slots) {
            if *slot != PADDING {
                copy(row, &self.values[*slot as usize * self.width..][..self.width]);
            } else if let Some(padding) = self.padding {
                row.copy_from_slice(padding);
            } else {
                row.fill(0.0);
            }
        }
    }
}

#[inline(always)]
fn copy_row<const WIDTH: usize>(to: &mut [f32], from: &[f32]) {
    let to = to.first_chunk_mut::<WIDTH>().expect("it is as wide as a row");
    *to = *from.first_chunk().expect("it is as wide as a row");
}

/// Adds the gradient of the output of [`gather`] to the rows. The padding id has none. `scales` are factors by position.
///
/// # Panics
/// The gradient has not a row for each slot.
pub fn add_rows(slots: &[u32], gradient: Rows<'_>, scales: Option<&[f32]>, ids: &[u64], sums: &mut RowSums) {
    gradient.assert_count(slots.len());
    let scale = |position| scales.map_or(1.0, |scales| scales[position]);
    let terms = (0..slots.len()).map(|position| (position, gradient.row(position), scale(position)));
    sums.add_many(slots, ids, terms);
}

/// Returns, for each position, 1 divided by the number of positions with the same slot: the factors of `scale_grad_by_freq`.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^24, or nearly exact")]
pub fn frequency_scales(slots: &[u32]) -> Vec<f32> {
    let mut counts =
        vec![0_u32; slots.iter().filter(|slot| **slot != PADDING).max().map_or(0, |slot| *slot as usize + 1)];
    for slot in slots.iter().filter(|slot| **slot != PADDING) {
        counts[*slot as usize] += 1;
    }
    let scale = |slot: &u32| if *slot == PADDING { 0.0 } else { 1.0 / counts[*slot as usize] as f32 };
    slots.iter().map(scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_copied_and_their_gradients_summed() {
        let slots = [1, PADDING, 0, 1];
        let mut output = [9.0; 8];
        gather(&[1.0, 2.0, 3.0, 4.0], 2, &slots, None, &mut output);
        assert_eq!(output, [3.0, 4.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        gather(&[1.0, 2.0, 3.0, 4.0], 2, &slots, Some(&[7.0, 8.0]), &mut output);
        assert_eq!(output[2..4], [7.0, 8.0]);
        let mut sums = RowSums::new(2);
        let gradient = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        add_rows(&slots, Rows::new(&gradient, 2), None, &[70, 80], &mut sums);
        assert_eq!(sums.ids(), [80, 70]);
        assert_eq!(sums.values(), [8.0, 10.0, 5.0, 6.0]);
        assert_eq!(frequency_scales(&slots), [0.5, 0.0, 1.0, 0.5]);

        let mut of_columns = RowSums::new(1);
        // The first column; of the last row nothing else is in memory.
        let columns = Rows::with_stride(&gradient[..7], 1, 2);
        add_rows(&slots, columns, None, &[70, 80], &mut of_columns);
        assert_eq!(of_columns.values(), [8.0, 5.0]);
    }
}
