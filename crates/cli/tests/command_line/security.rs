//! Clusters that need a token.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Member, assert_refused, libra, run, tiny_data};

const TOKEN: &str = "LIBRA_TOKEN";

fn new_token() -> String {
    let output = run(&["token"]);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn with_token(arguments: &[&str], token: &str) -> Command {
    let mut command = libra(arguments);
    command.env(TOKEN, token);
    command
}

/// Starts a controller that needs a token; returns it and where it listens.
fn controller(token: &str, arguments: &[&str]) -> (Member, String) {
    let mut all = vec!["controller", "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    let member = Member::spawn(&mut with_token(&all, token));
    let line = member.line_with("waiting for");
    let address = line.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:")).unwrap().to_owned();
    (member, address)
}

#[test]
fn a_cluster_with_a_token_trains_and_strangers_do_not() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let (token, other) = (new_token(), new_token());
    let json = directory.path().join("report.json");
    let job = ["--data", &data, "--epochs", "1", "--factors", "4", "--json", json.to_str().unwrap()];
    let (controller, address) = controller(&token, &job);

    let refused = |command: &mut Command, words: &str| {
        let (code, line) = Member::spawn(command).end();
        assert_eq!(code, Some(1), "{line}");
        assert!(line.starts_with("libra: ") && line.contains(words), "{line}");
        assert!(!line.contains(&token) && !line.contains(&other), "{line}");
    };
    for kind in ["worker", "server", "switch"] {
        refused(&mut with_token(&[kind, "--controller", &address], &other), "it has another token");
    }
    controller.line_with("it has another token, and refuses that of this end");
    refused(&mut libra(&["worker", "--controller", &address]), "it speaks TLS, and this end has no token");

    let file = directory.path().join("token");
    fs::write(&file, &token).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut members = Vec::new();
    for kind in ["worker", "server", "worker", "server"] {
        let mut command = with_token(&[kind, "--controller", &address], &token);
        members.push(Member::spawn(command.env("LIBRA_DIAGNOSTICS", "trace")));
    }
    let by_file = ["switch", "--controller", &address, "--token-file", file.to_str().unwrap()];
    members.push(Member::start(&by_file));
    let ids: Vec<u32> = members.iter().chain([&controller]).map(Member::id).collect();
    members[0].line_with("the cluster is complete");
    for id in ids {
        for shown in ["environ", "cmdline"] {
            // A process that has ended shows nothing.
            let text = fs::read(format!("/proc/{id}/{shown}")).unwrap_or_default();
            assert!(!contains(&text, &token), "{shown}: {}", String::from_utf8_lossy(&text));
        }
    }
    for member in members {
        let (code, lines) = member.end_with_lines();
        assert_eq!(code, Some(0), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains(&token)), "{lines:?}");
    }
    let (code, lines) = controller.end_with_lines();
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(&token)), "{lines:?}");
    assert!(!contains(&fs::read(&json).unwrap(), &token));
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_server_that_is_killed_goes_on_with_the_same_token() {
    let directory = TempDir::new().unwrap();
    let data = tiny_data(directory.path());
    let token = new_token();
    let job =
        ["--data", &data, "--epochs", "300", "--factors", "4", "--servers", "1", "--switches", "0", "--log"];
    let (controller, address) = controller(&token, &job);
    let state = directory.path().join("state");
    let server = [
        "server",
        "--controller",
        &address,
        "--state-dir",
        state.to_str().unwrap(),
        "--shards-per-server",
        "2",
    ];
    let first = Member::spawn(&mut with_token(&server, &token));
    let workers: Vec<Member> = (0..2)
        .map(|_| Member::spawn(&mut with_token(&["worker", "--controller", &address], &token)))
        .collect();
    controller.line_with("training begins");
    first.signal("-KILL");
    controller.line_with("is away");
    let second = Member::spawn(&mut with_token(&server, &token));
    controller.line_with("is back");
    for member in workers.into_iter().chain([second, controller]) {
        let (code, lines) = member.end_with_lines();
        assert_eq!(code, Some(0), "{lines:?}");
    }
    let mut found = Vec::new();
    files(&state, &mut found);
    assert!(!found.is_empty());
    assert!(found.iter().all(|file| !contains(&fs::read(file).unwrap(), &token)));
}

fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn wrong_tokens_and_files_get_one_clear_line() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let worker = |options: &[&str], words: &[&str]| {
        assert_refused(&[&["worker", "--controller", "127.0.0.1:1"], options].concat(), 1, words);
    };
    worker(&["--token-file", &path("nowhere")], &["cannot read the token", "nowhere"]);
    assert!(run(&["token", "--out", &path("token")]).status.success());
    assert_refused(&["token", "--out", &path("token")], 1, &["cannot write", "exists"]);
    let mode = |mode| fs::set_permissions(path("token"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    worker(&["--token-file", &path("token")], &["others may read", "chmod 600"]);
    mode(0o600);
    fs::write(path("token"), "libra1_abc").unwrap();
    worker(&["--token-file", &path("token")], &["has no token", "36 characters"]);
    let files = ["--tls-ca", &path("ca.pem"), "--tls-cert", &path("c.pem"), "--tls-key", &path("k.pem")];
    worker(&files, &["cannot read a certificate", "ca.pem"]);
    assert_refused(&["worker", "--tls-ca", "ca.pem"], 2, &["required arguments"]);
    assert_refused(&["worker", "--insecure", "--token-file", "t"], 2, &["--insecure", "--token-file"]);
    // An address of no machine: it is refused before it is called.
    assert_refused(
        &["server", "--controller", "192.0.2.1:7700"],
        1,
        &["192.0.2.1:7700", "LIBRA_TOKEN", "--token-file", "--insecure"],
    );
    let (code, line) = Member::spawn(&mut with_token(&["worker"], "libra1_secret")).end();
    assert_eq!(code, Some(1));
    assert!(
        line.contains("LIBRA_TOKEN: a token is libra1_ and 36 characters") && !line.contains("secret"),
        "{line}"
    );
}
