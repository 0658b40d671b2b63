//! Programs in C and C++, compiled against the headers and run as real processes. Without compilers it reports loudly that it was skipped.
#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

mod cluster;
mod hot;
#[path = "../../../cli/tests/command_line/program.rs"]
mod program;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Cluster, TIMEOUT, TOKEN, WARNINGS, command, compile, is_there, root, run};

#[test]
fn headers_compile_as_every_standard_since_11_without_a_warning() {
    for compiler in ["g++", "clang++"] {
        let source = "tests/programs/headers.cc";
        for standard in ["-std=c++14", "-std=c++17", "-std=c++20"] {
            if !is_there(compiler, source) {
                continue;
            }
            let mut check = Command::new(compiler);
            check.args(WARNINGS).args([standard, "-fsyntax-only", "-I"]).arg(root().join("include"));
            let output = check.arg(root().join(source)).output().unwrap();
            assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let Some(program) = compile(compiler, source, &["-std=c++11"]) else { continue };
        let output = command(program).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn examples_are_clean_under_sanitizers() {
    let options = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("empty.c"), directory.path().join("empty"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    for compiler in ["cc", "c++"] {
        if !is_there(compiler, "the examples") {
            return;
        }
        let language = if compiler == "cc" { "c" } else { "c++" };
        let mut check = Command::new(compiler);
        check.args(options).args(["-x", language]).arg(&source).arg("-o").arg(&program);
        if !check.output().unwrap().status.success() {
            eprintln!("!! SKIPPED: {compiler} has no sanitizers");
            return;
        }
    }
    let Some(c) = compile("cc", "examples/sums.c", &[&["-std=c11"][..], &options].concat()) else { return };
    let Some(cpp) = compile("c++", "examples/sums.cc", &[&["-std=c++11"][..], &options].concat()) else {
        return;
    };
    for program in [c, cpp] {
        run(&program, 2, 2, &[], &[("PS_DROP_MSG", "5")]);
    }
}

#[test]
fn examples_are_clean_under_valgrind() {
    let mut check = Command::new("valgrind");
    check.args(["--quiet", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !check.status().is_ok_and(|status| status.success()) {
        eprintln!("!! SKIPPED: there is no valgrind that runs");
        return;
    }
    let Some(c) = compile("cc", "examples/sums.c", &["-std=c11", "-g"]) else { return };
    let Some(cpp) = compile("c++", "examples/sums.cc", &["-std=c++11", "-g"]) else { return };
    for program in [c, cpp] {
        let arguments =
            ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
        let arguments = [&arguments[..], &[program.to_str().unwrap()]].concat();
        run(Path::new("valgrind"), 1, 2, &arguments, &[]);
    }
}

#[test]
fn a_program_in_c_has_the_library_sum() {
    let Some(program) = compile("cc", "examples/sums.c", &["-std=c11"]) else { return };
    for variables in [&[][..], &[("PS_DROP_MSG", "20")], &[("LIBRA_TOKEN", TOKEN)]] {
        let printed = run(&program, 2, 3, &[], variables);
        assert_eq!(printed.matches("every sum is 30").count(), 3, "{printed}");
    }
}

#[test]
fn a_program_in_cpp_has_a_handler_of_its_own() {
    let Some(program) = compile("c++", "examples/sums.cc", &["-std=c++11"]) else { return };
    for variables in [&[][..], &[("PS_DROP_MSG", "20")], &[("PS_DROP_MSG", "10"), ("LIBRA_TOKEN", TOKEN)]] {
        let printed = run(&program, 3, 2, &[], variables);
        assert_eq!(printed.matches("every weight is -10").count(), 2, "{printed}");
    }
}

#[test]
fn the_sparse_benchmark_runs() {
    let Some(program) = compile("c++", "examples/sparse_benchmark.cc", &["-std=c++11", "-O1"]) else {
        return;
    };
    let printed = run(&program, 2, 2, &["20000", "500", "0.2"], &[]);
    assert_eq!(printed.matches("M pairs/s").count(), 8, "{printed}");
}

#[test]
fn the_limit_of_the_sparse_benchmark_runs() {
    let Some(program) = compile("c++", "examples/sparse_limit.cc", &["-std=c++17", "-O1"]) else {
        return;
    };
    // An odd number of values is padded.
    for hashed in ["0", "1"] {
        let output = Command::new(&program).args(["2", "20000", "499", "0.2", "8", hashed]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{printed}");
        assert_eq!(printed.matches("M pairs/s").count(), 8, "{printed}");
    }
}

#[test]
fn pulls_see_all_pushes_before_them_whatever_is_dropped() {
    let Some(program) = compile("c++", "tests/programs/waits.cc", &["-std=c++14"]) else { return };
    run(&program, 2, 2, &["order"], &[]);
    run(&program, 2, 2, &["order"], &[("PS_DROP_MSG", "10"), ("LIBRA_DROP_SEED", "7")]);
}

#[test]
fn requests_wait_for_handlers_that_are_set_late() {
    let Some(program) = compile("c++", "tests/programs/waits.cc", &["-std=c++14"]) else { return };
    run(&program, 2, 2, &["late"], &[]);
}

#[test]
fn a_failed_request_is_reported_to_its_wait_and_ends_nothing() {
    let Some(program) = compile("c++", "tests/programs/waits.cc", &["-std=c++14"]) else { return };
    run(&program, 2, 2, &["refused"], &[]);
}

/// Kills one process and compares the output of the others.
fn kill_one(how: &str, dead: &'static str, expected: &str, variables: &[(&str, &str)]) {
    let Some(program) = compile("c++", "tests/programs/waits.cc", &["-std=c++14"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path();
    let mut cluster = Cluster::start(&program, 2, 2, &[how, pids.to_str().unwrap()], variables);
    let deadline = Instant::now() + TIMEOUT;
    let is_complete = || {
        let files = fs::read_dir(pids).unwrap().map(|file| file.unwrap().file_name());
        files.filter(|name| !name.to_string_lossy().ends_with(".part")).count() == 5
    };
    while !is_complete() {
        if Instant::now() > deadline
            || cluster.processes.values_mut().any(|child| child.try_wait().unwrap().is_some())
        {
            cluster.processes.values_mut().for_each(|child| drop(child.kill()));
            panic!("not all have begun: {:?}", cluster.finish());
        }
        thread::sleep(Duration::from_millis(5));
    }
    // No process shows the token to those that may read its environment.
    for child in cluster.processes.values() {
        let shown = fs::read(format!("/proc/{}/environ", child.id())).unwrap();
        assert!(!shown.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes()), "{how} {dead}");
    }
    let pid: u32 = fs::read_to_string(pids.join(dead)).unwrap().trim().parse().unwrap();
    let (who, mut killed_process) = {
        let found = cluster.processes.iter().find(|(_, child)| child.id() == pid).map(|(who, _)| *who);
        let who = found.expect("it is one of ours");
        (who, cluster.processes.remove(&who).unwrap())
    };
    killed_process.kill().unwrap();
    killed_process.wait().unwrap();
    let killed = Instant::now();
    let ended = cluster.finish();
    // No process waits for a silence to be long enough; the rest is for busy machines.
    assert!(killed.elapsed() < Duration::from_secs(60), "it took {:?} until all ended", killed.elapsed());
    for (other, output) in ended {
        let (said, printed) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        let status = output.status;
        assert_eq!(status.code(), Some(3), "{other:?} after {who:?} was killed ended with {status}: {said}");
        assert!(printed.contains(expected), "{other:?} after {who:?} was killed: {printed}");
    }
}

#[test]
fn a_server_that_is_killed_ends_every_wait_and_is_named() {
    for token in ["", TOKEN] {
        kill_one("death", "server1", "server 1 (node 10) at 127.", &[("LIBRA_TOKEN", token)]);
    }
}

#[test]
fn a_worker_that_is_killed_ends_every_wait_and_is_named() {
    kill_one("death", "worker0", "worker 0 (node 9) at 127.", &[]);
}

#[test]
fn a_scheduler_that_is_killed_ends_every_wait_and_is_named() {
    kill_one("death", "scheduler0", "the scheduler at 127.", &[]);
}

#[test]
fn a_message_to_a_dead_process_does_not_end_its_sender() {
    kill_one("deferred", "worker0", "worker 0 (node 9) at 127.", &[]);
    kill_one("deferred", "server1", "server 1 (node 10) at 127.", &[]);
}

#[test]
fn a_wait_inside_its_own_callback_is_an_error() {
    kill_one("callback", "server0", "server 0 (node 8) at 127.", &[]);
}
