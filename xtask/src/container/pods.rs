//! Pods of the manifests of `deploy/kubernetes`, played by podman on one network with names, or on that of a host. What a cluster adds to
//! their templates is added here; rights, volumes, variables and options are those of the manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Engine, LOOK_EVERY};
use crate::findings::Finding;
use crate::namespaces::ip::{self, Network};
use crate::process::{Running, check_interrupt};
use crate::report::Report;
use crate::shell;
use crate::stores::{Kind, Store};

const PODS: &str = include_str!("pods.py");
const NETWORK: &str = "libra";
const MEMBERS: &[&str] = &["controller-0", "switch-0", "server-0", "server-1", "worker-0", "worker-1"];
/// Those that fit on one host, whose ports one of each role has.
const HOST_MEMBERS: &[&str] = &["controller-0", "switch-0", "server-0", "worker-0"];
/// A network namespace with an interface: the host of pods that are on its network.
const HOST: &str = "host";
/// Claims of the manifests and directories of pods, which a cluster would fill with volumes of the group of pods (fsGroup).
const CLAIMS: &[&str] = &["libra-state", "state-libra-server-0", "state-libra-server-1"];
/// Variables of all pods: podman has no file for the reason of an end.
const VARIABLES: &[&str] = &["LIBRA_TERMINATION_LOG", "LIBRA_EPOCHS=2"];
/// Podman gives pods other names.
const CONTROLLER: &str = "LIBRA_CONTROLLER=libra-controller-0:7700";
const HOST_VARIABLES: [&str; 2] = ["LIBRA_SERVERS=1", "LIBRA_WORKERS=1"];
const LIMIT: Duration = Duration::from_secs(90);
/// Time for a pod to end.
const POD_ENDS_MAX: Duration = Duration::from_secs(10);
/// Limits of the machine's own configuration may be above those of this process.
const CONFIGURATION: &str = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n";
const BUCKET: &str = "my-bucket";

/// Manifests whose pods are played. Those of `prometheus` are the pods of the base, those of `kuberay` have an image of Ray.
pub(super) const PLAYED: &[(&str, Played)] = &[
    ("pods of base", Played { directory: "base", needs: Needs::Nothing }),
    ("pods of local-ssd", Played { directory: "overlays/local-ssd", needs: Needs::Nothing }),
    ("pods of trainjob", Played { directory: "overlays/trainjob", needs: Needs::Nothing }),
    ("pods of hostnetwork", Played { directory: "overlays/hostnetwork", needs: Needs::Host }),
    ("pods of xdp", Played { directory: "overlays/xdp", needs: Needs::Kernel }),
    ("pods of object-store", Played { directory: "overlays/object-store", needs: Needs::Store }),
];

pub(super) struct Played {
    directory: &'static str,
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// The network of a host.
    Host,
    /// That, and a kernel that takes the program of the switch.
    Kernel,
    /// A store of objects for checkpoints; the job goes on from there when it is started again.
    Store,
}

impl Played {
    /// Trains the default job, after a member was killed while it began.
    pub(super) fn train(&self, engine: &Engine, libra: &Path) -> Result<Finding> {
        let packages = shell::target_directory()?.join("tools/python");
        if let Some(reason) = missing(&packages) {
            return Ok(Finding::Skipped(reason));
        }
        let store = match self.needs == Needs::Store {
            true => match Store::start(Kind::Moto, &engine.folder, "0.0.0.0")? {
                Some(store) => Some(store),
                None => {
                    return Ok(Finding::Skipped(
                        "there is no moto_server (pip install moto[server])".to_owned(),
                    ));
                }
            },
            false => None,
        };
        let is_on_host = matches!(self.needs, Needs::Host | Needs::Kernel);
        if is_on_host && let Err(error) = ip::permitted() {
            return Ok(Finding::Skipped(format!("{error:#}")));
        }
        let pods = Pods::prepare(engine, libra, is_on_host)?;
        let mut variables = pods.variables();
        if let Some(store) = &store {
            curl(store, &["--request", "PUT"], "")?;
            let endpoint = format!("AWS_ENDPOINT_URL=http://{}:{}", pods.gateway()?, store.port);
            variables.extend([endpoint, "AWS_ALLOW_HTTP=true".to_owned()]);
        }
        let file = pods.write(&packages, self.directory, &variables)?;
        pods.play(&file)?;
        let begins = pods.kill_while_it_begins("switch-0");
        if begins.is_err() && pods.log("switch-0")?.contains("without the XDP plane") {
            return Ok(Finding::Skipped("the binary was built without clang".to_owned()));
        }
        begins?;
        pods.finish()?;
        if self.needs == Needs::Kernel {
            let log = pods.log("switch-0")?;
            ensure!(log.contains("the data plane is in the kernel"), "it is not in the kernel:\n{log}");
        }
        let log = pods.log("controller-0")?;
        ensure!(log.contains("HR@10"), "there is no report:\n{log}");
        let Some(store) = store else {
            let report = Report::read(&pods.volume(CLAIMS[0])?.join("report.json"))?;
            report.check_work()?;
            return Ok(Finding::Passed(report.summary()));
        };
        check_commit(&store)?;
        // All of them once more, as after the end of the set.
        pods.remove()?;
        pods.play(&file)?;
        let again = pods.wait_for("controller-0", "all epochs are done in checkpoint")?;
        Ok(Finding::Passed(again))
    }
}

