//! The models of He et al. 2017, "Neural Collaborative Filtering" (arXiv:1708.05031), with F predictive factors.
//!
//! ```text
//!  row of a user, row of an item (from the parameter server)         SparseNet: plain loops
//!      |  gmf part: F            |  mlp part: 2F
//!      v                         v
//!  product, lane by lane     [user, item]: 4F                        DenseNet: candle
//!      |                         v  ReLU(4F -> 2F)
//!      |                         v  ReLU(2F -> F)
//!      +-----------+-------------+
//!                  v  (F + F) -> 1
//!                logit;  sigmoid(logit) = "the user will touch the item"
//! ```
//! GMF is the left branch alone, MLP the right one, NeuMF both.

mod affine;
mod dense;
mod network;
mod sparse;

use std::{fmt, str::FromStr};

use libra_plan::TableShape;
use libra_store::{Init, Rule, TableSpec};
use serde::{Deserialize, Serialize};

pub use network::{ComputeError, Network};
pub use sparse::SampleRows;

use crate::{TrainConfig, data::Dataset};

/// The first key of the layers. Users and items have smaller ones.
pub const LAYER_KEYS: u64 = 1 << 40;

/// Which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// Generalised matrix factorisation: a weighted sum of the products of the factors.
    Gmf,
    /// A multi-layer perceptron over user and item.
    Mlp,
    /// Both, fused in the last layer.
    Neumf,
}

impl ModelKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gmf, Self::Mlp, Self::Neumf];

    fn has_products(self) -> bool {
        self != Self::Mlp
    }

    fn has_tower(self) -> bool {
        self != Self::Gmf
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gmf => "gmf",
            Self::Mlp => "mlp",
            Self::Neumf => "neumf",
        })
    }
}

/// A name that is no model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model {name:?}: the models are gmf, mlp and neumf")]
pub struct UnknownModel {
    /// The name.
    pub name: String,
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let known = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        known.ok_or_else(|| UnknownModel { name: name.to_owned() })
    }
}

/// One layer: `outputs = inputs * weights + biases`.
///
/// It is one row of the parameter server: the weights of input 0, those of input 1, .., then the biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Its table.
    pub name: &'static str,
    /// Values that come in.
    pub inputs: usize,
    /// Values that go out.
    pub outputs: usize,
}

impl Layer {
    /// Values of its row.
    pub fn width(&self) -> usize {
        (self.inputs + 1) * self.outputs
    }
}

/// A model of given size, as the parameter server sees it: tables and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    kind: ModelKind,
    factors: usize,
    users: u32,
    items: u32,
    embeddings: Rule,
    layers: Rule,
    deviation: f32,
}

impl Model {
    /// The model of `config` for the users and items of `dataset`.
    pub fn new(config: &TrainConfig, dataset: &Dataset) -> Self {
        Self {
            kind: config.model,
            factors: config.factors,
            users: dataset.users,
            items: dataset.items,
            embeddings: config.embeddings,
            layers: config.layers,
            deviation: config.deviation,
        }
    }

    /// Which model it is.
    pub fn kind(&self) -> ModelKind {
        self.kind
    }

    /// Lanes of a row that are multiplied, user by item: F, or none.
    pub fn product_width(&self) -> usize {
        if self.kind.has_products() { self.factors } else { 0 }
    }

    /// Lanes of a row that go into the tower: 2F, or none.
    pub fn tower_width(&self) -> usize {
        if self.kind.has_tower() { 2 * self.factors } else { 0 }
    }

    /// Lanes of the row of a user or item.
    pub fn width(&self) -> usize {
        self.product_width() + self.tower_width()
    }

    /// The row of a user.
    pub fn user_key(&self, user: u32) -> u64 {
        u64::from(user)
    }

    /// The row of an item.
    pub fn item_key(&self, item: u32) -> u64 {
        u64::from(self.users) + u64::from(item)
    }

    /// How many rows users and items have together; their keys are 0 to here.
    pub fn embedding_rows(&self) -> usize {
        self.users as usize + self.items as usize
    }

    /// Whether the row is one of a user or item, not a layer.
    pub fn is_embedding(&self, key: u64) -> bool {
        key < self.item_key(self.items)
    }

    /// How many values the rows of `keys` have together: rows of users and items, and behind them all layers or none.
    pub(crate) fn values_of(&self, keys: &[u64]) -> usize {
        let layers = keys.iter().rev().take_while(|&&key| !self.is_embedding(key)).count();
        let layer_values = if layers == 0 { 0 } else { self.layer_values() };
        (keys.len() - layers) * self.width() + layer_values
    }

    /// The layers, from the input to the output.
    pub fn layers(&self) -> Vec<Layer> {
        let f = self.factors;
        let mut layers = Vec::new();
        if self.kind.has_tower() {
            layers.push(Layer { name: "hidden1", inputs: 4 * f, outputs: 2 * f });
            layers.push(Layer { name: "hidden2", inputs: 2 * f, outputs: f });
        }
        let inputs = if self.kind == ModelKind::Neumf { 2 * f } else { f };
        layers.push(Layer { name: "output", inputs, outputs: 1 });
        layers
    }

    /// The rows of the layers, in their order.
    pub fn layer_keys(&self) -> impl Iterator<Item = u64> + use<> {
        let count = if self.kind.has_tower() { 3 } else { 1 };
        LAYER_KEYS..LAYER_KEYS + count
    }

    /// Values of all layers.
    pub fn layer_values(&self) -> usize {
        self.layers().iter().map(Layer::width).sum()
    }

    /// The tables, with how their rows begin and change: users, items, and one table for each layer, as their widths differ.
    ///
    /// Embeddings begin normal (He et al., section 4.1), hidden layers uniform after Glorot and Bengio 2010, the output layer
    /// uniform after LeCun et al. 1998, as in the code of He et al. Biases share a row with weights and begin like them.
    pub fn tables(&self) -> Vec<TableSpec> {
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

    /// The tables as a plan sees them. Rows of users and items may become hot; layers are in every push anyway.
    pub fn shapes(&self) -> Vec<TableShape> {
        let shape = |table: TableSpec| TableShape {
            hot: table.keys.start < LAYER_KEYS,
            name: table.name,
            keys: table.keys,
            width: u32::try_from(table.width).expect("a checked configuration has narrow rows"),
        };
        self.tables().into_iter().map(shape).collect()
    }
}

#[cfg(test)]
mod tests;
