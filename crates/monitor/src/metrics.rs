//! Metrics of members and of a controller: which families there are, and the counts that they are made of.

use core::time::Duration;

use libra_net::Inspected;
use libra_proto::{
    ControllerStatus, Details, Kind, MemberStatus, ServerDetails, ServerStatistics, Statistics,
    SwitchDetails, SwitchStatistics, WorkerDetails, WorkerStatistics,
};

use crate::document::{self, Totals};
use crate::family::{Families, Family, Labels, in_seconds};
use crate::process;

/// Families of a process that is a member.
pub(crate) fn of_members(inspected: &Inspected<MemberStatus>, kind: Kind) -> Vec<Family> {
    let mut families = Families::default();
    about_process(&mut families, inspected.lag);
    members(&mut families, &inspected.statuses);
    if let Some(drops) = process::socket_drops(&inspected.sockets) {
        let name = format!("libra_{}_socket_drops", kind.name());
        families.counter(
            &name,
            "Datagrams that the kernel dropped since the receive buffer was full.",
            &[(&[], drops)],
        );
    }
    families.into_vec()
}

/// Families of members, each with its name as a label.
fn members(families: &mut Families, statuses: &[MemberStatus]) {
    for status in statuses {
        let role = match status.counts {
            Statistics::Worker(_) => Kind::Worker.name(),
            Statistics::Server(_) => Kind::Server.name(),
            Statistics::Switch(_) => Kind::Switch.name(),
        };
        let member = status.member.map_or_else(|| role.to_owned(), |member| member.to_string());
        families.label(vec![("member", member)]);
        let job = status.job.to_string();
        families.gauge(
            "libra_member_info",
            "A member of this process, always 1.",
            &[(&[("libra_job", &job), ("role", role)], 1.0)],
        );
        families.gauge("libra_view", "Newest view that the member acts on.", &[(&[], status.view as f64)]);
        families.gauge(
            "libra_ready",
            "1 if the member acts on the newest view and can do its part.",
            &[(&[], f64::from(u8::from(status.is_ready)))],
        );
        match (&status.counts, &status.details) {
            (Statistics::Worker(counts), Details::Worker(details)) => worker(families, counts, details),
            (Statistics::Server(counts), Details::Server(details)) => server(families, counts, details),
            (Statistics::Switch(counts), Details::Switch(details)) => switch(families, counts, details),
            _ => {}
        }
    }
    families.label(Labels::new());
}

fn about_process(families: &mut Families, lag: Duration) {
    families.gauge(
        "libra_build_info",
        "The version of the program, always 1.",
        &[(&[("version", env!("CARGO_PKG_VERSION"))], 1.0)],
    );
    families.gauge(
        "libra_loop_lag_seconds",
        "Time until the slowest loop of the process had answered this scrape.",
        &[(&[], in_seconds(lag))],
    );
    process::metrics(families);
}

