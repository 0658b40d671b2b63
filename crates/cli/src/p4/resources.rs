//! `libra p4 resources`: resources of a Tofino that the program takes.

use anyhow::Result;
use clap::Args;
use libra_p4::{Resources, TOFINO};
use serde_json::json;

use super::SizeArguments;
use libra_launch::document::to_text;
use libra_launch::table::{paragraph, table};

#[derive(Args)]
pub(crate) struct ResourcesArguments {
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sizes: SizeArguments,
}

pub(super) fn run(arguments: &ResourcesArguments) -> Result<()> {
    let ours = Resources::of(&arguments.sizes.sizes())?;
    if arguments.json {
        let content = json!({
            "program": ours,
            "array_bytes": ours.array_bytes(),
            "table_bytes": ours.table_bytes(),
            "sram_blocks": ours.sram_blocks(),
            "stateful_alus": ours.stateful_alus(),
            "limits": TOFINO,
            "lacking": ours.lacking(),
            "packets_per_second": ours.packets_per_second(),
            "share_of_port": ours.share_of_port(),
        });
        println!("{}", to_text(&content)?);
        return Ok(());
    }
    println!("{}", arrays(&ours));
    println!("{}", tables(&ours));
    println!("{}", totals(&ours));
    println!("{}", paragraph(&rate(&ours)));
    for lack in ours.lacking() {
        println!("{}", paragraph(&format!("does not fit: {lack}")));
    }
    Ok(())
}

/// Returns a sentence about the speed of a port: its stages take a packet a cycle, its parser does not.
fn rate(ours: &Resources) -> String {
    let share = ours.share_of_port();
    let verdict = if share < 1.0 { "not line rate" } else { "line rate" };
    format!(
        "{verdict}: a packet with its entries passes {} states of a parser, so a port takes {:.0} million of them a second, {:.0}% of a 100G port that is full of them",
        ours.parser_states,
        ours.packets_per_second() as f64 / 1e6,
        100.0 * share
    )
}

fn kilobytes(bytes: u64) -> String {
    format!("{:.1} KB", bytes as f64 / 1024.0)
}

fn arrays(ours: &Resources) -> String {
    let header = ["register", "there are", "cells", "bits", "bytes", "memory blocks", "first stage"];
    let rows = ours.arrays.iter().map(|array| {
        vec![
            array.name.to_owned(),
            array.count.to_string(),
            array.cells.to_string(),
            array.cell_bits.to_string(),
            kilobytes(array.bytes()),
            array.sram_blocks().to_string(),
            array.stage.to_string(),
        ]
    });
    table(&header, &[1, 2, 3, 4, 5, 6], rows)
}

fn tables(ours: &Resources) -> String {
    let header = ["table", "entries", "bits of a key", "bits of data", "bytes"];
    let rows = ours.tables.iter().map(|size| {
        vec![
            size.name.to_owned(),
            size.entries.to_string(),
            size.key_bits.to_string(),
            size.data_bits.to_string(),
            kilobytes(size.bytes()),
        ]
    });
    table(&header, &[1, 2, 3, 4], rows)
}

fn totals(ours: &Resources) -> String {
    let (alus, blocks) =
        (TOFINO.stages * TOFINO.stateful_alus_of_stage, TOFINO.stages * TOFINO.sram_blocks_of_stage);
    let rows = [
        ("lanes", ours.lanes.to_string(), String::new()),
        ("slots", ours.slots.to_string(), String::new()),
        ("stages", ours.stages.to_string(), TOFINO.stages.to_string()),
        ("stages of egress, for floats", ours.egress_stages.to_string(), TOFINO.stages.to_string()),
        ("registers, a stateful ALU each", ours.stateful_alus().to_string(), alus.to_string()),
        ("memory blocks of registers", ours.sram_blocks().to_string(), blocks.to_string()),
        (
            "registers and tables",
            kilobytes(ours.array_bytes() + ours.table_bytes()),
            kilobytes(u64::from(blocks) * TOFINO.sram_block_bytes),
        ),
        ("PHV bits of headers", ours.phv_bits.headers.to_string(), TOFINO.phv_bits.to_string()),
        ("PHV bits of metadata", ours.phv_bits.metadata.to_string(), String::new()),
        ("bytes of a packet", ours.packet_bytes.to_string(), TOFINO.packet_bytes.to_string()),
    ];
    let rows = rows.into_iter().map(|(resource, takes, has)| vec![resource.to_owned(), takes, has]);
    table(&["in all", "this program", "a Tofino 1 has"], &[1, 2], rows)
}

#[cfg(test)]
mod tests {
    use libra_p4::Sizes;

    use super::*;

    #[test]
    fn a_rate_below_line_rate_is_named() {
        let of = |lanes| rate(&Resources::of(&Sizes { lanes, ..Sizes::default() }).unwrap());
        let usual = of(16);
        assert!(usual.starts_with("not line rate: "), "{usual}");
        assert!(
            usual.contains("23 states")
                && usual.contains("52 million")
                && usual.ends_with("80% of a 100G port that is full of them")
        );
        // With fewer lanes, entries are a smaller part of a packet.
        assert!(of(1).contains("8 states"));
    }
}
