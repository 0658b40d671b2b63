//! From rows to the loss and back.

use rand::{RngCore, SeedableRng, rngs::SmallRng};

use super::{
    Cell, Model,
    cell::{Remembered, Trace},
    softmax::Sampled,
};
use crate::{lstm::batches::Batch, matrix::add};

/// State of the model for each stream: zero at first.
#[derive(Debug, Clone)]
pub(in crate::lstm) struct Memory {
    layers: Vec<Remembered>,
}

impl Memory {
    /// Of so many streams.
    pub(in crate::lstm) fn new(model: &Model, streams: usize) -> Self {
        let layer = |cell: &Cell| Remembered {
            cells: vec![0.0; streams * cell.hidden],
            outputs: vec![0.0; streams * cell.outputs()],
        };
        Self { layers: model.cells().iter().map(layer).collect() }
    }

    /// Forgets everything.
    pub(in crate::lstm) fn forget(&mut self) {
        for Remembered { cells, outputs } in &mut self.layers {
            cells.fill(0.0);
            outputs.fill(0.0);
        }
    }
}

#[cfg(test)]
impl Memory {
    /// Fills it with what `draw` gives.
    pub(in crate::lstm) fn set(&mut self, draw: &mut dyn FnMut() -> f32) {
        for Remembered { cells, outputs } in &mut self.layers {
            cells.iter_mut().chain(outputs).for_each(|value| *value = draw());
        }
    }

    /// Cells and outputs of a stream in a layer.
    pub(in crate::lstm) fn of(&self, layer: usize, stream: usize) -> (Vec<f64>, Vec<f64>) {
        let Remembered { cells, outputs } = &self.layers[layer];
        let row = |values: &[f32], streams: usize| {
            let width = values.len() / streams;
            values[stream * width..][..width].iter().copied().map(f64::from).collect()
        };
        (row(cells, 3), row(outputs, 3))
    }
}

/// The network, with room for what happens in a batch.
pub(in crate::lstm) struct Network {
    cells: Vec<Cell>,
    model: Model,
    traces: Vec<Trace>,
    /// Outputs of the last layer, after dropout: a row for each sample.
    hidden: Vec<f32>,
    softmax: Sampled,
    dropout: Dropout,
}

impl Network {
    /// With dropout of this probability in training.
    pub(in crate::lstm) fn new(model: &Model, dropout: f32) -> Self {
        let cells = model.cells();
        Self {
            traces: cells.iter().map(|_| Trace::default()).collect(),
            dropout: Dropout::new(dropout, cells.len() + 1),
            cells,
            model: *model,
            hidden: Vec::new(),
            softmax: Sampled::default(),
        }
    }

    /// The sum of the losses of a batch. `values` holds its rows one after the other; `gradients` is replaced by the gradients of `share`
    /// times the sum, laid out like them. `memory` goes on to the end of the batch.
    pub(in crate::lstm) fn step(
        &mut self,
        values: &[f32],
        batch: &Batch,
        share: f32,
        memory: &mut Memory,
        gradients: &mut Vec<f32>,
    ) -> f64 {
        let (words, rest) = values.split_at(batch.words * self.model.embedding());
        let outputs = batch.log_expected.len() * self.model.output_width();
        let (outputs, layers) = rest.split_at(outputs);
        self.dropout.start(batch.seed);
        self.forward(words, &batch.inputs, layers, batch.streams, memory, true);

        gradients.clear();
        gradients.resize(values.len(), 0.0);
        let (by_words, by_rest) = gradients.split_at_mut(words.len());
        let (by_outputs, by_layers) = by_rest.split_at_mut(outputs.len());
        let mut by_hidden = vec![0.0; self.hidden.len()];
        let loss = self.softmax.step(batch, outputs, &self.hidden, share, &mut by_hidden, by_outputs);
        self.backward(&batch.inputs, layers, batch.streams, by_hidden, by_words, by_layers);
        loss
    }

