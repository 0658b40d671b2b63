//! Pooling: the rows of a bag of ids become one.

use thiserror::Error;

use crate::ids::Id;
use crate::rows::Rows;
use crate::sums::RowSums;
use crate::working_set::PADDING;

/// The row that a bag of rows becomes. An empty bag becomes 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Their sum, each times its weight if there are weights.
    Sum,
    /// Their mean.
    Mean,
    /// The largest value in each column; of equal ones the first has the gradient.
    Max,
}

/// Positions of a look-up by bag. Positions of the padding id count for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bags {
    shape: Shape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    Even {
        bags: usize,
        size: usize,
    },
    /// The begin of each bag, and the end of the last one.
    Bounds(Vec<usize>),
}

/// Offsets that describe no bags.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum BagsError {
    /// Without offsets there are no bags, not even the end of a last one.
    #[error("offsets are empty: with include_last_offset there is at least the end")]
    Empty,
    /// The first bag does not begin with the input.
    #[error("offsets begin at {first}, they must begin at 0")]
    First {
        /// The first offset.
        first: i64,
    },
    /// An offset is below the one before.
    #[error("offset {offset} at position {position} is below the one before, {before}")]
    Falling {
        /// Position in the offsets.
        position: usize,
        /// The offset.
        offset: i64,
        /// The offset before.
        before: i64,
    },
    /// An offset is beyond the input.
    #[error("offset {offset} at position {position} is beyond the input of {inputs} ids")]
    Beyond {
        /// Position in the offsets.
        position: usize,
        /// The offset.
        offset: i64,
        /// Ids of the input.
        inputs: usize,
    },
    /// The last offset is not the end of the input.
    #[error("the last offset is {last}: with include_last_offset it is the end of the input, {inputs}")]
    Last {
        /// The last offset.
        last: i64,
        /// Ids of the input.
        inputs: usize,
    },
}

impl Bags {
    /// Returns bags of one size: the rows of an input of two dimensions.
    pub fn even(bags: usize, size: usize) -> Self {
        Self { shape: Shape::Even { bags, size } }
    }

    /// Returns the bags that begin at these offsets in an input of so many ids. With `includes_last` the last offset is the end of the last
    /// bag, else it ends with the input.
    ///
    /// # Errors
    /// Offsets begin elsewhere than at 0, fall, or do not fit the input.
    pub fn from_offsets<I: Id>(offsets: &[I], includes_last: bool, inputs: usize) -> Result<Self, BagsError> {
        let mut bounds = Vec::with_capacity(offsets.len() + 1);
        let mut before = 0;
        for (position, offset) in offsets.iter().map(|offset| offset.widen()).enumerate() {
            if position == 0 && offset != 0 {
                return Err(BagsError::First { first: offset });
            }
            if offset < before {
                return Err(BagsError::Falling { position, offset, before });
            }
            let bound = usize::try_from(offset).unwrap_or(usize::MAX);
            if bound > inputs {
                return Err(BagsError::Beyond { position, offset, inputs });
            }
            bounds.push(bound);
            before = offset;
        }
        if !includes_last {
            if offsets.is_empty() && inputs > 0 {
                return Err(BagsError::Empty);
            }
            bounds.push(inputs);
        } else if bounds.is_empty() {
            return Err(BagsError::Empty);
        } else if bounds.last() != Some(&inputs) {
            return Err(BagsError::Last { last: before, inputs });
        }
        if offsets.is_empty() {
            bounds = vec![0];
        }
        Ok(Self { shape: Shape::Bounds(bounds) })
    }

