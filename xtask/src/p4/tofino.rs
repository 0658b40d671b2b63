//! The program compiled and assembled for a Tofino, and what the compiler says that it takes.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{Outcome, shell};

/// The driver of p4c and the two programs that it starts for this target.
const TOOLS: [&str; 3] = ["p4c", "p4c-barefoot", "bfas"];
/// What one pass through a Tofino 1 has.
const STAGES: u64 = 12;

/// What the compiler reports.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    stages: u64,
    sram_blocks: usize,
    tcam_blocks: usize,
    stateful_alus: usize,
    logical_tables: usize,
}

pub(super) fn run() -> Result<Outcome> {
    let missing = super::missing(&TOOLS);
    if !missing.is_empty() {
        let reason = format!("Tofino: {} must be on the PATH, see docs/p4.md", missing.join(", "));
        return Ok(Outcome::Skipped(reason));
    }
    let out = shell::target_directory()?.join("p4/tofino");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
    }
    let folder = out.display().to_string();
    // `-g` makes it leave the report.
    let arguments = [
        "--target",
        "tofino",
        "--arch",
        "tna",
        "--std",
        "p4-16",
        "-g",
        "-o",
        &folder,
        "programs/p4/libra_tna.p4",
    ];
    println!("p4c compiles the program for Tofino; that takes some minutes");
    shell::output(shell::program("p4c", &arguments))?;
    let path = out.join("pipe/logs/resources.json");
    let text = fs::read_to_string(&path).with_context(|| format!("p4c left no {}", path.display()))?;
    let report =
        Report::parse(&serde_json::from_str(&text)?).with_context(|| format!("{}", path.display()))?;
    let Report { stages, sram_blocks, tcam_blocks, stateful_alus, logical_tables } = report;
    println!(
        "Tofino: {stages} of {STAGES} stages, {sram_blocks} of 960 SRAM blocks, {tcam_blocks} of 288 TCAM blocks, {stateful_alus} of 48 stateful ALUs, \
         {logical_tables} of 192 logical tables"
    );
    ensure!(stages <= STAGES, "the program needs {stages} stages, a Tofino has {STAGES}");
    let mut test = shell::cargo(&["test", "--quiet", "--package", "libra-p4", "--lib", "bfrt"]);
    test.env("LIBRA_P4_BFRT", out.join("bfrt.json"));
    shell::run(test)?;
    Ok(Outcome::Passed)
}

impl Report {
    fn parse(report: &Value) -> Result<Self> {
        let stages = report["resources"]["mau"]["mau_stages"].as_array().context("no stages")?;
        let mut sums = Self::default();
        for stage in stages {
            let tables = items(stage, "logical_tables", "ids")?;
            let alus: BTreeSet<String> =
                items(stage, "meter_alus", "meters")?.iter().map(|alu| alu["row"].to_string()).collect();
            sums.logical_tables += tables.len();
            sums.stateful_alus += alus.len();
            sums.sram_blocks += items(stage, "rams", "srams")?.len();
            sums.tcam_blocks += items(stage, "tcams", "tcams")?.len();
            if !tables.is_empty() {
                let number = stage["stage_number"].as_u64().context("a stage has no number")?;
                sums.stages = sums.stages.max(number + 1);
            }
        }
        Ok(sums)
    }
}

fn items<'a>(stage: &'a Value, group: &str, name: &str) -> Result<&'a Vec<Value>> {
    stage[group][name].as_array().with_context(|| format!("a stage has no {group}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_highest_stage_with_a_table_counts() {
        let stage = |number: u32, tables: u32| {
            json!({
                "stage_number": number,
                "logical_tables": { "ids": (0..tables).collect::<Vec<_>>() },
                "meter_alus": { "meters": [{ "row": 1 }, { "row": 3 }] },
                "rams": { "srams": [{}, {}, {}] },
                "tcams": { "tcams": [{}] },
            })
        };
        let report =
            json!({ "resources": { "mau": { "mau_stages": [stage(0, 2), stage(4, 1), stage(5, 0)] } } });
        assert_eq!(
            Report::parse(&report).unwrap(),
            Report { stages: 5, sram_blocks: 9, tcam_blocks: 3, stateful_alus: 6, logical_tables: 3 }
        );
        assert!(Report::parse(&json!({})).is_err());
    }
}
