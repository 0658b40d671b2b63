//! The language model of Jozefowicz et al. 2016, "Exploring the Limits of Language Modeling" (arXiv:1602.02410), section 3: a word and
//! the words before it predict the next word.
//!
//! ```text
//!  row of the word: E lanes (from the parameter server)
//!      |  dropout
//!      v
//!  LSTM: H cells, remembers its stream  ──► projection to P lanes, or none     (layer rows)     × layers
//!      |  dropout
//!      v
//!  row of an output: weights of P (or H) lanes, and a bias                     (a row for each word)
//!      |
//!    logit of that word; softmax over a sample of all words, or over all
//! ```

mod cell;
mod network;
mod softmax;

use libra_client::{Init, TableSpec, UpdateRule};

pub(super) use cell::Cell;
pub(super) use network::{Memory, Network};
pub(super) use softmax::LogSum;

use super::LstmConfig;
use crate::{LAYER_KEYS, TrainConfig};

/// A model of given size, as the parameter server sees it: tables and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Model {
    vocabulary: usize,
    embedding: usize,
    hidden: usize,
    projection: usize,
    layers: usize,
    range: f32,
    embedding_rule: UpdateRule,
    layer_rule: UpdateRule,
}

impl Model {
    /// The model of these settings for so many words.
    pub(super) fn new(lstm: &LstmConfig, config: &TrainConfig, vocabulary: usize) -> Self {
        Self {
            vocabulary,
            embedding: lstm.embedding,
            hidden: lstm.hidden,
            projection: lstm.projection,
            layers: lstm.layers,
            range: lstm.range,
            embedding_rule: config.embeddings,
            layer_rule: config.layers,
        }
    }

    /// Lanes of the row of a word.
    pub(super) fn embedding(&self) -> usize {
        self.embedding
    }

    /// Lanes that come out of the last layer.
    pub(super) fn outputs(&self) -> usize {
        if self.projection > 0 { self.projection } else { self.hidden }
    }

    /// Lanes of the row of an output: a weight for each that comes out of the last layer, then the bias.
    pub(super) fn output_width(&self) -> usize {
        self.outputs() + 1
    }

    /// Different words.
    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The row of a word that was read.
    pub(super) fn word_key(&self, word: u32) -> u64 {
        u64::from(word)
    }

    /// The row of a word that may follow.
    pub(super) fn output_key(&self, word: u32) -> u64 {
        self.vocabulary as u64 + u64::from(word)
    }

    /// The rows of all words that may follow.
    pub(super) fn output_keys(&self) -> std::ops::Range<u64> {
        self.vocabulary as u64..2 * self.vocabulary as u64
    }

    /// The rows of the layers, from the input to the output.
    pub(super) fn layer_keys(&self) -> std::ops::Range<u64> {
        LAYER_KEYS..LAYER_KEYS + self.layers as u64
    }

    /// The layers, from the input to the output.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let cell = |layer| Cell {
            inputs: if layer == 0 { self.embedding } else { self.outputs() },
            hidden: self.hidden,
            projection: self.projection,
        };
        (0..self.layers).map(cell).collect()
    }

    /// The tables, with how their rows begin and change: words, outputs, and one table for each layer, as their widths differ. All values
    /// begin uniform (Zaremba et al. 2014, section 4.1).
    pub(super) fn tables(&self) -> Vec<TableSpec> {
        let table = |name: String, keys, width, rule| TableSpec {
            name,
            keys,
            width,
            rule,
            init: Init::Uniform { bound: self.range },
        };
        let words = 0..self.vocabulary as u64;
        let mut tables = vec![
            table("word".to_owned(), words, self.embedding, self.embedding_rule),
            table("output".to_owned(), self.output_keys(), self.output_width(), self.embedding_rule),
        ];
        for (number, (key, cell)) in (1..).zip(self.layer_keys().zip(self.cells())) {
            tables.push(table(format!("lstm{number}"), key..key + 1, cell.width(), self.layer_rule));
        }
        tables
    }
}

#[cfg(test)]
mod tests;
