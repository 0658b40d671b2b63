//! Members that come back: a soak of processes in network namespaces, whose server is killed and started again at another address, and whose
//! controller is away for a while. No sum may differ by a bit.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Running;
use crate::shell;

/// When the server and the controller are killed, in seconds from the start of the job.
const KILLS: &str = "server@3s,controller@5s";
const CONTROLLER_KILLED: u64 = 5;
/// Seconds for which workers go on pushing once the controller is back.
const AFTER: u64 = 4;
/// Time that the soak may take to start and to end, beside its own.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the soak with the programs of a directory. Members look for the controller for twice as many seconds as it is `away`.
pub(super) fn run(programs: &Path, folder: &Path, away: u64) -> Result<()> {
    let json = folder.join("returns.json");
    drop(std::fs::remove_file(&json));
    let seconds = CONTROLLER_KILLED + away + AFTER;
    let mut soak = shell::program(programs.join("libra-lab"), &["soak", "--namespaces", "--log"]);
    soak.args(["--security=tls", "--standby=0", "--loss=0.01", "--kill", KILLS]);
    soak.arg(format!("--away={away}")).arg(format!("--return-max={}", 2 * away));
    soak.arg(format!("--seconds={seconds}")).arg("--json").arg(&json);
    let soak = Running::start("returns", soak, folder.join("returns.log"))?;
    soak.finish(Duration::from_secs(seconds) + LIMIT)?;
    let text = std::fs::read_to_string(&json).context("the soak left no report")?;
    let report: Value = serde_json::from_str(&text).context("the soak's report is not JSON")?;
    println!("members that come back: {}", judge(&report, away)?);
    Ok(())
}

/// Returns a line about a soak in which everything was as it should be.
fn judge(report: &Value, away: u64) -> Result<String> {
    if report["equal"] != Value::Bool(true) {
        bail!("the sums are not equal to the bit: {}", report["differences_named"]);
    }
    let seconds_of = |target: &str, key: &str| {
        let faults = report["failover"]["injected_faults"].as_array().into_iter().flatten();
        let mut of_target =
            faults.filter(|fault| fault["target"].as_str().is_some_and(|name| name.starts_with(target)));
        let milliseconds = of_target.next().and_then(|fault| fault[key].as_f64());
        milliseconds.map(|milliseconds| milliseconds / 1e3)
    };
    let back =
        |target| seconds_of(target, "recovery_ms").with_context(|| format!("the {target} was not back"));
    let (server, controller) = (back("server")?, back("controller")?);
    let away = away as f64;
    if controller < away {
        bail!("the controller was back after {controller:.1} s, and was to be away for {away} s");
    }
    let stall = seconds_of("controller", "stall_ms").context("no worker has pushed")?;
    if stall > away / 2.0 {
        bail!("a worker stood still for {stall:.1} s while the controller was away");
    }
    let (values, pushes) = (&report["values_compared"], &report["pushes"]["acknowledged"]);
    Ok(format!(
        "{values} values are equal to the bit after {pushes} pushes; the server was back after {server:.1} s at another address, the \
         controller after {controller:.1} s, and the longest stall meanwhile was {stall:.2} s"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(controller_ms: f64, stall_ms: f64) -> Value {
        let fault = |target: &str, recovery: f64| json!({ "target": target, "recovery_ms": recovery, "stall_ms": stall_ms });
        let faults = [fault("server process 0", 300.0), fault("controller process 0", controller_ms)];
        json!({
            "equal": true,
            "values_compared": 8,
            "pushes": { "acknowledged": 5 },
            "failover": { "injected_faults": faults },
        })
    }

    #[test]
    fn a_job_that_went_on_is_as_it_should_be() {
        let line = judge(&report(15_200.0, 210.0), 15).unwrap();
        assert!(line.contains("8 values") && line.contains("controller after 15.2 s"), "{line}");
    }

    #[test]
    fn a_wrong_bit_a_short_absence_and_a_stall_are_errors() {
        let mut wrong = report(15_200.0, 210.0);
        wrong["equal"] = Value::Bool(false);
        let error = |report: &Value| judge(report, 15).unwrap_err().to_string();
        assert!(error(&wrong).contains("not equal to the bit"));
        assert!(error(&report(900.0, 210.0)).contains("to be away for 15 s"));
        assert!(error(&report(15_200.0, 9_000.0)).contains("stood still for 9.0 s"));
        let mut gone = report(15_200.0, 210.0);
        gone["failover"]["injected_faults"] = json!([]);
        assert!(error(&gone).contains("the server was not back"));
    }
}
