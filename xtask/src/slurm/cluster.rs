//! A Slurm of this machine alone: munged, slurmctld and a slurmd for each node, with files and ports of their own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::findings::Finding;
use crate::process::{self, Running};
use crate::shell;

/// Nodes that Slurm knows; each has as many processors as the members of a job need.
pub(super) const NODES: &[&str] = &["n1", "n2", "n3"];
const PROCESSORS: u32 = 8;
/// Ports of controllers, one for the number of a job, as the script chooses it.
const PORT_FIRST: u32 = 20_000;
const PORTS: u32 = 10_000;
const START_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The reason why no Slurm can be started here.
pub(super) fn missing() -> Option<String> {
    for (program, package) in
        [("munged", "munge"), ("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("sbatch", "slurm-client")]
    {
        if !is_found(program) {
            return Some(format!("there is no {program} (apt-get install {package})"));
        }
    }
    (!rustix::process::geteuid().is_root()).then(|| "it needs root".to_owned())
}

/// Tells if a program is in the path. Clients of Slurm print no version without a configuration.
fn is_found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Daemons that run; dropping it kills them. Jobs are cancelled first.
pub(super) struct Cluster {
    folder: PathBuf,
    pub(super) libra: PathBuf,
    script: PathBuf,
    /// Daemons of nodes, by their names.
    nodes: BTreeMap<&'static str, Running>,
    _slurmctld: Running,
    _munged: Running,
    /// Job that several checks look at.
    pub(super) job: Option<String>,
    /// Samples that a job trains in an epoch.
    pub(super) epoch_samples: f64,
}

impl Cluster {
    pub(super) fn start(folder: &Path, libra: PathBuf, script: PathBuf) -> Result<Self> {
        shell::remove_directory(folder)?;
        // Members keep their token here.
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        for name in ["state", "jobs"] {
            fs::create_dir(folder.join(name)).context("cannot make a directory")?;
        }
        let munged = munged(folder)?;
        fs::write(folder.join("slurm.conf"), configuration(folder)?).context("cannot write slurm.conf")?;
        let slurmctld = daemon(folder, "slurmctld", &["-D"], "slurmctld")?;
        let mut nodes = BTreeMap::new();
        for node in NODES {
            fs::create_dir(folder.join(node)).context("cannot make a directory")?;
            nodes.insert(*node, slurmd(folder, node)?);
        }
        let folder = folder.to_owned();
        Ok(Self {
            folder,
            libra,
            script,
            nodes,
            _slurmctld: slurmctld,
            _munged: munged,
            job: None,
            epoch_samples: 0.0,
        })
    }

    /// The directory with all its files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A client of this Slurm.
    fn client(&self, program: &str, arguments: &[&str]) -> Command {
        client(&self.folder, program, arguments)
    }

    pub(super) fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        shell::output(self.client(program, arguments))
    }

    pub(super) fn nodes_are_idle(&mut self) -> Result<Finding> {
        let deadline = Instant::now() + START_MAX;
        loop {
            process::check_interrupt()?;
            let states = self.ask("sinfo", &["--noheader", "--Node", "--format=%N %t"]).unwrap_or_default();
            if states.lines().filter(|line| line.ends_with(" idle")).count() == NODES.len() {
                let version = self.ask("sinfo", &["--version"])?;
                return Ok(Finding::Passed(format!("{} of {}", NODES.len(), version.trim())));
            }
            if Instant::now() > deadline {
                bail!("nodes are not idle:\n{states}\n{}", self.nodes[NODES[0]].tail());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Submits a job for so many minutes with these variables, and returns its number.
    pub(super) fn submit(&self, minutes: u32, variables: &[(&str, &str)]) -> Result<String> {
        self.submit_with(&[], minutes, variables)
    }

    /// Submits a job with options of its own for sbatch.
    pub(super) fn submit_with(
        &self,
        options: &[&str],
        minutes: u32,
        variables: &[(&str, &str)],
    ) -> Result<String> {
        let time = format!("--time={minutes}");
        let mut command = self.client("sbatch", &["--parsable", &time, "--output=%j.out"]);
        command.current_dir(self.folder.join("jobs")).args(options).arg(&self.script);
        command.env("LIBRA_PROGRAM", &self.libra).env("LIBRA_SHARDS_PER_SERVER", "1");
        command.envs(variables.iter().copied());
        Ok(shell::output(command)?.trim().to_owned())
    }

    /// The directory of a job.
    pub(super) fn directory(&self, job: &str) -> PathBuf {
        self.folder.join("jobs").join(format!("libra-{job}"))
    }

    /// The output of the script itself.
    pub(super) fn output(&self, job: &str) -> String {
        fs::read_to_string(self.folder.join("jobs").join(format!("{job}.out"))).unwrap_or_default()
    }

    /// The output of a member.
    pub(super) fn log(&self, job: &str, member: &str) -> String {
        fs::read_to_string(self.directory(job).join(format!("{member}.log"))).unwrap_or_default()
    }

    /// The text of `libra job status`, which asks the controller.
    pub(super) fn status(&self, job: &str) -> Result<String> {
        let port = PORT_FIRST + job.parse::<u32>().context("a job is a number")? % PORTS;
        let controller = format!("127.0.0.1:{port}");
        let mut command = shell::program(&self.libra, &["job", "status", "--controller", &controller]);
        command.arg("--token-file").arg(self.directory(job).join("token"));
        shell::output(command)
    }

    /// A field of what Slurm knows of a job.
    pub(super) fn field(&self, job: &str, name: &str) -> Result<String> {
        let shown = self.ask("scontrol", &["show", "job", "--oneliner", job])?;
        let field = shown.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Ok(field.with_context(|| format!("job {job} has no {name}: {shown}"))?.to_owned())
    }

    /// The steps of a job by the names of their members, and the nodes that they are on.
    pub(super) fn steps(&self, job: &str) -> Result<Vec<Step>> {
        let format = "--format=%i %j %N";
        let listed = self.ask("squeue", &["--noheader", "--steps", "--jobs", job, format])?;
        let step = |line: &str| {
            let [id, member, node] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
            Some(Step { id: id.to_owned(), member: member.to_owned(), node: node.to_owned() })
        };
        Ok(listed.lines().filter_map(step).filter(|step| step.member != "batch").collect())
    }

    /// Kills the daemon of a node and all that it has started, and waits until Slurm takes it for down.
    pub(super) fn kill_node(&mut self, node: &str) -> Result<()> {
        drop(self.nodes.remove(node).context("there is no such node")?);
        for id in processes_of_node(node)? {
            // It may have ended with another one.
            drop(Command::new("kill").args(["-s", "KILL", &id.to_string()]).status());
        }
        self.ask("scontrol", &["update", &format!("nodename={node}"), "state=down", "reason=killed"])
            .map(drop)
    }

    /// Starts all nodes that were killed.
    pub(super) fn repair_nodes(&mut self) -> Result<()> {
        for node in NODES.iter().copied() {
            if !self.nodes.contains_key(node) {
                self.nodes.insert(node, slurmd(&self.folder, node)?);
                self.ask("scontrol", &["update", &format!("nodename={node}"), "state=resume"])?;
            }
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.client("scancel", &["--user=root"]).status());
        let deadline = Instant::now() + START_MAX;
        let is_busy = |cluster: &Self| {
            cluster.ask("squeue", &["--noheader"]).is_ok_and(|queue| !queue.trim().is_empty())
        };
        while is_busy(self) && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// A member that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) member: String,
    pub(super) node: String,
}

fn client(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = shell::program(program, arguments);
    // Variables of a job in which this runs itself would be taken for options.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("SLURM") || name.starts_with("SBATCH") || name.starts_with("LIBRA_") {
            command.env_remove(&*name);
        }
    }
    command.env("SLURM_CONF", folder.join("slurm.conf"));
    command
}

fn daemon(folder: &Path, program: &str, arguments: &[&str], name: &str) -> Result<Running> {
    Running::start(name, client(folder, program, arguments), folder.join(format!("{name}.log")))
}

fn slurmd(folder: &Path, node: &str) -> Result<Running> {
    daemon(folder, "slurmd", &["-D", "-N", node], node)
}

/// Starts the daemon that signs messages, with a key and a socket of its own.
fn munged(folder: &Path) -> Result<Running> {
    let (key, socket) = (folder.join("munge.key"), folder.join("munge.socket"));
    let mut random = [0; 128];
    let mut device = fs::File::open("/dev/urandom").context("there is no randomness")?;
    std::io::Read::read_exact(&mut device, &mut random).context("there is no randomness")?;
    fs::write(&key, random).context("cannot write the key of munge")?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).context("cannot set a mode")?;
    // It complains of directories above that others can write to.
    let mut command = shell::program("munged", &["--foreground", "--force"]);
    command.arg(format!("--key-file={}", key.display())).arg(format!("--socket={}", socket.display()));
    for (option, file) in [("log-file", "munged.log"), ("pid-file", "munge.pid"), ("seed-file", "munge.seed")]
    {
        command.arg(format!("--{option}={}", folder.join(file).display()));
    }
    let mut running = Running::start("munged", command, folder.join("munged.out"))?;
    let deadline = Instant::now() + START_MAX;
    while !socket.exists() {
        if running.status()?.is_some() || Instant::now() > deadline {
            bail!("munged does not start\n{}", running.tail());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(running)
}

/// Three nodes on loopback. What starts again need not wait until signatures of before are void (`cred_expire`).
fn configuration(folder: &Path) -> Result<String> {
    let at = folder.display();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").context("this machine has no name")?;
    let mut text = format!(
        "ClusterName=libra\nSlurmctldHost={}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge.socket,cred_expire=5\nStateSaveLocation={at}/state\n\
         SlurmdSpoolDir={at}/%n\nSlurmctldPidFile={at}/slurmctld.pid\nSlurmdPidFile={at}/%n.pid\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\nMailProg=/bin/true\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nSlurmdParameters=config_overrides\n\
         KillWait=5\nSchedulerParameters=sched_interval=2,bf_interval=2\n",
        host.trim(),
        process::free_address()?.port()
    );
    for node in NODES {
        let line = format!("NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 CPUs={PROCESSORS}");
        text.push_str(&format!("{line} Port={}\n", process::free_address()?.port()));
    }
    text.push_str("PartitionName=all Nodes=ALL Default=YES State=UP\n");
    Ok(text)
}

/// Processes that a node has started: their environment names it.
fn processes_of_node(node: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let variable = format!("SLURMD_NODENAME={node}");
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) {
            found.push(id);
        }
    }
    ensure!(!found.is_empty(), "{node} has no process");
    Ok(found)
}
