//! Makes the programs for the kernel, if there is a clang, with constants that come from `dataplane`. Without one the crate is
//! built all the same, and reports when it is used what is missing.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libra_dataplane::{
    CELLS_MAX, DIRTY_BLOCK, ENTRIES_MAX, ENTRY_BYTES, F32_NAN, Flags, HEADER_BYTES, Header, Kind, MAGIC,
    NackReason, SEQ_MAX, VERSION, WINDOW,
};

#[allow(dead_code, reason = "the crate uses more of it than the programs")]
#[path = "src/layout.rs"]
mod layout;

const SOURCES: &str = "bpf";
const PROGRAMS: [&str; 3] = ["switch", "measure", "pass"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_programs)");
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=LIBRA_CLANG");
    println!("cargo::rerun-if-env-changed=LIBRA_XDP_REQUIRED");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the directory"));
    let constants = out.join("constants.h");
    fs::write(&constants, header()).expect("the directory can be written to");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let compiled = PROGRAMS.iter().try_for_each(|program| compile(program, &out));
    match compiled {
        Ok(()) => println!("cargo::rustc-cfg=has_programs"),
        Err(missing) => {
            // A run that requires the programs must not pass without them.
            assert!(env::var_os("LIBRA_XDP_REQUIRED").is_none(), "LIBRA_XDP_REQUIRED: {missing}");
            println!("cargo::rustc-env=LIBRA_XDP_MISSING={missing}");
            if missing != NO_CLANG {
                println!("cargo::warning=the XDP plane is left out: {missing}");
            }
        }
    }
}

const NO_CLANG: &str = "there was no clang";

