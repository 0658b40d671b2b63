//! The models of the paper's first table, and the traffic of its example.
//!
//! The paper gives their names, where they are published, and how many parameters they have: not what they are made of.
//! The numbers of parameters are those of industrial models that the publications do not describe, so each model here
//! is as published where it can be, and else chosen by us to reach the totals. [`Source`] says which, for each table
//! and layer.

use serde::Serialize;

/// Bytes of a parameter or a gradient.
const VALUE_BYTES: u64 = 4;

/// Source of the size of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The publication that the paper cites for the model.
    Published,
    /// Chosen by us, so that the model has as many parameters as the paper says.
    Chosen,
}

/// An embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The field that it embeds.
    pub field: &'static str,
    /// Rows: different values of the field.
    pub rows: u64,
    /// Values in a row.
    pub width: u32,
    /// Source of the number of rows. Widths are published, all of them.
    pub source: Source,
}

impl Table {
    /// Its parameters.
    #[must_use]
    pub const fn parameters(&self) -> u64 {
        self.rows * self.width as u64
    }
}

/// A layer with a bias, or several alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Purpose of the layer.
    pub part: &'static str,
    /// Values that go in.
    pub inputs: u32,
    /// Values that come out.
    pub outputs: u32,
    /// Number of such layers, each with parameters of its own.
    pub copies: u32,
    /// Source of the sizes.
    pub source: Source,
}

impl Layer {
    /// Its parameters: weights, and a bias for each output.
    #[must_use]
    pub const fn parameters(&self) -> u64 {
        (self.inputs as u64 + 1) * self.outputs as u64 * self.copies as u64
    }
}

/// A sparse model: embeddings, the paper's SparseNet, and layers, its DenseNet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Model {
    /// Its name in the paper.
    pub name: &'static str,
    /// Its embeddings.
    pub tables: Vec<Table>,
    /// Its layers.
    pub layers: Vec<Layer>,
}

/// Layers of these sizes, one after the other.
fn layers(part: &'static str, sizes: &[u32], copies: u32, source: Source) -> Vec<Layer> {
    let layer = |pair: &[u32]| Layer { part, inputs: pair[0], outputs: pair[1], copies, source };
    sizes.windows(2).map(layer).collect()
}

const fn table(field: &'static str, rows: u64, width: u32, source: Source) -> Table {
    Table { field, rows, width, source }
}

impl Model {
    /// Deep interest network: 18 billion and 1.7 million parameters in the paper.
    ///
    /// Zhou et al., Deep Interest Network for Click-Through Rate Prediction (KDD 2018). Published, of the data of Alibaba:
    /// 16 groups of features with embeddings of 12 values each, hence 192 inputs; 0.6 billion goods. Chosen: the rows of
    /// the other groups. The published layers, 192 x 200 x 80 x 2, and an activation unit with 36 hidden values have
    /// 57,000 parameters, a thirtieth of what the paper says; so layers and the three activation units (of goods, shops
    /// and categories, each from behavior, candidate, their difference and product) are chosen.
    #[must_use]
    pub fn din() -> Self {
        let mut all = layers("prediction", &[192, 1024, 768, 256, 2], 1, Source::Chosen);
        all.extend(layers("activation units", &[48, 512, 256, 1], 3, Source::Chosen));
        Self { name: "DIN", tables: alibaba(), layers: all }
    }

    /// Crossmedia: 5 billion and 1 million parameters in the paper, which we take as "1 million to the nearest".
    ///
    /// Ge et al., Image Matters: Visually Modeling User Behaviors Using Advanced Model Server (CIKM 2018). Published:
    /// embeddings of 12 values; the model of images, 4096 x 256 x 64 x 12, that turns the 4,096 values of a fixed
    /// network into an embedding, which alone has 1.07 million. Chosen: all rows, and a small prediction of 16 groups.
    #[must_use]
    pub fn crossmedia() -> Self {
        let mut all = layers("images", &[4096, 256, 64, 12], 1, Source::Published);
        all.extend(layers("prediction", &[192, 200, 80, 2], 1, Source::Chosen));
        let tables = vec![
            table("users", 60_000_000, 12, Source::Chosen),
            table("goods", 300_000_000, 12, Source::Chosen),
            table("other groups", 56_666_667, 12, Source::Chosen),
        ];
        Self { name: "CM", tables, layers: all }
    }

