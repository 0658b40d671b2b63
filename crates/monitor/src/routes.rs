//! Paths of the HTTP interface.
//!
//! | path | answer |
//! |---|---|
//! | `GET /metrics` | metrics, as OpenMetrics or as the text format of Prometheus |
//! | `GET /healthz` | 200 if all loops of the process turn, and a restore before them moves, else 503 |
//! | `GET /readyz` | 200 if the process can do its part, else 503 |
//! | `GET /status` | a [`Document`] |
//! | `GET /sd` | the members that answer over HTTP, for `http_sd_configs` of Prometheus (controller) |
//! | `POST /v1/..` | commands (controller), see [`commands`](crate::commands) |

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use libra_net::{Inspected, Inspector};
use libra_proto::{ControllerCommand, ControllerStatus, JobPhase, Kind, MemberStatus};
use serde::Serialize;

use crate::commands;
use crate::document::{self, Document};
use crate::exposition::{Format, encode};
use crate::metrics;
use crate::server::{HttpError, HttpPort, HttpServer};
use crate::token::HttpToken;

/// Time for a loop to answer before it counts as one that stands still.
const LOOP_TIME: Duration = Duration::from_secs(5);
/// Time for a loop to answer a scrape: what is not there then is left out.
const SCRAPE_TIME: Duration = Duration::from_secs(1);
/// Bytes of a command.
const BODY_BYTES_MAX: usize = 4 << 10;

/// A process that is a member.
pub(crate) struct MemberProcess {
    kind: Kind,
    inspector: Inspector<MemberStatus>,
    began: Instant,
}

/// A process that is a controller.
pub(crate) struct ControllerProcess {
    inspector: Inspector<ControllerStatus>,
    /// Asks the members in the same process.
    members: Option<Inspector<MemberStatus>>,
    /// Tells the controller; returns false once the job is over.
    pub(crate) command: Box<dyn Fn(ControllerCommand) -> bool + Send + Sync>,
    pub(crate) token: Option<HttpToken>,
    began: Instant,
}

impl HttpPort {
    /// Answers for a member, whose roles `inspector` asks.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn serve_member(
        self,
        kind: Kind,
        inspector: Inspector<MemberStatus>,
    ) -> Result<HttpServer, HttpError> {
        let process = Arc::new(MemberProcess { kind, inspector, began: Instant::now() });
        let routes = Router::new()
            .route("/metrics", get(member_metrics))
            .route("/healthz", get(member_health))
            .route("/readyz", get(member_readiness))
            .route("/status", get(member_status))
            .fallback(unknown)
            .with_state(process);
        self.serve(routes)
    }

    /// Answers for a controller, and with metrics of the members in its process, if there are any. Commands of callers that have the token go to `command`, which returns false once the job is over.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn serve_controller(
        self,
        inspector: Inspector<ControllerStatus>,
        members: Option<Inspector<MemberStatus>>,
        command: impl Fn(ControllerCommand) -> bool + Send + Sync + 'static,
        token: Option<HttpToken>,
    ) -> Result<HttpServer, HttpError> {
        let process = ControllerProcess {
            inspector,
            members,
            command: Box::new(command),
            token,
            began: Instant::now(),
        };
        let routes = Router::new()
            .route("/metrics", get(controller_metrics))
            .route("/healthz", get(controller_health))
            .route("/readyz", get(controller_readiness))
            .route("/status", get(controller_status))
            .route("/sd", get(service_discovery))
            .route("/v1/checkpoint", post(commands::checkpoint))
            .route("/v1/drain", post(commands::drain))
            .route("/v1/migrate", post(commands::migrate))
            .route("/v1/scale", post(commands::scale))
            .route("/v1/abort", post(commands::abort))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .fallback(unknown)
            .with_state(Arc::new(process));
        self.serve(routes)
    }
}

async fn unknown() -> Refusal {
    let paths = "/metrics, /healthz, /readyz, /status; of a controller also /sd and POST /v1/..";
    Refusal::new(StatusCode::NOT_FOUND, format!("no such path; there are {paths}"))
}

/// An answer that says why there is no other.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(serde_json::json!({ "error": self.error }))).into_response()
    }
}

fn metrics_answer(headers: &HeaderMap, families: Vec<crate::family::Family>) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    ([(header::CONTENT_TYPE, format.content_type())], encode(families, format)).into_response()
}