    /// Computes the outputs of the last layer for words whose rows are in `words`, without dropout: a row for each.
    pub(in crate::lstm) fn read(
        &mut self,
        words: &[f32],
        inputs: &[u32],
        layers: &[f32],
        streams: usize,
        memory: &mut Memory,
    ) -> &[f32] {
        self.forward(words, inputs, layers, streams, memory, false);
        &self.hidden
    }

    fn forward(
        &mut self,
        words: &[f32],
        inputs: &[u32],
        mut layers: &[f32],
        streams: usize,
        memory: &mut Memory,
        training: bool,
    ) {
        let width = self.model.embedding();
        self.hidden.clear();
        for &input in inputs {
            self.hidden.extend_from_slice(&words[input as usize * width..][..width]);
        }
        if training {
            self.dropout.drop(0, &mut self.hidden);
        }
        let cells = self.cells.iter().zip(&mut self.traces).zip(&mut memory.layers).enumerate();
        for (layer, ((cell, trace), remembered)) in cells {
            let (row, rest) = layers.split_at(cell.width());
            layers = rest;
            std::mem::swap(&mut trace.inputs, &mut self.hidden);
            trace.forward(cell, row, streams, remembered);
            self.hidden.clear();
            self.hidden.extend_from_slice(trace.outputs(cell, streams));
            if training {
                self.dropout.drop(layer + 1, &mut self.hidden);
            }
        }
    }

    fn backward(
        &mut self,
        inputs: &[u32],
        layers: &[f32],
        streams: usize,
        mut by_output: Vec<f32>,
        by_words: &mut [f32],
        by_layers: &mut [f32],
    ) {
        let mut end = layers.len();
        let mut by_input = Vec::new();
        for (layer, (cell, trace)) in self.cells.iter().zip(&mut self.traces).enumerate().rev() {
            let start = end - cell.width();
            self.dropout.drop_again(layer + 1, &mut by_output);
            let (row, by_row) = (&layers[start..end], &mut by_layers[start..end]);
            trace.backward(cell, row, streams, &mut by_output, &mut by_input, by_row);
            std::mem::swap(&mut by_output, &mut by_input);
            end = start;
        }
        self.dropout.drop_again(0, &mut by_output);
        let width = self.model.embedding();
        for (&input, by_input) in inputs.iter().zip(by_output.chunks_exact(width)) {
            add(&mut by_words[input as usize * width..][..width], by_input);
        }
    }
}

/// Sets values to zero at random, and makes the others larger, where a value goes up from layer to layer but not from step to step
/// (Zaremba et al. 2014, arXiv:1409.2329).
struct Dropout {
    /// Number of values dropped of each 65,536.
    threshold: u16,
    /// Factor of the others.
    factor: f32,
    random: SmallRng,
    /// Factors of the values of each place.
    factors: Vec<Vec<f32>>,
}

impl Dropout {
    fn new(probability: f32, places: usize) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a checked probability is below 1 and not negative"
        )]
        let threshold = (probability * 65_536.0).min(65_535.0) as u16;
        Self {
            threshold,
            factor: 65_536.0 / (65_536.0 - f32::from(threshold)),
            random: SmallRng::seed_from_u64(0),
            factors: vec![Vec::new(); places],
        }
    }

    fn start(&mut self, seed: u64) {
        self.random = SmallRng::seed_from_u64(seed);
    }

    fn drop(&mut self, place: usize, values: &mut [f32]) {
        if self.threshold == 0 {
            return;
        }
        let Self { threshold, factor, random, factors } = self;
        let factors = &mut factors[place];
        factors.clear();
        factors.reserve(values.len() + 3);
        while factors.len() < values.len() {
            let number = random.next_u64();
            let kept = |part: u32| {
                #[expect(clippy::cast_possible_truncation, reason = "the lowest 16 bits are meant")]
                let number = (number >> (16 * part)) as u16;
                if number < *threshold { 0.0 } else { *factor }
            };
            factors.extend([kept(0), kept(1), kept(2), kept(3)]);
        }
        self.drop_again(place, values);
    }

    fn drop_again(&self, place: usize, values: &mut [f32]) {
        if self.threshold > 0 {
            for (value, factor) in values.iter_mut().zip(&self.factors[place]) {
                *value *= factor;
            }
        }
    }
}
