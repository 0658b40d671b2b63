//! `cargo xtask container`: the image of `deploy/container`, built from this machine's binary and run without a network and rights, and as
//! the pods of `deploy/kubernetes`.

mod pods;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::Outcome;
use crate::findings::{Finding, Findings, StepOptions};
use crate::process::{self, Running, check_interrupt};
use crate::report::Report;
use crate::shell::{self, starts};

const IMAGE: &str = "localhost/libra";
const LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Exit code of a process that was terminated before its job was done.
const AGAIN: i32 = 75;

pub(crate) fn run(options: &StepOptions) -> Result<Outcome> {
    if let Some(reason) = missing() {
        return options.skip(reason);
    }
    process::catch_interrupts()?;
    let libra = options.binary()?;
    let engine = Engine::new(&shell::target_directory()?.join("container"))?;
    let mut findings = Findings::default();
    let built = engine.build(&libra);
    let is_built = built.is_ok();
    findings.note("image", built);
    if is_built {
        findings.note("train", engine.trains());
        findings.note("doctor", engine.examines());
        findings.note("SIGTERM", engine.terminates());
        for (name, played) in pods::PLAYED {
            findings.note(name, played.train(&engine, &libra));
        }
    }
    findings.outcome(options.required)
}

fn missing() -> Option<String> {
    for program in ["buildah", "podman", "runc"] {
        if !starts(program) {
            return Some(format!("there is no {program} (apt-get install {program})"));
        }
    }
    (!rustix::process::geteuid().is_root()).then(|| "it needs root".to_owned())
}

/// Images and containers in a directory of their own, apart from those of the machine.
struct Engine {
    folder: PathBuf,
}

impl Engine {
    fn new(folder: &Path) -> Result<Self> {
        shell::remove_directory(folder)?;
        // Containers write here as another user.
        for path in [folder.to_owned(), folder.join("out")] {
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        std::os::unix::fs::chown(folder.join("out"), Some(65532), Some(65532))
            .context("cannot change an owner")?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = shell::program(program, &["--storage-driver=vfs"]);
        command.arg("--root").arg(self.folder.join("images"));
        command.arg("--runroot").arg(self.folder.join("run"));
        command.args(arguments);
        command
    }

    /// A container without a network and capabilities, whose root cannot be written to.
    fn container(&self, name: &str, arguments: &[&str]) -> Result<Running> {
        let run =
            ["--runtime=runc", "--cgroup-manager=cgroupfs", "run", "--rm", "--network=none", "--read-only"];
        let mut command = self.command("podman", &run);
        // Limits of the machine's own configuration may be above those of this process.
        command.args(["--cap-drop=all", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]);
        command
            .arg(format!("--name={name}"))
            .arg(format!("--volume={}:/out", self.folder.join("out").display()));
        command.arg(IMAGE).args(arguments);
        Running::start(name, command, self.folder.join(format!("{name}.log")))
    }

    fn build(&self, libra: &Path) -> Result<Finding> {
        let sources = shell::root().join("deploy/container");
        let context = self.folder.join("context");
        let mut command = shell::program(sources.join("context"), &[]);
        command.arg(libra).arg(&context);
        shell::output(command)?;
        let mut command = self.command("buildah", &["bud", "--isolation=chroot", "--quiet", "--tag", IMAGE]);
        command.arg("--file").arg(sources.join("Containerfile")).arg(&context);
        shell::output(command)?;
        let size = self.command("podman", &["image", "inspect", "--format={{.Size}} {{.User}}", IMAGE]);
        let printed = shell::output(size)?;
        let (bytes, user) = printed.trim().split_once(' ').context("the image has no size and user")?;
        ensure!(user == "65532:65532", "its user is {user}");
        Ok(Finding::Passed(format!("{:.1} MB, of user {user}", bytes.parse::<f64>()? / 1e6)))
    }

    fn trains(&self) -> Result<Finding> {
        self.container("train", &["train", "--epochs=2", "--quiet", "--json=/out/report.json"])?
            .finish(LIMIT)?;
        let report = Report::read(&self.folder.join("out/report.json"))?;
        report.check_work()?;
        Ok(Finding::Passed(report.summary()))
    }

    /// The doctor sees the machine from inside; what it thinks of it is not judged here.
    fn examines(&self) -> Result<Finding> {
        let mut doctor = self.container("doctor", &["doctor"])?;
        let status = wait(&mut doctor)?;
        let tail = doctor.tail();
        let last = tail.lines().last().unwrap_or_default().trim().to_owned();
        ensure!(matches!(status, 0 | 1) && last.contains(" ok, "), "it ended with {status}\n{tail}");
        Ok(Finding::Passed(last))
    }

    /// The member is process 1 of its container, for which signals have no default.
    fn terminates(&self) -> Result<Finding> {
        let mut worker = self.container("worker", &["worker", "--patience=forever"])?;
        while !worker.tail().contains("waiting for the cluster") {
            check_interrupt()?;
            ensure!(worker.status()?.is_none(), "{}", worker.tail());
            std::thread::sleep(LOOK_EVERY);
        }
        let stop = self.command("podman", &["--runtime=runc", "stop", "--time=20", "worker"]);
        shell::output(stop)?;
        let status = wait(&mut worker)?;
        ensure!(status == AGAIN, "it ended with {status}, expected {AGAIN}\n{}", worker.tail());
        Ok(Finding::Passed(format!("a worker ends with {status}")))
    }
}

/// Waits for the exit code of a container.
fn wait(container: &mut Running) -> Result<i32> {
    loop {
        check_interrupt()?;
        if let Some(status) = container.status()? {
            return status.code().context("podman was killed");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
