//! Callers that are none of the cluster, from a network namespace of their own: each ends by itself, with one line that says why.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::ip::Network;
use crate::process::{self, Running};
use crate::shell;

/// Time that a caller may take to end.
const END_LIMIT: Duration = Duration::from_secs(20);
/// The host that they call from.
const FROM: &str = "worker0";

/// A caller, its protection, and a part of the line that it must end with.
const CALLERS: [(&str, &str, Protection, &str); 3] = [
    ("a server without a token", "server", Protection::None, "LIBRA_TOKEN"),
    ("a worker with another token", "worker", Protection::OtherToken, "it has another token"),
    (
        "a switch without protection",
        "switch",
        Protection::Insecure,
        "it speaks TLS, and this end has no token",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    None,
    OtherToken,
    Insecure,
}

/// Lets strangers call a controller that has a token. `start` starts a process under a name.
pub(super) fn call(
    network: &Network,
    binary: &Path,
    controller: &str,
    start: impl Fn(&str, Command) -> Result<Running>,
) -> Result<()> {
    for (what, role, protection, line) in CALLERS {
        let mut command = network.command(FROM);
        command.env_remove("LIBRA_TOKEN");
        command.arg(binary).args([role, "--controller", controller]);
        match protection {
            Protection::None => {}
            Protection::OtherToken => drop(command.env("LIBRA_TOKEN", another_token(binary)?)),
            Protection::Insecure => drop(command.arg("--insecure")),
        }
        let mut caller = start(&format!("stranger-{role}"), command)?;
        let deadline = Instant::now() + END_LIMIT;
        let status = loop {
            process::check_interrupt()?;
            match caller.status()? {
                Some(status) => break status,
                None if Instant::now() >= deadline => bail!("{what} still calls\n{}", caller.tail()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        if status.success() || !caller.tail().contains(line) {
            bail!("{what} ended ({status}) without {line:?}\n{}", caller.tail());
        }
    }
    println!("{} strangers were turned away, each with a line", CALLERS.len());
    tls_1_2(network, controller)
}

fn another_token(binary: &Path) -> Result<String> {
    let printed = shell::output(shell::program(binary, &["token"]))?;
    Ok(printed.trim().to_owned())
}

/// A handshake of TLS 1.2 must end in an alert, where OpenSSL can try one.
fn tls_1_2(network: &Network, controller: &str) -> Result<()> {
    let mut command = network.command(FROM);
    command.args(["openssl", "s_client", "-tls1_2", "-connect", controller]);
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
    println!("a caller with TLS 1.2 was refused by an alert");
    Ok(())
}
