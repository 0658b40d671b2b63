//! Checkpoints at URLs: uploaded by jobs, read by jobs and tools.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::durability::{complete, export, train};
use crate::process::{DEADLINE, Member, Place, assert_refused, controller, libra, run};

impl Place {
    fn url(&self) -> String {
        format!("file://{}", self.path("bucket/run"))
    }

    fn train(&self, state: &str, more: &[&str]) {
        let state = self.path(state);
        let output = run(&train(&self.data, &state, more));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn complete(&self, place: &str) -> Vec<u64> {
        complete(place, self.directory.path())
    }

    fn export(&self, place: &str, number: u64, to: &str) -> std::collections::BTreeMap<String, Vec<u8>> {
        export(place, &number.to_string(), Path::new(&self.path(to)))
    }
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_job_goes_on_by_url_with_other_numbers_of_servers() {
    let place = Place::of(60);
    let url = place.url();
    let every = ["--checkpoints", &url, "--checkpoint-every", "0.2", "--incremental-checkpoints", "2"];
    place.train("first", &[&every[..], &["--epochs", "12", "--servers", "3"]].concat());
    let numbers = place.complete(&url);
    let newest = numbers[0];
    assert_eq!(place.complete(&place.path("first"))[0], newest, "the last one is there");
    assert!(run(&["checkpoint", "verify", &url, "--quiet"]).status.success());
    assert!(run(&["checkpoint", "inspect", &url, "--key", "3", "--quiet"]).status.success());
    let files = place.export(&url, newest, "export-url");
    assert_eq!(files, place.export(&place.path("first"), newest, "export-first"));
    // Another job has no business there, and is told whose it is.
    let second = train(&place.data, "unused", &["--epochs", "1", "--checkpoints", &url]);
    assert_refused(
        &second,
        1,
        &["has the checkpoints of another job, of process", " min ago", "--restore-from file://"],
    );
    for (before, servers) in [("3", "2"), ("2", "5")] {
        let state = place.path(servers);
        let restore = format!("{url}@{}", place.complete(&url)[0]);
        let first = place.export(&url, place.complete(&url)[0], &format!("export-{before}"));
        place.train(
            servers,
            &["--epochs", "1", "--servers", servers, "--restore-from", &restore, "--checkpoints", &url],
        );
        // Its own first checkpoint has the rows that it read, before any training.
        let own = place.complete(&state);
        assert_eq!(first, place.export(&state, *own.last().unwrap(), &format!("own-{servers}")));
        assert!(place.complete(&url)[0] > *own.last().unwrap(), "numbers go on");
    }
    let all = place.complete(&url);
    let pruned = run(&["checkpoint", "prune", &url, "--keep-checkpoints", "1"]);
    assert!(String::from_utf8_lossy(&pruned.stdout).contains(&format!("kept {}", all[0])));
    assert_eq!(place.complete(&url), all[..1]);
    assert!(run(&["checkpoint", "verify", &url, "--quiet"]).status.success());
    assert!(!Path::new(&place.path(&format!("bucket/run/shard-0/checkpoint-{}", all[1]))).exists());
}

#[test]
fn steps_after_a_checkpoint_are_equal_on_any_servers() {
    for optimizer in ["sgd:lr=0.05", "adam"] {
        let place = Place::of(60);
        let url = place.url();
        let every = ["--checkpoints", &url, "--checkpoint-every", "0.2", "--incremental-checkpoints", "2"];
        let job = ["--epochs", "4", "--servers", "3", "--workers", "1", "--optimizer", optimizer];
        place.train("first", &[&every[..], &job].concat());
        let number = place.complete(&url)[0];
        let restore = format!("{url}@{number}");
        // 100 steps and more: 25 in an epoch.
        let steps = ["--epochs", "5", "--workers", "1", "--mode", "sync"];
        let exported = |servers: &str| {
            let state = format!("{optimizer}-{servers}");
            let own = ["--servers", servers, "--optimizer", optimizer, "--restore-from", &restore];
            place.train(&state, &[&steps[..], &own].concat());
            let state = place.path(&state);
            let newest = place.complete(&state)[0];
            place.export(&state, newest, &format!("export-{optimizer}-{servers}"))
        };
        let three = exported("3");
        assert_ne!(three, place.export(&url, number, "before"), "nothing was trained");
        for servers in ["2", "5"] {
            assert_eq!(three, exported(servers), "{optimizer}, {servers} servers");
        }
    }
}

#[test]
fn damage_at_a_url_is_named_and_the_one_before_is_taken() {
    let place = Place::of(60);
    let url = place.url();
    place.train("first", &["--epochs", "12", "--checkpoints", &url, "--checkpoint-every", "0.2"]);
    let numbers = place.complete(&url);
    let (newest, before) = (numbers[0], numbers[1]);
    let damaged = format!("shard-1/checkpoint-{newest}/table-1-item-rows-00000.safetensors");
    let path = place.directory.path().join("bucket/run").join(&damaged);
    flip(&path);
    assert_refused(&["checkpoint", "verify", &url], 1, &[&damaged, "is damaged"]);
    let restore = |from: &str, state: &str| {
        let state = place.path(state);
        run(&train(&place.data, &state, &["--epochs", "1", "--restore-from", from]))
    };
    let output = restore(&url, "second");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains(&format!("checkpoint {newest} of {url} is passed over: ")), "{stderr}");
    assert!(stderr.contains(&damaged), "{stderr}");
    let loaded = place.export(&place.path("second"), 1, "loaded");
    assert_eq!(loaded, place.export(&url, before, "before"));
    // One that was asked for is not replaced by another.
    let output = restore(&format!("{url}@{newest}"), "third");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("table-1-item-rows-00000"));
    fs::remove_file(&path).unwrap();
    assert_refused(&["checkpoint", "export", &url, &newest.to_string(), "--to", "none"], 1, &["is missing"]);
    flip(&place.directory.path().join(format!("bucket/run/job-{newest}.json")));
    assert_refused(&["checkpoint", "verify", &url], 1, &[&format!("job-{newest}.json is damaged")]);
}

