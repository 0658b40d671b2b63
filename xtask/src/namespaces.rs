//! `cargo xtask namespaces`: a cluster as it would be spread over machines. Six processes of the release binary, each
//! in a network namespace of its own, train together over TLS with one token, after strangers were turned away; then one process trains the
//! same, and both must be as good. At last a job whose server and controller are killed and come back must be right to the bit.

mod authority;
pub(crate) mod ip;
mod returns;
mod strangers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process::{self, Running};
use crate::report::Report;
use crate::{Outcome, shell};
use authority::Authority;
use ip::Network;
use strangers::Called;

const CONTROLLER: &str = "controller";
pub(crate) const SWITCH: &str = "switch";
pub(crate) const HOSTS: &[&str] = &[CONTROLLER, "server0", "server1", SWITCH, "worker0", "worker1"];
const PORT: u16 = 7700;
/// Time that the controller may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);
/// Time that the members may take to end after the controller.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Time for which the others are awaited after the first failure.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct Options {
    /// Data of the training: `synthetic`, or a directory such as one with MovieLens
    #[arg(long, value_name = "DIR", default_value = "synthetic")]
    data: String,
    /// Model; without it the default of `libra train`, as for the following options
    #[arg(long)]
    model: Option<String>,
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    #[arg(long, value_name = "N")]
    factors: Option<usize>,
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[arg(long, value_name = "F")]
    sample: Option<f64>,
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Allowed difference of HR@10 between the cluster and one process
    #[arg(long, value_name = "DIFFERENCE", default_value_t = 0.05)]
    tolerance: f64,
    /// Seconds that the cluster, and then the one process, may take
    #[arg(long, value_name = "S", default_value_t = 420)]
    limit: u64,
    /// Seconds for which a controller is away that comes back
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    away: u64,
    /// Directory with the programs libra and libra-lab; without it those of a release build, which is made
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Fails instead of skipping when this machine does not allow network namespaces
    #[arg(long)]
    required: bool,
}

impl Options {
    /// Options of CI: short, on data that needs no file.
    pub(crate) fn for_ci() -> Self {
        Self {
            data: "synthetic".into(),
            model: None,
            epochs: None,
            batch: None,
            factors: None,
            seed: 1,
            sample: None,
            plan: None,
            tolerance: 0.05,
            limit: 420,
            away: 15,
            programs: None,
            required: false,
        }
    }

    /// The job, in the options that `libra controller` and `libra train` share.
    fn job(&self) -> Result<Vec<String>> {
        let mut job = vec![format!("--data={}", self.data()?), format!("--seed={}", self.seed)];
        let mut add =
            |name: &str, value: Option<String>| job.extend(value.map(|value| format!("--{name}={value}")));
        add("model", self.model.clone());
        add("epochs", self.epochs.map(|value| value.to_string()));
        add("batch", self.batch.map(|value| value.to_string()));
        add("factors", self.factors.map(|value| value.to_string()));
        add("sample", self.sample.map(|value| value.to_string()));
        add("plan", self.plan.as_deref().map(absolute).transpose()?);
        Ok(job)
    }

    fn data(&self) -> Result<String> {
        if self.data == "synthetic" { Ok(self.data.clone()) } else { absolute(Path::new(&self.data)) }
    }
}

/// Processes run in the directory of the workspace, wherever this one was started.
fn absolute(path: &Path) -> Result<String> {
    let full = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
    Ok(full.display().to_string())
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let permitted = ip::permitted().and_then(|()| {
        process::catch_interrupts()?;
        Network::new(HOSTS).context("network namespaces are permitted, but not what they need")
    });
    let network = match permitted {
        Ok(network) => network,
        Err(error) if !options.required => return Ok(Outcome::Skipped(format!("{error:#}"))),
        Err(error) => return Err(error),
    };
    let programs = match &options.programs {
        Some(programs) => programs.canonicalize().context("--programs")?,
        None => shell::programs(&["libra", "libra-lab"])?,
    };
    let limit = Duration::from_secs(options.limit);
    let job = Job::new("namespaces", &programs, options.data()?, options.job()?, limit)?;
    job.certificates(&network).context("strangers at a controller with a certificate")?;
    let cluster = job.cluster(&network, &[], "mac").context("the cluster in network namespaces")?;
    drop(network);
    println!("six processes: {}", cluster.summary());
    let single = job.single().context("the same job in one process")?;
    println!("one process:   {}", single.summary());

    compare(&cluster, &single, options.tolerance)?;
    returns::run(&programs, &job.folder, options.away).context("members that come back")?;
    Ok(Outcome::Passed)
}

/// A training that is run more than once.
pub(crate) struct Job {
    binary: PathBuf,
    folder: PathBuf,
    data: String,
    /// Common options of `libra controller` and `libra train`.
    options: Vec<String>,
    limit: Duration,
}

