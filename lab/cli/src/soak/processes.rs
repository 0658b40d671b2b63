//! The processes of a soak.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libra_proto::Peer;

use super::Settings;
use super::controller::{LogEntry, migrate};
use super::runner::Signal;
use crate::security::RunToken;
use libra_launch::exit;
use libra_launch::fault_schedule::Target;
use libra_launch::network::{self, Network, Seat};
use libra_launch::parent_guard;
use libra_launch::plane::SwitchPlane;
use libra_launch::process::Process;

/// Time that a process may take to end in order: longer than --grace.
const DRAIN_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Controller,
    Server,
    Switch,
    Worker,
}

impl From<Target> for Kind {
    fn from(target: Target) -> Self {
        match target {
            Target::Switch => Self::Switch,
            Target::Worker => Self::Worker,
            Target::Server => Self::Server,
            Target::Controller => Self::Controller,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Controller => "controller",
            Self::Server => "server",
            Self::Switch => "switch",
            Self::Worker => "worker",
        })
    }
}

struct Member {
    kind: Kind,
    /// Its number in the cluster (switches).
    number: Option<u16>,
    /// It holds nothing any more (switches).
    relieved: bool,
    /// Its standard input is a pipe for commands.
    process: Process,
}

pub(super) struct Processes<'s> {
    settings: &'s Settings,
    directory: &'s Path,
    program: PathBuf,
    token: RunToken,
    signals: Sender<Signal>,
    /// One of their own, with --namespaces and for switches in a device.
    network: Option<Network>,
    /// Number of places in the network that are taken.
    seats: usize,
    alive: Vec<Member>,
    /// Those that were asked to end, and when.
    draining: Vec<(Member, Instant)>,
    started: [usize; 4],
}

/// The same command where no file can become larger than so many bytes.
fn with_file_limit(command: Command, bytes: u64) -> Command {
    // Without the trap the first write beyond would end it by a signal.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes.div_ceil(512));
    let mut limited = Command::new("sh");
    limited.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    limited
}

impl<'s> Processes<'s> {
    pub(super) fn new(settings: &'s Settings, directory: &'s Path, signals: Sender<Signal>) -> Result<Self> {
        let program = parent_guard::this_program()?;
        let network = settings.has_network.then(Network::new).transpose()?;
        let token = RunToken::new(settings.security)?;
        Ok(Self {
            settings,
            directory,
            program,
            token,
            signals,
            network,
            seats: 0,
            alive: Vec::new(),
            draining: Vec::new(),
            started: [0; 4],
        })
    }

    pub(super) fn start(&mut self, kind: Kind) -> Result<()> {
        let index = self.started[kind as usize];
        self.started[kind as usize] += 1;
        let log = self.directory.join(format!("{kind}-{index}.log"));
        let (seat, options) = self.seat(kind)?;
        let mut command = match (&seat, &self.network) {
            (Some(seat), _) => network::inside_of(&seat.namespace, &self.program),
            (None, Some(network)) => network.command(&self.program),
            (None, None) => Command::new(&self.program),
        };
        let controller = self.settings.controller.to_string();
        match kind {
            Kind::Controller | Kind::Worker => {
                let role = kind.to_string();
                command.args(["soak", "--role", &role, "--directory"]).arg(self.directory);
            }
            Kind::Server => {
                if let Some(bytes) = self.settings.file_limit {
                    command = with_file_limit(command, bytes);
                }
                command.args(["server", "--exit-with-parent", "--controller", &controller]);
                command.arg("--shards-per-server").arg(self.settings.shards_per_server.to_string());
                // Every other server that is started again has another address, as one that an engine has moved.
                let restarts = index.checked_sub(self.settings.sizes.servers.into());
                if let Some(restart) = restarts.filter(|restart| restart % 2 == 0 && self.network.is_none()) {
                    let place = u8::try_from(2 + restart).unwrap_or(u8::MAX);
                    command.args(["--listen", &SocketAddr::from(([127, 0, 0, place], 0)).to_string()]);
                }
                if self.settings.needs_disk() {
                    // A server that replaces a killed one goes on with its shard.
                    command.arg("--state-dir").arg(self.directory.join("state"));
                }
                if let Some(bytes) = self.settings.memory_limit {
                    command.arg("--memory-limit").arg(format!("{}KiB", bytes.div_ceil(1024)));
                }
            }
            Kind::Switch => {
                command.args(["switch", "--exit-with-parent", "--controller", &controller]).args(options);
            }
        }
        match kind {
            Kind::Controller | Kind::Worker => self.token.give(&mut command),
            Kind::Server | Kind::Switch => self.token.give_to_member(&mut command),
        }
        let stdout = if kind == Kind::Controller { Stdio::piped() } else { Stdio::null() };
        command.stdin(Stdio::piped()).stdout(stdout);
        let mut process = Process::start_with_log(&format!("{kind} process {index}"), &mut command, &log)?;
        if kind == Kind::Controller {
            let signals = self.signals.clone();
            process.read_stdout(move |line| {
                let entry = serde_json::from_str::<LogEntry>(&line).ok();
                entry.is_none_or(|entry| signals.send(Signal::Entry(entry)).is_ok())
            });
        }
        self.alive.push(Member { kind, number: None, relieved: false, process });
        Ok(())
    }