    /// Multiple layer perceptron: 18 billion and 1.2 million parameters in the paper.
    ///
    /// Huang et al., Learning Deep Structured Semantic Models for Web Search using Clickthrough Data (CIKM 2013).
    /// Published: two towers, of queries and documents, with layers of 300, 300 and 128 values, of which the first is a
    /// sum of embeddings. Chosen: the rows, which are words of a production vocabulary; with the published 30,621 letter
    /// trigrams a tower has 9 million parameters there. And layers on top of both towers, which are published to end in
    /// a cosine and would have only 0.26 million parameters.
    #[must_use]
    pub fn mlp() -> Self {
        let mut all = layers("towers", &[300, 300, 128], 2, Source::Published);
        all.extend(layers("prediction", &[256, 1024, 640, 1], 1, Source::Chosen));
        let tables = vec![
            table("words of queries", 30_000_000, 300, Source::Chosen),
            table("words of documents", 30_000_000, 300, Source::Chosen),
        ];
        Self { name: "MLP", tables, layers: all }
    }

    /// Neural collaborative filtering, the paper's example of traffic: 680 MB of sparse gradients of which 104 MB are not
    /// zero, and 0.4 MB of dense ones.
    ///
    /// He et al., Neural Collaborative Filtering (WWW 2017), in the sizes of the benchmark MLPerf: 64 values for the
    /// factorization and 128 for the perceptron in each row, layers of 256, 256, 128 and 64. They have 0.43 MB, the
    /// paper's 0.4. MovieLens 20M, which it cites, has 165,237 rows, a fifth of what 680 MB hold; the code of OmniReduce
    /// (Fei et al., SIGCOMM 2021), which the paper cites too, trains this very model with MovieLens 20M enlarged by
    /// 4 x 16. So items are 16 times those of MovieLens 20M, and users are chosen to make 680 MB; 4 times its users
    /// would make 754.
    #[must_use]
    pub fn ncf() -> Self {
        let mut all = layers("perceptron", &[256, 256, 128, 64], 1, Source::Published);
        all.extend(layers("prediction", &[128, 1], 1, Source::Published));
        let tables =
            vec![table("users", 464_000, 192, Source::Chosen), table("items", 421_417, 192, Source::Chosen)];
        Self { name: "NCF", tables, layers: all }
    }

    /// Parameters of its embeddings.
    #[must_use]
    pub fn sparse_parameters(&self) -> u64 {
        self.tables.iter().map(Table::parameters).sum()
    }

    /// Parameters of its layers.
    ///
    /// ```
    /// use libra_paper::Model;
    ///
    /// let din = Model::din();
    /// let rounded = (din.sparse_parameters() as f64 / 1e9, din.dense_parameters() as f64 / 1e6);
    /// assert_eq!(format!("{:.0} billion, {:.1} million", rounded.0, rounded.1), "18 billion, 1.7 million");
    /// ```
    #[must_use]
    pub fn dense_parameters(&self) -> u64 {
        self.layers.iter().map(Layer::parameters).sum()
    }

    /// The gradients of one push that touches so many rows of each table.
    ///
    /// # Panics
    /// If there is not a number for each table, or one is more than the table has.
    #[must_use]
    pub fn traffic(&self, rows_touched: &[u64]) -> Traffic {
        assert_eq!(rows_touched.len(), self.tables.len(), "rows touched are for each table");
        let nonzero = self.tables.iter().zip(rows_touched).map(|(table, touched)| {
            assert!(*touched <= table.rows, "{touched} rows of {} cannot be touched", table.field);
            touched * u64::from(table.width)
        });
        Traffic {
            sparse_bytes: VALUE_BYTES * self.sparse_parameters(),
            nonzero_bytes: VALUE_BYTES * nonzero.sum::<u64>(),
            dense_bytes: VALUE_BYTES * self.dense_parameters(),
        }
    }
}