fn worker(families: &mut Families, counts: &WorkerStatistics, details: &WorkerDetails) {
    work(families, "libra_worker", counts);
    let training = &counts.training;
    families.counter(
        "libra_worker_hot_refused",
        "Packets that a switch refused for a while.",
        &[(&[], counts.refused)],
    );
    families.counter(
        "libra_worker_hot_dropped",
        "Datagrams that were no answer to anything, and those without the right tag.",
        &[(&[("reason", "unexpected")], counts.dropped), (&[("reason", "forged")], counts.forged)],
    );
    families.histogram(
        "libra_worker_push_accepted_seconds",
        "From a push to its last acknowledgement.",
        &[(&[], details.push_accepted)],
    );
    families.histogram(
        "libra_worker_push_visible_seconds",
        "From a push until all of it can be read, of ten pushes a second at most.",
        &[(&[], details.push_visible)],
    );
    families.histogram(
        "libra_worker_pull_seconds",
        "From a pull to its last answer, by where its rows were read.",
        &[
            (&[("path", "hot")], details.pull_hot),
            (&[("path", "cold")], details.pull_cold),
            (&[("path", "mixed")], details.pull_mixed),
        ],
    );
    for path in &details.paths {
        let switch = path.switch.to_string();
        let labels: &[_] = &[("switch", switch.as_str())];
        families.gauge(
            "libra_worker_window_packets",
            "Packets that may be in flight to a switch.",
            &[(labels, f64::from(path.window_packets))],
        );
        if let Some(round_trip) = path.round_trip {
            families.gauge(
                "libra_worker_round_trip_seconds",
                "Smoothed round-trip time of packets to a switch (RFC 6298).",
                &[(labels, in_seconds(round_trip))],
            );
        }
    }
    families.counter(
        "libra_worker_samples",
        "Samples that the worker has trained on.",
        &[(&[], training.samples)],
    );
    families.gauge(
        "libra_worker_samples_planned",
        "Samples that it will have trained on at the end.",
        &[(&[], training.samples_planned as f64)],
    );
    families.gauge("libra_worker_loss", "Mean loss of the present epoch so far.", &[(&[], training.loss)]);
    let reads = &training.reads;
    families.counter(
        "libra_worker_data_requests",
        "Requests for data to servers.",
        &[
            (&[("kind", "first")], reads.requests.saturating_sub(reads.retries)),
            (&[("kind", "retry")], reads.retries),
        ],
    );
    families.counter("libra_worker_data_bytes", "Bytes of data that were read.", &[(&[], reads.bytes)]);
    families.counter(
        "libra_worker_chunks",
        "Chunks of data that the worker had leases of: done by it, or by another while it was away.",
        &[
            (&[("outcome", "done")], details.chunks.done),
            (&[("outcome", "reassigned")], details.chunks.reassigned),
        ],
    );
    let step = &training.step_us;
    let seconds = |micros: u64| micros as f64 / 1e6;
    families.seconds(
        "libra_worker_step_seconds",
        "Time of the training loop by what it did or waited for.",
        &[
            (&[("part", "data")], seconds(step.data)),
            (&[("part", "pull")], seconds(step.pull)),
            (&[("part", "compute")], seconds(step.compute)),
            (&[("part", "push")], seconds(step.push)),
            (&[("part", "clock")], seconds(step.clock)),
        ],
    );
}

/// Counts of a worker, or of all workers of a job.
fn work(families: &mut Families, prefix: &str, counts: &WorkerStatistics) {
    families.counter(&format!("{prefix}_pushes"), "Pushes.", &[(&[], counts.pushes)]);
    families.counter(
        &format!("{prefix}_rows_pushed"),
        "Rows in pushes, by where their gradients went.",
        &[(&[("path", "hot")], counts.rows_hot), (&[("path", "cold")], counts.rows_cold)],
    );
    families.counter(
        &format!("{prefix}_rows_too_large"),
        "Hot rows whose gradient was too large for the plan, and went to a server.",
        &[(&[], counts.rows_too_large)],
    );
    families.counter(
        &format!("{prefix}_rows_pulled"),
        "Rows read, by where.",
        &[
            (&[("path", "hot")], counts.rows_pulled_hot),
            (&[("path", "cold")], counts.rows_pulled.saturating_sub(counts.rows_pulled_hot)),
        ],
    );
    families.counter(
        &format!("{prefix}_hot_packets"),
        "Packets sent to switches.",
        &[
            (&[("kind", "first")], counts.packets.saturating_sub(counts.retransmits)),
            (&[("kind", "retransmit")], counts.retransmits),
        ],
    );
}

