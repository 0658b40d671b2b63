//! Callers that are none of the cluster, from a network namespace of their own: each ends by itself, with one line that says why, and is
//! counted by the controller.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::authority::Authority;
use super::ip::Network;
use crate::process::{self, Running};
use crate::shell;

/// Time that a caller may take to end, and the controller to count it.
const LIMIT: Duration = Duration::from_secs(20);
/// The host that they call from.
const FROM: &str = "worker0";
const TOKEN_VARIABLE: &str = "LIBRA_TOKEN";

/// A member of another cluster, or of none. Not a server, which calls once for each of its shards.
struct Stranger<'a> {
    role: &'a str,
    protection: Protection<'a>,
    /// A part of the line that it must end with.
    line: &'a str,
    /// A part of the line of the controller.
    counted: &'a str,
}

#[derive(Clone, Copy)]
enum Protection<'a> {
    None,
    Token(&'a str),
    /// A certificate for this role.
    Certificate(&'a Authority, &'a str),
}

/// The controller that strangers call.
pub(super) struct Called<'a> {
    pub(super) network: &'a Network,
    pub(super) binary: &'a Path,
    pub(super) address: &'a str,
    pub(super) controller: &'a Running,
}

impl Called<'_> {
    /// Lets strangers call a controller that has a token. `start` starts a process under a name.
    pub(super) fn with_token(
        &self,
        authority: &Authority,
        start: impl Fn(&str, Command) -> Result<Running>,
    ) -> Result<()> {
        let mut unprotected = self.member("server")?;
        unprotected.env_remove(TOKEN_VARIABLE);
        let line = finish(start("stranger-server", unprotected)?)?;
        if !line.contains(TOKEN_VARIABLE) {
            bail!("a server without a token has called another machine: {line}");
        }
        let token = self.another_token()?;
        let strangers = [
            Stranger {
                role: "worker",
                protection: Protection::Token(&token),
                line: "it has another token",
                counted: "it has another token, and refuses that of this end",
            },
            Stranger {
                role: "switch",
                protection: Protection::None,
                line: "it speaks TLS, and this end has no token",
                counted: "it has no token: it does not speak TLS",
            },
            Stranger {
                role: "worker",
                protection: Protection::Certificate(authority, "worker"),
                line: "one end has a token, the other a certificate",
                counted: "one end has a token, the other a certificate",
            },
        ];
        self.turn_away(&strangers, start)?;
        self.tls_1_2()
    }

    /// Lets strangers call a controller with a certificate of an authority.
    pub(super) fn with_certificate(
        &self,
        authority: &Authority,
        another: &Authority,
        start: impl Fn(&str, Command) -> Result<Running>,
    ) -> Result<()> {
        let token = self.another_token()?;
        let strangers = [
            Stranger {
                role: "worker",
                protection: Protection::Certificate(authority, "server"),
                line: "the certificate of this worker is that of server",
                counted: "its certificate is that of server, and it says that it is a worker",
            },
            Stranger {
                role: "switch",
                protection: Protection::Certificate(another, "switch"),
                line: "its certificate is of another authority",
                counted: "it refuses the certificate of this end, which is of another authority",
            },
            Stranger {
                role: "switch",
                protection: Protection::Token(&token),
                line: "one end has a token, the other a certificate",
                counted: "one end has a token, the other a certificate",
            },
            Stranger {
                role: "worker",
                protection: Protection::None,
                line: "it speaks TLS, and this end has no token",
                counted: "it has no certificate: it does not speak TLS",
            },
        ];
        self.turn_away(&strangers, start)
    }

    fn turn_away(
        &self,
        strangers: &[Stranger<'_>],
        start: impl Fn(&str, Command) -> Result<Running>,
    ) -> Result<()> {
        // It listens before it has read its data.
        self.wait_for(self.address, "waiting for")?;
        for (number, Stranger { role, protection, line, counted }) in (1_u32..).zip(strangers) {
            let mut command = self.member(role)?;
            command.env_remove(TOKEN_VARIABLE);
            match protection {
                Protection::None => drop(command.arg("--insecure")),
                Protection::Token(token) => drop(command.env(TOKEN_VARIABLE, token)),
                Protection::Certificate(authority, role) => authority.certify(&mut command, role)?,
            }
            let printed = finish(start(&format!("stranger-{role}"), command)?)?;
            if !printed.contains(line) {
                bail!("a {role} that is none of the cluster ended without {line:?}\n{printed}");
            }
            // The controller reports their number each time it has doubled: that each called once is seen there.
            if number.is_power_of_two() {
                self.wait_for(&format!("{number} streams were closed"), counted)?;
            }
        }
        println!("{} strangers were turned away, each with a line at both ends", strangers.len());
        Ok(())
    }

    fn member(&self, role: &str) -> Result<Command> {
        let mut command = self.network.command(FROM);
        command.arg(self.binary).args([role, "--controller", self.address]);
        Ok(command)
    }

    fn another_token(&self) -> Result<String> {
        let printed = shell::output(shell::program(self.binary, &["token"]))?;
        Ok(printed.trim().to_owned())
    }

    /// Waits until the controller has printed a line with both texts.
    fn wait_for(&self, count: &str, reason: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        let printed = || self.controller.tail();
        while !printed().lines().any(|line| line.contains(count) && line.contains(reason)) {
            process::check_interrupt()?;
            if Instant::now() >= deadline {
                bail!("the controller does not say {count:?} with {reason:?}\n{}", printed());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A handshake of TLS 1.2 must end in an alert, where OpenSSL can try one.
    fn tls_1_2(&self) -> Result<()> {
        let mut command = self.network.command(FROM);
        command.args(["openssl", "s_client", "-tls1_2", "-connect", self.address]);
        command.stdin(std::process::Stdio::null());
        let output = command.output()?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        if printed.contains("No such file") {
            println!("skipped: a caller with TLS 1.2 (no openssl)");
            return Ok(());
        }
        if output.status.success() || !printed.contains("alert") {
            bail!("a caller with TLS 1.2 was not refused by an alert ({}): {printed}", output.status);
        }
        // The fourth.
        self.wait_for("4 streams were closed", "it offers no TLS 1.3")?;
        println!("a caller with TLS 1.2 was refused by an alert");
        Ok(())
    }
}

/// Waits until a stranger has ended, as one that was turned away. Returns what it has printed.
fn finish(mut stranger: Running) -> Result<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        process::check_interrupt()?;
        match stranger.status()? {
            Some(status) if status.success() => bail!("it was let in\n{}", stranger.tail()),
            Some(_) => return Ok(stranger.tail()),
            None if Instant::now() >= deadline => bail!("it still calls\n{}", stranger.tail()),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