impl Job {
    /// A job of the binary in this directory. What its processes print goes to a folder of this name.
    pub(crate) fn new(
        name: &str,
        programs: &Path,
        data: String,
        options: Vec<String>,
        limit: Duration,
    ) -> Result<Self> {
        let folder = shell::target_directory()?.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { binary: programs.join("libra"), folder, data, options, limit })
    }

    /// Runs it by six processes, each in a network namespace of its own; the switch gets some more options. Packets must have such tags.
    pub(crate) fn cluster(&self, network: &Network, switch: &[&str], tags: &str) -> Result<Report> {
        let json = self.fresh("cluster.json");
        let deadline = Instant::now() + self.limit;
        let address = format!("{}:{PORT}", ip::address(0));

        let token = self.fresh("token");
        let mut make_token = shell::program(&self.binary, &["token", "--out"]);
        make_token.arg(&token);
        shell::run(make_token)?;

        let mut controller = self.controller(network, &address);
        controller.arg("--json").arg(&json).arg("--token-file").arg(&token);
        let mut processes = vec![self.start(CONTROLLER, controller)?];
        wait_until_listening(&mut processes[0])?;
        let called = Called { network, binary: &self.binary, address: &address, controller: &processes[0] };
        let authority = Authority::new(&self.folder, "authority")?;
        called.with_token(&authority, |name, command| self.start(name, command))?;

        for host in &HOSTS[1..] {
            let role = host.trim_end_matches(|last: char| last.is_ascii_digit());
            let mut member = network.command(host);
            member.arg(&self.binary).args([role, "--controller", &address]);
            member.arg("--token-file").arg(&token);
            match role {
                "worker" => drop(member.arg(format!("--data={}", self.data))),
                SWITCH => drop(member.args(switch)),
                _ => {}
            }
            processes.push(self.start(host, member)?);
        }
        println!("six processes run; what they print is in {}", self.folder.display());
        wait_for_cluster(&mut processes, deadline)?;
        let report = Report::read(&json)?;
        report.check_work()?;
        report.check_tags(tags)?;
        Ok(report)
    }

    /// Lets strangers call a controller that has a certificate. It ends with this, as no member ever comes.
    fn certificates(&self, network: &Network) -> Result<()> {
        let address = format!("{}:{PORT}", ip::address(0));
        let (authority, another) =
            (Authority::new(&self.folder, "authority")?, Authority::new(&self.folder, "another")?);
        let mut command = self.controller(network, &address);
        authority.certify(&mut command, CONTROLLER)?;
        let mut controller = self.start("controller-with-certificate", command)?;
        wait_until_listening(&mut controller)?;
        let called = Called { network, binary: &self.binary, address: &address, controller: &controller };
        called.with_certificate(&authority, &another, |name, command| self.start(name, command))
    }

    fn controller(&self, network: &Network, address: &str) -> Command {
        let mut controller = network.command(CONTROLLER);
        controller.arg(&self.binary).args([CONTROLLER, "--listen", address]);
        controller.args(["--workers=2", "--servers=2", "--switches=1"]).args(&self.options);
        controller
    }

    fn single(&self) -> Result<Report> {
        let json = self.fresh("single.json");
        let mut train =
            shell::program(&self.binary, &["train", "--workers=2", "--servers=2", "--switch=udp"]);
        train.args(&self.options).arg("--quiet").arg("--json").arg(&json);
        self.start("single", train)?.finish(self.limit)?;
        Report::read(&json)
    }

    fn start(&self, name: &str, command: Command) -> Result<Running> {
        Running::start(name, command, self.folder.join(format!("{name}.log")))
    }

    /// The path of a file that is not there, lest a failed run is taken for the one before.
    fn fresh(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        drop(std::fs::remove_file(&path));
        path
    }
}

fn wait_until_listening(controller: &mut Running) -> Result<()> {
    let deadline = Instant::now() + LISTEN_LIMIT;
    while !ip::listens(controller.id(), PORT) {
        process::check_interrupt()?;
        if let Some(status) = controller.status()? {
            bail!("the controller ended ({status}) before any member joined\n{}", controller.tail());
        }
        if Instant::now() >= deadline {
            bail!("the controller does not listen after {} s\n{}", LISTEN_LIMIT.as_secs(), controller.tail());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The controller decides when the job is done; members that stay behind then are an error, too.
fn wait_for_cluster(processes: &mut [Running], deadline: Instant) -> Result<()> {
    loop {
        process::check_interrupt()?;
        if !failures(processes)?.is_empty() {
            // The one whose failure is the cause may be about to end.
            std::thread::sleep(SETTLE);
            bail!("{}", failures(processes)?.join("\n"));
        }
        if processes[0].status()?.is_some() {
            return process::wait(processes, Instant::now() + END_LIMIT)
                .context("the controller is done, but not all members ended well");
        }
        if Instant::now() >= deadline {
            let tails: Vec<_> = processes.iter().map(Running::tail).collect();
            bail!("the cluster is not done at the deadline (--limit); printed last:\n{}", tails.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// When one process fails the others soon do too: all that have failed by now, and what they printed.
fn failures(processes: &mut [Running]) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    for process in processes {
        if let Some(status) = process.status()?
            && !status.success()
        {
            failures.push(format!("{} failed ({status})\n{}", process.name, process.tail()));
        }
    }
    Ok(failures)
}

fn compare(cluster: &Report, single: &Report, tolerance: f64) -> Result<()> {
    let (many, one) = (cluster.number("quality.hr10"), single.number("quality.hr10"));
    let apart = (many - one).abs();
    if apart > tolerance {
        bail!(
            "HR@10 is {many:.4} with six processes but {one:.4} with one: {apart:.4} apart, allowed {tolerance}"
        );
    }
    println!("HR@10 is {apart:.4} apart, allowed {tolerance}");
    Ok(())
}
