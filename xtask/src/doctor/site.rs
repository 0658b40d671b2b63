//! Two machines and a router between them.
//!
//! ```text
//!  here ── eth0 ════ here0 ── router ── there0 ════ eth0 ── there       a network namespace each
//!       10.78.0.2    10.78.0.1          10.78.1.1   10.78.1.2
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::namespaces::ip::{ip, listens};
use crate::process::{self, Running};
use crate::shell;

pub(super) const HERE: &str = "here";
pub(super) const ROUTER: &str = "router";
pub(super) const THERE: &str = "there";
const ADDRESS_THERE: &str = "10.78.1.2";
const PORT: u16 = 7799;
/// Mounts control groups as the machine has them, of version 1 or 2.
const GROUPS: &str = "if grep -q '^cpu[[:space:]]0[[:space:]]' /proc/cgroups; then
    mount -t cgroup2 libra-doctor /sys/fs/cgroup
else
    mount -t tmpfs libra-doctor /sys/fs/cgroup
    for name in cpu memory blkio; do
        mkdir /sys/fs/cgroup/$name
        mount -t cgroup -o $name libra-doctor /sys/fs/cgroup/$name
    done
fi
exec \"$@\"";
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// The namespaces, a doctor that listens there, and a disk of memory. Dropping it removes them.
pub(super) struct Site {
    libra: PathBuf,
    prefix: String,
    namespaces: Vec<String>,
    /// State directory of the clean host, a file system of its own.
    disk: PathBuf,
    listener: Option<Running>,
}

impl Site {
    pub(super) fn new(libra: &Path) -> Result<Self> {
        let folder = shell::target_directory()?.join("doctor");
        fs::create_dir_all(&folder)?;
        let disk = folder.join("disk");
        let prefix = format!("libra-{}", std::process::id());
        let mut site = Self { libra: libra.to_owned(), prefix, namespaces: Vec::new(), disk, listener: None };
        for host in [HERE, ROUTER, THERE] {
            let namespace = site.namespace(host);
            ip(&["netns", "add", &namespace])?;
            site.namespaces.push(namespace.clone());
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        for (host, port, network) in [(HERE, "here0", "10.78.0"), (THERE, "there0", "10.78.1")] {
            site.connect(host, port, network)?;
        }
        site.sh(ROUTER, "sysctl -qw net.ipv4.ip_forward=1")?;
        fs::create_dir_all(&site.disk)?;
        let disk = site.disk.to_string_lossy().into_owned();
        shell::run(shell::program("mount", &["-t", "tmpfs", "-o", "size=128m", "libra-doctor", &disk]))?;
        let listener = site.listen("listener", &["doctor", "--listen", &site.to(PORT)], PORT)?;
        site.listener = Some(listener);
        Ok(site)
    }

    /// Connects a host with the router: two queues, and packets are merged, as network cards do.
    fn connect(&self, host: &str, port: &str, network: &str) -> Result<()> {
        let (inside, router) = (self.namespace(host), self.namespace(ROUTER));
        let queues = ["numrxqueues", "2", "numtxqueues", "2"];
        let link = ["link", "add", "eth0", "netns", &inside];
        let pair = ["type", "veth", "peer", "name", port, "netns", &router];
        ip(&[&link[..], &queues, &pair, &queues].concat())?;
        ip(&["-n", &inside, "address", "add", &format!("{network}.2/24"), "dev", "eth0"])?;
        ip(&["-n", &router, "address", "add", &format!("{network}.1/24"), "dev", port])?;
        ip(&["-n", &inside, "link", "set", "eth0", "up"])?;
        ip(&["-n", &router, "link", "set", port, "up"])?;
        ip(&["-n", &inside, "route", "add", "default", "via", &format!("{network}.1")])?;
        self.sh(host, "ethtool -K eth0 gro on")
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// A command that runs on a host.
    pub(super) fn command(&self, host: &str) -> Command {
        shell::program("ip", &["netns", "exec", &self.namespace(host)])
    }

    /// Runs a line of a shell on a host.
    pub(super) fn sh(&self, host: &str, line: &str) -> Result<()> {
        let mut command = self.command(host);
        command.args(["sh", "-ec", line]);
        shell::output(command).map(drop)
    }

    /// The address there with this port.
    pub(super) fn to(&self, port: u16) -> String {
        format!("{ADDRESS_THERE}:{port}")
    }

    /// Starts a program on a host. `libra`, unless it begins with a path.
    pub(super) fn start(&self, host: &str, name: &str, words: &[&str]) -> Result<Running> {
        let mut command = self.command(host);
        if !words[0].starts_with('/') {
            command.arg(&self.libra);
        }
        command.args(words).env_remove("LIBRA_TOKEN");
        Running::start(name, command, self.disk.with_file_name(format!("{name}.log")))
    }

    /// Starts a program there that listens, and waits until it does.
    pub(super) fn listen(&self, name: &str, words: &[&str], port: u16) -> Result<Running> {
        let mut running = self.start(THERE, name, words)?;
        let deadline = Instant::now() + LISTEN_LIMIT;
        while !listens(running.id(), port) {
            process::check_interrupt()?;
            if running.status()?.is_some() || Instant::now() > deadline {
                bail!("{name} does not listen\n{}", running.tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// The words of a doctor here, behind those of a wrapper; options that come later win. `ip netns exec` hides control groups, so they
    /// are mounted again.
    pub(super) fn doctor(&self, wrapper: &[String], options: &[String]) -> Vec<String> {
        let libra = self.libra.to_string_lossy().into_owned();
        let state = self.disk();
        let to = self.to(PORT);
        let usual = ["doctor", "--json", "--interface=eth0", "--state-dir", &state, "--to", &to];
        let words = usual.iter().map(|word| (*word).to_owned());
        let groups = ["sh", "-ec", GROUPS, "sh"].map(str::to_owned).into_iter();
        groups
            .chain(wrapper.iter().cloned())
            .chain([libra])
            .chain(words)
            .chain(options.iter().cloned())
            .collect()
    }

    /// The state directory of the clean host.
    pub(super) fn disk(&self) -> String {
        self.disk.to_string_lossy().into_owned()
    }

    /// A file with a token that no process has.
    pub(super) fn token(&self) -> Result<String> {
        let file = self.disk.with_file_name("token");
        drop(fs::remove_file(&file));
        let mut command = shell::program(&self.libra, &["token", "--out"]);
        command.arg(&file);
        shell::run(command)?;
        Ok(file.to_string_lossy().into_owned())
    }

    /// A folder beside the disk.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.disk.with_file_name(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.listener = None;
        for namespace in self.namespaces.drain(..).rev() {
            if let Err(error) = ip(&["netns", "delete", &namespace]) {
                eprintln!("xtask: the network namespace {namespace} is left over: {error:#}");
            }
        }
        unmount(&self.disk);
    }
}

/// Takes a file system away.
pub(super) fn unmount(path: &Path) {
    let mut command = shell::program("umount", &[]);
    command.arg(path);
    if let Err(error) = shell::output(command) {
        eprintln!("xtask: {} is left mounted: {error:#}", path.display());
    }
}
