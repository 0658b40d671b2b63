//! Programs: how they are compiled, and run as the processes of a cluster.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A token: that of 20 bytes of 7.
pub(crate) const TOKEN: &str = "libra1_a4dqobyha4dqobyha4dqobyha4dqobyhf6o4";
/// No cluster of these takes that long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Directory of the shared library that cargo built: beside this test.
fn library_directory() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let directory = exe.parent().unwrap();
    assert!(directory.join("liblibra_c.so").is_file(), "cargo has built no shared library");
    directory.to_owned()
}

pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// Returns true if there is such a program; reports loudly if not.
pub(crate) fn is_there(compiler: &str, source: &str) -> bool {
    let status = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if status.is_err() {
        eprintln!("!! SKIPPED: there is no {compiler} to compile {source} with");
    }
    status.is_ok()
}

/// Compiles a source; `None` without a compiler.
pub(crate) fn compile(compiler: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    if !is_there(compiler, source) {
        return None;
    }
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    static COMPILED: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let directory = DIRECTORY.get_or_init(|| tempfile::tempdir().unwrap());
    let name: String = [compiler, source, &options.concat()].concat().replace(['/', '.', '=', '+', '-'], "_");
    let program = directory.path().join(&name);
    // Several tests want the same program.
    let own = Arc::clone(COMPILED.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default());
    let _compiling = own.lock().unwrap_or_else(PoisonError::into_inner);
    if program.is_file() {
        return Some(program);
    }
    let libraries = library_directory();
    let output = Command::new(compiler)
        .args(WARNINGS)
        .args(options)
        .arg("-I")
        .arg(root().join("include"))
        .arg(root().join(source))
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-llibra_c", "-pthread"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Returns the command for a program. cargo's tests have a search path in which a library of an earlier `cargo build` comes before the one beside
/// this test.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

pub(crate) struct Cluster {
    /// By role and number.
    pub(crate) processes: BTreeMap<(&'static str, usize), Child>,
}

/// An address of this machine that no other test uses, so that no port of it is taken.
pub(crate) fn own_address() -> String {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let [.., second, third] = std::process::id().to_be_bytes();
    format!("127.{}.{third}.{}", second % 128, 1 + ASKED.fetch_add(1, Ordering::Relaxed) % 250)
}

impl Cluster {
    pub(crate) fn start(
        program: &Path,
        servers: usize,
        workers: usize,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_each(program, servers, workers, arguments, |_| variables.to_vec())
    }

    /// The same, with variables for each role.
    pub(crate) fn start_each<'v>(
        program: &Path,
        servers: usize,
        workers: usize,
        arguments: &[&str],
        variables_of: impl Fn(&str) -> Vec<(&'v str, &'v str)>,
    ) -> Self {
        let address = own_address();
        let roles = [("scheduler", 1), ("server", servers), ("worker", workers)];
        let processes =
            roles.into_iter().flat_map(|(role, count)| (0..count).map(move |number| (role, number)));
        let start = |(role, number)| {
            let child = command(program)
                .args(arguments)
                .env("DMLC_ROLE", role)
                .env("DMLC_NUM_SERVER", servers.to_string())
                .env("DMLC_NUM_WORKER", workers.to_string())
                .env("DMLC_PS_ROOT_URI", &address)
                .env("DMLC_PS_ROOT_PORT", "9000")
                .envs(variables_of(role))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            ((role, number), child)
        };
        Self { processes: processes.map(start).collect() }
    }

    /// Waits for all processes; panics if one does not end.
    pub(crate) fn finish(mut self) -> Vec<((&'static str, usize), Output)> {
        let deadline = Instant::now() + TIMEOUT;
        while self.processes.values_mut().any(|child| child.try_wait().unwrap().is_none()) {
            if Instant::now() > deadline {
                self.processes.values_mut().for_each(|child| child.kill().unwrap());
                panic!("the cluster hangs");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let processes = self.processes.into_iter();
        processes.map(|(who, child)| (who, child.wait_with_output().unwrap())).collect()
    }
}

/// Runs a cluster whose processes must all end well. Returns their output.
pub(crate) fn run(
    program: &Path,
    servers: usize,
    workers: usize,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> String {
    let mut printed = String::new();
    for (who, output) in Cluster::start(program, servers, workers, arguments, variables).finish() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{who:?} ended with {}: {said}", output.status);
        printed += &String::from_utf8_lossy(&output.stdout);
    }
    printed
}
