//! `libra doctor`: examines a machine, and the path to another one.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use libra_doctor::{Finding, KernelPlane, Listener, ListenerEvent, Needs, Tables, Verdict, examine};
use libra_launch::arguments::parse_bytes;
use libra_launch::document::{to_text, write_json};
use libra_launch::plane::kernel_plane_left_out;
use libra_launch::progress::Bars;
use libra_launch::rule::state_values;
use libra_launch::security::SecurityArguments;
use libra_launch::table::{paragraph, table};
use libra_net::is_local;
use serde::Serialize;

/// Examines this machine, and the path to another one, and changes nothing. Exit code 1 if anything is bad.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  libra doctor                                       this machine
  libra doctor --workers 32 --state-dir data --rows 100000000 --width 16 --optimizer adam
                                                     this machine, for a server of that job
  libra doctor --listen 0.0.0.0:7799                 here, and
  libra doctor --to 10.0.0.1:7799                    there: the path between the two")]
pub(crate) struct Arguments {
    /// Waits for the doctors of other machines, until Ctrl-C
    #[arg(long, value_name = "IP:PORT", conflicts_with = "to")]
    listen: Option<SocketAddr>,
    /// Examines the path to a machine on which `libra doctor --listen` runs; or asks a controller whether it takes members of this one
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    to: Option<String>,
    /// Workers of the job
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Members of the job that run on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    members: u16,
    /// Rows of the job: memory and disk are compared with them
    #[arg(long, value_name = "N", requires = "width")]
    rows: Option<u64>,
    /// Values of a row
    #[arg(long, value_name = "N", requires = "rows", value_parser = clap::value_parser!(u32).range(1..))]
    width: Option<u32>,
    /// Optimizer of the rows, which keeps values beside them, as `libra train` takes it
    #[arg(long, value_name = "NAME", default_value = "adagrad")]
    optimizer: String,
    /// Servers that divide the rows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    servers: u16,
    /// Memory for the rows of each server, as `libra server` takes it
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Largest IP packet of the hot path, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(256..))]
    mtu: u16,
    /// State directory of a server: its disk is measured, by some hundred writes to a file without a name
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Checkpoints that a server keeps
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    keep_checkpoints: u16,
    /// Place at which a switch of this machine adds up; with `xdp`, kernel, build and capabilities are examined for it
    #[arg(long, value_name = "PLANE", value_enum, default_value_t)]
    plane: PlaneKind,
    /// Examines this interface, which may be given several times; without it, all that are up
    #[arg(long, value_name = "IF")]
    interface: Vec<String>,
    /// The core of a member (`--cpu` of `libra worker` and `libra switch`)
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Prints the findings as JSON, or writes them to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    security: SecurityArguments,
}

/// Data planes that a machine needs something for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum PlaneKind {
    /// In the process of the switch
    #[default]
    Udp,
    /// In the kernel
    Xdp,
}

#[derive(Serialize)]
struct Document<'a> {
    findings: &'a [Finding],
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(address) = arguments.listen {
        return listen(address);
    }
    let findings = examine(&arguments.needs()?, arguments.to.as_deref());
    match &arguments.json {
        None => print(&findings),
        Some(path) if path == Path::new("-") => println!("{}", to_text(&Document { findings: &findings })?),
        Some(path) => write_json(path, &Document { findings: &findings })?,
    }
    let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).collect();
    if let [first, ..] = bad[..] {
        bail!("{} of {} checks are bad, the first is {}", bad.len(), findings.len(), first.check);
    }
    Ok(())
}

impl Arguments {
    fn needs(&self) -> Result<Needs> {
        if let Some(directory) = &self.state_dir
            && !fs::metadata(directory)
                .with_context(|| format!("--state-dir {}", directory.display()))?
                .is_dir()
        {
            bail!("--state-dir {} is no directory", directory.display());
        }
        for interface in &self.interface {
            if !Path::new("/sys/class/net").join(interface).exists() {
                bail!("--interface {interface}: this machine has no such interface");
            }
        }
        // Without rows, too, the name must be one.
        let state = state_values(&self.optimizer, self.width.unwrap_or(1) as usize);
        let state = u32::try_from(state.map_err(|error| anyhow!("--optimizer: {error}"))?)?;
        let tables = |(rows, width)| Tables { rows, width, state, servers: self.servers };
        Ok(Needs {
            workers: self.workers,
            members: self.members,
            tables: self.rows.zip(self.width).map(tables),
            memory_limit: self.memory_limit,
            mtu: self.mtu,
            state_directory: self.state_dir.clone(),
            checkpoints_kept: self.keep_checkpoints.into(),
            kernel_plane: (self.plane == PlaneKind::Xdp)
                .then(|| KernelPlane { left_out: kernel_plane_left_out() }),
            interfaces: self.interface.clone(),
            cpu: self.cpu,
            security: self.security.if_given(Bars::new(true))?,
        })
    }
}

/// Checks the form alone: whether there is such a host is a finding.
fn host_and_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0) => {
            Ok(text.to_owned())
        }
        _ => Err("a host and a port, such as 10.0.0.1:7799".to_owned()),
    }
}

fn listen(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    let address = listener.address();
    eprintln!("doctor: listens at {address}, until Ctrl-C");
    if is_local(address) {
        eprintln!("doctor: no other machine reaches a loopback address");
    }
    listener.run(|event| match event {
        ListenerEvent::Called { from, messages } => {
            eprintln!("doctor: {from} calls, version {messages} of the messages");
        }
        ListenerEvent::Stranger(from) => eprintln!("doctor: {from} is no doctor, and was not answered"),
    })?;
    Ok(())
}

fn print(findings: &[Finding]) {
    let rows = findings.iter().map(|finding| {
        let name = match &finding.interface {
            Some(interface) => format!("{} {interface}", finding.check),
            None => finding.check.to_owned(),
        };
        let costs = finding.costs.iter().map(|costs| format!("cost: {costs}"));
        let mend = finding.mend.iter().map(|mend| format!("mend: {mend}"));
        let lines: Vec<_> = std::iter::once(finding.found.clone()).chain(costs).chain(mend).collect();
        vec![verdict(finding.verdict).to_owned(), name, lines.join("\n")]
    });
    println!("{}", table(&["verdict", "check", "found"], &[], rows));
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let [ok, unseen, warn, bad] = [Verdict::Ok, Verdict::Unseen, Verdict::Warn, Verdict::Bad].map(count);
    println!("{}", paragraph(&format!("{ok} ok, {warn} to look at, {bad} bad, {unseen} not seen")));
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Unseen => "-",
        Verdict::Warn => "warn",
        Verdict::Bad => "BAD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_needs_a_port() {
        for good in ["10.0.0.1:7799", "[::1]:1", "switch.rack3:7799"] {
            assert_eq!(host_and_port(good).as_deref(), Ok(good));
        }
        for bad in ["10.0.0.1", ":7799", "host:0", "host:port", ""] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