fn server(families: &mut Families, counts: &ServerStatistics, details: &ServerDetails) {
    serve(families, "libra_server", counts);
    families.counter(
        "libra_server_duplicates",
        "Pushes and rounds that came again, and were not applied again.",
        &[(&[], counts.duplicates)],
    );
    families.counter(
        "libra_server_dropped",
        "Messages that violated the protocol.",
        &[(&[], counts.dropped)],
    );
    families.counter(
        "libra_server_fenced",
        "Messages of members that acted on an old view.",
        &[(&[], counts.fenced)],
    );
    families.counter(
        "libra_server_refused",
        "Pushes and sums of rows that were refused since they are not finite.",
        &[(&[("what", "pushes")], counts.pushes_refused), (&[("what", "sums")], counts.sums_refused)],
    );
    families.counter(
        "libra_server_replays",
        "Replays of packets that no switch could take any more.",
        &[(&[], counts.replays)],
    );
    families.counter(
        "libra_server_lost_pushes",
        "Pushes that were answered, and lost when a server stopped.",
        &[(&[], counts.lost_pushes)],
    );
    families.counter(
        "libra_server_lost_rounds",
        "Rounds that were committed, and lost when a server stopped.",
        &[(&[], counts.lost_rounds)],
    );
    families.counter(
        "libra_server_rows_evicted",
        "Rows that were evicted by the rule of their table.",
        &[(&[], counts.rows_evicted)],
    );
    families.counter(
        "libra_server_gradients_not_admitted",
        "Gradients that made no row, by the rule of their table.",
        &[(&[], counts.gradients_not_admitted)],
    );
    families.counter(
        "libra_server_disk_rows",
        "Rows that were moved between memory and disk for a memory limit.",
        &[
            (&[("operation", "read")], counts.disk_rows_read),
            (&[("operation", "write")], counts.disk_rows_written),
        ],
    );
    families.gauge("libra_server_rows", "Rows in the store.", &[(&[], counts.rows as f64)]);
    families.gauge(
        "libra_server_rows_on_disk",
        "Of these, rows on disk and not in memory.",
        &[(&[], counts.rows_on_disk as f64)],
    );
    families.gauge("libra_server_store_bytes", "Memory of the store.", &[(&[], details.store_bytes as f64)]);
    families.gauge(
        "libra_server_over_memory_limit",
        "1 if rows take more memory than they may, as the disk is full.",
        &[(&[], counts.shards_over_limit as f64)],
    );
    families.gauge(
        "libra_server_log_bytes",
        "Bytes of the log that the newest checkpoint does not cover.",
        &[(&[], counts.log_bytes as f64)],
    );
    families.gauge(
        "libra_server_log_suspended",
        "1 if the log cannot be written, and training goes on without it.",
        &[(&[], f64::from(u8::from(details.is_log_suspended)))],
    );
    families.histogram(
        "libra_server_log_sync_seconds",
        "From a record of the log until it is durable; of one record at a time.",
        &[(&[], details.log_sync)],
    );
    families.histogram(
        "libra_server_checkpoint_seconds",
        "Duration of checkpoints.",
        &[(&[], details.checkpoint)],
    );
    families.gauge(
        "libra_server_checkpoint_number",
        "Number of the newest checkpoint.",
        &[(&[], counts.checkpoint as f64)],
    );
    if let Some(age) = details.checkpoint_age {
        families.gauge(
            "libra_server_checkpoint_age_seconds",
            "Time since the newest checkpoint of this process.",
            &[(&[], in_seconds(age))],
        );
    }
    families.counter(
        "libra_server_checkpoints_failed",
        "Checkpoints that failed.",
        &[(&[], counts.checkpoints_failed)],
    );
    let upload = &details.upload;
    families.histogram(
        "libra_server_upload_seconds",
        "Duration of uploads of checkpoints.",
        &[(&[], upload.seconds)],
    );
    families.gauge(
        "libra_server_upload_number",
        "Number of the newest checkpoint that is uploaded.",
        &[(&[], upload.number as f64)],
    );
    families.counter(
        "libra_server_upload_bytes",
        "Bytes that were sent in uploads of checkpoints.",
        &[(&[], upload.bytes)],
    );
    families.counter("libra_server_uploads_failed", "Uploads that failed.", &[(&[], upload.failed)]);
}