/// The groups of DIN, with what is missing to 18 billion.
fn alibaba() -> Vec<Table> {
    vec![
        table("users", 60_000_000, 12, Source::Chosen),
        table("goods", 600_000_000, 12, Source::Published),
        table("categories", 100_000, 12, Source::Chosen),
        table("13 other groups", 839_900_000, 12, Source::Chosen),
    ]
}

/// Gradients of one push of one worker. Keys come on top where only some rows are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Of all embeddings, touched or not: what is sent where all parameters are.
    pub sparse_bytes: u64,
    /// Of the rows that were touched.
    pub nonzero_bytes: u64,
    /// Of the layers.
    pub dense_bytes: u64,
}

/// Returns the expected number of different rows of a table that a batch touches, if each of its `records` picks one of the rows with
/// equal probability: the most that it can be, as skew makes it less.
///
/// ```
/// assert!((libra_paper::rows_touched(1000, 1000) - 632.3).abs() < 0.1);
/// ```
#[must_use]
pub fn rows_touched(rows: u64, records: u64) -> f64 {
    let rows = rows as f64;
    // Of a row that is none of the picked ones: (1 - 1/rows)^records, without the loss of the difference.
    if rows == 0.0 { 0.0 } else { -rows * (records as f64 * (-1.0 / rows).ln_1p()).exp_m1() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_papers_table() {
        for (model, billions, millions) in
            [(Model::mlp(), "18", "1.2"), (Model::crossmedia(), "5", "1"), (Model::din(), "18", "1.7")]
        {
            let places = millions.split_once('.').map_or(0, |(_, places)| places.len());
            assert_eq!(format!("{:.0}", model.sparse_parameters() as f64 / 1e9), billions, "{}", model.name);
            assert_eq!(
                format!("{:.places$}", model.dense_parameters() as f64 / 1e6),
                millions,
                "{}",
                model.name
            );
        }
    }

    #[test]
    fn published_layers_have_the_documented_sizes() {
        let count = |sizes: &[u32]| {
            layers("", sizes, 1, Source::Published).iter().map(Layer::parameters).sum::<u64>()
        };
        assert_eq!(count(&[192, 200, 80, 2]), 192 * 200 + 200 + 200 * 80 + 80 + 80 * 2 + 2);
        let din = count(&[192, 200, 80, 2]) + count(&[48, 36, 1]);
        assert_eq!(format!("{:.0}", din as f64 / 1000.0), "57");
        assert_eq!(count(&[4096, 256, 64, 12]), 1_066_060);
        assert_eq!(2 * count(&[300, 300, 128]), 257_656);
        assert_eq!(30_621 * 300 / 1_000_000, 9);
        assert_eq!(138_493 + 26_744, 165_237);
        assert_eq!((4 * 138_493 + 16 * 26_744) * 192 * 4 / 1_000_000, 754);
    }

    /// The paper's 104 MB are of 15.3% of the rows.
    #[test]
    fn traffic_is_that_of_the_papers_example() {
        let model = Model::ncf();
        let touched: Vec<u64> = model.tables.iter().map(|table| table.rows * 153 / 1000).collect();
        let traffic = model.traffic(&touched);
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        assert_eq!(format!("{:.0}", megabytes(traffic.sparse_bytes)), "680");
        assert_eq!(format!("{:.0}", megabytes(traffic.nonzero_bytes)), "104");
        assert_eq!(format!("{:.1}", megabytes(traffic.dense_bytes)), "0.4");
    }

    #[test]
    fn rows_that_are_touched_are_counted_once() {
        assert_eq!(rows_touched(0, 5), 0.0);
        assert!((rows_touched(10, 1) - 1.0).abs() < 1e-12);
        // Two draws of two: the second is another one half of the time.
        assert!((rows_touched(2, 2) - 1.5).abs() < 1e-12);
        assert!((rows_touched(1_000_000_000, 3) - 3.0).abs() < 1e-6);
    }

    #[test]
    #[should_panic(expected = "cannot be touched")]
    fn more_rows_than_there_are_is_a_bug() {
        let _ = Model::ncf().traffic(&[0, 1 << 20]);
    }
}
