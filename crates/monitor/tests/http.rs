//! A small cluster, watched over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libra_monitor::{Document, HttpPort, HttpServer, HttpToken, Kind};
use libra_net::{ControllerNode, Inspector, NodeError, NodeOptions, ServerNode, WorkerNode};
use libra_proto::{
    Cluster, EndCause, HotPath, MemberStatus, Outcome, Parameters, ReadCounts, Sizes, TrainingNote,
};
use tokio::sync::mpsc;

const TOKEN: &str = "0123456789abcdef";

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A member that answers over HTTP, and the options of it.
fn member(controller: SocketAddr, kind: Kind) -> (NodeOptions, HttpServer) {
    let port = HttpPort::bind(loopback()).unwrap();
    let inspector: Inspector<MemberStatus> = Inspector::new(Some(port.address()));
    let server = port.serve_member(kind, inspector.clone()).unwrap();
    (NodeOptions { inspector: Some(inspector), ..NodeOptions::new(controller) }, server)
}

/// A controller, a server of two shards and a worker without tables.
struct Watched {
    controller: HttpServer,
    server: HttpServer,
    worker: HttpServer,
    ended: JoinHandle<Result<Outcome, NodeError>>,
    /// The worker, once it has its place.
    joined: JoinHandle<WorkerNode>,
}

impl Watched {
    fn start() -> Self {
        let port = HttpPort::bind(loopback()).unwrap();
        let inspector = Inspector::new(Some(port.address()));
        let node = ControllerNode::bind(loopback()).unwrap().with_inspector(Some(inspector.clone()));
        let (commands, inbox) = mpsc::unbounded_channel();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TOKEN).unwrap();
        let token = HttpToken::read(file.path()).unwrap();
        let command = move |command| commands.send(command).is_ok();
        let controller = port.serve_controller(inspector, None, command, Some(token)).unwrap();
        let address = node.address();
        let cluster = Cluster::new(1, Vec::new(), None, HotPath::for_workers(1));
        let sizes = Sizes { servers: 1, switches: 0, workers: 1 };
        let ended = thread::spawn(move || node.run(sizes, cluster, inbox, |_| ()));
        let (options, server) = member(address, Kind::Server);
        let node = ServerNode::bind(options, None).unwrap().with_shards(2);
        thread::spawn(move || drop(node.run(|_| ())));
        let (options, worker) = member(address, Kind::Worker);
        let joined = thread::spawn(move || WorkerNode::join(options).unwrap());
        Self { controller, server, worker, ended, joined }
    }
}

/// Status, head and body of the answer to a request.
fn exchange(to: &HttpServer, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(to.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

fn get(to: &HttpServer, path: &str) -> (u16, String, String) {
    exchange(to, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", to.address()))
}

fn post(to: &HttpServer, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{token}Content-Length: {length}\r\n\r\n{body}"
    );
    let (status, _, body) = exchange(to, &request);
    (status, body)
}

/// Asks until the answer is as expected.
fn wait_for(to: &HttpServer, path: &str, is_there: impl Fn(u16, &str) -> bool) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let (status, _, body) = get(to, path);
        if is_there(status, &body) {
            return body;
        }
        assert!(Instant::now() < until, "{path} of {} answers {status} {body}", to.address());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The samples in a body, by name and labels.
fn samples(body: &str) -> BTreeMap<&str, f64> {
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
            (name, value.parse().expect("a value is a number"))
        })
        .collect()
}

#[test]
fn a_job_is_seen_from_its_begin_to_its_end() {
    let watched = Watched::start();
    let mut worker = watched.joined.join().unwrap();
    wait_for(&watched.worker, "/readyz", |status, _| status == 200);
    wait_for(&watched.server, "/readyz", |status, _| status == 200);
    worker.note(TrainingNote::Plans { samples: 10 });
    worker.note(TrainingNote::Reads);
    thread::sleep(Duration::from_millis(150));
    worker.note(TrainingNote::Read(ReadCounts { requests: 9, retries: 2, bytes: 1000 }));
    worker.note(TrainingNote::Trained { samples: 4, loss: 0.25 });
    worker.barrier().unwrap();
    let body = wait_for(&watched.controller, "/status", |_, body| body.contains("\"samples\":4"));
    let Document::Controller(job) = serde_json::from_str(&body).unwrap() else { panic!("{body}") };
    assert_eq!((job.progress.ratio, job.progress.loss), (Some(0.4), Some(0.25)));
    let members: Vec<(&str, &str)> =
        job.members.iter().map(|member| (member.member.as_str(), member.state.as_str())).collect();
    assert_eq!(members, [("server 0", "active"), ("server 1", "active"), ("worker 0", "active")]);
    // The shards of a server have one port.
    let (_, _, sd) = get(&watched.controller, "/sd");
    let targets: Vec<serde_json::Value> = serde_json::from_str(&sd).unwrap();
    let targets: Vec<&str> = targets.iter().map(|group| group["targets"][0].as_str().unwrap()).collect();
    let expected = [&watched.controller, &watched.server, &watched.worker].map(|to| to.address().to_string());
    assert_eq!(targets, expected);
    // Scraped over and over, the same families of all.
    let (_, head, body) = get(&watched.worker, "/metrics");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let samples_of_worker = samples(&body);
    assert_eq!(samples_of_worker["libra_worker_samples_total{member=\"worker 0\"}"], 4.0);
    for (kind, requests) in [("first", 7.0), ("retry", 2.0)] {
        let name = format!("libra_worker_data_requests_total{{member=\"worker 0\",kind=\"{kind}\"}}");
        assert_eq!(samples_of_worker[name.as_str()], requests);
    }
    let data = samples_of_worker["libra_worker_step_seconds_total{member=\"worker 0\",part=\"data\"}"];
    assert!((0.15..5.0).contains(&data), "{data}");
    let (_, _, body) = get(&watched.server, "/metrics");
    let shards = samples(&body).into_keys().filter(|name| name.starts_with("libra_server_rows{")).count();
    assert_eq!(shards, 2);
    let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    let request = format!("GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{accept}\r\n");
    let (_, head, body) = exchange(&watched.controller, &request);
    assert!(head.contains("application/openmetrics-text") && body.ends_with("# EOF\n"), "{head}");
    worker.report("done".to_owned()).unwrap();
    assert_eq!(watched.ended.join().unwrap().unwrap().reports, ["done"]);
    // What has ended still answers, with its last counts.
    let (_, _, body) = get(&watched.worker, "/metrics");
    assert_eq!(samples(&body)["libra_worker_samples_total{member=\"worker 0\"}"], 4.0);
    let body = wait_for(&watched.controller, "/status", |_, body| body.contains("\"phase\":\"over\""));
    assert!(body.contains("\"samples\":4"), "{body}");
    assert_eq!(get(&watched.controller, "/healthz").0, 200);
}