    /// Returns the number of bags.
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Even { bags, .. } => *bags,
            Shape::Bounds(bounds) => bounds.len() - 1,
        }
    }

    /// Returns true if there are no bags.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.len()).map(|bag| match &self.shape {
            Shape::Even { size, .. } => bag * size..(bag + 1) * size,
            Shape::Bounds(bounds) => bounds[bag]..bounds[bag + 1],
        })
    }

    /// Writes the row of each bag to the output. `weights` are factors by position, of [`Mode::Sum`].
    ///
    /// # Panics
    /// The output has not `width` values for each bag.
    pub fn pool(
        &self,
        mode: Mode,
        values: &[f32],
        width: usize,
        slots: &[u32],
        weights: Option<&[f32]>,
        output: &mut [f32],
    ) {
        assert_eq!(output.len(), self.len() * width, "a row of output for each bag");
        if width == 0 {
            return;
        }
        let row_of = |slot: u32| &values[slot as usize * width..][..width];
        for (range, output) in self.ranges().zip(output.chunks_exact_mut(width)) {
            output.fill(0.0);
            let mut count = 0_u32;
            for position in range.filter(|position| slots[*position] != PADDING) {
                let row = row_of(slots[position]);
                let pairs = output.iter_mut().zip(row);
                match (mode, weights) {
                    (Mode::Max, _) if count == 0 => output.copy_from_slice(row),
                    (Mode::Max, _) => pairs.for_each(|(value, other)| {
                        // As in torch: what is not a number is never larger.
                        if *other > *value {
                            *value = *other;
                        }
                    }),
                    (_, None) => pairs.for_each(|(value, other)| *value += other),
                    (_, Some(weights)) => {
                        let weight = weights[position];
                        pairs.for_each(|(value, other)| *value += weight * other);
                    }
                }
                count += 1;
            }
            if mode == Mode::Mean && count > 1 {
                let count = count_as_f32(count);
                output.iter_mut().for_each(|value| *value /= count);
            }
        }
    }

    /// Returns, for each bag and column, the position of the largest value, for the gradient of [`Mode::Max`]; [`PADDING`] in an empty bag.
    ///
    /// # Panics
    /// The look-up has 2^32 - 1 positions.
    pub fn largest(&self, values: &[f32], width: usize, slots: &[u32]) -> Vec<u32> {
        let mut largest = vec![PADDING; self.len() * width];
        if width == 0 {
            return largest;
        }
        for (range, largest) in self.ranges().zip(largest.chunks_exact_mut(width)) {
            for position in range.filter(|position| slots[*position] != PADDING) {
                let row = &values[slots[position] as usize * width..][..width];
                for (column, place) in largest.iter_mut().enumerate() {
                    let is_larger = *place == PADDING
                        || row[column] > values[slots[*place as usize] as usize * width + column];
                    if is_larger {
                        *place = u32::try_from(position).expect("a look-up has fewer positions");
                    }
                }
            }
        }
        largest
    }

    /// Adds the gradient of the output of [`pool`](Self::pool) to the rows, for [`Mode::Sum`] and [`Mode::Mean`]. `scales` are factors by
    /// position: weights, or those of [`frequency_scales`](crate::frequency_scales).
    ///
    /// # Panics
    /// The mode is [`Mode::Max`], or the gradient has not a row for each bag.
    pub fn add_gradient(
        &self,
        mode: Mode,
        slots: &[u32],
        scales: Option<&[f32]>,
        gradient: Rows<'_>,
        ids: &[u64],
        sums: &mut RowSums,
    ) {
        assert_ne!(mode, Mode::Max, "the gradient of a maximum goes by add_gradient_of_largest");
        gradient.assert_count(self.len());
        let terms = self.ranges().enumerate().flat_map(|(bag, range)| {
            let row = gradient.row(bag);
            let of_mean = if mode == Mode::Mean {
                let count = range.clone().filter(|position| slots[*position] != PADDING).count();
                1.0 / count_as_f32(u32::try_from(count).unwrap_or(u32::MAX))
            } else {
                1.0
            };
            let scale = move |position: usize| of_mean * scales.map_or(1.0, |scales| scales[position]);
            range.map(move |position| (position, row, scale(position)))
        });
        sums.add_many(slots, ids, terms);
    }

    /// The same for [`Mode::Max`]; `largest` is that of [`largest`](Self::largest).
    pub fn add_gradient_of_largest(
        &self,
        largest: &[u32],
        slots: &[u32],
        gradient: Rows<'_>,
        ids: &[u64],
        sums: &mut RowSums,
    ) {
        gradient.assert_count(self.len());
        if gradient.width() == 0 {
            return;
        }
        for (bag, largest) in largest.chunks_exact(gradient.width()).enumerate() {
            let values = largest.iter().zip(gradient.row(bag)).enumerate();
            for (column, (position, value)) in values.filter(|(_, (position, _))| **position != PADDING) {
                let slot = slots[*position as usize];
                sums.add_value(slot, ids[slot as usize], column, *value);
            }
        }
    }

    /// Writes the gradient of the weights of [`Mode::Sum`]: for each position the dot product of its row and the gradient of its bag, for the
    /// padding id 0.
    ///
    /// # Panics
    /// The gradient has not a row for each bag.
    pub fn weights_gradient(&self, values: &[f32], slots: &[u32], gradient: Rows<'_>, output: &mut [f32]) {
        gradient.assert_count(self.len());
        let width = gradient.width();
        for (bag, range) in self.ranges().enumerate() {
            let of_bag = gradient.row(bag);
            for position in range {
                output[position] = match slots[position] {
                    PADDING => 0.0,
                    slot => {
                        let row = &values[slot as usize * width..][..width];
                        row.iter().zip(of_bag).map(|(value, gradient)| value * gradient).sum()
                    }
                };
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bags have far fewer than 2^24 ids, or the quotient is nearly exact"
)]
fn count_as_f32(count: u32) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_describe_no_bags_are_refused() {
        let bags = |offsets: &[i64], includes_last| Bags::from_offsets(offsets, includes_last, 5);
        assert_eq!(bags(&[1, 2], false), Err(BagsError::First { first: 1 }));
        assert_eq!(bags(&[-1], false), Err(BagsError::First { first: -1 }));
        assert_eq!(bags(&[0, 3, 2], false), Err(BagsError::Falling { position: 2, offset: 2, before: 3 }));
        assert_eq!(bags(&[0, 6], false), Err(BagsError::Beyond { position: 1, offset: 6, inputs: 5 }));
        assert_eq!(bags(&[0, 4], true), Err(BagsError::Last { last: 4, inputs: 5 }));
        assert_eq!(bags(&[], true), Err(BagsError::Empty));
        assert_eq!(bags(&[], false), Err(BagsError::Empty));
        assert_eq!(Bags::from_offsets::<i32>(&[], false, 0).unwrap().len(), 0);
        assert_eq!(bags(&[0, 0, 5], false).unwrap().len(), 3);
        assert_eq!(bags(&[0, 0, 5], true).unwrap().len(), 2);
        assert_eq!(Bags::from_offsets(&[0_i32], true, 0).unwrap().len(), 0);
    }

    #[test]
    fn the_first_of_equal_values_has_the_gradient_of_a_maximum() {
        let bags = Bags::even(2, 3);
        let (slots, values) = ([1, 0, 1, PADDING, PADDING, PADDING], [5.0, 1.0, 5.0, 2.0]);
        let mut output = [9.0; 4];
        bags.pool(Mode::Max, &values, 2, &slots, None, &mut output);
        assert_eq!(output, [5.0, 2.0, 0.0, 0.0]);
        let largest = bags.largest(&values, 2, &slots);
        assert_eq!(largest, [0, 0, PADDING, PADDING]);
        let mut sums = RowSums::new(2);
        let gradient = Rows::new(&[1.0, 2.0, 3.0, 4.0], 2);
        bags.add_gradient_of_largest(&largest, &slots, gradient, &[70, 80], &mut sums);
        assert_eq!((sums.ids(), sums.values()), (&[80][..], &[1.0, 2.0][..]));
    }

    #[test]
    fn padding_is_not_in_the_divisor_of_a_mean() {
        let bags = Bags::from_offsets(&[0_i64, 3], false, 4).unwrap();
        let slots = [0, PADDING, 1, PADDING];
        let mut output = [9.0; 2];
        bags.pool(Mode::Mean, &[2.0, 4.0], 1, &slots, None, &mut output);
        assert_eq!(output, [3.0, 0.0]);
        let mut sums = RowSums::new(1);
        bags.add_gradient(Mode::Mean, &slots, None, Rows::new(&[1.0, 1.0], 1), &[7, 8], &mut sums);
        assert_eq!(sums.values(), [0.5, 0.5]);
    }
}
