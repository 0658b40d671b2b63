//! The way from an agent to its P4 switch: UDP by an interface of its own, and the command line of bmv2 for the tables.

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libra_p4::{Bmv2Tables, Link, Setup, Sizes, TableChange};
use socket2::{Domain, Socket, Type};
use thiserror::Error;

/// Packets under way at once: what the queue of a port holds for sure.
const WINDOW: usize = 64;
/// Longer than a switch in software takes for as many on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer is no longer than a frame.
const ANSWER_BYTES_MAX: usize = 2048;

/// The command line of bmv2.
const BMV2_CLI: &str = "simple_switch_CLI";

/// A switch that does not do what it is told.
#[derive(Debug, Error)]
pub(crate) enum LinkError {
    #[error("the P4 switch at {address} has not answered its agent within {PATIENCE:?}: {error}")]
    Silent { address: SocketAddrV4, error: std::io::Error },
    #[error("{0}")]
    Tables(String),
}

/// The way to a bmv2.
#[derive(Debug)]
pub(crate) struct Bmv2Link {
    socket: UdpSocket,
    address: SocketAddrV4,
    thrift: SocketAddr,
    tables: Bmv2Tables,
}

impl Bmv2Link {
    /// Opens it, and tells the switch what it is to know from the start.
    pub(crate) fn open(interface: &str, thrift: SocketAddr, sizes: Sizes, setup: &Setup) -> Result<Self> {
        let socket = bind(interface, setup.address)
            .with_context(|| format!("--agent-interface {interface}: cannot open a socket there"))?;
        let link = Self { socket, address: setup.address, thrift, tables: Bmv2Tables::new(sizes) };
        let said = link.tell(&setup.lines())?;
        if said.contains("Invalid") || said.contains("Error") {
            bail!("the bmv2 at {thrift} has not taken its first entries; start it anew:\n{said}");
        }
        Ok(link)
    }

    /// Hands lines to the command line of the switch, and returns what it says.
    fn tell(&self, lines: &[String]) -> Result<String> {
        let mut command = Command::new(BMV2_CLI);
        command.args(["--thrift-ip", &self.thrift.ip().to_string()]);
        command.args(["--thrift-port", &self.thrift.port().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().with_context(|| format!("{BMV2_CLI} must be on the PATH"))?;
        let mut input = client.stdin.take().context("it has a standard input")?;
        input
            .write_all((lines.join("\n") + "\n").as_bytes())
            .with_context(|| format!("{BMV2_CLI} does not listen"))?;
        drop(input);
        let output = client.wait_with_output().with_context(|| format!("{BMV2_CLI} does not end"))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if !output.status.success() || said.contains("Could not connect") {
            bail!("there is no bmv2 at --thrift {}: {said}", self.thrift);
        }
        Ok(said)
    }
}

fn bind(interface: &str, address: SocketAddrV4) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into())?;
    socket.connect(&address.into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
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
        let said = self.tell(&self.tables.lines(changes));
        let said = said.map_err(|error| LinkError::Tables(format!("{error:#}")))?;
        self.tables.heard(changes, &said).map_err(|error| LinkError::Tables(error.to_string()))
    }
}
