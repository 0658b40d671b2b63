//! Those who watch a job and command it: `libra job` and `libra top`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use libra_monitor::Document;
use libra_net::{Security, find_http};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::documents::{job, server_member, switch_member, worker_member};
use crate::durability::complete;
use crate::process::{
    DEADLINE, Member, assert_refused, controller, free_address, json as document, libra, members, run,
    tiny_data,
};

const TOKEN: &str = "0123456789abcdef";

/// A request, as it came.
struct Request {
    line: String,
    head: String,
    body: String,
}

/// Answers requests over HTTP with what `answer` returns for the number of each, and returns the address.
fn serve(answer: impl Fn(u64) -> (u16, String) + Send + 'static) -> (String, Receiver<Request>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for (number, stream) in (0..).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            // A program that ends may break off its request.
            let Some(request) = read_request(&stream) else { continue };
            let (code, text) = answer(number);
            let length = text.len();
            let head =
                format!("HTTP/1.1 {code} Text\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            // A caller that has enough closes the stream.
            let _ = stream.write_all((head + &text).as_bytes());
            let _ = sender.send(request);
        }
    });
    (address, requests)
}

/// Reads a request; none if the stream ends before.
fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut next_line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        Some(line)
    };
    let line = next_line()?.trim_end().to_owned();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head += &next_line()?.to_lowercase();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line, head, body: String::from_utf8(body).unwrap() })
}

/// The status of a job whose worker makes 100 pushes from each look to the next.
fn status(look: u64) -> String {
    let members = vec![worker_member(0, 100 * look), server_member(0, 1_000), switch_member(0, "active", 2)];
    serde_json::to_string(&Document::Controller(Box::new(job(members)))).unwrap()
}

