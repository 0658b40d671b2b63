//! Stalls and quality of a job whose members are all restarted in order, one after the other.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{BINARY, LIMIT, Options, train};
use crate::process::{self, Running, check_interrupt};
use crate::report::Report;
use crate::{http, shell};

/// Sizes and options of the job, beside its data.
const JOB: &[&str] = &["--workers", "2", "--servers", "2", "--log"];
/// Between two looks at a worker.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Between two restarts, and for as long before the first: a job pauses without any, too.
const PAUSE: Duration = Duration::from_secs(2);
/// Exit code of a member that was asked to end.
const DRAINED: i32 = 75;

/// Raw figures and a table of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let folder = folder.join("rolling");
    shell::remove_directory(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let state = folder.join("undisturbed").display().to_string();
    let undisturbed = [JOB, &["--standby", "1", "--state-dir", &state]].concat();
    let undisturbed = train(options, &folder, &undisturbed)?.number("quality.hr10");

    let mut raw = "restarted,seconds_to_exit,longest_pause_seconds\n".to_owned();
    let mut summary =
        "| restarted | ends within, s | longest pause of a worker, s |\n|---|---|---|\n".to_owned();
    let mut add = |name: &str, Restart { ended, pause }: Restart| {
        println!("{name}: ends within {ended:.3} s, longest pause {pause:.3} s");
        summary += &format!("| {name} | {ended:.3} | {pause:.3} |\n");
        writeln!(raw, "{name},{ended:.4},{pause:.4}")
    };
    let mut cluster = Cluster::start(options, folder)?;
    let begun = Instant::now();
    sleep(PAUSE);
    add("none", Restart { ended: 0.0, pause: cluster.pause_since(begun) })?;
    for _ in 0..2 {
        add("server", cluster.restart_server()?)?;
    }
    // The first has the regions, and the second is the standby; then the second has them.
    for _ in 0..2 {
        add("switch", cluster.restart_switch()?)?;
    }
    for _ in 0..2 {
        add("worker", cluster.restart_worker()?)?;
    }
    add("controller", cluster.restart_controller()?)?;
    let rolled = cluster.finish()?.number("quality.hr10");
    writeln!(summary, "\nHR@10 {rolled:.4}, of the job without restarts {undisturbed:.4}")?;
    writeln!(raw, "hr10,{rolled},{undisturbed}")?;
    Ok((raw, summary))
}

/// Seconds until the member has ended, and those of the longest pause of a worker from then on.
struct Restart {
    ended: f64,
    pause: f64,
}

/// The members of a job, those that were started first in front.
struct Cluster {
    folder: PathBuf,
    address: String,
    controller: Running,
    job: Vec<String>,
    servers: Vec<(Running, String)>,
    switches: Vec<Running>,
    workers: Vec<(Running, Watch)>,
    started: u32,
}

impl Cluster {
    fn start(options: &Options, folder: PathBuf) -> Result<Self> {
        let address = process::free_address()?.to_string();
        let (json, epochs) = (folder.join("rolled.json").display().to_string(), options.epochs.to_string());
        let mut job = vec!["controller", "--listen", &address, "--json", &json, "--epochs", &epochs];
        job.extend(["--model", &options.model, "--data", &options.data]);
        job.extend(JOB);
        let controller = Running::start("controller", libra(&job)?, folder.join("controller.log"))?;
        let job = job.into_iter().map(str::to_owned).collect();
        let (servers, switches, workers) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { folder, address, controller, job, servers, switches, workers, started: 0 };
        for number in 0..2 {
            cluster.start_server(cluster.folder.join(format!("state-{number}")).display().to_string())?;
            cluster.start_worker()?;
        }
        cluster.start_switch()?;
        cluster.controller.wait_for("training begins", LIMIT)?;
        cluster.start_switch()?;
        cluster.controller.wait_for("switch 1 joined", LIMIT)?;
        cluster.wait_for_pushes()?;
        Ok(cluster)
    }

    fn member(&mut self, kind: &str, more: &[&str]) -> Result<Running> {
        let name = format!("{kind}-{}", self.started);
        self.started += 1;
        let command = libra(&[&[kind, "--controller", &self.address], more].concat())?;
        Running::start(&name, command, self.folder.join(format!("{name}.log")))
    }

    fn start_server(&mut self, state: String) -> Result<()> {
        let server = self.member("server", &["--shards-per-server", "1", "--state-dir", &state])?;
        self.servers.push((server, state));
        Ok(())
    }

    fn start_switch(&mut self) -> Result<()> {
        let switch = self.member("switch", &[])?;
        self.switches.push(switch);
        Ok(())
    }

    fn start_worker(&mut self) -> Result<()> {
        let http = process::free_address()?;
        let worker = self.member("worker", &["--http", &http.to_string()])?;
        self.workers.push((worker, Watch::of(http)));
        Ok(())
    }

