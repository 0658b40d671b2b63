//! A container whose first process is systemd, with the units under test.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{ROLES, sources, unit_of, write};
use crate::process::{self, Running};
use crate::shell::{self, starts};

/// Time for systemd to start, on a machine with other work.
const BOOT_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Program that the units start.
const BINARY: &str = "/usr/local/bin/libra";

/// The reason why this machine boots no container.
pub(super) fn missing() -> Option<String> {
    if !starts("systemd-nspawn") {
        return Some("there is no systemd-nspawn (apt-get install systemd-container)".to_owned());
    }
    if !starts("nsenter") {
        return Some("there is no nsenter (apt-get install util-linux)".to_owned());
    }
    (!rustix::process::geteuid().is_root()).then(|| "it needs root".to_owned())
}

/// The files of the container: all but `/usr`, which is that of this machine.
pub(super) struct Root {
    folder: PathBuf,
    path: PathBuf,
    libra: PathBuf,
}

impl Root {
    /// Makes them in `folder`, which is emptied first.
    pub(super) fn make(folder: &Path, libra: &Path) -> Result<Self> {
        let root = Self { folder: folder.to_owned(), path: folder.join("root"), libra: libra.to_owned() };
        shell::remove_directory(folder)?;
        for name in ["usr", "var", "tmp", "run", "proc", "sys", "dev", "root", "etc/libra"] {
            root.directory(name)?;
        }
        fs::create_dir_all(folder.join("units")).context("cannot make the directory of units")?;
        root.directory("etc/systemd/system/multi-user.target.wants")?;
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.path.join(name)).context("cannot make a link")?;
        }
        for (file, text) in [
            ("etc/os-release", "ID=libra\n"),
            ("etc/machine-id", "a3c1d7f0b2e94c6d8f5a1b7e9c2d4f60\n"),
            ("etc/fstab", ""),
            ("etc/passwd", "root:x:0:0::/:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
        ] {
            write(&root.path.join(file), text)?;
        }
        for role in ROLES {
            let name = unit_of(role);
            let made = root.path.join("etc/systemd/system").join(&name);
            fs::copy(sources().join(&name), made).with_context(|| format!("cannot copy {name}"))?;
        }
        Ok(root)
    }

    fn directory(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))
    }

    /// A copy of a unit that starts the binary where it lies on this machine.
    pub(super) fn verifiable(&self, unit: &str) -> Result<PathBuf> {
        let text = fs::read_to_string(sources().join(unit)).with_context(|| format!("cannot read {unit}"))?;
        let start = format!("ExecStart={BINARY} ");
        ensure!(text.contains(&start), "{unit} does not start {BINARY}");
        let path = self.folder.join("units").join(unit);
        write(&path, &text.replace(&start, &format!("ExecStart={} ", self.libra.display())))?;
        Ok(path)
    }

    /// The binary under test.
    pub(super) fn libra(&self) -> &Path {
        &self.libra
    }

    /// Writes a file of `/etc/libra`.
    pub(super) fn configure(&self, file: &str, mode: u32, text: &str) -> Result<()> {
        let path = self.path.join("etc/libra").join(file);
        write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).context("cannot set a mode")
    }

    /// Changes a setting of a unit, as `systemctl edit` does.
    pub(super) fn edit(&self, unit: &str, text: &str) -> Result<()> {
        let name = format!("etc/systemd/system/{unit}.d");
        self.directory(&name)?;
        write(&self.path.join(name).join("test.conf"), text)
    }

    /// Starts an instance at boot, as `systemctl enable` does.
    pub(super) fn enable(&self, role: &str, instance: &str) -> Result<()> {
        let wants = self.path.join("etc/systemd/system/multi-user.target.wants");
        let link = wants.join(format!("libra-{role}@{instance}.service"));
        symlink(format!("../{}", unit_of(role)), link).context("cannot make a link")
    }

    /// The state directory of a unit.
    pub(super) fn state(&self, unit: &str) -> PathBuf {
        self.path.join("var/lib/private").join(unit)
    }

    pub(super) fn boot(&self) -> Result<Container> {
        let mut command = shell::program("systemd-nspawn", &["--boot", "--quiet", "--console=pipe"]);
        // The first process of this machine may be another than systemd, which could not register it.
        command.args(["--register=no", "--keep-unit", "--private-network", "--machine=libra-units"]);
        command.args(["--bind-ro=/usr", "--tmpfs=/usr/local"]);
        // A switch in the kernel needs them; what a unit may do is limited by the unit.
        command.args(["--capability=CAP_BPF,CAP_PERFMON", "--system-call-filter=bpf perf_event_open"]);
        command.arg(format!("--directory={}", self.path.display()));
        command.arg(format!("--bind-ro={}:{BINARY}", self.libra.display()));
        let nspawn = Running::start("systemd-nspawn", command, self.folder.join("boot.log"))?;
        let mut container = Container { nspawn, first: None };
        let deadline = Instant::now() + BOOT_MAX;
        while !container.is_up() {
            process::check_interrupt()?;
            if container.nspawn.status()?.is_some() || Instant::now() > deadline {
                bail!("systemd does not start\n{}", container.nspawn.tail());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(container)
    }
}

/// A container that runs; dropping it kills all its processes.
pub(super) struct Container {
    nspawn: Running,
    /// The process that is number 1 inside.
    first: Option<u32>,
}

impl Container {
    fn is_up(&mut self) -> bool {
        let id = self.nspawn.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        self.first = children.split(' ').next().and_then(|child| child.parse().ok()).or(self.first);
        self.first.is_some() && self.inside("systemctl", &["is-active", "multi-user.target"]).is_ok()
    }

    /// Runs a program inside, and returns what it printed.
    pub(super) fn inside(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let first = self.first.context("the container has no process")?.to_string();
        let mut command = shell::program("nsenter", &["--target", &first, "--all", "--", program]);
        command.args(arguments).stdin(Stdio::null());
        shell::output(command)
    }

    pub(super) fn systemctl(&self, arguments: &[&str]) -> Result<()> {
        self.inside("systemctl", arguments).map(drop)
    }

    /// A property of a unit.
    pub(super) fn property(&self, unit: &str, name: &str) -> Result<String> {
        let printed = self.inside("systemctl", &["show", "--value", "--property", name, unit])?;
        Ok(printed.trim().to_owned())
    }

    /// The lines of the journal that are about a unit.
    pub(super) fn journal(&self, unit: &str) -> Result<String> {
        self.inside("journalctl", &["--no-pager", "--output=cat", "--unit", unit])
    }
}

impl Drop for Container {
    /// The first process outlives `systemd-nspawn`, and all others end with it.
    fn drop(&mut self) {
        if let Some(first) = self.first {
            drop(
                Command::new("kill").args(["-s", "KILL", &first.to_string()]).stderr(Stdio::null()).status(),
            );
        }
    }
}