/// Counts of a server, or of all servers of a job.
fn serve(families: &mut Families, prefix: &str, counts: &ServerStatistics) {
    families.counter(
        &format!("{prefix}_row_updates"),
        "Rows updated, by where the gradient came from: sums of rounds, and pushes.",
        &[
            (&[("source", "hot")], counts.row_updates_hot),
            (&[("source", "cold")], counts.row_updates.saturating_sub(counts.row_updates_hot)),
        ],
    );
    families.counter(&format!("{prefix}_row_reads"), "Rows read by pulls.", &[(&[], counts.row_reads)]);
    families.counter(&format!("{prefix}_rounds"), "Rounds applied.", &[(&[], counts.rounds)]);
}

fn switch(families: &mut Families, counts: &SwitchStatistics, details: &SwitchDetails) {
    families.counter(
        "libra_switch_packets",
        "Packets by what became of them; pulls that were answered are counted apart.",
        &[
            (&[("outcome", "added")], counts.pushes),
            (&[("outcome", "duplicate")], counts.duplicates),
            (&[("outcome", "refused")], counts.refused),
            (&[("outcome", "malformed")], counts.malformed),
            (&[("outcome", "unknown_sender")], counts.unknown_senders),
            (&[("outcome", "forged")], counts.forged),
            (&[("outcome", "stale")], counts.stale),
        ],
    );
    families.counter("libra_switch_received", "Packets that arrived.", &[(&[], counts.packets)]);
    families.counter("libra_switch_pulls", "Pulls that were answered.", &[(&[], counts.pulls)]);
    families.counter(
        "libra_switch_retransmits",
        "Pushes that workers sent again, by their mark.",
        &[(&[], counts.retransmits)],
    );
    families.counter(
        "libra_switch_rounds",
        "Rounds that were closed, by the reason.",
        &[
            (&[("closed_by", "full")], details.rounds_full),
            (&[("closed_by", "pushes")], details.rounds_pushes),
            (&[("closed_by", "time")], details.rounds_time),
            (&[("closed_by", "retiring")], details.rounds_retiring),
        ],
    );
    families.counter(
        "libra_switch_slots_drained",
        "Slots that were drained.",
        &[(&[], counts.slots_drained)],
    );
    families.histogram(
        "libra_switch_round_seconds",
        "From the first packet of a round to its end.",
        &[(&[], details.round)],
    );
    families.histogram(
        "libra_switch_commit_seconds",
        "From the drain of a round until its shard has committed it.",
        &[(&[], details.commit)],
    );
    families.gauge(
        "libra_switch_uncommitted_bytes",
        "Sums that are drained and that no shard has committed yet.",
        &[(&[], counts.queue_bytes as f64)],
    );
    families.gauge(
        "libra_switch_memory_bytes",
        "Memory of the regions.",
        &[(&[], counts.memory_bytes as f64)],
    );
    families.gauge(
        "libra_switch_regions",
        "Regions that the switch holds.",
        &[(&[], details.regions as f64)],
    );
}

/// States of a member, all of which are shown: a state that no member has is 0.
const STATES: [&str; 8] = ["joining", "entering", "active", "standby", "retired", "away", "leaving", "done"];

