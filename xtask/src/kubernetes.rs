//! `cargo xtask kubernetes`: the manifests of `deploy/kubernetes` and `deploy/ray`, as kustomize makes them, by the schemas of Kubernetes,
//! of JobSet and of the Kubeflow Trainer.
//!
//! There is no cluster: no manifest is applied.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use crate::findings::{Finding, Findings, StepOptions};
use crate::{Outcome, shell};

/// From the oldest version that JobSet runs on to the newest that the validator knows.
const VERSIONS: &[&str] = &["1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"];
const CHECK: &str = include_str!("kubernetes/check.py");
const BASE: &str = "base";
const RAY: &str = "../ray";
/// Slips that must be found: a directory, a text in its manifests, and the replacement of that.
const SLIPS: &[(&str, &str, &str)] = &[
    (BASE, "publishNotReadyAddresses:", "publishNotReadyAddress:"),
    (BASE, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 30s"),
    (BASE, "readOnlyRootFilesystem:", "readonlyRootFilesystem:"),
    (BASE, "maxUnavailable: 1", "maxUnavailable: [1]"),
    (BASE, "LIBRA_SERVERS: \"2\"", "LIBRA_SERVERS: \"3\""),
    (BASE, "claimName: libra-state", "claimName: state"),
    (BASE, "containerName: libra", "containerName: member"),
    (BASE, "port: http", "port: https"),
    (BASE, "replicatedJobs:", "jobs:"),
    ("overlays/object-store", "maxRestarts: 10", "maxRestart: 10"),
    ("overlays/object-store", "secretRef:", "secretReference:"),
    ("overlays/trainjob", "numNodes: 4", "numNodes: 17"),
    ("overlays/trainjob", "runtimePatches:", "podTemplateOverrides:"),
    ("overlays/trainjob", "trainjob-ancestor-step: trainer", "ancestor: trainer"),
    (
        "overlays/trainjob",
        "kind: TrainJob\nmetadata:\n  name: libra",
        "kind: TrainJob\nmetadata:\n  name: mine",
    ),
    ("overlays/kuberay", "backoffLimit: 3", "backOffLimit: 3"),
    (RAY, "object-manager-port: \"6381\"", "object-manager-port: \"6380\""),
    (RAY, "dnsPolicy: ClusterFirstWithHostNet", "dnsPolicies: ClusterFirstWithHostNet"),
];

pub(crate) fn run(options: &StepOptions) -> Result<Outcome> {
    let packages = shell::target_directory()?.join("tools/python");
    if let Some(reason) = missing(&packages) {
        return options.skip(reason);
    }
    let libra = options.binary()?;
    let mut findings = Findings::default();
    let folder = shell::root().join("deploy/kubernetes");
    findings.note("base", manifests(&folder.join(BASE)).and_then(|text| check(&packages, &text, VERSIONS)));
    let overlays = overlays(&folder.join("overlays"))?;
    let ray = folder.join(RAY);
    let all = overlays.iter().chain([&ray]).map(|overlay| {
        let name = overlay.file_name().unwrap_or_default().to_string_lossy().into_owned();
        manifests(overlay)
            .and_then(|text| check(&packages, &text, VERSIONS))
            .with_context(|| name.clone())?;
        Ok(name)
    });
    let all = all.collect::<Result<Vec<_>>>();
    findings.note("overlays", all.map(|names| Finding::Passed(names.join(", "))));
    findings.note("variables are options", variables_are_options(&folder, &libra));
    findings.note("slips are found", slips_are_found(&packages, &folder));
    findings.outcome(options.required)
}

fn missing(packages: &Path) -> Option<String> {
    if shell::output(shell::program("kubectl", &["kustomize", "--help"])).is_err() {
        return Some("there is no kubectl with kustomize".to_owned());
    }
    let imports = "import kubernetes_validate, kubeflow_trainer_api, yaml";
    let mut command = shell::program("python3", &["-c", imports]);
    command.env("PYTHONPATH", packages);
    let found = shell::output(command);
    let named = "kubernetes-validate, kubeflow-trainer-api and PyYAML";
    found.is_err().then(|| format!("{named} are not in {}: .ci/run installs them", packages.display()))
}

fn overlays(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    ensure!(!found.is_empty(), "there are no overlays");
    Ok(found)
}

/// The manifests of a directory, as they would be applied.
fn manifests(directory: &Path) -> Result<String> {
    let mut command = shell::program("kubectl", &["kustomize"]);
    command.arg(directory);
    shell::output(command)
}

/// Checks manifests; errors are lines of what is wrong.
fn check(packages: &Path, manifests: &str, versions: &[&str]) -> Result<Finding> {
    let mut command = shell::program("python3", &["-c", CHECK]);
    command.args(versions).env("PYTHONPATH", packages);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start python3")?;
    let mut input = child.stdin.take().context("it has no standard input")?;
    input.write_all(manifests.as_bytes()).context("the check does not read")?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let printed = String::from_utf8(output.stdout)?;
    Ok(Finding::Passed(format!("{} in versions {}", printed.trim(), versions.join(", "))))
}

/// Looks for the options behind all variables: one that is none is ignored by the members, without a word.
fn variables_are_options(folder: &Path, libra: &Path) -> Result<Finding> {
    let mut options = BTreeSet::from(["LIBRA_TOKEN".to_owned()]);
    for role in ["controller", "server", "switch", "worker"] {
        let help = shell::output(shell::program(libra, &[role, "--help"]))?;
        let named = help.split_whitespace().filter_map(|word| word.strip_prefix("--"));
        options.extend(named.map(|name| format!("LIBRA_{}", name.to_uppercase().replace('-', "_"))));
    }
    let mut found = BTreeSet::new();
    for directory in [vec![folder.join(BASE)], overlays(&folder.join("overlays"))?].concat() {
        let text = manifests(&directory)?;
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        found.extend(words.filter(|word| word.starts_with("LIBRA_")).map(str::to_owned));
    }
    let unknown: Vec<_> = found.difference(&options).collect();
    ensure!(unknown.is_empty(), "no options: {unknown:?}");
    ensure!(!found.is_empty(), "there are no variables");
    Ok(Finding::Passed(format!("{} variables", found.len())))
}

/// Plants slips, one at a time.
fn slips_are_found(packages: &Path, folder: &Path) -> Result<Finding> {
    for (directory, from, to) in SLIPS {
        let sound = manifests(&folder.join(directory))?;
        ensure!(sound.contains(from), "{directory} has no {from}");
        let Err(error) = check(packages, &sound.replacen(from, to, 1), &VERSIONS[..1]) else {
            bail!("{to} is not found")
        };
        ensure!(!error.to_string().contains("Traceback"), "{to}: {error}");
    }
    Ok(Finding::Passed(format!("{} of {}", SLIPS.len(), SLIPS.len())))
}
