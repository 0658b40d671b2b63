//! `cargo xtask no-std`: a switch has neither an operating system nor a heap, so `dataplane` must need neither.
//!
//! A small program that uses the pipeline over static memory is linked with nothing but `core`. For a bare-metal
//! target of the toolchain when one is installed; otherwise for the host, but freestanding: without start files and
//! without any library. `std` or `alloc` anywhere below `dataplane` fails either way: `std` brings a second panic
//! handler (or does not exist), `alloc` demands a global allocator, which the program does not have.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use crate::{Outcome, shell};

const PROGRAM: &str = include_str!("no_std/program.rs");

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Links for the host even when a bare-metal target is installed
    #[arg(long)]
    host: bool,
}

/// Target to link for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    BareMetal(String),
    Host(String),
}

impl Target {
    fn triple(&self) -> &str {
        match self {
            Self::BareMetal(triple) | Self::Host(triple) => triple,
        }
    }

    /// Flags of rustc; separated as `CARGO_ENCODED_RUSTFLAGS` wants it.
    fn flags(&self) -> &'static str {
        match self {
            Self::BareMetal(_) => "-Dwarnings",
            Self::Host(_) => {
                "-Dwarnings\x1f-Clink-arg=-nostartfiles\x1f-Clink-arg=-nostdlib\x1f-Clink-arg=-static\x1f\
                 -Crelocation-model=static"
            }
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let target = choose(options.host)?;
    let folder = shell::target_directory()?.join("no-std");
    let dataplane = shell::root().join("crates/dataplane");
    link(&folder, &dataplane, PROGRAM, &target)
        .context("dataplane needs more than `core`: a switch could not run it")?;

    match &target {
        Target::BareMetal(triple) => {
            println!(
                "no-std: dataplane linked for the BARE-METAL target {triple}: no std, no alloc, no libc"
            );
        }
        Target::Host(triple) => println!(
            "no-std: NO BARE-METAL TARGET used; dataplane linked FREESTANDING for {triple}: no std, no alloc, no libc"
        ),
    }
    Ok(Outcome::Passed)
}

/// Links a program with the crate `libra-dataplane` in the folder `dataplane`, and with nothing else.
fn link(folder: &Path, dataplane: &Path, program: &str, target: &Target) -> Result<()> {
    write_package(folder, dataplane, program)?;
    let mut command = shell::cargo(&["build", "--quiet", "--release", "--target", target.triple()]);
    command
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(folder.join("target"));
    command.env("CARGO_ENCODED_RUSTFLAGS", target.flags()).env_remove("RUSTFLAGS");
    // Unwinding is left out of `core` only by link-time optimization, which .ci/run turns off for other programs.
    command.env("CARGO_PROFILE_RELEASE_LTO", "fat");
    shell::output(command).map(drop)
}

fn choose(host: bool) -> Result<Target> {
    let rustc = || shell::program("rustc", &[]);
    let mut print = rustc();
    print.args(["--print", "sysroot"]);
    let sysroot = shell::output(print)?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let mut installed = Vec::new();
    let entries =
        std::fs::read_dir(&libraries).with_context(|| format!("cannot list {}", libraries.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.path().join("lib").is_dir() {
            installed.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    if let (false, Some(triple)) = (host, bare_metal(installed)) {
        return Ok(Target::BareMetal(triple));
    }
    let mut version = rustc();
    version.arg("-vV");
    let version = shell::output(version)?;
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(Target::Host(triple.context("rustc -vV names no host")?.to_owned()))
}

/// Of the installed targets the first without an operating system, such as `thumbv7em-none-eabi`.
fn bare_metal(mut installed: Vec<String>) -> Option<String> {
    installed.sort();
    installed.into_iter().find(|triple| triple.split('-').any(|part| part == "none"))
}

fn write_package(folder: &Path, dataplane: &Path, program: &str) -> Result<()> {
    // A workspace of its own: the program needs `unsafe`, which the workspace of the product forbids.
    let manifest = format!(
        "[workspace]\n[package]\nname = \"freestanding\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [[bin]]\nname = \"freestanding\"\npath = \"program.rs\"\ntest = false\nbench = false\n\
         [dependencies]\nlibra-dataplane = {{ path = {dataplane:?}, default-features = false }}\n\
         [profile.release]\npanic = \"abort\"\n"
    );
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write("Cargo.toml", &manifest)?;
    write("program.rs", program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_an_operating_system_is_preferred() {
        let installed =
            |triples: &[&str]| bare_metal(triples.iter().map(|&triple| triple.to_owned()).collect());
        assert_eq!(installed(&["x86_64-unknown-linux-gnu", "nonesuch-linux"]), None);
        let none = ["x86_64-unknown-linux-gnu", "x86_64-unknown-none", "thumbv7em-none-eabi"];
        assert_eq!(installed(&none), Some("thumbv7em-none-eabi".to_owned()));
    }

    /// Links a program that calls `answer` of a planted dataplane, for every target at hand.
    fn link_planted(name: &str, front: &str) -> Vec<Result<()>> {
        const CALLER: &str = "#![no_std]\n#![no_main]\n\
            #[unsafe(no_mangle)] extern \"C\" fn _start() -> ! { core::hint::black_box(libra_dataplane::answer()); loop {} }\n\
            #[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }\n";
        let folder = std::env::temp_dir().join(format!("libra-no-std-{}-{name}", std::process::id()));
        let dataplane = folder.join("dataplane");
        std::fs::create_dir_all(dataplane.join("src")).unwrap();
        let manifest = "[package]\nname = \"libra-dataplane\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
        std::fs::write(dataplane.join("Cargo.toml"), manifest).unwrap();
        std::fs::write(dataplane.join("src/lib.rs"), front).unwrap();
        let mut targets = vec![choose(false).unwrap(), choose(true).unwrap()];
        targets.dedup();
        let linked = targets.iter().map(|target| link(&folder, &dataplane, CALLER, target)).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        linked
    }

    #[test]
    fn a_dataplane_that_needs_nothing_is_linked() {
        for linked in link_planted("nothing", "#![no_std]\npub fn answer() -> u32 { 42 }\n") {
            linked.unwrap();
        }
    }

    #[test]
    fn a_dataplane_that_allocates_is_caught() {
        let front =
            "#![no_std]\nextern crate alloc;\npub fn answer() -> alloc::vec::Vec<u32> { alloc::vec![42] }\n";
        for linked in link_planted("alloc", front) {
            let error = linked.unwrap_err().to_string();
            assert!(error.contains("no global memory allocator"), "{error}");
        }
    }

    #[test]
    fn a_dataplane_with_std_is_caught() {
        let front = "pub fn answer() -> std::time::Instant { std::time::Instant::now() }\n";
        for linked in link_planted("std", front) {
            let error = linked.unwrap_err().to_string();
            // There is none for the bare-metal target; on the host it brings a second panic handler.
            assert!(error.contains("can't find crate for `std`") || error.contains("panic_impl"), "{error}");
        }
    }

    #[test]
    fn a_dataplane_that_calls_libc_is_caught() {
        let front = "#![no_std]\nunsafe extern \"C\" { fn getpid() -> i32; }\npub fn answer() -> i32 { unsafe { getpid() } }\n";
        for linked in link_planted("libc", front) {
            let error = linked.unwrap_err().to_string();
            assert!(error.contains("getpid"), "{error}");
        }
    }
}