fn stdout_of(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn job_status_is_a_summary_or_the_document_itself() {
    let (address, requests) = serve(|_| (200, status(1)));
    assert_eq!(stdout_of(&["job", "status", "--http", &address, "--json"]).trim_end(), status(1));
    let text = stdout_of(&["job", "status", "--http", &address]);
    assert!(text.contains("worker 0") && text.contains("25,000 samples of 100,000"), "{text}");
    assert_eq!(requests.recv().unwrap().line, "GET /status HTTP/1.1");
}

#[test]
fn job_status_ends_in_order_without_a_reader() {
    let (address, _requests) = serve(|_| (200, status(1)));
    let mut process = libra(&["job", "status", "--http", &address]);
    let mut process = process.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(process.stdout.take());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn answers_that_are_no_status_of_this_version_are_refused() {
    let refused = |code, answer: String, words: &[&str]| {
        let (address, _requests) = serve(move |_| (code, answer.clone()));
        assert_refused(&["job", "status", "--http", &address], 1, words);
        assert_refused(&["top", "--once", "--http", &address], 1, words);
    };
    refused(200, status(1).replace("\"version\":1", "\"version\":2"), &["version 2", "reads version 1"]);
    refused(200, "<html></html>".to_owned(), &["JSON"]);
    refused(200, " ".repeat(17 << 20), &["does not answer as a controller does"]);
    refused(404, "no such page".to_owned(), &["404", "no such page"]);
}

#[test]
fn a_controller_that_does_not_answer_is_75() {
    let free = free_address();
    for option in ["--http", "--controller"] {
        assert_refused(&["job", "status", option, &free], 75, &[&free]);
        assert_refused(&["top", option, &free], 75, &[&free]);
    }
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert_refused(&["job", "status", "--http", &address], 75, &["in time"]);
}

#[test]
fn commands_have_a_token_and_print_the_answer() {
    let directory = TempDir::new().unwrap();
    let token = token_file(directory.path());
    let (address, requests) = serve(|_| (202, r#"{"done": "as you wish"}"#.to_owned()));
    let options = ["--http", &address, "--http-token-file", &token];
    let commands: [(&[&str], &str, &str); 5] = [
        (&["checkpoint"], "checkpoint", "{}"),
        (&["drain", "switch", "0"], "drain", r#"{"member":"switch 0"}"#),
        (&["migrate", "0"], "migrate", r#"{"switch":0}"#),
        (&["scale", "workers=5"], "scale", r#"{"workers":5}"#),
        (&["abort", "--reason", "enough"], "abort", r#"{"reason":"enough"}"#),
    ];
    for (words, path, body) in commands {
        assert_eq!(stdout_of(&[&["job"], words, &options].concat()), "as you wish\n");
        let request = requests.recv().unwrap();
        assert_eq!(request.line, format!("POST /v1/{path} HTTP/1.1"));
        assert_eq!(request.body, body);
        assert!(request.head.contains(&format!("authorization: bearer {TOKEN}\r\n")), "{}", request.head);
    }
    let (address, _requests) = serve(|_| (409, r#"{"error": "there is no standby"}"#.to_owned()));
    let migrate = ["job", "migrate", "0", "--http", &address];
    assert_refused(&[&migrate[..], &["--http-token-file", &token]].concat(), 1, &["there is no standby"]);
    assert_eq!(run(&migrate).status.code(), Some(2), "no token");
}

fn token_file(directory: &Path) -> String {
    let file = directory.join("token");
    fs::write(&file, TOKEN).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn top_without_a_terminal_is_one_text_with_rates() {
    let (address, _requests) = serve(|look| (200, status(look)));
    let text = stdout_of(&["top", "--http", &address]);
    let worker = text.lines().find(|line| line.starts_with("worker 0")).unwrap();
    let pushes: Vec<_> = worker.split_whitespace().collect();
    let pushes: f64 = pushes[3].parse().unwrap();
    assert!((50.0..=100.0).contains(&pushes), "100 pushes in the second between two looks: {text}");
    assert!(text.contains("80%") && text.contains("850us") && text.contains("<<<#####>>"), "{text}");
}

#[test]
fn top_in_json_has_a_line_for_each_look() {
    let (address, _requests) = serve(|look| (200, status(look)));
    let line = stdout_of(&["top", "--json", "--once", "--http", &address]);
    let line: Value = serde_json::from_str(&line).unwrap();
    let pushes = line["workers"][0]["rates"]["pushes"].as_f64().unwrap();
    assert!((50.0..=100.0).contains(&pushes), "{line:#}");
    let mut stream = Stream::start(&["--http", &address, "--interval", "50"]);
    for _ in 0..3 {
        assert_eq!(stream.next()["phase"], "running");
    }
    // Its reader is gone, and so it ends.
    let mut top = stream.end();
    assert!(top.wait().unwrap().success());
}

/// `libra top --json`, read line by line.
struct Stream {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Stream {
    fn start(options: &[&str]) -> Self {
        let mut process = libra(&[&["top", "--json"], options].concat());
        let mut process = process.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut reader = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(DEADLINE).unwrap()).unwrap()
    }

    /// Waits for a line of this kind.
    fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let line = self.next();
            if is_it(&line) {
                return;
            }
            assert!(Instant::now() < deadline, "no {what}, the last line is {line:#}");
        }
    }

    /// Waits for an event with this text.
    fn event(&mut self, text: &str) {
        self.until(text, |line| line["events"].as_array().unwrap().iter().any(|event| event == text));
    }

    /// Waits until the second switch is a standby.
    fn standby(&mut self) {
        self.until("standby", |line| line["switches"][1]["member"]["state"] == "standby");
    }

    /// Reads no more.
    fn end(self) -> std::process::Child {
        self.process
    }
}

#[test]
fn a_job_that_gathers_tells_which_members_are_missing() {
    let directory = TempDir::new().unwrap();
    let options = ["--data", &tiny_data(directory.path()), "--sample", "1", "--factors", "4"];
    let (controller, address) = controller(&options);
    let start =
        |kind: &str, more: &[&str]| Member::start(&[&[kind, "--controller", &address], more].concat());
    let _members = [start("worker", &[]), start("server", &["--shards-per-server", "2"])];
    controller.line_with("1 servers, 1 switches, 1 workers");
    let told = "1 of 2 servers, 0 of 1 switches, 1 of 2 workers are there";
    let place = ["--controller", &address];
    for command in [&["job", "status"][..], &["top", "--once"]] {
        let text = stdout_of(&[command, &place].concat());
        assert!(text.contains(told), "{text}");
    }
    for command in [&["job", "status", "--json"][..], &["top", "--once", "--json"]] {
        let status: Value = serde_json::from_str(&stdout_of(&[command, &place].concat())).unwrap();
        assert_eq!(status["phase"], "gathering");
        let servers = json!({ "there": 1, "expected": 2 });
        assert_eq!(status["gathering"]["servers"], servers, "{status:#}");
    }
}

/// A controller with a token for commands, a whole cluster and a standby.
fn watched_job(directory: &Path) -> (Member, String, Vec<Member>) {
    let (data, token) = (tiny_data(directory), token_file(directory));
    let options = ["--epochs", "1000000", "--batch", "64", "--sample", "1", "--factors", "4"];
    let options = [&["--data", &data, "--http-token-file", &token], &options[..]].concat();
    let (controller, address) = controller(&options);
    let mut members = members(&address);
    controller.line_with("training begins");
    members.push(Member::start(&["switch", "--controller", &address]));
    controller.line_with("joined");
    (controller, address, members)
}

#[test]
fn a_job_is_watched_and_commanded() {
    let directory = TempDir::new().unwrap();
    let (controller, address, members) = watched_job(directory.path());
    let token = directory.path().join("token").to_str().unwrap().to_owned();
    let place = ["--controller", &address];
    let command =
        |words: &[&str]| [&["job"], words, &place, &["--http-token-file", &token]].concat().join("\u{1f}");
    let refused = |words: &[&str], told: &[&str]| {
        let command = command(words);
        assert_refused(&command.split('\u{1f}').collect::<Vec<_>>(), 1, told);
    };
    let done = |words: &[&str]| stdout_of(&command(words).split('\u{1f}').collect::<Vec<_>>());

    let status: Value =
        serde_json::from_str(&stdout_of(&[&["job", "status", "--json"], &place[..]].concat())).unwrap();
    assert_eq!(status["phase"], "running");
    let members_of = |kind: &str| {
        let all = status["members"].as_array().unwrap().iter();
        all.filter(|member| member["kind"] == kind).count()
    };
    assert_eq!((members_of("worker"), members_of("switch")), (2, 2));
    refused(&["drain", "worker", "9"], &["worker 9", "switch 1"]);
    refused(&["checkpoint"], &["disk"]);
    refused(&["scale", "workers=5"], &["1 to 2 workers", "--workers MIN..MAX"]);
    assert!(done(&["scale", "workers=2"]).contains("there are 2 workers"));
    let other = directory.path().join("other");
    fs::write(&other, "fedcba9876543210").unwrap();
    let wrong = ["--http-token-file", other.to_str().unwrap()];
    assert_refused(&[&["job", "checkpoint"], &place[..], &wrong].concat(), 1, &["token"]);

    let mut stream = Stream::start(&place);
    stream.standby();
    assert!(done(&["migrate", "switch", "0"]).contains("switch 0"));
    stream.event("switch 1: standby -> active");
    assert!(done(&["abort", "--reason", "it was enough"]).len() > 1);
    let (code, last) = controller.end();
    assert_eq!(code, Some(1), "{last}");
    assert!(last.contains("it was enough"), "{last}");
    let mut top = stream.end();
    top.kill().unwrap();
    top.wait().unwrap();
    for member in members {
        member.end();
    }
}

/// Answer to a command that goes to the controller without `libra job`: its code and its text.
fn post(controller: &str, command: &str, body: &Value) -> (u16, String) {
    let http = find_http(controller.parse().unwrap(), &Security::NONE, DEADLINE).unwrap().unwrap();
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.post(format!("http://{http}/v1/{command}"));
    let request = request.header("Authorization", format!("Bearer {TOKEN}"));
    let mut answer = request.send(body.to_string().as_bytes()).unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

#[test]
fn a_job_goes_on_after_a_checkpoint_and_a_drain() {
    let directory = TempDir::new().unwrap();
    let (data, token) = (tiny_data(directory.path()), token_file(directory.path()));
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (state, report) = (path("state"), path("report.json"));
    let options = ["--epochs", "200", "--batch", "64", "--sample", "1", "--factors", "4", "--log"];
    let watched = ["--data", &data, "--http-token-file", &token, "--json", &report];
    let (controller, address) = controller(&[&watched[..], &options].concat());
    let start =
        |kind: &str, more: &[&str]| Member::start(&[&[kind, "--controller", &address], more].concat());
    let drained = start("switch", &[]);
    let mut others: Vec<_> = (0..2).map(|_| start("worker", &[])).collect();
    let server = ["--state-dir", &state, "--shards-per-server", "1"];
    others.extend((0..2).map(|_| start("server", &server)));
    controller.line_with("training begins");
    others.push(start("switch", &[]));
    controller.line_with("joined");
    let place = ["--controller", &address];
    let command =
        |words: &[&str]| stdout_of(&[&["job"], words, &place, &["--http-token-file", &token]].concat());
    let status = |is_so: &dyn Fn(&Value) -> bool| {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let text = stdout_of(&[&["job", "status", "--json"], &place[..]].concat());
            let status: Value = serde_json::from_str(&text).unwrap();
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:#}");
        }
    };

    assert_eq!(status(&|_| true)["checkpoints"]["written"], 0);
    assert_eq!(command(&["checkpoint"]), "all servers write a checkpoint\n");
    let found = status(&|status| status["checkpoints"]["written"] == 1);
    let newest = found["checkpoints"]["newest"].as_u64().unwrap();
    assert!(complete(&state, directory.path()).contains(&newest), "{found:#}");
    assert!(run(&["checkpoint", "verify", &state, "--quiet"]).status.success());
    let text = stdout_of(&[&["job", "status"], &place[..]].concat());
    assert!(text.contains("written when asked for") && text.contains(" ago"), "{text}");

    let (code, text) = post(&address, "drain", &json!({ "member": "switch 9" }));
    assert_eq!(code, 404, "{text}");
    for member in ["switch 0", "switch 1", "worker 1", "server 0"] {
        assert!(text.contains(member), "{member} is not in {text}");
    }
    let regions = |status: &Value, switch: &str| {
        let members = status["members"].as_array().unwrap();
        let member = members.iter().find(|member| member["member"] == switch);
        member.map(|member| member["regions"].as_u64().unwrap())
    };
    let held = regions(&status(&|_| true), "switch 0");
    assert!(held > Some(0), "{held:?}");
    assert_eq!(command(&["drain", "switch", "0"]), "switch 0 is asked to end in order\n");
    let (code, last) = drained.end();
    assert_eq!(code, Some(75), "{last}");
    let after = status(&|status| regions(status, "switch 1") == held);
    assert_eq!(after["lost"]["switches"], 0, "it was not given up: {after:#}");
    let (code, last) = controller.end();
    assert_eq!(code, Some(0), "{last}");
    for member in others {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
    let loss = document(Path::new(&report))["quality"]["loss"].as_f64().unwrap();
    assert!(loss < 0.1, "{loss}");
}

#[test]
fn train_has_the_metrics_of_all_its_members() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let options = ["--epochs", "1000000", "--sample", "1", "--factors", "4", "--http", "127.0.0.1:0"];
    let train = Member::start(&[&["train", "--data", &data], &options[..]].concat());
    let line = train.line_with("metrics and status at http://");
    let address = line.split("http://").nth(1).unwrap().trim();
    let wanted = [
        "libra_controller_progress_ratio{} ",
        "libra_worker_pushes_total{member=\"worker 1\"} ",
        "libra_server_rows{member=\"server 0\"} ",
        "libra_switch_received_total{member=\"switch 0\"} ",
        "libra_member_info{member=\"server 1\",libra_job=",
    ];
    let deadline = Instant::now() + DEADLINE;
    loop {
        let mut answer = ureq::get(format!("http://{address}/metrics")).call().unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        if wanted.iter().all(|wanted| text.contains(wanted)) {
            let helps: Vec<_> = text.lines().filter(|line| line.starts_with("# HELP libra_view ")).collect();
            assert_eq!(helps.len(), 1, "each family comes once: {text}");
            break;
        }
        assert!(Instant::now() < deadline, "{text}");
    }
}

#[test]
fn a_killed_switch_and_its_take_over_are_seen_within_a_second() {
    let directory = TempDir::new().unwrap();
    let (controller, address, mut members) = watched_job(directory.path());
    let mut stream = Stream::start(&["--controller", &address]);
    stream.standby();
    members.remove(2).signal("-KILL");
    let killed = Instant::now();
    stream.event("switch 1: standby -> active");
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    controller.signal("-KILL");
    stream.event("the controller does not answer");
    let mut top = stream.end();
    top.kill().unwrap();
    top.wait().unwrap();
    for member in members {
        member.signal("-KILL");
        member.end();
    }
}

#[test]
fn top_ends_with_its_terminal_as_it_was() {
    let (address, _requests) = serve(|look| (200, status(look)));
    for (keys, signal) in [(Some("q"), None), (Some("\u{3}"), None), (None, Some("-TERM"))] {
        let (code, output) = on_a_terminal(&["top", "--http", &address], keys, signal);
        assert_eq!(code, Some(0), "{output:?}");
        let (entered, left) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
        let places = (output.find(entered), output.rfind(left));
        assert!(
            matches!(places, (Some(entered), Some(left)) if entered < left),
            "{keys:?} {signal:?} {output:?}"
        );
    }
}

/// Runs a command on a terminal of 80 by 24 (script(1)), until keys or a signal end it once it shows columns. Returns the exit code and
/// all that it wrote.
fn on_a_terminal(arguments: &[&str], keys: Option<&str>, signal: Option<&str>) -> (Option<i32>, String) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("id");
    let command = [&[crate::PROGRAM], arguments].concat().join(" ");
    let command = format!("stty rows 24 cols 80; echo $$ > {}; exec {command}", file.display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().unwrap();
    let (mut stdin, mut stdout) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let (sender, written) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut output = Vec::new();
    // Blanks are cells that do not change, and are not written.
    while !String::from_utf8_lossy(&output).contains("samples/s") {
        let bytes = written.recv_timeout(DEADLINE);
        output.extend(bytes.unwrap_or_else(|_| panic!("no screen: {}", String::from_utf8_lossy(&output))));
    }
    match (keys, signal) {
        (Some(keys), _) => stdin.write_all(keys.as_bytes()).unwrap(),
        (None, signal) => {
            let id = fs::read_to_string(&file).unwrap();
            let kill = Command::new("kill").args([signal.unwrap(), id.trim()]).status();
            assert!(kill.unwrap().success());
        }
    }
    while let Ok(bytes) = written.recv_timeout(DEADLINE) {
        output.extend(bytes);
    }
    (script.wait().unwrap().code(), String::from_utf8_lossy(&output).into_owned())
}
