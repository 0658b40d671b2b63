//! Identity of the processes of a cluster: nothing on one machine, a token or certificates between several.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use libra_net::{Endpoint, NodeOptions, Security, TOKEN_VARIABLE, Token, hide_token, is_local};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::progress::Bars;

/// Options of all processes of a cluster.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Security")]
pub struct SecurityArguments {
    /// File with the token of the cluster (`libra token --out FILE` makes one); without it the variable LIBRA_TOKEN has the token. A
    /// cluster that listens on loopback needs none
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates instead of a token: that of the authority which has signed all others (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"], conflicts_with = "token_file")]
    tls_ca: Option<PathBuf>,
    /// Certificate of this process (PEM). It names roles as URIs (SAN): libra://role/controller, server, switch, worker
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Private key of this process (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
    /// No token and no certificates: any process that reaches a port of the cluster may join, read and change it
    #[arg(long, conflicts_with_all = ["token_file", "tls_ca"])]
    insecure: bool,
}

impl SecurityArguments {
    /// Returns the options of a member whose controller is at this place, with its protection. Without any, addresses of other machines are
    /// never called, also if a name comes to mean one.
    ///
    /// # Errors
    /// A file cannot be used, or another machine is called without any protection; or the name of the controller has no address
    /// for as long as its member is patient.
    pub fn of_member(&self, controller: &Endpoint, patience: Duration, bars: Bars) -> Result<NodeOptions> {
        let options = NodeOptions { connect_timeout: patience, ..NodeOptions::new(controller.clone()) };
        if let Some(security) = self.given(bars)? {
            return Ok(NodeOptions { security, ..options });
        }
        let addresses = controller.resolve_within(patience)?;
        if !addresses.into_iter().all(is_local) {
            bail!(
                "the controller at {controller} is reached over a network: give the token that it has printed in {TOKEN_VARIABLE} or \
                 --token-file (or --insecure, if it was started so)"
            );
        }
        Ok(NodeOptions { controller: controller.clone().on_this_machine(), ..options })
    }

    /// Returns the protection that was given; none without any.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn if_given(&self, bars: Bars) -> Result<Security> {
        Ok(self.given(bars)?.unwrap_or(Security::NONE))
    }

    /// Returns the protection of a controller that listens at this address. Makes a token where one is needed and none is given.
    ///
    /// # Errors
    /// A file cannot be used, or the machine has no random number.
    pub fn of_controller(&self, listen: SocketAddr, bars: Bars) -> Result<Security> {
        if let Some(security) = self.given(bars)? {
            return Ok(security);
        }
        if is_local(listen) {
            return Ok(Security::NONE);
        }
        let token = Token::random().context("the machine has no random number for a token")?;
        keep_secret()?;
        let host = if listen.ip().is_unspecified() {
            "HOST:".to_owned() + &listen.port().to_string()
        } else {
            listen.to_string()
        };
        // It is of no use if no person reads it, so --quiet does not hide it.
        eprintln!(
            "controller: members need its token, and so does a controller that takes over:\n    \
             export {TOKEN_VARIABLE}={}\n    libra server --controller {host}",
            token.reveal()
        );
        Ok(Security::with_token(&token))
    }

    /// The protection that the user has asked for.
    fn given(&self, bars: Bars) -> Result<Option<Security>> {
        let in_environment = take_variable()?;
        if self.insecure {
            bars.line(
                "warning: --insecure: any process that reaches a port of this cluster may join, read and change it",
            );
            return Ok(Some(Security::NONE));
        }
        if let (Some(authority), Some(certificate), Some(key)) = (&self.tls_ca, &self.tls_cert, &self.tls_key)
        {
            let security = Security::with_certificates(authority, certificate, key)?;
            keep_secret()?;
            return Ok(Some(security));
        }
        let token = match &self.token_file {
            Some(file) => Some(Token::read(file)?),
            None => Token::of_variable(&in_environment.unwrap_or_default()).context(TOKEN_VARIABLE)?,
        };
        let Some(token) = token else { return Ok(None) };
        keep_secret()?;
        Ok(Some(Security::with_token(&token)))
    }
}

/// Makes a token, in a new file that none but its owner may read, or on standard output.
#[derive(Args, Debug)]
pub struct TokenArguments {
    /// A new file for it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Makes a token.
///
/// # Errors
/// The machine has no random number, or the file cannot be written, or is there.
pub fn run_token(arguments: &TokenArguments) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let token = Token::random().context("the machine has no random number for a token")?;
    let Some(path) = &arguments.out else {
        println!("{}", token.reveal());
        return Ok(());
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{}", token.reveal()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// No core file and no debugger of another process sees the memory of this one.
fn keep_secret() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot keep the token out of core files")
}

/// Reads the variable, and overwrites its text in the memory that the kernel shows to others as the environment of this process.
fn take_variable() -> Result<Option<String>> {
    let text = env::var_os(TOKEN_VARIABLE).filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(None) };
    let Ok(text) = text.into_string() else { bail!("{TOKEN_VARIABLE} is no token: it is not in UTF-8") };
    hide_token();
    Ok(Some(text))
}