#[test]
fn urls_without_a_store_or_with_a_secret_are_refused() {
    for (url, words) in [
        ("/tmp/run", "a directory is file:///DIR"),
        ("ftp://host/run", "the schemes are file, s3, gs, az, http and https"),
        ("s3://key:geheim@b/run", "s3://b/run: credentials belong into the environment"),
        ("s3://b/run?X-Amz-Signature=geheim", "give the URL of a directory"),
    ] {
        let job = ["train", "--state-dir", "unused", "--checkpoints", url];
        assert_refused(&job, 1, &["--checkpoints", words]);
        if url.contains("://") {
            assert_refused(&["checkpoint", "list", url], 1, &[words]);
            for option in ["--restore-from", "--resume"] {
                let job = ["train", "--state-dir", "unused", option, url];
                let output = run(&job);
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(!error.contains("geheim"), "{error}");
                assert_refused(&job, 1, &[option, words]);
            }
        }
    }
    assert_refused(&["train", "--log", "--checkpoints", "file:///x"], 1, &["--log", "need --state-dir"]);
    assert_refused(&["checkpoint", "list", "file:///none"], 1, &["has no checkpoint"]);
}

#[test]
fn checkpoints_at_a_url_alone_leave_no_directory() {
    let place = Place::of(60);
    let (url, temporary) = (place.url(), place.path("temporary"));
    fs::create_dir(&temporary).unwrap();
    let job = ["train", "--data", &place.data, "--batch", "64", "--sample", "1", "--factors", "4", "--quiet"];
    let run = |more: &[&str]| {
        let mut command = libra(&[&job[..], more].concat());
        let output = command.env("TMPDIR", &temporary).current_dir(place.directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["--epochs", "1", "--checkpoints", &url]);
    let first = place.complete(&url)[0];
    run(&["--epochs", "2", "--checkpoints", &url, "--resume", &url, "--state-dir", "none"]);
    assert!(place.complete(&url)[0] > first);
    assert!(!Path::new(&place.path("none")).exists());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "it is removed at the end");
}

#[test]
fn servers_without_a_state_directory_upload_checkpoints() {
    let place = Place::of(60);
    let url = place.url();
    let data = ["--data", &place.data, "--batch", "64", "--sample", "1", "--factors", "4"];
    let sizes = ["--epochs", "1", "--switches", "0", "--workers", "1", "--checkpoints", &url];
    let (job, address) = controller(&[&data[..], &sizes].concat());
    let server = |more: &[&str]| Member::start(&[&["server", "--controller", &address][..], more].concat());
    let members = [
        server(&["--shards-per-server", "2"]),
        server(&["--shards-per-server", "1", "--state-dir", "none"]),
        Member::start(&["worker", "--controller", &address]),
    ];
    for member in members {
        assert_eq!(member.end().0, Some(0));
    }
    assert_eq!(job.end().0, Some(0));
    assert!(run(&["checkpoint", "verify", &url, "--quiet"]).status.success());
}

