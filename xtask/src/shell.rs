//! Commands of other programs: how they are made, run and reported.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

/// The directory of the workspace.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    // The environment of cargo comes first: checkouts that share a target directory share this program, too.
    let package = || {
        std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
    };
    ROOT.get_or_init(|| package().parent().expect("xtask/ lies in the workspace").to_owned())
}

/// Cargo of the toolchain that built this program, in the directory of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    // They are those of this program. Build scripts that read them, as that of `ring`, would run again, and all that depends on them would
    // be built again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|of_package| name.to_string_lossy().starts_with(of_package))
        {
            command.env_remove(name);
        }
    }
    command
}

/// A program in the directory of the workspace.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// Returns the target directory of cargo.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    Ok(metadata["target_directory"].as_str().context("cargo metadata names no target_directory")?.into())
}

/// Returns the binary that was named with `--libra`, or that of this name in [`programs`].
pub(crate) fn binary(name: &str, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return named.canonicalize().with_context(|| format!("--libra {}", named.display()));
    }
    Ok(programs(&[name])?.join(name))
}

/// All programs and libraries, once they are built for several steps.
struct Built {
    directory: PathBuf,
    is_release: bool,
}

static BUILT: OnceLock<Built> = OnceLock::new();

/// Builds all programs and libraries, for all steps to come: a release build, or what `cargo test` builds.
pub(crate) fn build(release: bool) -> Result<()> {
    let (arguments, folder) = if release {
        (&["build", "--quiet", "--release"][..], "release")
    } else {
        // With the targets of tests, as without them dependencies would be built again with fewer features.
        (&["build", "--quiet", "--lib", "--bins", "--tests", "--examples"][..], "debug")
    };
    run(cargo(arguments))?;
    let directory = target_directory()?.join(folder);
    BUILT.get_or_init(|| Built { directory, is_release: release });
    Ok(())
}

/// Returns the directory of the programs that `cargo test` has built, if [`build`] chose them.
pub(crate) fn test_programs() -> Option<PathBuf> {
    BUILT.get().filter(|built| !built.is_release).map(|built| built.directory.clone())
}

/// Returns the directory of these programs, or of all if none is named: that of [`build`], or else of a release build, which is made.
pub(crate) fn programs(names: &[&str]) -> Result<PathBuf> {
    if let Some(built) = BUILT.get() {
        return Ok(built.directory.clone());
    }
    let named = names.iter().flat_map(|name| ["--bin", *name]);
    let arguments: Vec<_> = ["build", "--quiet", "--release"].into_iter().chain(named).collect();
    run(cargo(&arguments))?;
    Ok(target_directory()?.join("release"))
}

/// Runs the tests of some packages with more variables of the environment, but for those of their documentation. They are as `cargo test` builds
/// them with those of all packages: without the others, their dependencies would be built again with fewer features.
pub(crate) fn test(packages: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let metadata = metadata()?;
    let manifests: Vec<&serde_json::Value> = (metadata["packages"].as_array().into_iter().flatten())
        .filter(|package| packages.iter().any(|name| package["name"] == *name))
        .map(|package| &package["manifest_path"])
        .collect();
    ensure!(manifests.len() == packages.len(), "not all of {packages:?} are packages of the workspace");
    let built = output(cargo(&["test", "--no-run", "--message-format=json"]))?;
    for line in built.lines() {
        let message: serde_json::Value =
            serde_json::from_str(line).context("cargo test did not print JSON")?;
        let is_test = message["profile"]["test"] == true && manifests.contains(&&message["manifest_path"]);
        let (Some(manifest), Some(executable)) =
            (message["manifest_path"].as_str(), message["executable"].as_str())
        else {
            continue;
        };
        if is_test {
            let mut test = program(executable, &["--quiet"]);
            test.current_dir(Path::new(manifest).with_file_name("")).envs(environment.iter().copied());
            run(test)?;
        }
    }
    Ok(())
}

/// Returns cargo's metadata of the workspace, without its dependencies.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let text = output(cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_str(&text).context("cargo metadata did not print JSON")
}

/// Runs a command; what it prints is seen.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let line = line(&command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns what it printed to stdout; what it printed to stderr is part of the error.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let line = line(&command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({}): {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` did not print UTF-8"))
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(std::ffi::OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Tells if the program is there and can be run.
pub(crate) fn starts(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Removes a directory with all that is in it, if it is there.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Prints what must not be overlooked.
pub(crate) fn loudly(text: &str) {
    let bar = "!".repeat(text.chars().count().min(100) + 6);
    println!("{bar}\n!! {text}\n{bar}");
}
