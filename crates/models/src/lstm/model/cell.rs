//! One layer of the LSTM, through time and back.

use crate::{
    activation::{sigmoid, tanh},
    matrix::{Matrix, add, add_product, add_rows, matrix, set_product},
};

/// Added to the biases of the forget gates, so that a layer begins with remembering (Jozefowicz et al. 2015).
const FORGET_BIAS: f32 = 1.0;

/// A layer of LSTM (Hochreiter and Schmidhuber 1997, without peepholes), with a projection after Sak et al. 2014 or without.
///
/// `i, f, o = sigmoid`, `g = tanh` of `weights * [x; r] + biases`; `c = f c + i g`, `m = o tanh(c)`; `r = projection * m`, or `m`. Both
/// the next step and the next layer take `r`.
///
/// It is one row of the parameter server: the weights of input 0 (of all i, then all f, g, o), those of input 1, .., those of what came
/// out one step before, then the biases, then the projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lstm) struct Cell {
    /// Values that come in.
    pub(in crate::lstm) inputs: usize,
    /// Cells.
    pub(in crate::lstm) hidden: usize,
    /// Values that the cells are projected to; 0 for no projection.
    pub(in crate::lstm) projection: usize,
}

impl Cell {
    /// Values that come out.
    pub(in crate::lstm) fn outputs(&self) -> usize {
        if self.projection > 0 { self.projection } else { self.hidden }
    }

    /// Values of the four gates.
    fn gates(&self) -> usize {
        4 * self.hidden
    }

    /// Values of its row.
    pub(in crate::lstm) fn width(&self) -> usize {
        (self.inputs + self.outputs() + 1) * self.gates() + self.projection * self.hidden
    }

    fn parts<'a>(&self, row: &'a [f32]) -> Parts<'a> {
        let (inputs, rest) = row.split_at(self.inputs * self.gates());
        let (recurrent, rest) = rest.split_at(self.outputs() * self.gates());
        let (biases, projection) = rest.split_at(self.gates());
        Parts {
            inputs: matrix(inputs, self.inputs, self.gates()),
            recurrent: matrix(recurrent, self.outputs(), self.gates()),
            biases,
            projection: matrix(projection, self.hidden, self.projection),
        }
    }
}

/// The row of a layer, taken apart.
struct Parts<'a> {
    inputs: Matrix<'a>,
    recurrent: Matrix<'a>,
    biases: &'a [f32],
    projection: Matrix<'a>,
}

/// Intermediate results of a layer for the backward pass. All are matrices with a row for each stream of each step.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Inputs.
    pub(super) inputs: Vec<f32>,
    /// The gates i, f, g, o; on the way back the gradients of what went into them.
    gates: Vec<f32>,
    /// The cells, before the first step and after each.
    cells: Vec<f32>,
    /// tanh of the cells after each step.
    squashed: Vec<f32>,
    /// The hidden state, with a projection only: without, it is the output.
    seen: Vec<f32>,
    /// Outputs, before the first step and after each.
    outputs: Vec<f32>,
}

/// State of a layer for each stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Remembered {
    pub(super) cells: Vec<f32>,
    pub(super) outputs: Vec<f32>,
}

impl Trace {
    /// Returns the outputs after each step.
    pub(super) fn outputs(&self, cell: &Cell, streams: usize) -> &[f32] {
        &self.outputs[streams * cell.outputs()..]
    }

    /// Goes through the steps of `self.inputs`, beginning with what is remembered of the first `streams` streams, and remembers what is
    /// at the end.
    pub(super) fn forward(&mut self, cell: &Cell, row: &[f32], streams: usize, memory: &mut Remembered) {
        let Cell { inputs, hidden, projection } = *cell;
        let (outputs, gates) = (cell.outputs(), cell.gates());
        let samples = self.inputs.len() / inputs;
        let parts = cell.parts(row);
        self.gates.clear();
        (0..samples).for_each(|_| self.gates.extend_from_slice(parts.biases));
        add_product(&mut self.gates, matrix(&self.inputs, samples, inputs), parts.inputs);
        self.cells.clear();
        self.cells.extend_from_slice(&memory.cells[..streams * hidden]);
        self.cells.resize((samples + streams) * hidden, 0.0);
        self.outputs.clear();
        self.outputs.extend_from_slice(&memory.outputs[..streams * outputs]);
        self.outputs.resize((samples + streams) * outputs, 0.0);
        self.squashed.resize(samples * hidden, 0.0);
        self.seen.resize(if projection > 0 { samples * hidden } else { 0 }, 0.0);

        for start in (0..samples).step_by(streams) {
            let end = start + streams;
            let (before, after) = self.outputs.split_at_mut(end * outputs);
            let before = matrix(&before[start * outputs..], streams, outputs);
            let after = &mut after[..streams * outputs];
            let step_gates = &mut self.gates[start * gates..end * gates];
            add_product(step_gates, before, parts.recurrent);
            let (cells_before, cells_after) = self.cells.split_at_mut(end * hidden);
            let seen =
                if projection > 0 { &mut self.seen[start * hidden..end * hidden] } else { &mut *after };
            let streams_of_step = step_gates
                .chunks_exact_mut(gates)
                .zip(cells_before[start * hidden..].chunks_exact(hidden))
                .zip(cells_after.chunks_exact_mut(hidden))
                .zip(self.squashed[start * hidden..].chunks_exact_mut(hidden))
                .zip(seen.chunks_exact_mut(hidden));
            for ((((gates, before), after), squashed), seen) in streams_of_step {
                advance(gates, before, after, squashed, seen);
            }
            if projection > 0 {
                let seen = matrix(&self.seen[start * hidden..], streams, hidden);
                set_product(after, seen, parts.projection);
            }
        }
        memory.cells[..streams * hidden].copy_from_slice(&self.cells[samples * hidden..]);
        memory.outputs[..streams * outputs].copy_from_slice(&self.outputs[samples * outputs..]);
    }

