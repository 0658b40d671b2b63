//! Checks of the files of `deploy/` for which no job need run.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::Directory;
use super::expressions::DASHBOARDS;
use crate::findings::Finding;
use crate::shell;
use crate::shell::starts;

/// Text of the configuration that this step replaces.
const URL: &str = "http://127.0.0.1:9700/sd";
const INTERVAL: &str = "5s";
const EXPORTER_PORT: &str = "${1}:9100";

/// Writes the configuration for a job, beside the alerts.
pub(super) fn configuration_of_job(
    directory: &Directory,
    controller: SocketAddr,
    exporter: SocketAddr,
) -> Result<PathBuf> {
    let path = directory.sources.join("prometheus/prometheus.yml");
    let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let url = format!("http://{controller}/sd");
    let port = format!("${{1}}:{}", exporter.port());
    for (from, to) in [(URL, url.as_str()), (INTERVAL, "1s"), (EXPORTER_PORT, port.as_str())] {
        ensure!(text.contains(from), "{} has no {from}", path.display());
        text = text.replace(from, to);
    }
    let made = directory.made.join("prometheus.yml");
    fs::write(&made, text).with_context(|| format!("cannot write {}", made.display()))?;
    fs::copy(directory.sources.join("prometheus/alerts.yml"), directory.made.join("alerts.yml"))
        .context("cannot copy alerts.yml")?;
    Ok(made)
}

pub(super) fn configuration(directory: &Directory) -> Result<Finding> {
    let path = directory.sources.join("prometheus/prometheus.yml");
    shell::output(shell::program("promtool", &["check", "config", &path.to_string_lossy()]))?;
    Ok(Finding::Passed("promtool check config".to_owned()))
}

/// Checks the alerts, and runs their tests: each alert must fire in one, and not in another.
pub(super) fn rules(directory: &Directory) -> Result<Finding> {
    let folder = directory.sources.join("prometheus");
    let promtool = |arguments: &[&str]| {
        let mut command = shell::program("promtool", arguments);
        command.current_dir(&folder);
        shell::output(command)
    };
    promtool(&["check", "rules", "alerts.yml"])?;
    promtool(&["test", "rules", "alerts_test.yml"])?;
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"));
    let (alerts, tests) = (alerts(&read("alerts.yml")?), read("alerts_test.yml")?);
    let untested: Vec<_> = alerts.iter().filter(|alert| !fires(&tests, alert)).collect();
    ensure!(untested.is_empty(), "no test in which they fire: {untested:?}");
    Ok(Finding::Passed(format!("{} alerts, each fires in a test", alerts.len())))
}

/// The names of the alerts in a file of rules.
fn alerts(rules: &str) -> Vec<String> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

/// Tells if a test expects an alert of this name.
fn fires(tests: &str, alert: &str) -> bool {
    let mut lines = tests.lines().map(str::trim);
    let name = format!("- alertname: {alert}");
    while lines.any(|line| line == name) {
        let mut rest = lines.clone().skip(1).skip_while(|line| line.starts_with('#'));
        if rest.next() == Some("exp_alerts:") {
            return true;
        }
    }
    false
}

pub(super) fn dashboards_are_made(directory: &Directory) -> Result<Finding> {
    if !starts("python3") {
        return Ok(Finding::Skipped("there is no python3".to_owned()));
    }
    let script = directory.sources.join("grafana/dashboards.py");
    let mut command = shell::program("python3", &["-B"]);
    command.arg(script).arg("--check");
    shell::output(command)?;
    Ok(Finding::Passed("dashboards.py makes those that are here".to_owned()))
}

/// Compiles the dashboards as TypeScript, with the types of Grafana.
pub(super) fn types(directory: &Directory) -> Result<Finding> {
    let packages = directory.tools.join("npm");
    let compiler = packages.join("node_modules/.bin/tsc");
    if !compiler.exists() || !packages.join("node_modules/@grafana/schema").exists() {
        let what = format!("@grafana/schema and typescript are not in {}", packages.display());
        return Ok(Finding::Skipped(format!("{what}: .ci/run installs them")));
    }
    // Packages are looked for from here upwards.
    let folder = packages.join("dashboards");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let grafana = directory.sources.join("grafana");
    fs::copy(grafana.join("types.ts"), folder.join("types.ts")).context("cannot copy types.ts")?;
    let mut compile = Command::new(&compiler);
    compile.current_dir(&folder).args(["--noEmit", "--strict", "--skipLibCheck"]);
    compile.args(["--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"]);
    for name in DASHBOARDS {
        let json = fs::read_to_string(grafana.join(format!("{name}.json")))
            .with_context(|| format!("cannot read {name}.json"))?;
        let typed = format!(
            "import type {{ LibraDashboard }} from './types';\nexport const {name}_dashboard: LibraDashboard = {json};\n"
        );
        fs::write(folder.join(format!("{name}.ts")), typed).context("cannot write a dashboard")?;
        compile.arg(format!("{name}.ts"));
    }
    let output = compile.output().context("cannot start tsc")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stdout).lines().take(5).collect::<Vec<_>>().join("\n"));
    }
    Ok(Finding::Passed(format!("{} dashboards are of the types of @grafana/schema", DASHBOARDS.len())))
}

/// Checks that the manual has the heading to which each alert leads.
pub(super) fn heading(link: &str) -> Result<()> {
    let (page, anchor) = link.split_once('#').with_context(|| format!("{link} has no anchor"))?;
    let path = shell::root().join(page);
    let text = fs::read_to_string(&path).with_context(|| format!("{link}: there is no such page"))?;
    let mut headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    ensure!(headings.any(|heading| heading.to_lowercase() == anchor), "{link}: the page has no such heading");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_that_fires_in_no_test_is_found() {
        let tests = "- alertname: A\n  eval_time: 1m\n- alertname: A\n  eval_time: 2m\n  exp_alerts:\n    - x\n\
                     - alertname: B\n  eval_time: 1m\n- alertname: C\n  eval_time: 1m\n  # why\n  exp_alerts:\n";
        let fired: Vec<_> = ["A", "B", "C", "D"].into_iter().filter(|alert| fires(tests, alert)).collect();
        assert_eq!(fired, ["A", "C"]);
        assert_eq!(alerts("groups:\n  - alert: A\n    expr: x\n  - alert: B\n"), ["A", "B"]);
    }
}
