//! `libra p4 resources`: what the program takes of a Tofino.

use anyhow::Result;
use clap::Args;
use comfy_table::Table;
use libra_p4::{Resources, TOFINO};
use serde_json::json;

use super::SizeArguments;

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
        let text = json!({
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
        println!("{}", serde_json::to_string_pretty(&text)?);
        return Ok(());
    }
    println!("{}", arrays(&ours));
    println!("{}", tables(&ours));
    println!("{}", totals(&ours));
    println!("{}", rate(&ours));
    for lack in ours.lacking() {
        println!("does not fit: {lack}");
    }
    Ok(())
}

/// How fast a port is: its stages take a packet a cycle, its parser does not.
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

fn arrays(ours: &Resources) -> Table {
    let mut table = Table::new();
    table.set_header(["register", "there are", "cells", "bits", "bytes", "memory blocks", "first stage"]);
    for array in &ours.arrays {
        table.add_row([
            array.name.to_owned(),
            array.count.to_string(),
            array.cells.to_string(),
            array.cell_bits.to_string(),
            kilobytes(array.bytes()),
            array.sram_blocks().to_string(),
            array.stage.to_string(),
        ]);
    }
    table
}

fn tables(ours: &Resources) -> Table {
    let mut table = Table::new();
    table.set_header(["table", "entries", "bits of a key", "bits of data", "bytes"]);
    for size in &ours.tables {
        table.add_row([
            size.name.to_owned(),
            size.entries.to_string(),
            size.key_bits.to_string(),
            size.data_bits.to_string(),
            kilobytes(size.bytes()),
        ]);
    }
    table
}

fn totals(ours: &Resources) -> Table {
    let mut table = Table::new();
    table.set_header(["in all", "this program", "a Tofino 1 has"]);
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
    for (what, takes, has) in rows {
        table.add_row([what.to_owned(), takes, has]);
    }
    table
}

#[cfg(test)]
mod tests {
    use libra_p4::Sizes;

    use super::*;

    #[test]
    fn what_is_below_line_rate_is_said() {
        let of = |lanes| rate(&Resources::of(&Sizes { lanes, ..Sizes::default() }).unwrap());
        let usual = of(16);
        assert!(usual.starts_with("not line rate: "), "{usual}");
        assert!(
            usual.contains("23 states")
                && usual.contains("52 million")
                && usual.ends_with("80% of a 100G port that is full of them")
        );
        // The fewer lanes, the more of a packet is no entry.
        assert!(of(1).contains("8 states"));
    }
}
