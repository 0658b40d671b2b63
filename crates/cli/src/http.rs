//! Requests over HTTP to a controller, for those who watch its job and command it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use libra_launch::exit::Unreachable;
use libra_launch::progress::Bars;
use libra_launch::security::SecurityArguments;
use libra_monitor::{Document, HttpToken, JobDocument, VERSION};
use libra_net::{Endpoint, Security, find_http, is_local};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Time for one question: at the port of the cluster, or over HTTP.
const TIME: Duration = Duration::from_secs(5);
/// Time for a command: a controller answers when it has begun, not when it is done.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// Bytes of an answer: 1,500 for each of ten thousand members.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Options by which a controller is found.
#[derive(Args, Debug)]
pub(crate) struct ControllerArguments {
    /// Place of the controller, as its members have it. There it tells where it answers over HTTP
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700")]
    controller: Endpoint,
    /// Place at which the controller answers over HTTP (its own --http); the one of --controller is not asked then
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<Endpoint>,
    #[command(flatten)]
    security: SecurityArguments,
}

/// A controller that answers over HTTP.
#[derive(Debug)]
pub(crate) struct Controller {
    place: Place,
    agent: Agent,
    /// Address at which it has answered last.
    found: Option<String>,
}

#[derive(Debug)]
enum Place {
    /// The port of the cluster, where it tells its other one.
    Cluster {
        endpoint: Endpoint,
        security: Security,
    },
    Http(Endpoint),
}

impl ControllerArguments {
    /// Returns the controller, without a call to it.
    pub(crate) fn controller(&self) -> Result<Controller> {
        let place = match &self.http {
            Some(endpoint) => Place::Http(endpoint.clone()),
            None => {
                let options = self.security.of_member(&self.controller, TIME, Bars::new(false))?;
                Place::Cluster { endpoint: options.controller, security: options.security }
            }
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // The proxies of the environment are for the way out of a cluster.
            .proxy(None)
            .timeout_global(Some(TIME))
            .build()
            .into();
        Ok(Controller { place, agent, found: None })
    }
}

impl Controller {
    /// The place at which it answers, or where it is asked for that.
    pub(crate) fn name(&self) -> String {
        match (&self.found, &self.place) {
            (Some(found), _) => found.clone(),
            (None, Place::Http(endpoint) | Place::Cluster { endpoint, .. }) => endpoint.to_string(),
        }
    }

    /// Returns the status of its job, as it came and as it is understood.
    ///
    /// # Errors
    /// It does not answer ([`Unreachable`]), or not as a controller of this version.
    pub(crate) fn status(&mut self) -> Result<(String, JobDocument)> {
        let address = self.locate()?;
        let answer = self.agent.get(format!("http://{address}/status")).call();
        let (code, text) = read(&address, self.keep_if_reached(answer))?;
        ensure!(code == 200, "{address} has no status ({code}): {}", error_text(&text));
        let job = understand(&address, &text)?;
        Ok((text, job))
    }

    /// Sends a command, and returns what the controller answers to a person.
    ///
    /// # Errors
    /// It does not answer ([`Unreachable`]), or refuses, with its reason.
    pub(crate) fn command(&mut self, name: &str, body: &Value, token: &HttpToken) -> Result<String> {
        let address = self.locate()?;
        let request = self.agent.post(format!("http://{address}/v1/{name}"));
        let request = request
            .header("Authorization", format!("Bearer {}", token.as_str()))
            .header("Content-Type", "application/json")
            .config()
            .timeout_global(Some(COMMAND_TIME))
            .build();
        let answer = request.send(body.to_string().as_bytes());
        let (code, text) = read(&address, self.keep_if_reached(answer))?;
        let done = serde_json::from_str::<Value>(&text).ok();
        match done.as_ref().and_then(|answer| answer["done"].as_str()) {
            Some(done) if (200..300).contains(&code) => Ok(done.to_owned()),
            _ if code >= 400 => bail!("{}", error_text(&text)),
            _ => bail!("{address} answers {code} to the command, without a text: is it a controller?"),
        }
    }

    /// The address at which it answers over HTTP.
    fn locate(&mut self) -> Result<String> {
        if let Some(found) = &self.found {
            return Ok(found.clone());
        }
        let found = match &self.place {
            Place::Http(endpoint) => endpoint.to_string(),
            Place::Cluster { endpoint, security } => ask(endpoint, security)?.to_string(),
        };
        self.found = Some(found.clone());
        Ok(found)
    }

