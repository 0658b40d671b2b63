//! DeepFwFM (Deng et al. 2021, arXiv:2002.06987, section 3), with F fields and k lanes.
//!
//! ```text
//!  row of each feature (from the parameter server): vector of k, weight
//!      |                      |                        |
//!      v                      v                        v
//!  sum over fields i < j   [vector of each field]   sum of weights
//!  of R_ij <v_i, v_j>         v  ReLU(F k -> h1)       |
//!      |                      v  ReLU(h1 -> h2) ..     |
//!      |                      v  h -> 1, with bias     |
//!      +----------------------+------------------------+
//!                             v
//!                  logit;  sigmoid(logit) = "there will be a click"
//! ```
//! R is symmetric; the part above its diagonal is one row of the parameter server.
//!
//! The rows of a bag have a single field, with any number of features. There are no pairs of fields, hence no R: every two features of the bag
//! count with weight 1, as in a plain factorisation machine, and the layers see the mean of their vectors.

mod bag;
mod dense;
mod fields;
mod network;

use std::ops::Range;

use libra_client::{Init, TableSpec, UpdateRule};

pub(crate) use network::{Limits, Network, Samples};

use super::{DeepLightConfig, data::Layout, feed::Source};
use crate::{LAYER_KEYS, TrainConfig};

/// One layer: `outputs = inputs * weights + biases`.
///
/// It is one row of the parameter server: the weights of input 0, those of input 1, .., then the biases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Its table.
    pub(crate) name: String,
    /// Values that come in.
    pub(crate) inputs: usize,
    /// Values that go out.
    pub(crate) outputs: usize,
}

impl Layer {
    /// Values of its weights.
    pub(crate) fn weights(&self) -> usize {
        self.inputs * self.outputs
    }

    /// Values of its row.
    pub(crate) fn width(&self) -> usize {
        self.weights() + self.outputs
    }
}

/// A model of given size, as the parameter server sees it: tables and keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    layout: Layout,
    lanes: usize,
    features: Range<u64>,
    hidden: Vec<usize>,
    dropout: f32,
    deviation: f32,
    embeddings: UpdateRule,
    layers: UpdateRule,
}

impl Model {
    /// The model of these settings for the features of a source.
    pub(crate) fn new(settings: &DeepLightConfig, config: &TrainConfig, source: &dyn Source) -> Self {
        Self {
            layout: source.layout(),
            lanes: settings.width,
            features: source.keys(),
            hidden: settings.hidden.clone(),
            dropout: settings.dropout,
            deviation: settings.deviation,
            embeddings: config.embeddings,
            layers: config.layers,
        }
    }

    /// Returns the layout of the features of a row.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Values of a vector: k.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Lanes of the row of a feature: its vector, then its weight.
    pub(crate) fn width(&self) -> usize {
        self.lanes + 1
    }

    /// Returns the keys of the features.
    pub(crate) fn features(&self) -> Range<u64> {
        self.features.clone()
    }

    /// Pairs of different fields: the width of R, which is no row if there are none.
    pub(crate) fn pairs(&self) -> usize {
        let fields = self.layout.fields();
        fields * (fields - 1) / 2
    }

    /// The share of the outputs of hidden layers that are left out, in training.
    pub(crate) fn dropout(&self) -> f32 {
        self.dropout
    }

    /// The layers, from the input to the output. Without hidden ones, the output is a bias alone.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let mut layers = Vec::new();
        let mut inputs = self.layout.fields() * self.lanes;
        for (number, &outputs) in self.hidden.iter().enumerate() {
            layers.push(Layer { name: format!("hidden{}", number + 1), inputs, outputs });
            inputs = outputs;
        }
        let inputs = if self.hidden.is_empty() { 0 } else { inputs };
        layers.push(Layer { name: "output".to_owned(), inputs, outputs: 1 });
        layers
    }

    /// The rows of R and of the layers, in their order.
    pub(crate) fn layer_keys(&self) -> impl Iterator<Item = u64> + use<> {
        let count = usize::from(self.pairs() > 0) + self.hidden.len() + 1;
        LAYER_KEYS..LAYER_KEYS + count as u64
    }

    /// Values of R and of all layers.
    pub(crate) fn layer_values(&self) -> usize {
        self.pairs() + self.layers().iter().map(Layer::width).sum::<usize>()
    }

    /// The tables, with how their rows begin and change: the features, R, and one table for each layer.
    ///
    /// R begins normal with variance 1 / F, as in the code of Deng et al.; features, too, with a deviation that is a setting. Hidden layers begin
    /// uniform after Glorot and Bengio 2010, the output layer uniform after LeCun et al. 1998. Biases share a row with weights
    /// and begin like them.
    pub(crate) fn tables(&self) -> Vec<TableSpec> {
        let mut tables = vec![TableSpec {
            name: "feature".to_owned(),
            keys: self.features(),
            width: self.width(),
            rule: self.embeddings,
            init: Init::Normal { deviation: self.deviation },
        }];
        let mut keys = self.layer_keys();
        let mut add = |name: &str, width, init| {
            let key = keys.next().expect("a key for each");
            let (name, rule) = (name.to_owned(), self.layers);
            tables.push(TableSpec { name, keys: key..key + 1, width, rule, init });
        };
        if self.pairs() > 0 {
            let deviation = 1.0 / (self.layout.fields() as f32).sqrt();
            add("pairs", self.pairs(), Init::Normal { deviation });
        }
        for layer in self.layers() {
            let init = if layer.inputs == 0 {
                Init::Zero
            } else if layer.outputs == 1 {
                Init::Uniform { bound: (3.0 / layer.inputs as f32).sqrt() }
            } else {
                Init::Uniform { bound: (6.0 / (layer.inputs + layer.outputs) as f32).sqrt() }
            };
            add(&layer.name, layer.width(), init);
        }
        tables
    }
}

#[cfg(test)]
mod tests;
