//! One layer: `outputs = activation(inputs * weights + biases)`, forwards and backwards.
//!
//! All of it is on the calling thread: several workers share the processors, and a step must not wait for threads that do not run.

/// Rows of a block whose operands stay in the first-level cache.
const BLOCK_ROWS: usize = 64;

/// A layer with or without ReLU.
pub(crate) struct Affine<'a> {
    /// Weights, and below them the biases: (inputs + 1) x outputs.
    pub(crate) row: Matrix<'a>,
    pub(crate) relu: bool,
}

/// Gradients of a layer.
pub(crate) struct Gradients {
    /// Samples x inputs.
    pub(crate) by_input: Vec<f32>,
    /// As the layer's row.
    pub(crate) by_row: Vec<f32>,
}

/// A matrix, row by row.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) columns: usize,
}

impl<'a> Matrix<'a> {
    fn rows(self) -> usize {
        self.values.len() / self.columns
    }

    pub(crate) fn row(self, index: usize) -> &'a [f32] {
        &self.values[index * self.columns..][..self.columns]
    }
}

impl Affine<'_> {
    fn inputs(&self) -> usize {
        self.row.rows() - 1
    }

    /// Returns samples x outputs.
    ///
    /// # Panics
    /// If the layer takes another number of inputs.
    pub(crate) fn forward(&self, inputs: Matrix<'_>) -> Vec<f32> {
        assert_eq!(inputs.columns, self.inputs(), "a layer takes as many inputs as it has rows of weights");
        let mut outputs = multiply(inputs, self.row, Some(self.row.row(inputs.columns)));
        if self.relu {
            // Not `max`, which would make zeros of what is not a number, and hide that the model has diverged.
            outputs.iter_mut().for_each(|value| *value = if *value < 0.0 { 0.0 } else { *value });
        }
        outputs
    }

    /// Passes the gradients of the loss by the outputs back, given what went in and what came out.
    pub(crate) fn backward(&self, inputs: Matrix<'_>, outputs: &[f32], by_output: &[f32]) -> Gradients {
        let masked: Vec<f32>;
        let gradients = if self.relu {
            let pairs = by_output.iter().zip(outputs);
            masked = pairs.map(|(&gradient, &output)| if output > 0.0 { gradient } else { 0.0 }).collect();
            &masked
        } else {
            by_output
        };
        let gradients = Matrix { values: gradients, columns: self.row.columns };
        let weights = Matrix { values: &self.row.values[..self.inputs() * self.row.columns], ..self.row };
        let transposed = transposed(weights);
        Gradients {
            by_input: multiply(gradients, Matrix { values: &transposed, columns: weights.rows() }, None),
            by_row: outer_sum(inputs, gradients),
        }
    }
}

/// The transpose, row by row.
pub(crate) fn transposed(matrix: Matrix<'_>) -> Vec<f32> {
    (0..matrix.columns)
        .flat_map(|column| (0..matrix.rows()).map(move |row| matrix.row(row)[column]))
        .collect()
}

/// `left * right + offsets`. Of `right` the first rows are used, as many as `left` has columns.
pub(crate) fn multiply(left: Matrix<'_>, right: Matrix<'_>, offsets: Option<&[f32]>) -> Vec<f32> {
    let mut product = vec![0.0; left.rows() * right.columns];
    // Tiles as wide as the registers allow: sums stay there while the columns of `left` go by.
    let mut column = 0;
    while column < right.columns {
        let rest = right.columns - column;
        column += if rest >= 16 {
            multiply_columns::<16>(left, right, offsets, column, &mut product)
        } else if rest >= 8 {
            multiply_columns::<8>(left, right, offsets, column, &mut product)
        } else if rest >= 4 {
            multiply_columns::<4>(left, right, offsets, column, &mut product)
        } else {
            multiply_column(left, right, offsets, column, &mut product)
        };
    }
    product
}

fn multiply_columns<const N: usize>(
    left: Matrix<'_>,
    right: Matrix<'_>,
    offsets: Option<&[f32]>,
    column: usize,
    product: &mut [f32],
) -> usize {
    let mut start = [0.0; N];
    if let Some(offsets) = offsets {
        start.copy_from_slice(&offsets[column..][..N]);
    }
    // The tile side by side, so that the inner loop walks straight ahead.
    let tile: Vec<[f32; N]> = (0..left.columns)
        .map(|row| right.row(row)[column..].first_chunk().copied().unwrap_or([0.0; N]))
        .collect();
    let rows = left.values.chunks_exact(left.columns).zip(product.chunks_exact_mut(right.columns));
    for (row, target) in rows {
        let mut sums = start;
        for (&value, weights) in row.iter().zip(&tile) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += value * weight;
            }
        }
        target[column..][..N].copy_from_slice(&sums);
    }
    N
}