#[test]
fn commands_need_the_token_and_name_what_is_there() {
    let watched = Watched::start();
    let controller = &watched.controller;
    let worker = watched.joined.join().unwrap();
    wait_for(controller, "/status", |_, body| body.contains("\"phase\":\"running\""));
    for (token, path) in
        [(None, "/v1/abort"), (Some("another-token-of-16"), "/v1/drain"), (None, "/v1/scale")]
    {
        let (status, body) = post(controller, path, token, "");
        assert!(status == 401 && body.contains("token"), "{status} {body}");
    }
    let (status, body) = post(controller, "/v1/drain", Some(TOKEN), r#"{"member": "worker 7"}"#);
    assert!(status == 404 && body.contains("server 0, server 1, worker 0"), "{status} {body}");
    let (status, body) = post(controller, "/v1/drain", Some(TOKEN), r#"{"members": "worker 0"}"#);
    assert!(status == 400 && body.contains("the body must be like"), "{status} {body}");
    let (status, body) = post(controller, "/v1/checkpoint", Some(TOKEN), "");
    assert!(status == 409 && body.contains("no disk"), "{status} {body}");
    let (status, body) = post(controller, "/v1/scale", Some(TOKEN), r#"{"workers": 5}"#);
    assert!(status == 409 && body.contains("not dealt in chunks"), "{status} {body}");
    assert_eq!(post(controller, "/v1/migrate", Some(TOKEN), r#"{"switch": 0}"#).0, 404);
    assert_eq!(post(controller, "/v1/abort", Some(TOKEN), &"x".repeat(8000)).0, 413);
    let (status, _, body) = get(controller, "/nothing");
    assert!(status == 404 && body.contains("/metrics"), "{status} {body}");
    let (status, body) = post(controller, "/v1/abort", Some(TOKEN), r#"{"reason": "enough"}"#);
    assert_eq!(status, 202, "{body}");
    let ended = worker.report("never".to_owned()).unwrap_err().to_string();
    assert!(ended.contains("its user has ended it: enough"), "{ended}");
    assert!(watched.ended.join().unwrap().is_err());
}

#[test]
fn a_worker_that_is_drained_leaves_after_its_step() {
    let watched = Watched::start();
    let mut worker = watched.joined.join().unwrap();
    wait_for(&watched.controller, "/status", |_, body| body.contains("\"phase\":\"running\""));
    assert_eq!(post(&watched.controller, "/v1/drain", Some(TOKEN), r#"{"member": "worker 0"}"#).0, 202);
    let until = Instant::now() + Duration::from_secs(20);
    while worker.flush().is_ok() {
        assert!(Instant::now() < until, "it does not learn that it is to end");
    }
    worker.drain().unwrap();
    let body = wait_for(&watched.controller, "/status", |_, body| !body.contains("\"worker 0\""));
    assert!(body.contains("\"phase\":\"running\""), "it waits for another worker: {body}");
    assert_eq!(post(&watched.controller, "/v1/abort", Some(TOKEN), "").0, 202);
    let ended = watched.ended.join().unwrap();
    assert!(matches!(ended, Err(NodeError::Ended { cause: EndCause::Failed, .. })), "{ended:?}");
}

#[test]
fn strangers_and_their_requests_are_bounded() {
    let port = HttpPort::bind(loopback()).unwrap();
    let server = port.serve_member(Kind::Switch, Inspector::new(None)).unwrap();
    let to = server.address();
    // Far more than are served at once, which say nothing.
    let idle: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(to).unwrap()).collect();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        // Those that are served now are closed after 5 s without a request.
        let mut stream = TcpStream::connect(to).unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        if stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < until, "idle connections keep others out");
        thread::sleep(Duration::from_millis(100));
    }
    drop(idle);
    // The head of a request has a bound, too.
    let mut stream = TcpStream::connect(to).unwrap();
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000)).as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    let (status, _, body) = get(&server, "/readyz");
    assert!(status == 503 && body.contains("has not begun"), "{status} {body}");
}

#[test]
fn an_address_in_use_is_named() {
    let port = HttpPort::bind(loopback()).unwrap();
    let error = HttpPort::bind(port.address()).unwrap_err();
    assert!(error.to_string().contains(&port.address().to_string()) && error.is_in_use(), "{error}");
}