/// Families of a controller, and of the members in its process.
pub(crate) fn of_controller(
    inspected: &Inspected<ControllerStatus>,
    in_process: Option<&Inspected<MemberStatus>>,
) -> Vec<Family> {
    let mut families = Families::default();
    about_process(&mut families, inspected.lag.max(in_process.map_or(Duration::ZERO, |members| members.lag)));
    let Some(status) = inspected.statuses.last() else { return families.into_vec() };
    let families = &mut families;
    let job = status.job.to_string();
    families.gauge(
        "libra_member_info",
        "A member of this process, always 1.",
        &[(&[("libra_job", &job), ("role", "controller")], 1.0)],
    );
    families.gauge("libra_view", "Newest view.", &[(&[], status.view as f64)]);
    for role in ["server", "switch", "worker"] {
        let of_role = || status.members.iter().filter(|member| document::kind(member.peer) == role);
        for state in STATES {
            let count = of_role().filter(|member| document::state(member.state) == state).count();
            families.gauge(
                "libra_controller_members",
                "Members by state.",
                &[(&[("role", role), ("state", state)], count as f64)],
            );
        }
    }
    families.counter(
        "libra_controller_losses",
        "Members that were given up.",
        &[
            (&[("role", "server")], status.lost.servers),
            (&[("role", "switch")], status.lost.switches),
            (&[("role", "worker")], status.lost.workers),
        ],
    );
    for member in &status.members {
        let name = member.peer.to_string();
        families.gauge(
            "libra_controller_member_silent_seconds",
            "Time since the last message of a member.",
            &[(&[("role", document::kind(member.peer)), ("member", &name)], in_seconds(member.silent))],
        );
        if document::kind(member.peer) == "worker" {
            families.gauge(
                "libra_controller_worker_clock",
                "Clock of a worker since the last barrier.",
                &[(&[("member", &name)], member.clock as f64)],
            );
        }
    }
    families.counter(
        "libra_controller_views",
        "Changes of the view that all members have acted on.",
        &[(&[], status.view_changes.count())],
    );
    families.histogram(
        "libra_controller_view_seconds",
        "Durations of changes of the view, from the fault to the last member that acts on it.",
        &[(&[], status.view_changes)],
    );
    families.counter(
        "libra_controller_regions_moved",
        "Regions that have moved.",
        &[(&[], status.regions_moved)],
    );
    let checkpoints = &status.checkpoints;
    families.counter(
        "libra_controller_checkpoints",
        "Checkpoints of all servers.",
        &[(&[("outcome", "written")], checkpoints.written), (&[("outcome", "failed")], checkpoints.failed)],
    );
    if let Some(age) = checkpoints.age {
        families.gauge(
            "libra_controller_checkpoint_age_seconds",
            "Time since all servers had written a checkpoint.",
            &[(&[], in_seconds(age))],
        );
    }
    if let Some(every) = checkpoints.every {
        families.gauge(
            "libra_controller_checkpoint_interval_seconds",
            "Interval at which checkpoints are to be written.",
            &[(&[], in_seconds(every))],
        );
    }
    let (samples, planned) = status.samples();
    if planned > 0 {
        families.gauge(
            "libra_controller_progress_ratio",
            "Share of the samples of the job that were trained on.",
            &[(&[], samples as f64 / planned as f64)],
        );
    }
    families.counter("libra_controller_samples", "Samples that were trained on.", &[(&[], samples)]);
    if let Some(loss) = status.loss() {
        families.gauge("libra_controller_loss", "Mean loss of the present epoch.", &[(&[], loss)]);
    }
    if let Some(work) = status.work {
        families.gauge("libra_controller_phase", "Present phase of the work.", &[(&[], work.phase as f64)]);
        families.gauge(
            "libra_controller_chunks",
            "Chunks of the present phase by state.",
            &[
                (&[("state", "done")], f64::from(work.done)),
                (&[("state", "leased")], f64::from(work.leased)),
                (&[("state", "free")], f64::from(work.chunks - work.done - work.leased)),
            ],
        );
        families.counter(
            "libra_controller_chunks_repeated",
            "Chunks that were dealt again after a worker was lost.",
            &[(&[], work.repeated)],
        );
    }
    families.counter(
        "libra_controller_strangers",
        "Streams that were closed as those of no member.",
        &[(&[], status.strangers)],
    );
    job_totals(families, &Totals::of(status.counts().map(|(_, counts)| counts)));
    members(families, in_process.map_or(&[], |members| &members.statuses));
    core::mem::take(families).into_vec()
}

/// Counts of all members, as they were with their last heartbeats: those of members that are gone, too.
fn job_totals(families: &mut Families, totals: &Totals) {
    work(families, "libra_job", &totals.worker);
    serve(families, "libra_job", &totals.server);
    families.counter(
        "libra_job_packets_added",
        "Packets of gradients that switches added up.",
        &[(&[], totals.switch.pushes)],
    );
    families.counter(
        "libra_job_switch_rounds",
        "Rounds that switches closed.",
        &[(&[], totals.switch.rounds)],
    );
}

#[cfg(test)]
mod tests;
