//! Options in the environment, of the real processes.

use std::fs;
use std::process::Output;

use tempfile::TempDir;

use crate::process::libra;

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    libra(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn options_are_typed_or_in_the_environment_or_in_a_file() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("options.toml");
    fs::write(&file, "controller = \"127.0.0.1:1\"\npatience = 1\nquiet = true\n").unwrap();
    let in_file = ["worker", "--config", file.to_str().unwrap()];
    let called = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = run(arguments, variables);
        assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
        stderr(&output)
    };
    let of_file = called(&in_file, &[]);
    assert!(of_file.contains("127.0.0.1:1:") && of_file.contains("tried for 1.0 s"), "{of_file}");
    let variables = [("LIBRA_CONTROLLER", "127.0.0.1:2"), ("LIBRA_PATIENCE", "2")];
    let of_environment = called(&in_file, &variables);
    assert!(of_environment.contains("127.0.0.1:2:"), "{of_environment}");
    assert!(of_environment.contains("tried for 2.0 s"), "{of_environment}");
    let typed = called(&[&in_file[..], &["--controller", "127.0.0.1:3"]].concat(), &variables);
    assert!(typed.contains("127.0.0.1:3:") && typed.contains("tried for 2.0 s"), "{typed}");
}

#[test]
fn a_bad_variable_is_named_and_a_secret_is_never_shown() {
    let output = run(&["server"], &[("LIBRA_CONTROLLER", "nowhere")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'nowhere' for 'LIBRA_CONTROLLER'"), "{}", stderr(&output));
    let output = run(&["server"], &[("LIBRA_QUIET", "maybe")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("LIBRA_QUIET"), "{}", stderr(&output));
    let secret = "libra1_secret";
    for arguments in [&["server", "--help"][..], &["server", "--patience", "x"], &["server"]] {
        let output = run(arguments, &[("LIBRA_TOKEN", secret)]);
        let text = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn a_bad_line_of_a_file_is_named() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("options.toml");
    for (line, code, complaint) in [
        ("epochs = \"ten\"", 2, ": epochs'"),
        ("mode = \"fast\"", 2, ": mode'"),
        ("quiet = 3", 2, ": quiet'"),
        ("bogus = 2", 1, ": `controller` has no option `bogus`"),
        ("\"bo gus\" = 2", 1, ": `controller` has no option `bo gus`"),
        ("epochs = [1]", 1, ": epochs = [1] must be a text, a number, true or false"),
        ("[server]", 1, ": `controller` has no option `server`"),
    ] {
        fs::write(&file, format!("seed = 1\n\n{line}\n")).unwrap();
        let output = run(&["controller", "--config", file.to_str().unwrap()], &[]);
        let (text, complaint) = (stderr(&output), format!("options.toml, line 3{complaint}"));
        assert!(text.contains(&complaint), "{line}: {text}");
        assert_eq!(output.status.code(), Some(code), "{text}");
    }
}

#[test]
fn diagnostics_are_printed_for_who_asks() {
    let worker = ["worker", "--controller", "127.0.0.1:1", "--patience", "1", "--quiet"];
    let lines = |variables: &[(&str, &str)]| {
        let output = run(&worker, variables);
        assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
        stderr(&output)
    };
    let silent = lines(&[]);
    assert_eq!(silent.lines().count(), 1, "{silent}");
    let debug = ("LIBRA_DIAGNOSTICS", "libra_net=debug");
    let text = lines(&[debug]);
    let call = text.lines().find(|line| line.contains("a call has failed")).unwrap_or_default();
    assert!(call.contains("DEBUG worker-network") && call.contains("endpoint=127.0.0.1:1"), "{text}");
    let json = lines(&[debug, ("LIBRA_DIAGNOSTICS_FORMAT", "json")]);
    let call = json.lines().find(|line| line.contains("a call has failed")).unwrap_or_default();
    let call: serde_json::Value = serde_json::from_str(call).unwrap();
    assert_eq!(call["fields"]["endpoint"], "127.0.0.1:1");
    assert_eq!(lines(&[("LIBRA_DIAGNOSTICS", "libra_storage=trace")]).lines().count(), 1);
    for (variables, named) in [
        (vec![("LIBRA_DIAGNOSTICS", "libra_net=loud")], "LIBRA_DIAGNOSTICS = libra_net=loud"),
        (vec![debug, ("LIBRA_DIAGNOSTICS_FORMAT", "xml")], "LIBRA_DIAGNOSTICS_FORMAT = xml"),
    ] {
        let output = run(&worker, &variables);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    }
}
