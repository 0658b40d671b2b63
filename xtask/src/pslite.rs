//! Tasks outside cargo's world: the header for C, an installation, and the programs of ps-lite.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

mod bench;

use crate::{Outcome, shell};

const PSLITE: &str = "crates/pslite";

/// Writes `include/libra.h` as the functions of C are now.
pub(crate) fn header() -> Result<Outcome> {
    let mut command = shell::cargo(&["test", "--quiet", "--package", "libra-pslite", "--test", "header"]);
    command.env("LIBRA_WRITE_HEADER", "1");
    shell::run(command)?;
    println!("{PSLITE}/include/libra.h is written: see `git diff`");
    Ok(Outcome::Passed)
}

#[derive(Args)]
pub(crate) struct InstallOptions {
    /// Directory of `include`, `lib` and `bin`
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
}

/// Builds the library and puts it, its headers, and what finds them where other programs look.
pub(crate) fn install(options: &InstallOptions) -> Result<Outcome> {
    shell::run(shell::cargo(&["build", "--quiet", "--release", "--package", "libra-pslite"]))?;
    let prefix = std::path::absolute(&options.prefix).context("cannot make the prefix absolute")?;
    let built = shell::target_directory()?.join("release");
    let folder = shell::root().join(PSLITE);
    for library in ["liblibra_c.so", "liblibra_c.a"] {
        copy(&built.join(library), &prefix.join("lib").join(library))?;
    }
    copy(&folder.join("scripts/local.sh"), &prefix.join("bin/libra-local.sh"))?;
    copy_folder(&folder.join("include"), &prefix.join("include"))?;
    let version = version()?;
    let filled = |template: &str| -> Result<String> {
        let path = folder.join("packaging").join(template);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.replace("@PREFIX@", &prefix.display().to_string()).replace("@VERSION@", &version))
    };
    for (template, place) in [
        ("libra.pc.in", "lib/pkgconfig/libra.pc"),
        ("LibraConfig.cmake.in", "lib/cmake/Libra/LibraConfig.cmake"),
        ("LibraConfigVersion.cmake.in", "lib/cmake/Libra/LibraConfigVersion.cmake"),
    ] {
        write(&prefix.join(place), &filled(template)?)?;
    }
    println!("Libra {version} for C and C++ is in {}", prefix.display());
    Ok(Outcome::Passed)
}

fn version() -> Result<String> {
    let metadata = shell::metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == "libra-pslite");
    let version = package.and_then(|package| package["version"].as_str());
    version.map(str::to_owned).context("cargo metadata has no version of libra-pslite")
}

fn write(path: &Path, text: &str) -> Result<()> {
    make_folder_of(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make_folder_of(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

#[derive(Args)]
pub(crate) struct PsLiteOptions {
    /// A checkout of ps-lite, whose tests are compiled as they are
    #[arg(long)]
    source: PathBuf,
    /// Number of runs of each program, and again with PS_DROP_MSG=10
    #[arg(long, default_value_t = 100)]
    repeats: u32,
    /// Number of servers
    #[arg(long, default_value_t = 2)]
    servers: u32,
    /// Number of workers
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// Only this program
    #[arg(long)]
    only: Option<String>,
    /// Instead of the tests: throughput of ps-lite itself and of this library, in turns. Needs protoc, and the headers of protobuf and ZeroMQ
    #[arg(long)]
    bench: bool,
    /// Turns of the benchmark
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Seconds of each of its measurements
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// The programs, and whether all workers are customers of one process.
const PROGRAMS: &[(&str, bool)] = &[
    ("test_connection", false),
    ("test_simple_app", false),
    ("test_kv_app", false),
    ("test_kv_app_multi_workers", true),
    ("test_kv_app_benchmark", false),
];
/// A run that takes longer hangs.
const RUN_TIMEOUT: Duration = Duration::from_secs(180);

/// Compiles ps-lite's own tests against our headers, and runs each many times.
pub(crate) fn ps_lite(options: &PsLiteOptions) -> Result<Outcome> {
    if Command::new("c++").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Ok(Outcome::Skipped("there is no C++ compiler".to_owned()));
    }
    shell::run(shell::cargo(&["build", "--quiet", "--release", "--package", "libra-pslite"]))?;
    let built = shell::target_directory()?.join("release");
    let folder = built.join("ps-lite");
    fs::create_dir_all(&folder).context("cannot make a folder for the programs")?;
    if options.bench {
        return bench::run(options, &built, &folder);
    }
    let mut failed = Vec::new();
    for &(name, one_process) in PROGRAMS {
        if options.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let program = folder.join(name);
        compile(&options.source.join("tests").join(name).with_extension("cc"), &program, &built)?;
        for drop_percent in ["0", "10"] {
            let start = Instant::now();
            let passed = (0..options.repeats)
                .map(|_| run(&program, one_process, drop_percent, options))
                .collect::<Result<Vec<_>>>()?;
            let passed = passed.into_iter().filter(|passed| *passed).count();
            let (repeats, seconds) = (options.repeats, start.elapsed().as_secs_f64());
            println!("{name}, PS_DROP_MSG={drop_percent}: {passed} of {repeats} passed in {seconds:.1} s");
            if passed < usize::try_from(repeats)? {
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("not all runs have passed: {}", failed.join(", "));
    }
    Ok(Outcome::Passed)
}

fn compile(source: &Path, program: &Path, built: &Path) -> Result<()> {
    let mut command = Command::new("c++");
    command.args(["-std=c++11", "-O2", "-I"]).arg(shell::root().join(PSLITE).join("include"));
    command.arg(source).arg("-o").arg(program).arg(format!("-L{}", built.display()));
    command.arg(format!("-Wl,-rpath,{}", built.display())).args(["-llibra_c", "-pthread"]);
    shell::run(command)
}

/// Runs a program once, as its launcher would. Returns true if all of its processes succeeded.
fn run(program: &Path, one_process: bool, drop_percent: &str, options: &PsLiteOptions) -> Result<bool> {
    let mut command = Command::new(shell::root().join(PSLITE).join("scripts/local.sh"));
    command.arg(options.servers.to_string()).arg(options.workers.to_string()).arg(program);
    // cargo's search path would find another library than the one that was built here.
    command.env_remove("LD_LIBRARY_PATH");
    command.env("PS_DROP_MSG", drop_percent).stdout(Stdio::null()).stderr(Stdio::null());
    if one_process {
        command.env("LIBRA_WORKER_PROCESSES", "1").env("LIBRA_ROLE_ARGUMENT", "1");
    }
    let mut child = command.spawn().context("cannot start the launcher")?;
    let deadline = Instant::now() + RUN_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() > deadline {
            shell::run(shell::program("kill", &["-TERM", &child.id().to_string()]))?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
