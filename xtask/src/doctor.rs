//! `cargo xtask doctor`: faults, planted one at a time in machines and paths of network namespaces. `libra doctor` must name each by
//! exactly one line that is bad or a warning, turn nothing else bad, and find nothing bad where nothing is planted.

mod faults;
mod site;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::namespaces::ip;
use crate::process::Running;
use crate::{Outcome, process, shell};
use faults::{FAULTS, Fault, HARMLESS};
use site::Site;

/// Time that an examination may take.
const TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Plants this fault alone
    #[arg(long, value_name = "NAME")]
    fault: Option<String>,
    /// The binary under test, instead of a release build of this checkout
    #[arg(long, value_name = "FILE")]
    libra: Option<PathBuf>,
    /// Fails instead of skipping when this machine does not allow it, or cannot plant a fault
    #[arg(long)]
    required: bool,
}

/// The command that this program runs in a namespace.
#[derive(Args)]
pub(crate) struct OtherOptions {
    #[arg(long)]
    listen: SocketAddr,
}

/// Findings: the check and its interface, the verdict, and what was found.
struct Findings(BTreeMap<String, (String, String)>);

impl Findings {
    fn parse(text: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(text).with_context(|| format!("no JSON: {text}"))?;
        let findings = document["findings"].as_array().context("the document has no findings")?;
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let entry = |finding: &Value| {
            let name = format!("{} {}", text(finding, "check"), text(finding, "interface"));
            (name.trim().to_owned(), (text(finding, "verdict"), text(finding, "found")))
        };
        Ok(Self(findings.iter().map(entry).collect()))
    }

