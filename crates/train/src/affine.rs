//! One layer as one operation of candle: `outputs = activation(inputs * weights + biases)`.
//!
//! Candle strings layers together and differentiates; what happens inside one is here, on the calling thread, for two reasons.
//! Its matrix product (0.11) looks into `/proc/cpuinfo` every time for how many threads to start, unless `RAYON_NUM_THREADS` is
//! set, and from a certain size on starts them: with several workers on the same processors, each step then waits for threads
//! that do not run. And a layer of separate operations spends most of its time between them: NeuMF with 8 factors takes
//! less than half the time this way.

use candle_core::{CpuStorage, CustomOp2, Device, Error, Layout, Result, Shape, Storage, Tensor};

/// Rows of a block whose operands stay in the first-level cache.
const BLOCK_ROWS: usize = 64;

/// `inputs` (samples x in) by `row` ((in + 1) x out: weights, then biases), with or without ReLU.
pub(crate) struct Affine {
    pub(crate) relu: bool,
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

    /// The matrix of a contiguous tensor of two dimensions.
    fn of(storage: &'a CpuStorage, layout: &Layout) -> Result<Self> {
        let contiguous = layout.contiguous_offsets();
        match (storage, contiguous, layout.dims()) {
            (CpuStorage::F32(values), Some((start, end)), &[_, columns]) if columns > 0 => {
                Ok(Self { values: &values[start..end], columns })
            }
            _ => Err(Error::Msg("a layer takes contiguous f32 matrices".into())),
        }
    }
}

impl CustomOp2 for Affine {
    fn name(&self) -> &'static str {
        "affine"
    }

    fn cpu_fwd(
        &self,
        inputs: &CpuStorage,
        inputs_layout: &Layout,
        row: &CpuStorage,
        row_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = Matrix::of(inputs, inputs_layout)?;
        let row = Matrix::of(row, row_layout)?;
        if row.rows() != inputs.columns + 1 {
            return Err(Error::Msg(format!("{} inputs, a layer of {}", inputs.columns, row.rows())));
        }
        let biases = row.row(inputs.columns);
        let mut outputs = multiply(inputs, row, Some(biases));
        if self.relu {
            // Not `max`, which would make zeros of what is not a number, and hide that the model has diverged.
            outputs.iter_mut().for_each(|value| *value = if *value < 0.0 { 0.0 } else { *value });
        }
        Ok((CpuStorage::F32(outputs), Shape::from((inputs.rows(), row.columns))))
    }

    fn bwd(
        &self,
        inputs: &Tensor,
        row: &Tensor,
        outputs: &Tensor,
        output_gradients: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let output_gradients = output_gradients.contiguous()?;
        let guards = [inputs, row, outputs, &output_gradients].map(Tensor::storage_and_layout);
        let [inputs_matrix, row_matrix, outputs_matrix, gradients_matrix] =
            guards.each_ref().map(|(storage, layout)| match &**storage {
                Storage::Cpu(storage) => Matrix::of(storage, layout),
                _ => Err(Error::Msg("a layer is computed by the processor".into())),
            });
        let (inputs_matrix, row_matrix) = (inputs_matrix?, row_matrix?);
        let (outputs_matrix, gradients_matrix) = (outputs_matrix?, gradients_matrix?);
        let masked: Vec<f32>;
        let gradients = if self.relu {
            let pairs = gradients_matrix.values.iter().zip(outputs_matrix.values);
            masked = pairs.map(|(&gradient, &output)| if output > 0.0 { gradient } else { 0.0 }).collect();
            Matrix { values: &masked, ..gradients_matrix }
        } else {
            gradients_matrix
        };
        let weights =
            Matrix { values: &row_matrix.values[..inputs_matrix.columns * row_matrix.columns], ..row_matrix };
        let transposed = transposed(weights);
        let by_input = multiply(gradients, Matrix { values: &transposed, columns: weights.rows() }, None);
        let by_row = outer_sum(inputs_matrix, gradients);
        Ok((
            Some(Tensor::from_vec(by_input, inputs.shape(), &Device::Cpu)?),
            Some(Tensor::from_vec(by_row, row.shape(), &Device::Cpu)?),
        ))
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
