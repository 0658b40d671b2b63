//! Jobs in a Slurm, while their steps are killed and they are terminated.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cluster::{Cluster, Step};
use crate::findings::Finding;
use crate::report::Report;
use crate::{process, python, shell};

/// Members of the default job.
const MEMBERS: usize = 6;
/// Minutes that most jobs may take.
const MINUTES: u32 = 10;
/// Those of one that gets SIGTERM when it has run for about half a minute: the script asks for that 120 s before the end.
const SHORT_MINUTES: u32 = 3;
/// A minute of training: more than such a job gets done.
const EPOCHS: &str = "48";
/// More than a job gets done in all of its time.
const MANY_EPOCHS: &str = "2000";
/// States of a job that is not over.
const BUSY: &[&str] = &["PENDING", "RUNNING", "COMPLETING", "REQUEUED"];
const STEP_MAX: Duration = Duration::from_secs(40);
const JOB_MAX: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Waits until it is so.
fn wait(
    cluster: &Cluster,
    job: &str,
    limit: Duration,
    what: &str,
    is_so: impl Fn() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !is_so()? {
        process::check_interrupt()?;
        if Instant::now() > deadline {
            let shown = cluster.ask("scontrol", &["show", "job", job]).unwrap_or_default();
            bail!("{what}\n{}\n{shown}\n{}", cluster.output(job), cluster.log(job, "controller-0"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Waits until Slurm takes the job for done.
fn end(cluster: &Cluster, job: &str) -> Result<()> {
    let is_over = || {
        let is_busy = || Ok::<_, anyhow::Error>(BUSY.contains(&&*cluster.field(job, "JobState")?));
        if is_busy()? {
            return Ok(false);
        }
        // One that goes back into the queue is for a moment in a state of those that are over.
        std::thread::sleep(4 * LOOK_EVERY);
        Ok(!is_busy()?)
    };
    wait(cluster, job, JOB_MAX, "the job does not end", is_over)?;
    let (state, code) = (cluster.field(job, "JobState")?, cluster.field(job, "ExitCode")?);
    ensure!((&*state, &*code) == ("COMPLETED", "0:0"), "{state} {code}\n{}", cluster.output(job));
    Ok(())
}

/// Waits until Slurm takes the job for done, and reads its report.
fn finish(cluster: &Cluster, job: &str) -> Result<Report> {
    end(cluster, job)?;
    let report = Report::read(&cluster.directory(job).join("report.json"))?;
    report.check_work()?;
    Ok(report)
}

fn step_of(cluster: &Cluster, job: &str, member: &str) -> Result<Step> {
    let steps = cluster.steps(job)?;
    steps.into_iter().find(|step| step.member == member).with_context(|| format!("{member} does not run"))
}

/// A heterogeneous job, whose script sees the nodes of its first component alone.
pub(super) fn is_refused(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.submit_with(&["--nodes=1", ":", "--nodes=1"], 1, &[])?;
    wait(cluster, &job, STEP_MAX, "it does not end", || {
        Ok(!BUSY.contains(&&*cluster.field(&job, "JobState")?))
    })?;
    let (code, output) = (cluster.field(&job, "ExitCode")?, cluster.output(&job));
    ensure!(code == "2:0" && output.contains("2 components"), "it ended with {code}\n{output}");
    Ok(Finding::Passed("refused with 2".to_owned()))
}

pub(super) fn trains(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.submit(MINUTES, &[("LIBRA_EPOCHS", "3")])?;
    let report = finish(cluster, &job)?;
    cluster.epoch_samples = report.number("samples") / 3.0;
    Ok(Finding::Passed(report.summary()))
}

/// DLRM is the program of the workers, unchanged, with its dense parameters on the servers.
pub(super) fn runs_a_program(cluster: &mut Cluster) -> Result<Finding> {
    let Some((python, site)) = python::with_torch()? else {
        return Ok(Finding::Skipped("`cargo xtask python` has installed no torch".to_owned()));
    };
    let dlrm = shell::root().join("examples/python/dlrm.py");
    let program = format!("{} {} --rows=30000 --mode=sync --json", python.display(), dlrm.display());
    let site = site.to_string_lossy();
    let variables = [
        ("LIBRA_WORKER_PROGRAM", &*program),
        ("LIBRA_DENSE", "server"),
        ("LIBRA_SWITCHES", "0"),
        ("PYTHONPATH", &*site),
    ];
    let job = cluster.submit(MINUTES, &variables)?;
    end(cluster, &job)?;
    let log = cluster.log(&job, "worker-0");
    let summary = log.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let summary = summary.with_context(|| format!("the first worker has printed no summary:\n{log}"))?;
    let [before, after] = ["auc_before", "auc"].map(|name| summary[name].as_f64().unwrap_or_default());
    ensure!(summary["workers"] == 2 && after > before + 0.1, "it has learnt nothing: {summary}");
    Ok(Finding::Passed(format!("dlrm.py: AUC {after:.4}, {before:.4} before, with 2 workers")))
}

/// Begins a long job, and kills the step of one member of each role.
pub(super) fn members_return(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.submit(MINUTES, &[("LIBRA_EPOCHS", MANY_EPOCHS)])?;
    cluster.job = Some(job.clone());
    wait(cluster, &job, STEP_MAX, "training does not begin", || {
        Ok(cluster.log(&job, "controller-0").contains("training begins"))
    })?;
    let nodes: std::collections::BTreeSet<_> =
        cluster.steps(&job)?.into_iter().map(|step| step.node).collect();
    ensure!(nodes.len() == super::cluster::NODES.len(), "members are on {nodes:?} alone");
    let begun = Instant::now();
    for member in ["server-0", "worker-0", "switch-0", "controller-0"] {
        let killed = step_of(cluster, &job, member)?;
        cluster.ask("scancel", &["--ctld", "--signal=KILL", &killed.id])?;
        wait(cluster, &job, STEP_MAX, &format!("{member} does not return"), || {
            let steps = cluster.steps(&job)?;
            Ok(steps.iter().any(|step| step.member == member && step.id != killed.id))
        })?;
    }
    wait(cluster, &job, STEP_MAX, "no controller takes over", || {
        Ok(cluster.log(&job, "controller-0").contains("took over"))
    })?;
    let log = cluster.log(&job, "server-0");
    ensure!(log.contains(" goes on with "), "the server has begun with nothing:\n{log}");
    Ok(Finding::Passed(format!("one of each role, within {:.0} s in all", begun.elapsed().as_secs_f64())))
}

/// A node with a server goes down; that goes on elsewhere, with the same directory.
pub(super) fn node_goes_down(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.job.clone().context("there is no job")?;
    let server = step_of(cluster, &job, "server-0")?;
    cluster.kill_node(&server.node)?;
    let begun = Instant::now();
    wait(cluster, &job, STEP_MAX, "members of the node do not return", || {
        let steps = cluster.steps(&job)?;
        Ok(steps.len() == MEMBERS && steps.iter().all(|step| step.node != server.node))
    })?;
    cluster.repair_nodes()?;
    let state = cluster.field(&job, "JobState")?;
    ensure!(state == "RUNNING", "the job is {state}\n{}", cluster.output(&job));
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Finding::Passed(format!("{} members run on the others after {seconds:.0} s", MEMBERS)))
}

/// SIGTERM to all steps, which the script does not hear of: each member is started again once, and the job goes on.
pub(super) fn members_are_terminated(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.job.clone().context("there is no job")?;
    wait(cluster, &job, STEP_MAX, "a worker does not train", || Ok(both_train(cluster, &job)))?;
    let drained = || cluster.output(&job).matches(": exit code 75").count();
    let (before, drained_before) = (cluster.steps(&job)?, drained());
    let begun = Instant::now();
    cluster.ask("scancel", &["--signal=TERM", &job])?;
    wait(cluster, &job, STEP_MAX, "members do not return", || {
        let steps = cluster.steps(&job)?;
        let is_new = |step: &Step| before.iter().all(|other| other.id != step.id);
        Ok(steps.len() == MEMBERS && steps.iter().all(is_new))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    wait(cluster, &job, STEP_MAX, "workers do not train again", || Ok(both_train(cluster, &job)))?;
    let drained = drained() - drained_before;
    ensure!(drained == MEMBERS, "{drained} ends with 75\n{}", cluster.output(&job));
    let (state, restarts) = (cluster.field(&job, "JobState")?, cluster.field(&job, "Restarts")?);
    ensure!(
        (&*state, &*restarts) == ("RUNNING", "0"),
        "{state}, {restarts} restarts\n{}",
        cluster.output(&job)
    );
    Ok(Finding::Passed(format!("{MEMBERS} members end with 75, and run again after {seconds:.0} s")))
}

/// Tells if both workers train: one that has joined late waits for the next epoch, and has nothing that it could bring to an end.
fn both_train(cluster: &Cluster, job: &str) -> bool {
    let status = cluster.status(job).unwrap_or_default();
    let is_training = |line: &&str| {
        line.trim_start().starts_with("worker ") && line.contains(" samples") && !line.contains(" 0 samples")
    };
    status.lines().filter(is_training).count() == 2
}

/// A job that does not fit into its time: twice a minute Slurm looks for such, and sends SIGTERM to the script.
pub(super) fn ends_in_order(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.submit(SHORT_MINUTES, &[("LIBRA_EPOCHS", EPOCHS)])?;
    cluster.job = Some(job.clone());
    wait(cluster, &job, STEP_MAX, "a worker does not train", || Ok(both_train(cluster, &job)))?;
    let begun = Instant::now();
    wait(cluster, &job, JOB_MAX, "the job is not put back into the queue", || {
        Ok(cluster.field(&job, "Restarts")? == "1")
    })?;
    // The next run may take the time that it needs, or gets another SIGTERM where Slurm does not change it.
    let (id, limit) = (format!("JobId={job}"), format!("TimeLimit={MINUTES}"));
    drop(cluster.ask("scontrol", &["update", &id, &limit]));
    let seconds = begun.elapsed().as_secs_f64();
    let output = cluster.output(&job);
    let ends: Vec<_> = output.lines().filter_map(|line| line.split_once(": exit code ")).collect();
    let order: Vec<_> = ends.iter().map(|(member, _)| member.split('-').next().unwrap_or_default()).collect();
    let expected = ["worker", "worker", "switch", "server", "server", "controller"];
    ensure!(order == expected && ends.iter().all(|(_, code)| *code == "75"), "{ends:?}\n{output}");
    Ok(Finding::Passed(format!("{MEMBERS} members end with 75, the workers first, after {seconds:.0} s")))
}

/// Slurm starts the job again, which goes on in the epoch that it was in: no sample is left out, and none is trained again.
pub(super) fn goes_on(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.job.clone().context("there is no job")?;
    let report = finish(cluster, &job)?;
    let log = cluster.log(&job, "controller-0");
    let goes_on = log.lines().find_map(|line| line.split_once("goes on from "));
    let (_, goes_on) = goes_on.with_context(|| format!("the job has begun at its beginning:\n{log}"))?;
    let (samples, trained_before) = (report.number("samples"), report.number("data.samples_before"));
    ensure!(
        trained_before > 0.0 && trained_before < samples,
        "{trained_before} of {samples} were trained before"
    );
    let expected = cluster.epoch_samples * EPOCHS.parse::<f64>()?;
    ensure!(samples == expected, "{samples} samples are trained, expected {expected}");
    let repeated = report.number("data.repeated");
    ensure!(repeated == 0.0, "{repeated} chunks were done again");
    let restarts = cluster.field(&job, "Restarts")?;
    Ok(Finding::Passed(format!("from {goes_on}; after {restarts} restarts {}", report.summary())))
}

/// A job that is cancelled leaves no step, and is not started again.
pub(super) fn is_cancelled(cluster: &mut Cluster) -> Result<Finding> {
    let job = cluster.job.take().context("there is no job")?;
    cluster.ask("scancel", &[&job])?;
    let begun = Instant::now();
    wait(cluster, &job, STEP_MAX, "it does not end", || {
        Ok(cluster.ask("squeue", &["--noheader", "--jobs", &job])?.trim().is_empty())
    })?;
    let state = cluster.field(&job, "JobState")?;
    ensure!(state == "CANCELLED", "the job is {state}");
    Ok(Finding::Passed(format!("{state} after {:.0} s", begun.elapsed().as_secs_f64())))
}