    /// Namespace of a process, if it has one of its own, and the options of a switch that go with it.
    fn seat(&mut self, kind: Kind) -> Result<(Option<Seat>, Vec<String>)> {
        let is_switch = kind == Kind::Switch;
        let mut options = Vec::new();
        let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
        let seat = match (&mut self.network, self.settings.plane) {
            // The controller comes back where it was: members have no other address of it.
            (Some(network), SwitchPlane::Udp) if kind != Kind::Controller => Some(network.seat(self.seats)?),
            (Some(network), SwitchPlane::Xdp) if is_switch => {
                let seat = network.xdp_seat(self.seats, &self.program)?;
                add("--plane", "xdp".to_owned());
                add("--interface", network::INTERFACE.to_owned());
                add("--listen", format!("{}:0", seat.address));
                Some(seat)
            }
            (Some(network), SwitchPlane::P4) if is_switch => {
                let (seat, address) = network.p4_seat(self.seats)?;
                let program = self.settings.bmv2.as_ref().context("a P4 switch has no program")?;
                add("--plane", "p4".to_owned());
                add("--bmv2", program.display().to_string());
                add("--interface", network::WORKERS_INTERFACE.to_owned());
                add("--listen", format!("{address}:4700"));
                Some(seat)
            }
            _ => None,
        };
        self.seats += usize::from(seat.is_some());
        // What a switch in a device sends does not pass this process: there the workers alone have faults.
        if is_switch && self.settings.plane != SwitchPlane::P4 {
            for (option, rate) in ["--loss", "--duplicate", "--reorder"].iter().zip(self.settings.faults) {
                add(option, rate.to_string());
            }
        }
        Ok((seat, options))
    }

    /// A member has joined the cluster: the first process of its kind without a number.
    pub(super) fn joined(&mut self, peer: Peer) {
        let Peer::Switch(number) = peer else { return };
        let unknown = |member: &&mut Member| member.kind == Kind::Switch && member.number.is_none();
        if let Some(member) = self.alive.iter_mut().find(unknown) {
            member.number = Some(number);
        }
    }

    /// The process to kill or to relieve: of switches one that holds regions, if one does.
    fn pick(&self, kind: Kind) -> Option<usize> {
        let of_kind = || (0..self.alive.len()).filter(|&index| self.alive[index].kind == kind);
        // Regions stay where they are until their owner goes: those who came first have some.
        of_kind().find(|&index| !self.alive[index].relieved).or_else(|| of_kind().next())
    }

    /// Kills a process, at once and without a word. Returns its name; `None` if no such process is left.
    pub(super) fn kill(&mut self, kind: Kind) -> Result<Option<String>> {
        let Some(picked) = self.pick(kind) else { return Ok(None) };
        let process = self.alive.remove(picked).process;
        let name = process.name().to_owned();
        process.kill()?;
        Ok(Some(name))
    }

    /// Asks a process to end in order. Returns its name; `None` if no such process is left.
    pub(super) fn drain(&mut self, kind: Kind) -> Result<Option<String>> {
        let Some(picked) = self.pick(kind) else { return Ok(None) };
        let member = self.alive.remove(picked);
        let name = member.process.name().to_owned();
        member.process.terminate()?;
        self.draining.push((member, Instant::now()));
        Ok(Some(name))
    }

    /// Takes those that have ended since they were asked to: kind, name, and how long it took.
    ///
    /// # Errors
    /// One has failed, or takes too long.
    pub(super) fn take_drained(&mut self) -> Result<Vec<(Kind, String, Duration)>> {
        let mut drained = Vec::new();
        for (mut member, since) in core::mem::take(&mut self.draining) {
            let name = member.process.name().to_owned();
            match member.process.status()? {
                // With the job, or before.
                Some(status) if status.success() || status.code() == Some(exit::AGAIN.into()) => {
                    drained.push((member.kind, name, since.elapsed()));
                }
                Some(status) => bail!("{name} was asked to end, and ended with {status}"),
                None if since.elapsed() > DRAIN_MAX => bail!("{name} was asked to end, and does not"),
                None => self.draining.push((member, since)),
            }
        }
        Ok(drained)
    }

    /// Asks the controller to move what a switch holds. Returns which; `None` if there is no switch in the cluster.
    pub(super) fn migrate(&mut self) -> Result<Option<u16>> {
        let (Some(picked), Some(controller)) = (self.pick(Kind::Switch), self.pick(Kind::Controller)) else {
            return Ok(None);
        };
        let Some(switch) = self.alive[picked].number else { return Ok(None) };
        self.alive[picked].relieved = true;
        self.alive[controller].process.write(&migrate(switch))?;
        Ok(Some(switch))
    }

    /// Fails if a process has failed that was not killed.
    pub(super) fn check(&mut self) -> Result<()> {
        // Members that are done exit before the controller reports the end of the job.
        self.alive.iter_mut().try_for_each(|member| member.process.has_ended().map(drop))
    }

    /// Waits until all have ended by themselves.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        for mut member in self.alive.drain(..) {
            member.process.wait(deadline)?;
            member.process.has_ended()?;
        }
        Ok(())
    }

    /// Those that are there.
    pub(super) fn names(&self) -> String {
        self.alive.iter().map(|member| member.process.name()).collect::<Vec<_>>().join(", ")
    }
}