/// Starts a job that uploads, with members in processes of their own: servers of two shards, and a worker.
fn start(place: &Place, epochs: &str, every: &str) -> (Member, Vec<Member>) {
    let url = place.url();
    let data = ["--data", &place.data, "--batch", "64", "--sample", "1", "--factors", "4"];
    let sizes = ["--epochs", epochs, "--switches", "0", "--workers", "1"];
    let upload = ["--checkpoints", &url, "--checkpoint-every", every];
    let (job, address) = controller(&[&data[..], &sizes, &upload].concat());
    let server = |state: &str| {
        let state = place.path(state);
        let shards = ["--shards-per-server", "2", "--state-dir", &state];
        Member::start(&[&["server", "--controller", &address][..], &shards].concat())
    };
    let members = vec![server("a"), server("b"), Member::start(&["worker", "--controller", &address])];
    (job, members)
}

#[test]
fn a_controller_commits_the_last_checkpoint_of_its_servers() {
    let place = Place::of(60);
    let (job, members) = start(&place, "6", "0.3");
    for member in members {
        assert_eq!(member.end().0, Some(0));
    }
    let (code, lines) = job.end_with_lines();
    assert_eq!(code, Some(0), "{lines:?}");
    let url = place.url();
    let last = format!("checkpoint {}, the last, is at {url}", place.complete(&url)[0]);
    assert!(lines.contains(&last), "{lines:?}");
    assert!(run(&["checkpoint", "verify", &url, "--quiet"]).status.success());
}

#[test]
fn a_place_that_is_gone_for_a_time_does_not_end_the_job() {
    let place = Place::of(60);
    let (job, members) = start(&place, "150", "0.3");
    job.line_with(" is there, after");
    let (root, away) = (place.path("bucket/run"), place.path("bucket/away"));
    fs::rename(&root, &away).unwrap();
    // So that no server makes it again.
    fs::write(&root, "").unwrap();
    let failed = job.line_with("nothing came of checkpoint");
    assert!(failed.contains(&root), "{failed}");
    fs::remove_file(&root).unwrap();
    fs::rename(&away, &root).unwrap();
    job.line_with(" is there, after");
    for member in members {
        assert_eq!(member.end().0, Some(0));
    }
    assert_eq!(job.end().0, Some(0));
    assert!(run(&["checkpoint", "verify", &place.url(), "--quiet"]).status.success());
}

/// A server of S3 for tests.
pub(crate) struct Moto {
    process: Child,
    port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    /// `None` if the machine has none.
    pub(crate) fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("moto_server");
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let mut moto = Self { process, port };
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            // A wrapper without the program behind it ends at once.
            if moto.process.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < deadline, "moto_server does not listen");
            thread::sleep(Duration::from_millis(100));
        }
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request =
            "PUT /models HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains(" 200 "), "{answer}");
        Some(moto)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = libra(arguments);
        command
            .env("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "geheim");
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn a_job_goes_on_from_a_bucket_of_s3() {
    let Some(moto) = Moto::start() else {
        eprintln!("SKIPPED: there is no moto_server: pip install 'moto[server]'");
        return;
    };
    let place = Place::of(60);
    let [first, second] = ["first", "second"].map(|name| place.path(name));
    let url = "s3://models/run";
    let every = ["--checkpoints", url, "--checkpoint-every", "0.2", "--incremental-checkpoints", "2"];
    let (done, text) =
        moto.run(&train(&place.data, &first, &[&every[..], &["--epochs", "6", "--servers", "3"]].concat()));
    assert!(done && !text.contains("geheim"), "{text}");
    let (done, text) = moto.run(&["checkpoint", "verify", url]);
    assert!(done && text.contains("all of it is as it was written"), "{text}");
    let (done, text) = moto.run(&train(
        &place.data,
        &second,
        &["--epochs", "1", "--servers", "2", "--restore-from", url, "--checkpoints", url],
    ));
    assert!(done, "{text}");
    let json = place.path("list.json");
    let (done, text) = moto.run(&["checkpoint", "prune", url, "--keep-checkpoints", "1", "--json", &json]);
    assert!(done, "{text}");
    let pruned: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(pruned["removed"].as_array().unwrap().len() > 5, "{pruned}");
    let newest = pruned["kept"][0].as_u64().unwrap();
    let to = place.path("export");
    let (done, text) = moto.run(&["checkpoint", "export", url, "--to", &to, "--quiet"]);
    assert!(done, "{text}");
    let exported = fs::read(Path::new(&to).join("0-user.safetensors")).unwrap();
    assert_eq!(exported, place.export(&second, newest, "own")["0-user.safetensors"]);
    let bad = train(&place.data, "unused", &["--epochs", "1", "--checkpoints", "s3://absent/run"]);
    let (done, text) = moto.run(&bad);
    assert!(!done && text.contains("there is no such bucket"), "{text}");
}