    /// Those that are worse than in `clean`, and bad or a warning.
    fn worse_than(&self, clean: &Self) -> Vec<(&str, &str, &str)> {
        let is_worse = |name: &str, verdict: &str| {
            let before = clean.0.get(name).map_or("ok", |(verdict, _)| verdict);
            verdict == "bad" && before != "bad" || verdict == "warn" && !["bad", "warn"].contains(&before)
        };
        let worse = self.0.iter().filter(|(name, (verdict, _))| is_worse(name, verdict));
        worse.map(|(name, (verdict, found))| (name.as_str(), verdict.as_str(), found.as_str())).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if let Err(error) = ip::permitted().and_then(|()| tools()) {
        if options.required {
            return Err(error);
        }
        return Ok(Outcome::Skipped(format!("{error:#}")));
    }
    process::catch_interrupts()?;
    let libra = shell::binary("libra", options.libra.as_deref())?;
    let chosen: Vec<_> =
        FAULTS.iter().filter(|fault| options.fault.as_ref().is_none_or(|name| name == fault.name)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = FAULTS.iter().map(|fault| fault.name).collect();
        bail!("no such fault; there are {}", names.join(", "));
    }
    let clean = clean(&libra)?;
    let (mut wrong, mut skipped) = (Vec::new(), Vec::new());
    for fault in &chosen {
        process::check_interrupt()?;
        match named(fault, &libra, &clean) {
            Ok(Some(line)) => println!("{}: {line}", fault.name),
            Ok(None) => skipped.push(fault.name),
            Err(error) => {
                println!("{}: {error:#}", fault.name);
                wrong.push(fault.name);
            }
        }
    }
    if options.fault.is_none() {
        HARMLESS.iter().try_for_each(|harmless| endured(harmless, &libra, &clean))?;
        for job in &NARROW_JOBS {
            let ended = job.run(&libra).with_context(|| format!("a job through {}", job.name))?;
            println!("a job through {}: {ended}", job.name);
        }
    }
    if !wrong.is_empty() {
        bail!("{} of {} faults are not named by one line: {}", wrong.len(), chosen.len(), wrong.join(", "));
    }
    if !skipped.is_empty() {
        let what = format!("this machine cannot plant {}", skipped.join(", "));
        if options.required {
            bail!(what);
        }
        return Ok(Outcome::Skipped(what));
    }
    println!("{} faults, each named by one line", chosen.len());
    Ok(Outcome::Passed)
}

/// Examines a machine and a path with which nothing is wrong.
fn clean(libra: &Path) -> Result<Findings> {
    let site = Site::new(libra)?;
    let findings = examine(&site, &site.doctor(&[], &[]))?;
    let bad: Vec<_> = findings.0.iter().filter(|(_, (verdict, _))| verdict == "bad").collect();
    if !bad.is_empty() {
        bail!("of a clean host these are bad: {bad:?}");
    }
    let warnings = findings.0.values().filter(|(verdict, _)| verdict == "warn").count();
    println!("a clean host: {} checks, 0 bad, {warnings} warnings", findings.0.len());
    Ok(findings)
}

/// Plants a fault, and returns the line that names it; none if this machine cannot plant it.
fn named(fault: &Fault, libra: &Path, clean: &Findings) -> Result<Option<String>> {
    let site = Site::new(libra)?;
    let planted = match (fault.plant)(&site) {
        Ok(planted) => planted,
        Err(error) => {
            shell::loudly(&format!("{} SKIPPED: {error:#}", fault.name));
            return Ok(None);
        }
    };
    let findings = examine(&site, &site.doctor(&planted.wrapper, &planted.options));
    drop(planted);
    let findings = findings?;
    match findings.worse_than(clean)[..] {
        [(name, verdict, found)] if name == fault.check => Ok(Some(format!("{verdict} {name}: {found}"))),
        ref worse => bail!("expected {} alone, found {worse:?}", fault.check),
    }
}

/// Plants what is no fault, and looks that nothing is worse for it.
fn endured(harmless: &Fault, libra: &Path, clean: &Findings) -> Result<()> {
    let site = Site::new(libra)?;
    let planted = (harmless.plant)(&site)?;
    let findings = examine(&site, &site.doctor(&planted.wrapper, &planted.options))?;
    let worse = findings.worse_than(clean);
    if !worse.is_empty() {
        bail!("{}: these are worse: {worse:?}", harmless.name);
    }
    let seen = |findings: &Findings| findings.0.values().filter(|(verdict, _)| verdict != "unseen").count();
    println!("{}: nothing is worse, {} of {} checks seen", harmless.name, seen(&findings), seen(clean));
    Ok(())
}

/// A job whose packets are too long for a router on the way.
struct NarrowJob {
    name: &'static str,
    /// Makes the router narrow.
    plant: fn(&Site) -> Result<()>,
    mtu: &'static str,
    /// A part of the line with which the worker must end, soon after the job began, and its end; none: it must tell of shorter packets, and end
    /// in order when asked to: what it has pushed has come through.
    line: Option<(&'static str, &'static str)>,
}

const NARROW_JOBS: [NarrowJob; 4] = [
    NarrowJob {
        name: "a router that reports it",
        plant: |site| site.sh(site::ROUTER, REPORTS),
        mtu: "1500",
        line: Some(("lets 1400 bytes through", "--mtu 1400")),
    },
    NarrowJob {
        name: "a router that reports it, with --mtu auto",
        plant: |site| site.sh(site::ROUTER, REPORTS),
        mtu: "auto",
        line: None,
    },
    NarrowJob {
        name: "a silent router",
        plant: be_silent,
        mtu: "1500",
        line: Some(("packets of 1396 bytes come through to 10.78.1.2 and back", "--mtu 1396 or --mtu auto")),
    },
    NarrowJob { name: "a silent router, with --mtu auto", plant: be_silent, mtu: "auto", line: None },
];

/// A part of the line about packets that were made shorter.
const SHORTENED: &str = "packets to 10.78.1.2 have 1396 bytes from now on, not ";
const REPORTS: &str = "ip link set there0 mtu 1400";
const DROPS: &str = "nft add table ip libra
    nft add chain ip libra forward '{ type filter hook forward priority 0; }'
    nft add rule ip libra forward meta l4proto udp meta length gt 1400 drop";

/// The router drops datagrams above 1,400 bytes both ways. Hosts hand it one at a time: it would take a run of them for one.
fn be_silent(site: &Site) -> Result<()> {
    for host in [site::HERE, site::THERE] {
        site.sh(host, "ethtool -K eth0 tx-udp-segmentation off gso off")?;
    }
    site.sh(site::ROUTER, DROPS)
}

impl NarrowJob {
    /// Runs it. Returns the line with which its worker ended, or that it came to its end.
    fn run(&self, libra: &Path) -> Result<String> {
        const PORT: u16 = 7700;
        /// Time until a job has begun, until a worker tells of shorter packets, and until it has ended in order.
        const JOB_MAX: Duration = Duration::from_secs(120);
        /// Exit status of a member that was asked to end before the job was done, and has ended in order.
        const START_AGAIN: i32 = 75;
        let site = Site::new(libra)?;
        (self.plant)(&site)?;
        let to = site.to(PORT);
        // More than are trained during a search of the length of packets, on any machine.
        let sizes = ["--workers=1", "--servers=1", "--switches=1", "--epochs=100000", "--mtu", self.mtu];
        let words = [&["controller", "--insecure", "--listen", &to][..], &sizes].concat();
        let _controller = site.listen("controller", &words, PORT)?;
        let member = |host, role| site.start(host, role, &[role, "--insecure", "--controller", &to]);
        let _others = [member(site::THERE, "server")?, member(site::THERE, "switch")?];
        let mut worker = member(site::HERE, "worker")?;
        wait(&mut worker, JOB_MAX, |worker| {
            Ok(worker.tail().contains("the cluster is complete").then_some(()))
        })?;
        let begun = Instant::now();
        let Some((part, end)) = self.line else {
            let line = wait(&mut worker, JOB_MAX, |worker| {
                let tail = worker.tail();
                let line = tail.lines().find(|line| line.contains(SHORTENED));
                match worker.status()? {
                    Some(status) if line.is_none() => bail!("the worker ended with {status}\n{tail}"),
                    _ => Ok(line.map(|line| line.trim().to_owned())),
                }
            })?;
            let told = begun.elapsed().as_secs_f64();
            worker.signal("-TERM")?;
            let status = wait(&mut worker, JOB_MAX, Running::status)?;
            if status.code() != Some(START_AGAIN) {
                bail!("the worker ended with {status}\n{}", worker.tail());
            }
            return Ok(format!("after {told:.1} s: {line}"));
        };
        let status = wait(&mut worker, TIME_MAX, Running::status)?;
        let took = begun.elapsed().as_secs_f64();
        let tail = worker.tail();
        let line = tail.lines().rfind(|line| line.contains(part)).unwrap_or_default().trim();
        if status.success() || !line.ends_with(end) {
            bail!("the worker ended with {status}\n{tail}");
        }
        Ok(format!("after {took:.1} s: {line}"))
    }
}

/// Waits until a look at a process finds something.
fn wait<T>(
    running: &mut Running,
    limit: Duration,
    mut look: impl FnMut(&mut Running) -> Result<Option<T>>,
) -> Result<T> {
    let until = Instant::now() + limit;
    loop {
        process::check_interrupt()?;
        if let Some(found) = look(running)? {
            return Ok(found);
        }
        if Instant::now() > until {
            bail!("nothing within {} s\n{}", limit.as_secs(), running.tail());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a doctor.
fn examine(site: &Site, words: &[String]) -> Result<Findings> {
    let mut command = site.command(site::HERE);
    command.args(words);
    let (line, begin) = (shell::line(&command), Instant::now());
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    let took = begin.elapsed();
    let printed = String::from_utf8_lossy(&output.stdout);
    let findings = Findings::parse(&printed)
        .with_context(|| format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let has_bad = findings.0.values().any(|(verdict, _)| verdict == "bad");
    if output.status.code() != Some(i32::from(has_bad)) {
        bail!(
            "`{line}` ended with {}, and {}",
            output.status,
            if has_bad { "a finding is bad" } else { "none is bad" }
        );
    }
    if took > TIME_MAX {
        bail!("`{line}` took {:.1} s", took.as_secs_f64());
    }
    Ok(findings)
}

/// Programs that plant faults.
fn tools() -> Result<()> {
    for (program, package) in [("ethtool", "ethtool"), ("nft", "nftables"), ("setpriv", "util-linux")] {
        let found = shell::program(program, &["--version"]).output();
        found.with_context(|| format!("`{program}` of {package} is not installed"))?;
    }
    Ok(())
}

/// Answers callers as a doctor of another version, whose format is another, too.
pub(crate) fn other(options: &OtherOptions) -> Result<Outcome> {
    /// Of a frame, in every format: magic, format, version of the messages.
    const HEAD: [u8; 12] = *b"LIBRADOC\xff\xff\x27\x0f";
    let listener = TcpListener::bind(options.listen).context("cannot listen")?;
    loop {
        let (mut stream, _) = listener.accept().context("cannot accept")?;
        let mut frame = [0; 256];
        if stream.read_exact(&mut frame).is_ok() {
            frame = [0; 256];
            frame[..HEAD.len()].copy_from_slice(&HEAD);
            // The caller decides what to make of it.
            drop(stream.write_all(&frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(verdicts: &[(&str, &str)]) -> Findings {
        let list: Vec<_> = verdicts
            .iter()
            .map(|(check, verdict)| serde_json::json!({"check": check, "verdict": verdict, "found": "x"}))
            .collect();
        Findings::parse(&serde_json::json!({ "findings": list }).to_string()).unwrap()
    }

    #[test]
    fn findings_that_became_worse_are_told() {
        let clean = findings(&[("a", "ok"), ("b", "warn"), ("c", "unseen"), ("d", "ok")]);
        let after = findings(&[("a", "bad"), ("b", "warn"), ("c", "warn"), ("d", "unseen"), ("e", "bad")]);
        let names: Vec<_> = after.worse_than(&clean).iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, ["a", "c", "e"]);
        assert_eq!(clean.worse_than(&clean), []);
        assert_eq!(findings(&[("b", "bad")]).worse_than(&clean).len(), 1, "a warning became bad");
    }

    #[test]
    fn a_fault_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = FAULTS.iter().map(|fault| fault.name).collect();
        assert_eq!((names.len(), FAULTS.len()), (14, 14));
    }
}