/// One column: the products of a row have several sums, which a processor adds side by side.
fn multiply_column(
    left: Matrix<'_>,
    right: Matrix<'_>,
    offsets: Option<&[f32]>,
    column: usize,
    product: &mut [f32],
) -> usize {
    let start = offsets.map_or(0.0, |offsets| offsets[column]);
    let weights: Vec<f32> = (0..left.columns).map(|row| right.row(row)[column]).collect();
    let rows = left.values.chunks_exact(left.columns).zip(product.chunks_exact_mut(right.columns));
    for (row, target) in rows {
        let mut sums = [0.0; 8];
        let (chunks, rest) = row.as_chunks::<8>();
        let (weight_chunks, weight_rest) = weights.as_chunks::<8>();
        for (values, weights) in chunks.iter().zip(weight_chunks) {
            for ((sum, value), weight) in sums.iter_mut().zip(values).zip(weights) {
                *sum += value * weight;
            }
        }
        let tail: f32 = rest.iter().zip(weight_rest).map(|(value, weight)| value * weight).sum();
        target[column] = start + tail + sums.iter().sum::<f32>();
    }
    1
}

/// The transpose of `left`, with a row of ones below it, times `right`: gradients of weights and biases.
pub(crate) fn outer_sum(left: Matrix<'_>, right: Matrix<'_>) -> Vec<f32> {
    let mut sum = vec![0.0; (left.columns + 1) * right.columns];
    let blocks =
        left.values.chunks(BLOCK_ROWS * left.columns).zip(right.values.chunks(BLOCK_ROWS * right.columns));
    for (left_block, right_block) in blocks {
        let left = Matrix { values: left_block, ..left };
        let right = Matrix { values: right_block, ..right };
        let mut column = 0;
        while column < right.columns {
            column += if right.columns - column >= 8 {
                outer_columns::<8>(left, right, column, &mut sum)
            } else {
                outer_columns::<1>(left, right, column, &mut sum)
            };
        }
    }
    sum
}

fn outer_columns<const N: usize>(
    left: Matrix<'_>,
    right: Matrix<'_>,
    column: usize,
    sum: &mut [f32],
) -> usize {
    /// Rows of the sum that are held in registers.
    const TILE: usize = 4;
    let tile = |values: &[f32]| -> [f32; N] { values[column..].first_chunk().copied().unwrap_or([0.0; N]) };
    let mut biases = [0.0; N];
    for row in right.values.chunks_exact(right.columns) {
        for (bias, value) in biases.iter_mut().zip(tile(row)) {
            *bias += value;
        }
    }
    let mut add = |row: usize, terms: &[f32; N]| {
        for (sum, term) in sum[row * right.columns + column..][..N].iter_mut().zip(terms) {
            *sum += term;
        }
    };
    add(left.columns, &biases);
    let mut first = 0;
    while first < left.columns {
        let mut sums = [[0.0; N]; TILE];
        let rows = left.values.chunks_exact(left.columns).zip(right.values.chunks_exact(right.columns));
        let count = TILE.min(left.columns - first);
        if count == TILE {
            for (inputs, gradients) in rows {
                let gradients = tile(gradients);
                let inputs: [f32; TILE] = inputs[first..].first_chunk().copied().unwrap_or([0.0; TILE]);
                for (sums, input) in sums.iter_mut().zip(inputs) {
                    for (sum, gradient) in sums.iter_mut().zip(gradients) {
                        *sum += input * gradient;
                    }
                }
            }
        } else {
            for (inputs, gradients) in rows {
                let gradients = tile(gradients);
                for (sums, input) in sums.iter_mut().zip(&inputs[first..]) {
                    for (sum, gradient) in sums.iter_mut().zip(gradients) {
                        *sum += input * gradient;
                    }
                }
            }
        }
        for (row, sums) in (first..).zip(&sums[..count]) {
            add(row, sums);
        }
        first += count;
    }
    N
}
