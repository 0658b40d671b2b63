//! Commands of a person to the controller of a job, over HTTP: `POST /v1/..` with a bearer token.
//!
//! | path | body | effect |
//! |---|---|---|
//! | `/v1/checkpoint` | none | all servers write a checkpoint |
//! | `/v1/drain` | `{"member": "switch 0"}` | the member ends in order, as with SIGTERM |
//! | `/v1/migrate` | `{"switch": 0}` | all that the switch holds moves to others |
//! | `/v1/abort` | `{"reason": "text"}`, or none | the job ends for all members |
//! | `/v1/scale` | `{"workers": 5}` | workers that are too many end in order; an event asks for those that are too few |
//!
//! The answer is 202 with `{"done": "text"}` once the controller was told, and otherwise an error with `{"error": "text"}`.

use core::cmp::Ordering;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use libra_proto::{ControllerCommand, ControllerStatus, JobPhase, MemberState, Peer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::routes::{Controller, ControllerProcess, Refusal};

/// Answer to a command.
type Answer = Result<(StatusCode, Json<Done>), Refusal>;

/// A command that the controller was told.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    done: String,
}

/// Bytes of the reason of an end.
const REASON_BYTES_MAX: usize = 500;

impl ControllerProcess {
    /// Fails unless a caller may command.
    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            let error = "commands need a token: start the controller with --http-token-file FILE";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, error));
        };
        if token.is_in(headers) {
            return Ok(());
        }
        let error = "commands need the token of this controller, as in `Authorization: Bearer TOKEN`";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, error))
    }

    /// Authorizes a caller, and returns the status of a job that runs.
    async fn admit(&self, headers: &HeaderMap) -> Result<ControllerStatus, Refusal> {
        self.authorize(headers)?;
        let (status, _) = self.status().await?;
        if status.phase != JobPhase::Running {
            let error = match status.phase {
                JobPhase::Gathering => "the job has not begun",
                JobPhase::Recovering => "members of the cluster come back to this controller",
                JobPhase::Running | JobPhase::Finishing | JobPhase::Over => "the job is over",
            };
            return Err(Refusal::new(StatusCode::CONFLICT, error));
        }
        Ok(status)
    }

    fn tell(&self, command: ControllerCommand, done: String) -> Answer {
        if !(self.command)(command) {
            return Err(Refusal::new(StatusCode::CONFLICT, "the job is over"));
        }
        Ok((StatusCode::ACCEPTED, Json(Done { done })))
    }
}

/// Reads the body of a command.
fn parse<T: DeserializeOwned>(body: &[u8], example: &str) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the body must be like {example}: {error}"))
    })
}

pub(crate) async fn checkpoint(State(process): Controller, headers: HeaderMap) -> Answer {
    let status = process.admit(&headers).await?;
    if !status.checkpoints.are_possible {
        let error = "the job has neither a log nor checkpoints, so its servers have no disk";
        return Err(Refusal::new(StatusCode::CONFLICT, error));
    }
    process.tell(ControllerCommand::Checkpoint, "all servers write a checkpoint".to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    member: String,
}

pub(crate) async fn drain(State(process): Controller, headers: HeaderMap, body: Bytes) -> Answer {
    let status = process.admit(&headers).await?;
    let Drained { member } = parse(&body, r#"{"member": "switch 0"}"#)?;
    let peer = find(&status, &member)?;
    process.tell(ControllerCommand::Drain { peer }, format!("{peer} is asked to end in order"))
}

/// Returns the member of a name.
fn find(status: &ControllerStatus, name: &str) -> Result<Peer, Refusal> {
    let mut peers = status.members.iter().map(|member| member.peer);
    peers.clone().find(|peer| peer.to_string() == name).ok_or_else(|| {
        let shown: Vec<String> = peers.by_ref().take(32).map(|peer| peer.to_string()).collect();
        let more = peers.count();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let error = format!("the job has no {name:?}; its members are {}{more}", shown.join(", "));
        Refusal::new(StatusCode::NOT_FOUND, error)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Migrated {
    switch: u16,
}

pub(crate) async fn migrate(State(process): Controller, headers: HeaderMap, body: Bytes) -> Answer {
    let status = process.admit(&headers).await?;
    let Migrated { switch } = parse(&body, r#"{"switch": 0}"#)?;
    let peer = find(&status, &Peer::Switch(switch).to_string())?;
    let is_other = |peer: Peer| matches!(peer, Peer::Switch(other) if other != switch);
    if !status.members.iter().any(|member| is_other(member.peer)) {
        let error = format!("no other switch could take what {peer} holds");
        return Err(Refusal::new(StatusCode::CONFLICT, error));
    }
    process.tell(ControllerCommand::Migrate { switch }, format!("what {peer} holds moves to others"))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aborted {
    #[serde(default)]
    reason: String,
}

pub(crate) async fn abort(State(process): Controller, headers: HeaderMap, body: Bytes) -> Answer {
    process.authorize(&headers)?;
    let Aborted { reason } =
        if body.is_empty() { Aborted::default() } else { parse(&body, r#"{"reason": "text"}"#)? };
    if reason.len() > REASON_BYTES_MAX {
        let error = format!("a reason has at most {REASON_BYTES_MAX} bytes, not {}", reason.len());
        return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
    }
    let colon = if reason.is_empty() { "" } else { ": " };
    let reason = format!("its user has ended it{colon}{reason}");
    process.tell(ControllerCommand::Abort { reason }, "the job ends for all members".to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scaled {
    workers: u16,
}

pub(crate) async fn scale(State(process): Controller, headers: HeaderMap, body: Bytes) -> Answer {
    let status = process.admit(&headers).await?;
    let Scaled { workers } = parse(&body, r#"{"workers": 5}"#)?;
    let conflict = |error| Err(Refusal::new(StatusCode::CONFLICT, error));
    let Some(work) = status.work else {
        return conflict(
            "the number of workers is fixed when the job begins: its work is not dealt in chunks".to_owned(),
        );
    };
    if workers == 0 || workers > work.workers_max {
        let most = work.workers_max;
        return conflict(format!(
            "the job may have 1 to {most} workers: --workers MIN..MAX of its controller"
        ));
    }
    let there = status.members.iter().filter(|member| matches!(member.peer, Peer::Worker(_)));
    let there =
        there.filter(|member| !matches!(member.state, MemberState::Leaving | MemberState::Done)).count();
    let wanted = usize::from(workers);
    let done = match there.cmp(&wanted) {
        Ordering::Greater => format!("{} of {there} workers are asked to end in order", there - wanted),
        Ordering::Equal => format!("there are {there} workers"),
        Ordering::Less => format!("{} workers are wanted beside {there}: start them", wanted - there),
    };
    process.tell(ControllerCommand::Scale { workers }, done)
}
