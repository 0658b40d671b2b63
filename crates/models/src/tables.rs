//! The tables of a model, as a plan and the training loop see them.

use std::ops::Range;

use libra_client::{TableShape, TableSpec};

/// The first key of layers; rows of embeddings have smaller ones, or are among [`HASHED_KEYS`]. A layer is one row. Layers are in every push and never
/// hot.
pub const LAYER_KEYS: u64 = 1 << 40;

/// Keys of rows of embeddings that are hashes. They have 63 bits: a plan is a file of TOML, whose whole numbers have a sign.
pub const HASHED_KEYS: Range<u64> = 1 << 41..i64::MAX.cast_unsigned();

/// Returns the key of a hash: its 63 upper bits. One hash in four million is below the keys of hashes, and moved up.
pub(crate) fn hashed_key(hash: u64) -> u64 {
    let key = hash >> 1;
    let key = if key < HASHED_KEYS.start { key | 1 << 62 } else { key };
    key.min(HASHED_KEYS.end - 1)
}

/// The tables as a plan sees them.
pub fn shapes(tables: Vec<TableSpec>) -> Vec<TableShape> {
    let shape = |table: TableSpec| TableShape {
        hot: !(LAYER_KEYS..HASHED_KEYS.start).contains(&table.keys.start),
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
            table("word", HASHED_KEYS, 2),
        ];
        let hot: Vec<bool> = shapes(tables).iter().map(|shape| shape.hot).collect();
        assert_eq!(hot, [false, true, true, true]);
    }

    #[test]
    fn hashes_have_keys_of_their_own() {
        for hash in [0, 1, 2, 1 << 41, 1 << 42, u64::MAX - 2, u64::MAX] {
            assert!(HASHED_KEYS.contains(&hashed_key(hash)), "{hash}");
        }
        assert_eq!(hashed_key(0x8000_0000_0000_0006), 0x4000_0000_0000_0003);
        assert_ne!(hashed_key(2), hashed_key(4));
    }
}