    /// Waits until all workers push.
    fn wait_for_pushes(&mut self) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.workers.iter().any(|(_, watch)| watch.pushes().is_empty()) {
            check_interrupt()?;
            let goes_on = self.controller.status()?.is_none() && Instant::now() < deadline;
            ensure!(goes_on, "a worker does not push\n{}", self.controller.tail());
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn restart_server(&mut self) -> Result<Restart> {
        let (server, state) = self.servers.remove(0);
        self.restart(server, |cluster| cluster.start_server(state))
    }

    fn restart_switch(&mut self) -> Result<Restart> {
        let switch = self.switches.remove(0);
        self.restart(switch, Self::start_switch)
    }

    fn restart_worker(&mut self) -> Result<Restart> {
        let (worker, watch) = self.workers.remove(0);
        drop(watch);
        self.restart(worker, |cluster| {
            cluster.start_worker()?;
            cluster.wait_for_pushes()
        })
    }

    fn restart_controller(&mut self) -> Result<Restart> {
        let (job, log) = (self.job.clone(), self.folder.join("controller-again.log"));
        let again: Vec<&str> = job.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let ended = end(&mut self.controller)?;
        self.controller = Running::start("controller", libra(&again)?, log)?;
        sleep(PAUSE);
        Ok(Restart { ended, pause: self.pause_since(begun) })
    }

    fn restart(
        &mut self,
        mut member: Running,
        start: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Restart> {
        let begun = Instant::now();
        let ended = end(&mut member)?;
        start(self)?;
        sleep(PAUSE);
        Ok(Restart { ended, pause: self.pause_since(begun) })
    }

    /// The longest time, in seconds, in which a worker pushed nothing.
    fn pause_since(&self, begun: Instant) -> f64 {
        let pauses = self.workers.iter().map(|(_, watch)| longest_pause(&watch.pushes(), begun));
        pauses.max().unwrap_or_default().as_secs_f64()
    }

    fn finish(self) -> Result<Report> {
        let servers = self.servers.into_iter().map(|(server, _)| server);
        let (workers, watches): (Vec<_>, Vec<_>) = self.workers.into_iter().unzip();
        drop(watches);
        let members = servers.chain(workers).chain(self.switches).chain([self.controller]);
        process::wait(&mut members.collect::<Vec<_>>(), Instant::now() + LIMIT)?;
        Report::read(&self.folder.join("rolled.json"))
    }
}

fn libra(arguments: &[&str]) -> Result<Command> {
    Ok(shell::program(shell::target_directory()?.join(BINARY), arguments))
}

/// Asks a member to end in order. Returns the seconds that it took.
fn end(member: &mut Running) -> Result<f64> {
    let begun = Instant::now();
    member.signal("-TERM")?;
    let status = loop {
        check_interrupt()?;
        if let Some(status) = member.status()? {
            break status;
        }
        ensure!(begun.elapsed() < LIMIT, "{} does not end\n{}", member.name, member.tail());
        sleep(LOOK_EVERY);
    };
    ensure!(status.code() == Some(DRAINED), "{} ended with {status}\n{}", member.name, member.tail());
    Ok(begun.elapsed().as_secs_f64())
}

/// Looks at a worker again and again, until it is dropped.
struct Watch {
    pushes: Arc<Mutex<Vec<Instant>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn of(worker: SocketAddr) -> Self {
        let (pushes, ends) = (Arc::<Mutex<Vec<Instant>>>::default(), Arc::<AtomicBool>::default());
        let (seen, ended) = (Arc::clone(&pushes), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let mut last = 0;
            while !ended.load(Ordering::Relaxed) {
                let count = pushes_of(worker).unwrap_or(last);
                if count > last {
                    last = count;
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                }
                sleep(LOOK_EVERY);
            }
        });
        Self { pushes, ends, thread: Some(thread) }
    }

    /// The times at which it was seen to have pushed.
    fn pushes(&self) -> Vec<Instant> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has no results of its own.
            drop(thread.join());
        }
    }
}

/// Returns the number of pushes of a worker; `None` while it does not answer.
fn pushes_of(worker: SocketAddr) -> Option<u64> {
    let metrics = http::get(worker, "/metrics", "text/plain").ok()?;
    let line = metrics.lines().find(|line| line.starts_with("libra_worker_pushes_total"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The longest time between two of these that ended after `begun`, or that has not ended.
fn longest_pause(pushes: &[Instant], begun: Instant) -> Duration {
    let ends = pushes.iter().skip(1).copied().chain([Instant::now()]);
    let pauses = pushes.iter().zip(ends).filter(|(_, end)| *end > begun);
    pauses.map(|(start, end)| end.duration_since(*start)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_ended_before_do_not_count() {
        let now = Instant::now();
        let at = |milliseconds: u64| now.checked_sub(Duration::from_millis(milliseconds)).unwrap();
        let pushes = [at(900), at(500), at(490), at(390), at(10)];
        assert!(longest_pause(&pushes[..4], at(500)) >= Duration::from_millis(390));
        assert_eq!(longest_pause(&pushes, at(500)), Duration::from_millis(380));
        assert_eq!(longest_pause(&pushes, at(901)), Duration::from_millis(400));
        assert_eq!(longest_pause(&[], now), Duration::ZERO);
    }
}
