//! The models of He et al. 2017, "Neural Collaborative Filtering" (arXiv:1708.05031), with F predictive factors.
//!
//! ```text
//!  row of a user, row of an item (from the parameter server)         SparseNet: plain loops
//!      |  gmf part: F            |  mlp part: 2F
//!      v                         v
//!  product, lane by lane     [user, item]: 4F                        DenseNet: layers
//!      |                         v  ReLU(4F -> 2F)
//!      |                         v  ReLU(2F -> F)
//!      +-----------+-------------+
//!                  v  (F + F) -> 1
//!                logit;  sigmoid(logit) = "the user will touch the item"
//! ```
//! GMF is the left branch alone, MLP the right one, NeuMF both.

mod dense;
mod network;
mod sparse;

use std::fmt;

use libra_client::{Init, TableSpec, UpdateRule};
use serde::{Deserialize, Serialize};

pub(crate) use network::Network;
pub(crate) use sparse::SampleRows;

use super::data::Dataset;
use crate::{LAYER_KEYS, TrainConfig, ncf::NcfConfig};

/// Branches of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Branches {
    /// Generalised matrix factorisation: a weighted sum of the products of the factors.
    Gmf,
    /// A multi-layer perceptron over user and item.
    Mlp,
    /// Both, fused in the last layer.
    Neumf,
}

impl Branches {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gmf, Self::Mlp, Self::Neumf];

    fn has_products(self) -> bool {
        self != Self::Mlp
    }

    fn has_tower(self) -> bool {
        self != Self::Gmf
    }
}

impl fmt::Display for Branches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gmf => "gmf",
            Self::Mlp => "mlp",
            Self::Neumf => "neumf",
        })
    }
}

/// One layer: `outputs = inputs * weights + biases`.
///
/// It is one row of the parameter server: the weights of input 0, those of input 1, .., then the biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Its table.
    pub(crate) name: &'static str,
    /// Values that come in.
    pub(crate) inputs: usize,
    /// Values that go out.
    pub(crate) outputs: usize,
}

impl Layer {
    /// Values of its row.
    pub(crate) fn width(&self) -> usize {
        (self.inputs + 1) * self.outputs
    }
}

/// A model of given size, as the parameter server sees it: tables and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Model {
    branches: Branches,
    factors: usize,
    users: u32,
    items: u32,
    embeddings: UpdateRule,
    layers: UpdateRule,
    deviation: f32,
}

impl Model {
    /// The model of these settings for the users and items of `dataset`.
    pub(crate) fn new(ncf: &NcfConfig, config: &TrainConfig, dataset: &Dataset) -> Self {
        Self {
            branches: ncf.branches,
            factors: ncf.factors,
            users: dataset.users,
            items: dataset.items,
            embeddings: config.embeddings,
            layers: config.layers,
            deviation: ncf.deviation,
        }
    }

    /// Lanes of a row that are multiplied, user by item: F, or none.
    pub(crate) fn product_width(&self) -> usize {
        if self.branches.has_products() { self.factors } else { 0 }
    }

    /// Lanes of a row that go into the tower: 2F, or none.
    pub(crate) fn tower_width(&self) -> usize {
        if self.branches.has_tower() { 2 * self.factors } else { 0 }
    }

    /// Lanes of the row of a user or item.
    pub(crate) fn width(&self) -> usize {
        self.product_width() + self.tower_width()
    }

    /// The row of a user.
    pub(crate) fn user_key(&self, user: u32) -> u64 {
        u64::from(user)
    }

    /// The row of an item.
    pub(crate) fn item_key(&self, item: u32) -> u64 {
        u64::from(self.users) + u64::from(item)
    }

    /// Returns the number of rows of users and items together; their keys are those below it.
    pub(crate) fn embedding_rows(&self) -> usize {
        self.users as usize + self.items as usize
    }

    /// The layers, from the input to the output.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let f = self.factors;
        let mut layers = Vec::new();
        if self.branches.has_tower() {
            layers.push(Layer { name: "hidden1", inputs: 4 * f, outputs: 2 * f });
            layers.push(Layer { name: "hidden2", inputs: 2 * f, outputs: f });
        }
        let inputs = if self.branches == Branches::Neumf { 2 * f } else { f };
        layers.push(Layer { name: "output", inputs, outputs: 1 });
        layers
    }

    /// The rows of the layers, in their order.
    pub(crate) fn layer_keys(&self) -> impl Iterator<Item = u64> + use<> {
        let count = if self.branches.has_tower() { 3 } else { 1 };
        LAYER_KEYS..LAYER_KEYS + count
    }

    /// Values of all layers.
    pub(crate) fn layer_values(&self) -> usize {
        self.layers().iter().map(Layer::width).sum()
    }

    /// The tables, with how their rows begin and change: users, items, and one table for each layer, as their widths differ.
    ///
    /// Embeddings begin normal (He et al., section 4.1), hidden layers uniform after Glorot and Bengio 2010, the output layer
    /// uniform after LeCun et al. 1998, as in the code of He et al. Biases share a row with weights and begin like them.
    pub(crate) fn tables(&self) -> Vec<TableSpec> {
        let embedding = |name: &str, keys| TableSpec {
            name: name.to_owned(),
            keys,
            width: self.width(),
            rule: self.embeddings,
            init: Init::Normal { deviation: self.deviation },
        };
        let mut tables = vec![
            embedding("user", 0..u64::from(self.users)),
            embedding("item", u64::from(self.users)..self.item_key(self.items)),
        ];
        for (key, layer) in self.layer_keys().zip(self.layers()) {
            let bound = if layer.outputs == 1 {
                (3.0 / layer.inputs as f32).sqrt()
            } else {
                (6.0 / (layer.inputs + layer.outputs) as f32).sqrt()
            };
            tables.push(TableSpec {
                name: layer.name.to_owned(),
                keys: key..key + 1,
                width: layer.width(),
                rule: self.layers,
                init: Init::Uniform { bound },
            });
        }
        tables
    }
}

#[cfg(test)]
mod tests;
