//! Allowed dependencies of crates: on each other, and on crates from outside.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Complaint;

/// Crates of the workspace may depend on these, and on no others; tests may use any.
const ALLOWED: &[(&str, &[&str])] = &[
    ("libra-dataplane", &[]),
    ("libra-plan", &[]),
    ("libra-store", &["libra-plan"]),
    ("libra-proto", &["libra-dataplane", "libra-plan", "libra-store"]),
    ("libra-objects", &[]),
    ("libra-storage", &["libra-objects", "libra-proto", "libra-store"]),
    ("libra-net", &["libra-proto", "libra-storage"]),
    ("libra-p4", &["libra-dataplane", "libra-proto"]),
    ("libra-xdp", &["libra-dataplane", "libra-proto"]),
    ("libra-doctor", &["libra-net", "libra-proto"]),
    ("libra-monitor", &["libra-net", "libra-proto"]),
    ("libra-client", &["libra-net", "libra-plan", "libra-proto", "libra-store"]),
    ("libra-pslite", &["libra-client", "libra-net", "libra-plan", "libra-proto", "libra-store"]),
    ("libra-lookup", &[]),
    ("libra-data", &["libra-objects"]),
    ("libra-python", &["libra-client", "libra-lookup", "libra-monitor"]),
    ("libra-models", &["libra-client", "libra-data"]),
    ("libra-examples", &["libra-client"]),
    (
        "libra-launch",
        &[
            "libra-client",
            "libra-dataplane",
            "libra-doctor",
            "libra-storage",
            "libra-net",
            "libra-p4",
            "libra-plan",
            "libra-proto",
            "libra-store",
            "libra-models",
            "libra-monitor",
            "libra-xdp",
        ],
    ),
    (
        "libra-cli",
        &[
            "libra-client",
            "libra-data",
            "libra-dataplane",
            "libra-storage",
            "libra-doctor",
            "libra-launch",
            "libra-net",
            "libra-p4",
            "libra-plan",
            "libra-proto",
            "libra-store",
            "libra-models",
            "libra-monitor",
        ],
    ),
    ("libra-conformance", &["libra-dataplane"]),
    ("libra-fuzz", &[]),
    ("libra-p4model", &["libra-dataplane", "libra-p4"]),
    ("libra-paper", &["libra-dataplane", "libra-plan"]),
    (
        "libra-faultsim",
        &[
            "libra-dataplane",
            "libra-storage",
            "libra-p4",
            "libra-p4model",
            "libra-plan",
            "libra-proto",
            "libra-store",
        ],
    ),
    (
        "libra-perfsim",
        &["libra-dataplane", "libra-faultsim", "libra-paper", "libra-plan", "libra-proto", "libra-store"],
    ),
    (
        "libra-lab",
        &[
            "libra-client",
            "libra-data",
            "libra-dataplane",
            "libra-storage",
            "libra-faultsim",
            "libra-launch",
            "libra-net",
            "libra-objects",
            "libra-paper",
            "libra-perfsim",
            "libra-plan",
            "libra-proto",
            "libra-store",
            "libra-models",
            "libra-monitor",
            "libra-xdp",
        ],
    ),
    ("xtask", &[]),
];
/// Crates without input and output, and what would give it to them: sockets, threads, clocks, randomness of the
/// operating system.
const PURE: &[&str] =
    &["libra-plan", "libra-paper", "libra-p4", "libra-store", "libra-proto", "libra-lookup"];
const IMPURE: &[&str] = &[
    "async-std",
    "chrono",
    "crossbeam",
    "fastrand",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "parking_lot",
    "quanta",
    "quinn",
    "quinn-udp",
    "rand",
    "rayon",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tokio-util",
    "uuid",
    "web-time",
];

/// A package of the workspace, from cargo's metadata.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its `Cargo.toml`, from the root of the workspace.
    pub(crate) manifest: String,
    /// Dependencies for normal and build use, not for tests.
    pub(crate) dependencies: BTreeSet<String>,
}

/// The packages in what `cargo metadata --no-deps` printed.
pub(crate) fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = metadata["workspace_root"].as_str().context("cargo metadata names no workspace_root")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    packages.iter().map(|value| package(root, value)).collect()
}

