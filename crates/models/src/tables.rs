//! The tables of a model, as a plan and the training loop see them.

use libra_client::{TableShape, TableSpec};

/// The first key of layers; rows of embeddings have smaller ones. A layer is one row. Layers are in every push and never hot.
pub const LAYER_KEYS: u64 = 1 << 40;

/// The tables as a plan sees them.
pub fn shapes(tables: Vec<TableSpec>) -> Vec<TableShape> {
    let shape = |table: TableSpec| TableShape {
        hot: table.keys.start < LAYER_KEYS,
        name: table.name,
        keys: table.keys,
        width: u32::try_from(table.width).expect("a checked configuration has narrow rows"),
    };
    tables.into_iter().map(shape).collect()
}

#[cfg(test)]
mod tests {
    use libra_client::{Init, Optimizer};

    use super::*;

    #[test]
    fn layers_are_never_hot() {
        let table = |name: &str, keys, width| TableSpec {
            name: name.into(),
            keys,
            width,
            rule: Optimizer::Sgd { rate: 1.0 }.into(),
            init: Init::Zero,
        };
        let tables = vec![
            table("layer", LAYER_KEYS..LAYER_KEYS + 1, 70),
            table("user", 0..5, 3),
            table("item", 5..9, 2),
        ];
        let hot: Vec<bool> = shapes(tables).iter().map(|shape| shape.hot).collect();
        assert_eq!(hot, [false, true, true]);
    }
}
