//! The way from an agent to its P4 switch: UDP by an interface of its own, and the command line of bmv2 for the tables.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libra_p4::{Bmv2Tables, Link, Setup, Sizes, TableChange};
use socket2::{Domain, Socket, Type};
use thiserror::Error;

/// Packets under way at once: a port of bmv2 has room for 32 frames until it reads them, and loses the others. Some of them may be flooded.
const WINDOW: usize = 24;
/// Longer than a switch in software takes for as many on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// An answer is no longer than a frame.
const ANSWER_BYTES_MAX: usize = 2048;

/// The command line of bmv2.
const BMV2_CLI: &str = "simple_switch_CLI";
/// The text that it prints before it reads a line.
const PROMPT: &str = "RuntimeCmd: ";

/// A switch that does not follow an order.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error("the P4 switch at {address} has not answered its agent within {TIMEOUT:?}: {error}")]
    Silent { address: SocketAddrV4, error: std::io::Error },
    #[error("{0}")]
    Tables(String),
}

/// The command line of a bmv2, which stays open: to start it again for each change takes half a second.
#[derive(Debug)]
struct Client {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
    thrift: SocketAddr,
}

impl Client {
    fn start(thrift: SocketAddr) -> Result<Self> {
        let mut command = Command::new(BMV2_CLI);
        command.args(["--thrift-ip", &thrift.ip().to_string()]);
        command.args(["--thrift-port", &thrift.port().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().with_context(|| format!("{BMV2_CLI} must be on the PATH"))?;
        let input = process.stdin.take().context("it has a standard input")?;
        let output = process.stdout.take().context("it has a standard output")?;
        let mut client = Self { process, input, output, thrift };
        client.read(1).with_context(|| format!("there is no bmv2 at --thrift {thrift}"))?;
        Ok(client)
    }

    /// Hands lines to it, and returns its output.
    fn tell(&mut self, lines: &[String]) -> Result<String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let written = self.input.write_all(text.as_bytes()).map_err(anyhow::Error::from);
        written
            .and_then(|()| self.read(lines.len()))
            .with_context(|| format!("the bmv2 at --thrift {} is gone", self.thrift))
    }

    /// Returns its output until it has asked so often for the next line.
    fn read(&mut self, prompts: usize) -> Result<String> {
        let mut said = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&said);
            if text.matches(PROMPT).count() >= prompts {
                return Ok(text.into_owned());
            }
            let read = self.output.read(&mut bytes)?;
            if read == 0 {
                bail!("{BMV2_CLI} has ended");
            }
            said.extend_from_slice(&bytes[..read]);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// The way to a bmv2.
#[derive(Debug)]
pub(super) struct Bmv2Link {
    socket: UdpSocket,
    address: SocketAddrV4,
    client: Client,
    tables: Bmv2Tables,
}

impl Bmv2Link {
    /// Opens it, and sends the switch its initial tables.
    pub(super) fn open(interface: &str, thrift: SocketAddr, sizes: Sizes, setup: &Setup) -> Result<Self> {
        let socket = bind(interface, setup.address)
            .with_context(|| format!("--agent-interface {interface}: cannot open a socket there"))?;
        let mut client = Client::start(thrift)?;
        let said = client.tell(&setup.lines(&sizes))?;
        if said.contains("Invalid") || said.contains("Error") {
            bail!("the bmv2 at {thrift} runs another program than that of this libra:\n{said}");
        }
        client.tell(&setup.flood_lines())?;
        Ok(Self { socket, address: setup.address, client, tables: Bmv2Tables::new(sizes) })
    }
}

fn bind(interface: &str, address: SocketAddrV4) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into())?;
    socket.connect(&address.into())?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket.into())
}

impl Link for Bmv2Link {
    type Error = LinkError;

    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, LinkError> {
        let silent = |error| LinkError::Silent { address: self.address, error };
        let mut answers = Vec::with_capacity(packets.len());
        let mut packets = packets.into_iter();
        let mut under_way = 0;
        loop {
            for packet in packets.by_ref().take(WINDOW - under_way) {
                self.socket.send(&packet).map_err(silent)?;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(answers);
            }
            let mut answer = vec![0; ANSWER_BYTES_MAX];
            match self.socket.recv(&mut answer) {
                Ok(bytes) => answer.truncate(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(silent(error)),
            }
            answers.push(answer);
            under_way -= 1;
        }
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), LinkError> {
        let said = self.client.tell(&self.tables.lines(changes));
        let said = said.map_err(|error| LinkError::Tables(format!("{error:#}")))?;
        self.tables.on_output(changes, &said).map_err(|error| LinkError::Tables(error.to_string()))
    }
}