fn missing(packages: &Path) -> Option<String> {
    if shell::output(shell::program("kubectl", &["kustomize", "--help"])).is_err() {
        return Some("there is no kubectl with kustomize".to_owned());
    }
    let mut command = shell::program("python3", &["-c", "import yaml"]);
    command.env("PYTHONPATH", packages);
    let found = shell::output(command);
    found.is_err().then(|| format!("PyYAML is not in {}: .ci/run installs it", packages.display()))
}

/// The network, claims and secrets that pods need. Dropping it removes the pods.
struct Pods<'a> {
    engine: &'a Engine,
    /// The host whose network they are on, if they have none of their own.
    host: Option<Network>,
}

impl<'a> Pods<'a> {
    fn prepare(engine: &'a Engine, libra: &Path, is_on_host: bool) -> Result<Self> {
        fs::write(engine.folder.join("containers.conf"), CONFIGURATION).context("cannot write")?;
        let host = is_on_host.then(|| Network::new(&[HOST])).transpose()?;
        let pods = Self { engine, host };
        pods.remove()?;
        pods.podman(&["network", "rm", "--force", NETWORK])?;
        pods.podman(&["network", "create", NETWORK])?;
        for claim in CLAIMS {
            // There is none, the first time.
            drop(pods.podman(&["volume", "rm", "--force", claim]));
            pods.podman(&["volume", "create", "--opt=o=uid=65532,gid=65532", claim])?;
        }
        let token = shell::output(shell::program(libra, &["token"]))?;
        pods.keep_secret("libra-token", &[("token", token.trim())])?;
        let keys = [("AWS_ACCESS_KEY_ID", "libra"), ("AWS_SECRET_ACCESS_KEY", "libra")];
        pods.keep_secret("libra-store", &keys)?;
        Ok(pods)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut podman = self.engine.command("podman", &["--runtime=runc", "--cgroup-manager=cgroupfs"]);
        podman.arg("--network-config-dir").arg(self.engine.folder.join("network")).args(arguments);
        if let Some(host) = &self.host {
            // Files under /sys stay those of the machine, other than with `ip netns exec`.
            let network = format!("--net=/run/netns/{}", host.namespace(HOST));
            let mut command = shell::program("nsenter", &[&network]);
            command.arg(podman.get_program()).args(podman.get_args());
            podman = command;
        }
        podman.env("CONTAINERS_CONF", self.engine.folder.join("containers.conf"));
        podman
    }

