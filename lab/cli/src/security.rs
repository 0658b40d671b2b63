//! Protection of the streams of a soak or a benchmark.

use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use libra_net::{Security, TOKEN_VARIABLE, Token};
use serde::{Deserialize, Serialize};

/// Protection of the streams of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StreamSecurity {
    /// None
    Off,
    /// TLS 1.3, with a token that is made for this run
    Tls,
}

/// The token of a run, if it has one. Its processes have it in their environment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunToken(Option<Token>);

impl RunToken {
    pub(crate) fn new(security: StreamSecurity) -> Result<Self> {
        let token = (security == StreamSecurity::Tls).then(Token::random).transpose();
        Ok(Self(token.context("the machine has no random number for a token")?))
    }

    /// Gives it to a process that will join.
    pub(crate) fn give(self, command: &mut Command) {
        match self.0 {
            Some(token) => command.env(TOKEN_VARIABLE, token.reveal()),
            None => command.env_remove(TOKEN_VARIABLE),
        };
    }

    /// The same for `libra server` and `libra switch`, which refuse to call another machine without protection unless they are told to.
    pub(crate) fn give_to_member(self, command: &mut Command) {
        self.give(command);
        if self.0.is_none() {
            command.arg("--insecure");
        }
    }

    /// Protection of a member in this process.
    pub(crate) fn security(self) -> Security {
        self.0.map_or(Security::NONE, |token| Security::with_token(&token))
    }
}