    /// The way back. `by_output` holds the gradients of what came out, which what the steps gave each other is added to; `by_input` is
    /// replaced by the gradients of what came in, and `by_row` by those of the row of the layer.
    pub(super) fn backward(
        &mut self,
        cell: &Cell,
        row: &[f32],
        streams: usize,
        by_output: &mut [f32],
        by_input: &mut Vec<f32>,
        by_row: &mut [f32],
    ) {
        let Cell { inputs, hidden, projection } = *cell;
        let (outputs, gates) = (cell.outputs(), cell.gates());
        let samples = self.inputs.len() / inputs;
        let parts = cell.parts(row);
        let mut by_cell = vec![0.0; streams * hidden];
        let mut by_seen = vec![0.0; if projection > 0 { streams * hidden } else { 0 }];
        let mut by_before = vec![0.0; streams * outputs];
        for start in (0..samples).step_by(streams).rev() {
            let end = start + streams;
            let by_output = &mut by_output[start * outputs..end * outputs];
            add(by_output, &by_before);
            let by_seen = if projection > 0 {
                set_product(&mut by_seen, matrix(by_output, streams, outputs), parts.projection.t());
                &by_seen[..]
            } else {
                &*by_output
            };
            let step_gates = &mut self.gates[start * gates..end * gates];
            let streams_of_step = step_gates
                .chunks_exact_mut(gates)
                .zip(self.cells[start * hidden..].chunks_exact(hidden))
                .zip(self.squashed[start * hidden..].chunks_exact(hidden))
                .zip(by_seen.chunks_exact(hidden))
                .zip(by_cell.chunks_exact_mut(hidden));
            for ((((gates, before), squashed), by_seen), by_cell) in streams_of_step {
                go_back(gates, before, squashed, by_seen, by_cell);
            }
            set_product(&mut by_before, matrix(step_gates, streams, gates), parts.recurrent.t());
        }
        let by_gates = matrix(&self.gates, samples, gates);
        by_input.resize(samples * inputs, 0.0);
        set_product(by_input, by_gates, parts.inputs.t());

        let (by_weights, rest) = by_row.split_at_mut(inputs * gates);
        let (by_recurrent, rest) = rest.split_at_mut(outputs * gates);
        let (by_biases, by_projection) = rest.split_at_mut(gates);
        set_product(by_weights, matrix(&self.inputs, samples, inputs).t(), by_gates);
        set_product(by_recurrent, matrix(&self.outputs, samples, outputs).t(), by_gates);
        by_biases.fill(0.0);
        add_rows(by_biases, &self.gates);
        if projection > 0 {
            let by_output = matrix(by_output, samples, outputs);
            set_product(by_projection, matrix(&self.seen, samples, hidden).t(), by_output);
        }
    }
}

/// Four slices of one length.
fn quarters(gates: &mut [f32]) -> [&mut [f32]; 4] {
    let (first, second) = gates.split_at_mut(gates.len() / 2);
    let (i, f) = first.split_at_mut(first.len() / 2);
    let (g, o) = second.split_at_mut(second.len() / 2);
    [i, f, g, o]
}

/// One stream, one step. `gates` holds what goes into the gates, and then the gates.
fn advance(gates: &mut [f32], before: &[f32], after: &mut [f32], squashed: &mut [f32], seen: &mut [f32]) {
    let [i, f, g, o] = quarters(gates);
    i.iter_mut().for_each(|value| *value = sigmoid(*value));
    f.iter_mut().for_each(|value| *value = sigmoid(*value + FORGET_BIAS));
    g.iter_mut().for_each(|value| *value = tanh(*value));
    o.iter_mut().for_each(|value| *value = sigmoid(*value));
    for ((((after, before), i), f), g) in after.iter_mut().zip(before).zip(&*i).zip(&*f).zip(&*g) {
        *after = f * before + i * g;
    }
    for (((squashed, seen), after), o) in squashed.iter_mut().zip(seen).zip(&*after).zip(&*o) {
        *squashed = tanh(*after);
        *seen = o * *squashed;
    }
}

/// One stream, one step back. `gates` holds the gates, and then the gradients of what went into them; `by_cell` the gradients of the
/// cells after the step, and then of those before it.
fn go_back(gates: &mut [f32], before: &[f32], squashed: &[f32], by_seen: &[f32], by_cell: &mut [f32]) {
    let [i, f, g, o] = quarters(gates);
    for (((o, squashed), by_seen), by_cell) in o.iter_mut().zip(squashed).zip(by_seen).zip(&mut *by_cell) {
        *by_cell += by_seen * *o * (1.0 - squashed * squashed);
        *o = by_seen * squashed * *o * (1.0 - *o);
    }
    for ((((i, f), g), before), by_cell) in i.iter_mut().zip(f).zip(g).zip(before).zip(by_cell) {
        let (gate_i, gate_f, gate_g, by) = (*i, *f, *g, *by_cell);
        *i = by * gate_g * gate_i * (1.0 - gate_i);
        *f = by * before * gate_f * (1.0 - gate_f);
        *g = by * gate_i * (1.0 - gate_g * gate_g);
        *by_cell = by * gate_f;
    }
}
