//! Status of a job as a text for a person.

use libra_launch::table::{paragraph, summary as pairs, table};
use libra_monitor::{Counts, JobDocument, MemberDocument};

use crate::figures::{bytes, duration, number_of, percent, places};
use crate::top::rates::share;

/// Returns the summary: the job, then its members.
pub(crate) fn summary(job: &JobDocument) -> String {
    let job_lines = pairs(facts(job));
    if job.members.is_empty() {
        return format!("{job_lines}\n{}", paragraph("no members yet"));
    }
    let header = ["member", "state", "address", "HTTP", "silent", "its part"];
    let rows = job.members.iter().map(|member| {
        vec![
            member.member.clone(),
            member.state.clone(),
            member.address.to_string(),
            member.http.map_or_else(|| "-".to_owned(), |http| http.to_string()),
            format!("{:.0} ms", member.silent_ms),
            part(member),
        ]
    });
    format!("{job_lines}\n{}", table(&header, &[4], rows))
}

/// Names, values and notes of the job as a whole.
fn facts(job: &JobDocument) -> Vec<(&'static str, String, String)> {
    let up = format!("its controller runs for {}", duration(job.uptime_seconds));
    let mut facts = vec![(("job"), job.job.to_string(), format!("{}, {up}", job.phase))];
    if let Some(failure) = &job.failure {
        facts.push(("failure", String::new(), failure.clone()));
    }
    let settled = if job.is_settled { "all members act on it" } else { "members enter it" };
    facts.push(("view", job.view.to_string(), settled.to_owned()));
    if let Some(gathering) = &job.gathering {
        facts.push(("members", String::new(), places(gathering)));
    }
    facts.push(progress(job));
    facts.push(checkpoints(job));
    let lost = job.lost.workers + job.lost.switches + job.lost.servers;
    let kinds = [
        number_of(job.lost.workers, "worker", "workers"),
        number_of(job.lost.switches, "switch", "switches"),
        number_of(job.lost.servers, "server", "servers"),
    ];
    facts.push(("members lost", lost.to_string(), kinds.join(", ")));
    facts.push(("regions moved", job.regions_moved.to_string(), String::new()));
    let strangers = number_of(job.strangers, "stranger was", "strangers were");
    facts.push(("packet tags", job.tags.clone(), format!("{strangers} turned away")));
    facts
}

fn progress(job: &JobDocument) -> (&'static str, String, String) {
    let progress = job.progress;
    let samples = number_of(progress.samples, "sample", "samples");
    let planned = libra_launch::report::group(progress.samples_planned);
    let of_planned = progress.ratio.map(|_| format!(" of {planned}")).unwrap_or_default();
    let loss = progress.loss.map(|loss| format!(", loss {loss:.4}")).unwrap_or_default();
    let ratio = progress.ratio.map_or_else(|| "-".to_owned(), percent);
    ("progress", ratio, format!("{samples}{of_planned}{loss}"))
}

fn checkpoints(job: &JobDocument) -> (&'static str, String, String) {
    let found = job.checkpoints;
    let every = match found.interval_seconds {
        Some(seconds) => format!("one every {}", duration(seconds)),
        None => "written when asked for".to_owned(),
    };
    let age = found.age_seconds.map(|age| format!("{} ago, ", duration(age))).unwrap_or_default();
    let failed = if found.failed > 0 { format!(", {} failed", found.failed) } else { String::new() };
    let newest = if found.newest > 0 { found.newest.to_string() } else { "none".to_owned() };
    ("checkpoint", newest, format!("{age}{every}{failed}"))
}

/// The part that a member has in the job.
fn part(member: &MemberDocument) -> String {
    match &member.counts {
        None => "-".to_owned(),
        Some(Counts::Worker(counts)) => {
            let samples = number_of(counts.training.samples, "sample", "samples");
            let hot = share(counts.rows_hot as f64, counts.rows as f64);
            let hot = hot.map(|hot| format!(", {} hot", percent(hot))).unwrap_or_default();
            format!("share {}, {samples}{hot}", member.share)
        }
        Some(Counts::Server(counts)) => {
            let rows = number_of(counts.rows, "row", "rows");
            format!("{rows}, log {}", bytes(counts.log_bytes))
        }
        Some(Counts::Switch(counts)) => {
            let regions = number_of(member.regions, "region", "regions");
            let packets = number_of(counts.packets, "packet", "packets");
            format!("{regions}, {packets}, {}", bytes(counts.memory_bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::{gathering, job, server_member, switch_member, worker_member};

    #[test]
    fn a_summary_has_the_job_and_its_members() {
        let mut job = job(vec![worker_member(0, 100), server_member(1, 10), switch_member(2, "standby", 0)]);
        (job.checkpoints.newest, job.checkpoints.age_seconds) = (7, Some(34.0));
        job.checkpoints.interval_seconds = Some(60.0);
        job.lost.switches = 1;
        let text = summary(&job);
        for words in [
            "running, its controller runs for 01:02",
            "25,000 samples of 100,000, loss 0.4321",
            "34 s ago, one every 01:00",
            "0 workers, 1 switch, 0 servers",
            "share 0, 25,600 samples, 80% hot",
            "123,456 rows, log 5.0M",
            "0 regions, 0 packets, 12.0M",
            "standby",
        ] {
            assert!(text.contains(words), "{words:?} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_job_that_has_just_begun_has_a_summary() {
        let mut job = job(vec![]);
        (job.phase, job.failure) = ("gathering".to_owned(), Some("the data are damaged".to_owned()));
        (job.progress.ratio, job.progress.loss) = (None, None);
        job.gathering = Some(gathering());
        let text = summary(&job);
        assert!(text.contains("no members yet") && text.contains("the data are damaged"), "{text}");
        assert!(text.contains("1 of 2 servers, 1 of 1 switches, 0 of 2 workers are there"), "{text}");
        assert!(text.contains("none") && text.contains("written when asked for"), "{text}");
    }
}