/// 200 with `ok`, or 503 with the reason.
fn check(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

fn is_alive<S>(inspected: &Inspected<S>) -> Result<(), String> {
    let still = inspected.restore_stands_still.filter(|still| *still >= LOOP_TIME);
    match (inspected.silent, still) {
        (0, None) => Ok(()),
        (0, Some(still)) => Err(format!("it reads its disk, and nothing has come for {} s", still.as_secs())),
        (silent, _) => Err(format!("{silent} loops have not turned for {} s", LOOP_TIME.as_secs())),
    }
}

type Member = State<Arc<MemberProcess>>;

async fn member_metrics(State(process): Member, headers: HeaderMap) -> Response {
    let inspected = process.inspector.ask(SCRAPE_TIME).await;
    metrics_answer(&headers, metrics::of_members(&inspected, process.kind))
}

async fn member_health(State(process): Member) -> Response {
    check(is_alive(&process.inspector.ask(LOOP_TIME).await))
}

async fn member_readiness(State(process): Member) -> Response {
    let inspected = process.inspector.ask(SCRAPE_TIME).await;
    let waits = || inspected.statuses.iter().find(|status| !status.is_ready);
    check(match waits() {
        Some(status) => Err(match status.member {
            Some(member) => format!("{member} does not act on the newest view yet, or reads its disk"),
            None => "it has no place in a cluster yet".to_owned(),
        }),
        None if document::is_ready(&inspected) => Ok(()),
        None => Err("it has not begun, or does not answer".to_owned()),
    })
}

async fn member_status(State(process): Member) -> Json<Document> {
    let inspected = process.inspector.ask(SCRAPE_TIME).await;
    Json(Document::of_members(&inspected, process.began.elapsed(), process.kind))
}

pub(crate) type Controller = State<Arc<ControllerProcess>>;

impl ControllerProcess {
    /// Returns the status of the controller, and how long it took to answer.
    pub(crate) async fn status(&self) -> Result<(ControllerStatus, Duration), Refusal> {
        let inspected = self.inspector.ask(SCRAPE_TIME).await;
        let lag = inspected.lag;
        let status = inspected.statuses.into_iter().last();
        status.map(|status| (status, lag)).ok_or_else(|| {
            let error = "the controller has not begun, or does not answer";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error)
        })
    }
}

async fn controller_metrics(State(process): Controller, headers: HeaderMap) -> Response {
    let members = async {
        match &process.members {
            Some(members) => Some(members.ask(SCRAPE_TIME).await),
            None => None,
        }
    };
    let (controller, members) = tokio::join!(process.inspector.ask(SCRAPE_TIME), members);
    metrics_answer(&headers, metrics::of_controller(&controller, members.as_ref()))
}

async fn controller_health(State(process): Controller) -> Response {
    check(is_alive(&process.inspector.ask(LOOP_TIME).await))
}

/// A controller is ready once its loop turns, as members may join then; but not while members of a cluster come back to it.
async fn controller_readiness(State(process): Controller) -> Result<Response, Refusal> {
    let (status, _) = process.status().await?;
    Ok(check(match status.phase {
        JobPhase::Recovering => Err("members of its cluster come back".to_owned()),
        _ => Ok(()),
    }))
}

async fn controller_status(State(process): Controller) -> Result<Json<Document>, Refusal> {
    let (status, lag) = process.status().await?;
    Ok(Json(Document::of_job(&status, lag, process.began.elapsed())))
}

/// Targets of Prometheus that have labels in common.
#[derive(Debug, Serialize)]
struct TargetGroup {
    targets: [String; 1],
    labels: TargetLabels,
}

#[derive(Debug, Serialize)]
struct TargetLabels {
    role: &'static str,
    member: String,
    libra_job: String,
}

async fn service_discovery(
    State(process): Controller,
    headers: HeaderMap,
) -> Result<Json<Vec<TargetGroup>>, Refusal> {
    let (status, _) = process.status().await?;
    let libra_job = status.job.to_string();
    // It is reached as the caller has reached it.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let own = host.or_else(|| process.inspector.http().map(|http| http.to_string()));
    let mut groups: Vec<TargetGroup> = own
        .map(|own| TargetGroup {
            targets: [own],
            labels: TargetLabels {
                role: "controller",
                member: "controller".to_owned(),
                libra_job: libra_job.clone(),
            },
        })
        .into_iter()
        .collect();
    let mut seen = BTreeSet::new();
    for member in &status.members {
        // The shards of a server have one port.
        if let Some(http) = member.http.filter(|http| seen.insert(*http)) {
            let (role, member) = (document::kind(member.peer), member.peer.to_string());
            let labels = TargetLabels { role, member, libra_job: libra_job.clone() };
            groups.push(TargetGroup { targets: [http.to_string()], labels });
        }
    }
    Ok(Json(groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_if_its_loops_turn_or_its_restore_moves() {
        let health = |silent, still: Option<u64>| {
            let restore_stands_still = still.map(Duration::from_secs);
            let (statuses, lag, sockets) = (Vec::<()>::new(), Duration::ZERO, Vec::new());
            is_alive(&Inspected { statuses, silent, lag, sockets, restore_stands_still })
        };
        assert_eq!(health(0, None), Ok(()));
        assert_eq!(health(0, Some(4)), Ok(()));
        assert_eq!(health(0, Some(5)), Err("it reads its disk, and nothing has come for 5 s".to_owned()));
        assert_eq!(health(2, None), Err("2 loops have not turned for 5 s".to_owned()));
    }
}
