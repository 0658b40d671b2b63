//! The program compiled and assembled for a Tofino, and the resources that the compiler reports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{Outcome, shell};

/// The driver of p4c and the two programs that it starts for this target.
const TOOLS: [&str; 3] = ["p4c", "p4c-barefoot", "bfas"];
/// With sums of integers, and with sums of floats.
const PROGRAMS: [&str; 2] = ["libra_tna", "libra_tna_table"];
/// Resources of one pass through a Tofino 1.
const STAGES: u64 = 12;

/// Report of the compiler.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    stages: u64,
    sram_blocks: usize,
    /// Of these, those of registers: each has a map RAM.
    register_blocks: usize,
    tcam_blocks: usize,
    stateful_alus: usize,
    logical_tables: usize,
    phv_bits: u64,
}

pub(super) fn run() -> Result<Outcome> {
    let missing = super::missing(&TOOLS);
    if !missing.is_empty() {
        let reason = format!("Tofino: {} must be on the PATH, see docs/operating/p4.md", missing.join(", "));
        return Ok(Outcome::Skipped(reason));
    }
    for program in PROGRAMS {
        check(program).with_context(|| format!("crates/backends/p4/program/{program}.p4 for Tofino"))?;
    }
    Ok(Outcome::Passed)
}

/// Compiles a program, and looks at what it takes.
fn check(program: &str) -> Result<()> {
    let out = shell::target_directory()?.join("p4").join(program);
    shell::remove_directory(&out)?;
    let folder = out.display().to_string();
    let source = format!("crates/backends/p4/program/{program}.p4");
    // `-g` makes it leave the report.
    let arguments = ["--target", "tofino", "--arch", "tna", "--std", "p4-16", "-g", "-o", &folder, &source];
    println!("p4c compiles {source} for Tofino; that takes some minutes");
    shell::output(shell::program("p4c", &arguments))?;
    let assembly =
        fs::read_to_string(out.join(format!("pipe/{program}.bfa"))).context("p4c left no assembly")?;
    ensure!(
        selects(&assembly) > 0,
        "this p4c loses what parsers select by, so the program would take all packets for the same: use one with p4lang/p4c#5753"
    );
    let report = Report::parse(&log(&out, "resources.json")?, &log(&out, "phv.json")?)?;
    let Report { stages, sram_blocks, register_blocks, tcam_blocks, stateful_alus, logical_tables, phv_bits } =
        report;
    println!(
        "{program}: {stages} of {STAGES} stages, {sram_blocks} of 960 SRAM blocks ({register_blocks} of registers), {tcam_blocks} of 288 TCAM blocks, {stateful_alus} of 48 stateful ALUs, \
         {logical_tables} of 192 logical tables, {phv_bits} of 4096 PHV bits"
    );
    ensure!(stages <= STAGES, "the program needs {stages} stages, a Tofino has {STAGES}");
    let mut test = shell::cargo(&["test", "--quiet", "--package", "libra-p4", "--lib", "bfrt"]);
    test.env("LIBRA_P4_BFRT", out.join("bfrt.json"));
    shell::run(test)
}

impl Report {
    fn parse(resources: &Value, phv: &Value) -> Result<Self> {
        let stages = resources["resources"]["mau"]["mau_stages"].as_array().context("no stages")?;
        let containers = phv["containers"].as_array().context("no containers")?;
        // Those that actions can reach; the others only carry bytes from the parser to the deparser.
        let normal = containers.iter().filter(|container| container["container_type"] == "normal");
        let bits =
            normal.map(|container| container["bit_width"].as_u64().context("a container has no width"));
        let mut sums = Self { phv_bits: bits.sum::<Result<u64>>()?, ..Self::default() };
        for stage in stages {
            let tables = items(stage, "logical_tables", "ids")?;
            let alus: BTreeSet<String> =
                items(stage, "meter_alus", "meters")?.iter().map(|alu| alu["row"].to_string()).collect();
            sums.logical_tables += tables.len();
            sums.stateful_alus += alus.len();
            sums.sram_blocks += items(stage, "rams", "srams")?.len();
            sums.register_blocks += items(stage, "map_rams", "maprams")?.len();
            sums.tcam_blocks += items(stage, "tcams", "tcams")?.len();
            if !tables.is_empty() {
                let number = stage["stage_number"].as_u64().context("a stage has no number")?;
                sums.stages = sums.stages.max(number + 1);
            }
        }
        Ok(sums)
    }
}

/// A report of the compiler.
fn log(out: &Path, name: &str) -> Result<Value> {
    let path = out.join("pipe/logs").join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("p4c left no {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// In how many states the parser of ingress looks at a packet.
fn selects(assembly: &str) -> usize {
    let lines = assembly.lines().skip_while(|line| *line != "parser ingress:").skip(1);
    lines.take_while(|line| line.starts_with(' ')).filter(|line| line.trim().starts_with("match: [")).count()
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
                "map_rams": { "maprams": [{}, {}] },
                "tcams": { "tcams": [{}] },
            })
        };
        let resources =
            json!({ "resources": { "mau": { "mau_stages": [stage(0, 2), stage(4, 1), stage(5, 0)] } } });
        let container = |kind: &str, bits: u32| json!({ "container_type": kind, "bit_width": bits });
        let phv = json!({ "containers": [container("normal", 8), container("tagalong", 16), container("normal", 32)] });
        let report = Report {
            stages: 5,
            sram_blocks: 9,
            register_blocks: 6,
            tcam_blocks: 3,
            stateful_alus: 6,
            logical_tables: 3,
            phv_bits: 40,
        };
        assert_eq!(Report::parse(&resources, &phv).unwrap(), report);
        assert!(Report::parse(&json!({}), &phv).is_err());
        assert!(Report::parse(&resources, &json!({})).is_err());
    }

    #[test]
    fn a_parser_that_selects_by_nothing_is_found() {
        let program = |state: &str| {
            format!("parser ingress:\n  states:\n    a:\n{state}deparser ingress:\n      match: [ half ]\n")
        };
        assert_eq!(selects(&program("      match: [ half ]\n      0x0800:\n")), 1);
        assert_eq!(selects(&program("      *:\n")), 0);
    }
}