fn package(root: &str, value: &Value) -> Result<Package> {
    let text = |field: &str| {
        value[field].as_str().with_context(|| format!("cargo metadata: package without {field}"))
    };
    let manifest = text("manifest_path")?;
    let dependencies =
        value["dependencies"].as_array().context("cargo metadata: package without dependencies")?;
    Ok(Package {
        name: text("name")?.to_owned(),
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').to_owned(),
        dependencies: dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str())
            .map(str::to_owned)
            .collect(),
    })
}

/// The arrows between the crates of the workspace.
pub(crate) fn directions(packages: &[Package]) -> Vec<Complaint> {
    let members: BTreeSet<_> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut complaints = Vec::new();
    for package in packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            let what = format!("crate {} has no entry in ALLOWED of xtask/src/tidy/arrows.rs", package.name);
            complaints.push(Complaint::new(&package.manifest, what));
            continue;
        };
        for dependency in package.dependencies.iter().map(String::as_str) {
            if members.contains(dependency) && !allowed.contains(&dependency) {
                let may = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
                let what = format!(
                    "{} must not depend on {dependency}; of our crates it may use: {may}",
                    package.name
                );
                complaints.push(Complaint::new(&package.manifest, what));
            }
        }
    }
    complaints
}

/// Vector instructions, for software switches alone: `cargo xtask no-std` links without them.
const OPTIONAL_ON_A_SWITCH: &str = "pulp";

/// Checks dependencies from outside the workspace.
pub(crate) fn dependencies(packages: &[Package]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in packages {
        for dependency in package.dependencies.iter().map(String::as_str) {
            if package.name == "libra-dataplane" && dependency != OPTIONAL_ON_A_SWITCH {
                let what = format!("a switch has no libraries: dataplane must not depend on {dependency}");
                complaints.push(Complaint::new(&package.manifest, what));
            } else if PURE.contains(&package.name.as_str()) && IMPURE.contains(&dependency) {
                let what =
                    format!("{} has no input and output: it must not depend on {dependency}", package.name);
                complaints.push(Complaint::new(&package.manifest, what));
            }
        }
    }
    complaints
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{}/Cargo.toml", name.trim_start_matches("libra-")),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn an_arrow_in_the_wrong_direction_is_caught() {
        let sound = [package("libra-plan", &["serde"]), package("libra-proto", &["libra-plan"])];
        assert_eq!(directions(&sound), []);

        let wrong = [package("libra-plan", &["libra-proto"]), package("libra-proto", &[])];
        let complaints = directions(&wrong);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].what.contains("libra-plan must not depend on libra-proto"), "{complaints:?}");
    }

    #[test]
    fn net_and_faultsim_must_not_meet() {
        let wrong = [package("libra-net", &["libra-faultsim"]), package("libra-faultsim", &["libra-net"])];
        assert_eq!(directions(&wrong).len(), 2);
    }

    #[test]
    fn a_crate_without_a_rule_is_caught() {
        let complaints = directions(&[package("libra-extra", &[])]);
        assert!(complaints[0].what.contains("no entry"), "{complaints:?}");
    }

    #[test]
    fn libraries_that_break_a_promise_are_caught() {
        let complaints = dependencies(&[
            package("libra-dataplane", &["heapless"]),
            package("libra-proto", &["serde", "tokio"]),
            package("libra-net", &["tokio"]),
        ]);
        let what: Vec<_> = complaints.iter().map(|complaint| complaint.what.as_str()).collect();
        assert_eq!(what.len(), 2, "{what:?}");
        assert!(what[0].contains("heapless") && what[1].contains("tokio"), "{what:?}");
    }

    #[test]
    fn packages_are_parsed_without_dependencies_of_tests() {
        let metadata = json!({
            "workspace_root": "/w",
            "packages": [{
                "name": "libra-net",
                "manifest_path": "/w/crates/net/Cargo.toml",
                "dependencies": [
                    { "name": "libra-proto", "kind": null },
                    { "name": "proptest", "kind": "dev" },
                    { "name": "cc", "kind": "build" },
                ],
            }],
        });
        let found = packages(&metadata).unwrap();
        assert_eq!(found[0].manifest, "crates/net/Cargo.toml");
        assert_eq!(found[0].dependencies, ["cc", "libra-proto"].map(str::to_owned).into());
    }
}