    /// A controller that does not answer is looked for again: one that takes over may answer elsewhere.
    fn keep_if_reached<T>(&mut self, answer: Result<T, ureq::Error>) -> Result<T, ureq::Error> {
        answer.inspect_err(|_| self.found = None)
    }
}

/// Asks at the port of the cluster where its controller answers over HTTP.
fn ask(endpoint: &Endpoint, security: &Security) -> Result<SocketAddr> {
    let mut last = None;
    for address in endpoint.resolve_within(TIME)? {
        let http = match find_http(address, security, TIME) {
            Ok(http) => http,
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        let Some(http) = http else {
            bail!("the controller at {endpoint} does not answer over HTTP: start it with --http IP:PORT");
        };
        if is_local(http) && !is_local(address) {
            bail!(
                "the controller at {endpoint} answers over HTTP on its own machine alone, at {http}: run this there, reach it by \
                 `ssh -L` and --http, or start the controller with --http IP:PORT"
            );
        }
        return Ok(http);
    }
    let error = last.expect("a place that was found has an address");
    let is_reached = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied);
    let told = format!("the controller at {endpoint}: {error}");
    if is_reached { bail!("{told}") } else { Err(Unreachable(told).into()) }
}

/// Reads the code and the text of an answer.
fn read(address: &str, answer: Result<Response<Body>, ureq::Error>) -> Result<(u16, String)> {
    let mut answer = answer.map_err(|error| failure(address, error))?;
    let code = answer.status().as_u16();
    let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    Ok((code, text.map_err(|error| failure(address, error))?))
}

fn failure(address: &str, error: ureq::Error) -> anyhow::Error {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Timeout};
    match error {
        Io(ref source) if source.kind() == io::ErrorKind::InvalidData => {
            anyhow::Error::new(error).context(format!("{address} does not answer as a controller does"))
        }
        Io(error) => Unreachable(format!("no answer from {address}: {error}")).into(),
        Timeout(_) => Unreachable(format!("no answer from {address} in time")).into(),
        ConnectionFailed | HostNotFound => {
            Unreachable(format!("{address} cannot be reached: {error}")).into()
        }
        _ => anyhow::Error::new(error).context(format!("{address} does not answer as a controller does")),
    }
}

/// The text of a refusal; of one that is none of a controller's, its beginning.
fn error_text(text: &str) -> String {
    let error = serde_json::from_str::<Value>(text).ok();
    match error.as_ref().and_then(|error| error["error"].as_str()) {
        Some(error) => error.to_owned(),
        None if text.trim().is_empty() => "no text".to_owned(),
        None => text.trim().chars().take(200).collect(),
    }
}

fn understand(address: &str, text: &str) -> Result<JobDocument> {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        bail!("{address} does not answer with JSON: is it a controller?");
    };
    match value["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => bail!(
            "{address} answers with version {version} of its status, this program reads version {VERSION}: use the program of the \
             controller's release"
        ),
        None => bail!("{address} answers, but is no controller"),
    }
    let document = serde_json::from_value(value);
    match document
        .with_context(|| format!("{address} answers with a status that this program cannot read"))?
    {
        Document::Controller(job) => Ok(*job),
        Document::Worker(_) => bail!("{address} is a worker: ask the controller"),
        Document::Server(_) => bail!("{address} is a server: ask the controller"),
        Document::Switch(_) => bail!("{address} is a switch: ask the controller"),
    }
}

#[cfg(test)]
mod tests {
    use libra_monitor::Counts;

    use super::*;
    use crate::top::testing::{job, worker_member};

    fn refusal(text: &str) -> String {
        understand("here:1", text).unwrap_err().to_string()
    }

    #[test]
    fn answers_of_others_are_refused_by_what_they_are() {
        assert!(refusal("<html>").contains("does not answer with JSON"));
        assert!(refusal("{}").contains("no controller"));
        assert!(refusal(r#"{"version": 9, "role": "controller"}"#).contains("version 9"));
        assert!(refusal(r#"{"version": 1, "role": "controller"}"#).contains("cannot read"));
        let switch = r#"{"version": 1, "role": "switch", "uptime_seconds": 1, "is_ready": true, "loop_lag_ms": 0,
            "silent_loops": 0, "members": []}"#;
        assert!(refusal(switch).contains("is a switch: ask the controller"));
    }

    #[test]
    fn a_loss_that_is_no_number_is_understood() {
        let mut worker = worker_member(0, 10);
        if let Some(Counts::Worker(counts)) = &mut worker.counts {
            counts.training.loss = f64::NAN;
        }
        let text = serde_json::to_string(&Document::Controller(Box::new(job(vec![worker])))).unwrap();
        let found = understand("here:1", &text).unwrap();
        let Some(Counts::Worker(counts)) = found.members[0].counts else { panic!("it is a worker") };
        assert!(counts.training.loss.is_nan() && counts.pushes == 10, "{text}");
    }

    #[test]
    fn refusals_have_their_text() {
        assert_eq!(error_text(r#"{"error": "no standby"}"#), "no standby");
        assert_eq!(error_text("  502 Bad Gateway\n"), "502 Bad Gateway");
        assert_eq!(error_text(""), "no text");
    }
}