/// Compiles one program; an error in one line if that cannot be done.
fn compile(program: &str, out: &Path) -> Result<(), String> {
    let clang = env::var("LIBRA_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut command = Command::new(&clang);
    // The loader wants type information, so -g; headers of the C library ask for the machine's own (asm/types.h).
    command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-std=gnu11", "-Wall", "-Werror"]);
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    command.arg(format!("-I/usr/include/{machine}-linux-gnu")).arg("-I").arg(out);
    command.arg("-c").arg(format!("{SOURCES}/{program}.c")).arg("-o").arg(out.join(format!("{program}.o")));
    let output = command.output().map_err(|_| NO_CLANG.to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    let first = said.lines().find(|line| line.contains("error")).unwrap_or("it gave no reason").to_owned();
    Err(format!("{clang} does not compile {program}.c: {first}"))
}

/// The constants of the protocol and of the layout, in C.
fn header() -> String {
    let mut text =
        String::from("// Made by crates/backends/xdp/build.rs from `libra-dataplane`.\n#pragma once\n\n");
    let mut define = |name: &str, value: u64| {
        writeln!(text, "#define {name} {value}u").expect("a string takes everything");
    };
    for (name, value) in [
        ("CELLS_MAX", CELLS_MAX.into()),
        ("ENTRIES_MAX", ENTRIES_MAX as u64),
        ("ENTRY_BYTES", ENTRY_BYTES as u64),
        ("F32_NAN", F32_NAN.into()),
        ("HEADER_BYTES", HEADER_BYTES as u64),
        ("MAGIC", MAGIC.into()),
        ("SEQ_MAX", SEQ_MAX.into()),
        ("DIRTY_BLOCK", DIRTY_BLOCK as u64),
        ("VERSION", VERSION.into()),
        ("WINDOW", WINDOW as u64),
        ("JOBS_MAX", layout::JOBS_MAX.into()),
        ("REGIONS_OF_JOB", layout::REGIONS_OF_JOB.into()),
        ("REGIONS_MAX", layout::REGIONS_MAX.into()),
        ("WORKERS_MAX", layout::WORKERS_MAX.into()),
        ("WAKES_BYTES", layout::WAKES_BYTES.into()),
        ("ARITHMETIC_FIXED", layout::ARITHMETIC_FIXED.into()),
        ("ARITHMETIC_F32", layout::ARITHMETIC_F32.into()),
        ("ARITHMETIC_TABLE", layout::ARITHMETIC_TABLE.into()),
        ("TABLE_BYTES", layout::TABLE_BYTES as u64),
        ("REGION_WORDS", layout::REGION_WORDS as u64),
        ("WORKER_WORDS", layout::WORKER_WORDS as u64),
        ("BODY_KEY_WORDS", layout::BODY_KEY_WORDS as u64),
        ("TAGS_OFF", layout::TAGS_OFF.into()),
        ("TAGS_COOKIE", layout::TAGS_COOKIE.into()),
        ("TAGS_MAC", layout::TAGS_MAC.into()),
        ("BANK_BYTES", layout::BANK_BYTES as u64),
        ("FLOW_BYTES", layout::FLOW_BYTES as u64),
        ("FLOWS_PER_BLOCK", layout::FLOWS_PER_BLOCK as u64),
        ("BLOCK_BYTES", layout::BLOCK_BYTES as u64),
        ("COUNTS", layout::COUNTS.len() as u64),
        ("FLAG_RETRANSMIT", Flags::RETRANSMIT.bits().into()),
        ("FLAG_VALUES", Flags::VALUES.bits().into()),
        ("FLAG_LAST", Flags::LAST.bits().into()),
        ("FLAGS_KNOWN", (0..=u8::MAX).rfind(|&bits| Flags::from_bits(bits).is_some()).unwrap_or(0).into()),
    ] {
        define(name, value);
    }
    define("PARTS", layout::PARTS.len() as u64);
    for (part, index) in layout::PARTS.iter().zip(0..) {
        define(&format!("PART_{}", part.to_uppercase()), index);
    }
    for (count, index) in layout::COUNTS.iter().zip(0..) {
        define(&format!("COUNT_{count}"), index);
    }
    for (name, kind) in [
        ("PUSH", Kind::Push),
        ("PULL", Kind::Pull),
        ("ACK", Kind::Ack),
        ("NACK", Kind::Nack),
        ("STREAM", Kind::Stream),
    ] {
        define(&format!("KIND_{name}"), kind as u64);
    }
    for (name, reason) in [
        ("BANK_FULL", NackReason::BankFull),
        ("STALE_PLAN", NackReason::StalePlan),
        ("NOT_INSTALLED", NackReason::NotInstalled),
        ("UNKNOWN_FLOW", NackReason::UnknownFlow),
        ("INACTIVE", NackReason::Inactive),
        ("STALE_VIEW", NackReason::StaleView),
    ] {
        define(&format!("NACK_{name}"), reason as u64);
    }
    // The magic and the version are in every header; where the rest lies shows when it changes.
    define("AT_MAGIC", 0);
    define("AT_VERSION", places().iter().find(|(name, _)| *name == "REGION").expect("it is there").1 + 1);
    for (name, place) in places() {
        define(&format!("AT_{name}"), place);
    }
    text
}

/// Returns the offset of each field of the header.
fn places() -> Vec<(&'static str, u64)> {
    let zero = Header::of_kind(Kind::Push);
    let changed = [
        ("KIND", Header { kind: Kind::Pull, ..zero }),
        ("FLAGS", Header { flags: Flags::LAST, ..zero }),
        ("ENTRIES", Header { entries: u8::MAX, ..zero }),
        ("JOB", Header { job: u16::MAX, ..zero }),
        ("WORKER", Header { worker: u16::MAX, ..zero }),
        ("PLAN", Header { plan: u16::MAX, ..zero }),
        ("VIEW", Header { view: u16::MAX, ..zero }),
        ("REGION", Header { region: u8::MAX, ..zero }),
        ("ROUND", Header { round: u16::MAX, ..zero }),
        ("DURABLE", Header { durable: u16::MAX, ..zero }),
        ("SEQ", Header { seq: u32::MAX, ..zero }),
        ("TAG", Header { tag: u64::MAX, ..zero }),
    ];
    let zero = zero.to_bytes();
    changed
        .iter()
        .map(|(name, header)| {
            let place = zero.iter().zip(header.to_bytes()).position(|(zero, changed)| *zero != changed);
            (*name, place.expect("the field is in the header") as u64)
        })
        .collect()
}