    fn members(&self) -> &'static [&'static str] {
        if self.host.is_some() { HOST_MEMBERS } else { MEMBERS }
    }

    /// Variables of all pods.
    fn variables(&self) -> Vec<String> {
        let more = match self.host {
            Some(_) => {
                let controller = format!("LIBRA_CONTROLLER={}:7700", ip::address(0));
                [&[controller][..], &HOST_VARIABLES.map(str::to_owned)].concat()
            }
            None => vec![CONTROLLER.to_owned()],
        };
        VARIABLES.iter().map(|variable| (*variable).to_owned()).chain(more).collect()
    }

    fn podman(&self, arguments: &[&str]) -> Result<String> {
        shell::output(self.command(arguments))
    }

    /// Keeps values as a Secret of a cluster, whose keys podman takes from an object of JSON.
    fn keep_secret(&self, name: &str, values: &[(&str, &str)]) -> Result<()> {
        let encoded = values.iter().map(|(key, value)| Ok((*key, encode(value)?)));
        let values = encoded.collect::<Result<std::collections::BTreeMap<_, _>>>()?;
        let path = self.engine.folder.join(format!("{name}.json"));
        fs::write(&path, serde_json::to_vec(&values)?).context("cannot write a secret")?;
        drop(self.podman(&["secret", "rm", name]));
        self.podman(&["secret", "create", name, &path.to_string_lossy()]).map(drop)
    }

    /// The address of this machine in the network of pods.
    fn gateway(&self) -> Result<String> {
        let found =
            self.podman(&["network", "inspect", "--format={{(index .Subnets 0).Gateway}}", NETWORK])?;
        Ok(found.trim().to_owned())
    }

    /// Writes the pods of a directory of manifests to a file.
    fn write(&self, packages: &Path, directory: &str, variables: &[String]) -> Result<PathBuf> {
        let manifests = shell::root().join("deploy/kubernetes").join(directory);
        let mut kustomize = shell::program("kubectl", &["kustomize"]);
        let mut manifests =
            kustomize.arg(manifests).stdout(Stdio::piped()).spawn().context("cannot start kubectl")?;
        let mut command = shell::program("python3", &["-c", PODS]);
        command.args(variables).env("PYTHONPATH", packages);
        command.stdin(manifests.stdout.take().context("kubectl has no output")?);
        let pods = shell::output(command)?;
        ensure!(manifests.wait()?.success(), "kubectl cannot make the manifests of {directory}");
        let file = self.engine.folder.join("pods.yaml");
        fs::write(&file, pods).context("cannot write pods")?;
        Ok(file)
    }

    fn play(&self, file: &Path) -> Result<()> {
        let mut command = self.command(&["kube", "play"]);
        if self.host.is_none() {
            command.arg(format!("--network={NETWORK}"));
        }
        command.arg(file);
        shell::output(command).map(drop)
    }

    /// Kills a member before the job has begun, if it is in time, and starts it again as its engine would.
    fn kill_while_it_begins(&self, member: &str) -> Result<()> {
        let container = name_of(member);
        self.podman(&["kill", "--signal=KILL", &container])?;
        self.podman(&["wait", &container])?;
        // Its pod ends with it, and cannot be started until that is over.
        let deadline = Instant::now() + POD_ENDS_MAX;
        loop {
            match self.podman(&["start", &container]) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                started => return started.map(drop),
            }
        }
    }

    /// Waits until all members have ended, and looks at their exit codes.
    fn finish(&self) -> Result<()> {
        for member in self.members() {
            let container = name_of(member);
            let log = self.engine.folder.join("wait.log");
            Running::start("podman wait", self.command(&["wait", &container]), log.clone())?.finish(LIMIT)?;
            let code = fs::read_to_string(log).context("podman wait has no output")?;
            if code.trim() != "0" {
                bail!("{member} ended with {}\n{}", code.trim(), self.log(member)?);
            }
        }
        Ok(())
    }

    /// The output of a member.
    fn log(&self, member: &str) -> Result<String> {
        let mut command = Command::new("sh");
        let podman = self.command(&["logs", &name_of(member)]);
        command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(podman.get_program()).args(podman.get_args());
        command.env("CONTAINERS_CONF", self.engine.folder.join("containers.conf"));
        shell::output(command)
    }

    /// Waits until a member has printed a line with these words, and returns it.
    fn wait_for(&self, member: &str, words: &str) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            check_interrupt()?;
            let log = self.log(member)?;
            if let Some(line) = log.lines().find(|line| line.contains(words)) {
                return Ok(line.to_owned());
            }
            ensure!(Instant::now() < deadline, "{member} has not printed {words:?}:\n{log}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn volume(&self, claim: &str) -> Result<PathBuf> {
        let path = self.podman(&["volume", "inspect", "--format={{.Mountpoint}}", claim])?;
        Ok(path.trim().into())
    }

    fn remove(&self) -> Result<()> {
        self.podman(&["pod", "rm", "--force", "--all", "--time=2"]).map(drop)
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

/// The container of a member in its pod.
fn name_of(member: &str) -> String {
    format!("libra-{member}-libra")
}

/// Encodes a value as manifests have those of secrets.
fn encode(value: &str) -> Result<String> {
    let mut command = Command::new("base64");
    command.arg("--wrap=0").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start base64")?;
    std::io::Write::write_all(&mut child.stdin.take().context("it has no input")?, value.as_bytes())?;
    Ok(String::from_utf8(child.wait_with_output()?.stdout)?)
}

/// Looks that the job has committed a checkpoint.
fn check_commit(store: &Store) -> Result<()> {
    let listed = curl(store, &[], "?list-type=2&prefix=my-job/job-")?;
    ensure!(listed.contains("<Key>my-job/job-"), "no checkpoint is there: {listed}");
    Ok(())
}

fn curl(store: &Store, arguments: &[&str], path: &str) -> Result<String> {
    let mut command = shell::program("curl", &["--silent", "--show-error", "--fail", "--noproxy", "*"]);
    command.args(arguments).arg(format!("http://127.0.0.1:{}/{BUCKET}{path}", store.port));
    shell::output(command)
}
