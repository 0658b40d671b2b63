#!/usr/bin/env python3
"""Writes the dashboards of Libra for Grafana: job.json, switch.json, server.json and host.json, beside this file.

`dashboards.py` writes them, `dashboards.py --check` only compares them with what it would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from panels import Dashboard, Panel, Row, Series, Variable, quantiles, rate, share

JOB = 'libra_job="$job"'
MEMBER = f'{JOB}, member=~"$member"'
JOB_VARIABLE = Variable("job", "Job", "label_values(libra_member_info, libra_job)")


def member_variable(label: str, role: str | None) -> Variable:
    """Returns the variable for the members of a role, or for all."""
    selector = f'{JOB}, role="{role}"' if role else JOB
    return Variable("member", label, f"label_values(libra_member_info{{{selector}}}, member)", multi=True)


def stat(title: str, expr: str, unit: str = "short", *, description: str = "", bad: tuple[float, float] | None = None) -> Panel:
    """Returns a panel with one number."""
    return Panel(title, (Series(expr),), unit, description, "stat", width=4, height=4, bad=bad)


HOT_PUSHED = share(f'libra_job_rows_pushed_total{{{JOB}, path="hot"}}', f"libra_job_rows_pushed_total{{{JOB}}}")
HOT_PULLED = share(f'libra_job_rows_pulled_total{{{JOB}, path="hot"}}', f"libra_job_rows_pulled_total{{{JOB}}}")
RETRANSMITS = share(
    f'libra_worker_hot_packets_total{{{MEMBER}, kind="retransmit"}}',
    f"libra_worker_hot_packets_total{{{MEMBER}}}",
    "member",
)

JOB_DASHBOARD = Dashboard(
    "libra-job",
    "Libra / Job",
    "A job: its progress, its members, and the time of its workers.",
    (JOB_VARIABLE, member_variable("Worker", "worker")),
    (
        Row(
            "Progress",
            (
                stat("Progress", f"libra_controller_progress_ratio{{{JOB}}}", "percentunit"),
                stat("Samples a second", f"sum(rate(libra_controller_samples_total{{{JOB}}}[$__rate_interval]))"),
                stat("Loss", f"libra_controller_loss{{{JOB}}}", description="Mean loss of the present epoch."),
                stat("Hot share", HOT_PUSHED, "percentunit", description="Pushed rows that went to a switch."),
                stat(
                    "View",
                    f'libra_view{{{JOB}, role="controller"}}',
                    "none",
                    description="It grows with each fault and return.",
                ),
                stat("Members lost", f"sum(libra_controller_losses_total{{{JOB}}})", bad=(1, 3)),
                Panel(
                    "Loss",
                    (Series(f"libra_controller_loss{{{JOB}}}", "job"), Series(f"libra_worker_loss{{{MEMBER}}}", "{{member}}")),
                ),
                Panel("Samples a second", (rate("libra_worker_samples_total", MEMBER, "member", "{{member}}"),), stacked=True),
                Panel(
                    "Hot share of rows",
                    (Series(HOT_PUSHED, "pushed"), Series(HOT_PULLED, "pulled")),
                    "percentunit",
                    "Rows that went through a switch, and not to a server.",
                    max=1,
                ),
            ),
        ),
        Row(
            "Members",
            (
                Panel(
                    "Members by state",
                    (Series(f"sum by (role, state) (libra_controller_members{{{JOB}}}) > 0", "{{role}} {{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Time since the last message",
                    (Series(f"libra_controller_member_silent_seconds{{{JOB}}}", "{{member}}"),),
                    "s",
                    "As the controller sees its members.",
                ),
                Panel(
                    "Clocks",
                    (Series(f"libra_controller_worker_clock{{{JOB}}}", "{{member}}"),),
                    description="Since the last barrier; 0 without --mode ssp or sync.",
                ),
                Panel("Members lost", (Series(f"libra_controller_losses_total{{{JOB}}}", "{{role}}"),)),
                Panel(
                    "View changes",
                    (
                        Series(f"libra_controller_view_seconds_count{{{JOB}}}", "changes"),
                        Series(f"libra_controller_regions_moved_total{{{JOB}}}", "regions moved"),
                    ),
                ),
                Panel(
                    "Duration of view changes",
                    (
                        Series(
                            f"libra_controller_view_seconds_sum{{{JOB}}} / libra_controller_view_seconds_count{{{JOB}}}", "mean"
                        ),
                        Series(f"histogram_quantile(0.99, sum by (le) (libra_controller_view_seconds_bucket{{{JOB}}}))", "p99"),
                    ),
                    "s",
                    "From a fault to the last member that acts on the new view, over the whole job.",
                ),
            ),
        ),
        Row(
            "Steps of workers",
            (
                Panel(
                    "Step time by part: $member",
                    (rate("libra_worker_step_seconds_total", MEMBER, "part", "{{part}}"),),
                    "percentunit",
                    "Share of time; data: reading samples, pull: waiting for rows, push: handing over, clock: waiting for others.",
                    stacked=True,
                    repeat="member",
                ),
            ),
        ),
        Row(
            "Pushes and pulls",
            (
                Panel(
                    "Push: accepted and visible",
                    quantiles("libra_worker_push_accepted_seconds", MEMBER, legend="accepted")
                    + quantiles("libra_worker_push_visible_seconds", MEMBER, legend="visible"),
                    "s",
                ),
                Panel("Pull by path", quantiles("libra_worker_pull_seconds", MEMBER, "path", "{{path}}"), "s"),
                Panel(
                    "Rows a second",
                    (
                        rate("libra_job_rows_pushed_total", JOB, "path", "pushed, {{path}}"),
                        rate("libra_job_rows_pulled_total", JOB, "path", "pulled, {{path}}"),
                    ),
                ),
                Panel("Pushes a second", (rate("libra_worker_pushes_total", MEMBER, "member", "{{member}}"),)),
                Panel(
                    "Hot rows over the bound",
                    (rate("libra_worker_rows_too_large_total", MEMBER, "member", "{{member}}"),),
                    description="Rows a second whose gradient was too large for the plan, and went to a server: if many, profile again.",
                ),
            ),
        ),
        Row(
            "Packets",
            (
                Panel("Retransmits", (Series(RETRANSMITS, "{{member}}"),), "percentunit", "Share of all packets to switches."),
                Panel(
                    "Round trips", (Series(f"libra_worker_round_trip_seconds{{{MEMBER}}}", "{{member}} to {{switch}}"),), "s"
                ),
                Panel(
                    "Windows",
                    (Series(f"libra_worker_window_packets{{{MEMBER}}}", "{{member}} to {{switch}}"),),
                    description="Packets that may be in flight.",
                ),
                Panel(
                    "Packets a second",
                    (rate("libra_worker_hot_packets_total", MEMBER, "member, kind", "{{member}} {{kind}}"),),
                    "pps",
                ),
                Panel(
                    "Refused and dropped",
                    (
                        rate("libra_worker_hot_refused_total", MEMBER, legend="refused by a switch"),
                        rate("libra_worker_hot_dropped_total", MEMBER, "reason", "dropped, {{reason}}"),
                    ),
                    "pps",
                ),
                Panel("Strangers", (Series(f"libra_controller_strangers_total{{{JOB}}}", "streams closed"),)),
            ),
        ),
    ),
)

SWITCH_DASHBOARD = Dashboard(
    "libra-switch",
    "Libra / Switch",
    "The switches of a job: packets, rounds and memory.",
    (JOB_VARIABLE, member_variable("Switch", "switch")),
    (
        Row(
            "Packets",
            (
                Panel(
                    "Packets by outcome",
                    (rate("libra_switch_packets_total", MEMBER, "outcome", "{{outcome}}"),),
                    "pps",
                    stacked=True,
                ),
                Panel(
                    "Received",
                    (
                        rate("libra_switch_received_total", MEMBER, "member", "{{member}}"),
                        rate("libra_switch_pulls_total", MEMBER, "member", "{{member}} pulls"),
                    ),
                    "pps",
                ),
                Panel(
                    "Packets sent again",
                    (rate("libra_switch_retransmits_total", MEMBER, "member", "{{member}}"),),
                    "pps",
                    "By their mark; those that had been added before are duplicates among the outcomes.",
                ),
                Panel(
                    "Socket drops",
                    (Series(f"rate(libra_switch_socket_drops_total{{{MEMBER}}}[$__rate_interval])", "{{member}}"),),
                    "pps",
                    "Datagrams that the kernel dropped as the receive buffer was full.",
                ),
            ),
        ),
        Row(
            "Rounds",
            (
                Panel(
                    "Rounds by reason of their end",
                    (rate("libra_switch_rounds_total", MEMBER, "closed_by", "{{closed_by}}"),),
                    stacked=True,
                ),
                Panel("Length of rounds", quantiles("libra_switch_round_seconds", MEMBER, "member", "{{member}}"), "s"),
                Panel("From drain to commit", quantiles("libra_switch_commit_seconds", MEMBER, "member", "{{member}}"), "s"),
                Panel("Slots drained a second", (rate("libra_switch_slots_drained_total", MEMBER, "member", "{{member}}"),)),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    "Regions", (Series(f"libra_switch_regions{{{MEMBER}}}", "{{member}}"),), description="A standby has none."
                ),
                Panel("Memory of regions", (Series(f"libra_switch_memory_bytes{{{MEMBER}}}", "{{member}}"),), "bytes"),
                Panel(
                    "Uncommitted sums",
                    (Series(f"libra_switch_uncommitted_bytes{{{MEMBER}}}", "{{member}}"),),
                    "bytes",
                    "Drained, and not committed by a shard yet.",
                ),
                Panel("Ready", (Series(f'libra_ready{{{MEMBER}, role="switch"}}', "{{member}}"),), max=1),
            ),
        ),
    ),
)

SERVER_DASHBOARD = Dashboard(
    "libra-server",
    "Libra / Server",
    "The servers of a job: updates, rows, log and checkpoints.",
    (JOB_VARIABLE, member_variable("Shard", "server")),
    (
        Row(
            "Work",
            (
                Panel(
                    "Row updates by source",
                    (rate("libra_server_row_updates_total", MEMBER, "source", "{{source}}"),),
                    stacked=True,
                ),
                Panel(
                    "Row reads a second", (rate("libra_server_row_reads_total", MEMBER, "member", "{{member}}"),), stacked=True
                ),
                Panel("Rounds applied a second", (rate("libra_server_rounds_total", MEMBER, "member", "{{member}}"),)),
            ),
        ),
        Row(
            "Rows",
            (
                Panel(
                    "Rows",
                    (
                        Series(f"libra_server_rows{{{MEMBER}}}", "{{member}}"),
                        Series(f"libra_server_rows_on_disk{{{MEMBER}}}", "{{member}} on disk"),
                    ),
                ),
                Panel(
                    "Memory of the store",
                    (Series(f"libra_server_store_bytes{{{MEMBER}}}", "{{member}}"),),
                    "bytes",
                    stacked=True,
                ),
                Panel(
                    "Rows to and from disk",
                    (rate("libra_server_disk_rows_total", MEMBER, "operation", "{{operation}}"),),
                    description="With --memory-limit.",
                ),
                Panel("Above the memory limit", (Series(f"libra_server_over_memory_limit{{{MEMBER}}}", "{{member}}"),), max=1),
                Panel(
                    "Evicted and not admitted",
                    (
                        rate("libra_server_rows_evicted_total", MEMBER, legend="evicted"),
                        rate("libra_server_gradients_not_admitted_total", MEMBER, legend="not admitted"),
                    ),
                ),
            ),
        ),
        Row(
            "Log and checkpoints",
            (
                Panel(
                    "Log",
                    (Series(f"libra_server_log_bytes{{{MEMBER}}}", "{{member}}"),),
                    "bytes",
                    "What the newest checkpoint does not cover.",
                ),
                Panel("Log syncs", quantiles("libra_server_log_sync_seconds", MEMBER, "member", "{{member}}"), "s"),
                Panel("Log suspended", (Series(f"libra_server_log_suspended{{{MEMBER}}}", "{{member}}"),), max=1),
                Panel(
                    "Age of the newest checkpoint",
                    (
                        Series(f"libra_server_checkpoint_age_seconds{{{MEMBER}}}", "{{member}}"),
                        Series(f"libra_controller_checkpoint_age_seconds{{{JOB}}}", "of all servers"),
                        Series(f"2 * libra_controller_checkpoint_interval_seconds{{{JOB}}}", "twice the interval"),
                    ),
                    "s",
                ),
                Panel(
                    "Duration of checkpoints",
                    (
                        Series(
                            f"histogram_quantile(0.99, sum by (le, member) (libra_server_checkpoint_seconds_bucket{{{MEMBER}}}))",
                            "{{member}} p99",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Checkpoints",
                    (
                        Series(f"libra_server_checkpoint_number{{{MEMBER}}}", "{{member}} newest"),
                        Series(f"libra_server_upload_number{{{MEMBER}}}", "{{member}} newest uploaded"),
                        Series(f"libra_controller_checkpoints_total{{{JOB}}}", "{{outcome}}"),
                        Series(f"libra_server_checkpoints_failed_total{{{MEMBER}}}", "{{member}} failed"),
                        Series(f"libra_server_uploads_failed_total{{{MEMBER}}}", "{{member}} failed to upload"),
                    ),
                ),
            ),
        ),
        Row(
            "Faults",
            (
                Panel(
                    "Refused a second",
                    (rate("libra_server_refused_total", MEMBER, "what", "{{what}}"),),
                    description="Gradients and sums that are not finite.",
                ),
                Panel(
                    "Fenced, duplicate, dropped a second",
                    (
                        rate("libra_server_fenced_total", MEMBER, legend="fenced"),
                        rate("libra_server_duplicates_total", MEMBER, legend="duplicates"),
                        rate("libra_server_dropped_total", MEMBER, legend="dropped"),
                        rate("libra_server_replays_total", MEMBER, legend="replays"),
                    ),
                ),
                Panel(
                    "Lost",
                    (
                        Series(f"sum(libra_server_lost_pushes_total{{{MEMBER}}})", "pushes"),
                        Series(f"sum(libra_server_lost_rounds_total{{{MEMBER}}})", "rounds"),
                    ),
                    description="Answered or committed, and gone with a server without a log.",
                ),
            ),
        ),
    ),
)

HOST = f'job="libra-hosts", {JOB}'
DISKS = f'{HOST}, fstype!~"tmpfs|ramfs|overlay|squashfs"'

HOST_DASHBOARD = Dashboard(
    "libra-host",
    "Libra / Host",
    "Processes of a job, and the machines that they run on, as the node exporter sees them.",
    (JOB_VARIABLE, member_variable("Member", None)),
    (
        Row(
            "Processes",
            (
                Panel(
                    "Cores used",
                    (
                        Series(
                            f"rate(process_cpu_seconds_total{{{MEMBER}}}[$__rate_interval])", "{{role}} {{member}} {{instance}}"
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    "Resident memory",
                    (Series(f"process_resident_memory_bytes{{{MEMBER}}}", "{{role}} {{member}} {{instance}}"),),
                    "bytes",
                    stacked=True,
                ),
                Panel(
                    "Lag of the loop",
                    (Series(f"libra_loop_lag_seconds{{{MEMBER}}}", "{{role}} {{member}} {{instance}}"),),
                    "s",
                    "Time until the slowest loop had answered a scrape.",
                ),
                Panel(
                    "Open files and sockets",
                    (
                        Series(
                            f"process_open_fds{{{MEMBER}}} / process_max_fds{{{MEMBER}}}", "{{role}} {{member}} {{instance}}"
                        ),
                    ),
                    "percentunit",
                    "Share of the limit.",
                ),
                Panel("Threads", (Series(f"process_threads{{{MEMBER}}}", "{{role}} {{member}} {{instance}}"),)),
                Panel(
                    "Uptime",
                    (Series(f"time() - process_start_time_seconds{{{MEMBER}}}", "{{role}} {{member}} {{instance}}"),),
                    "s",
                ),
                Panel("Answering", (Series(f'up{{job="libra", {MEMBER}}}', "{{role}} {{member}} {{instance}}"),), max=1),
                Panel(
                    "Version",
                    (Series(f"count by (version) (libra_build_info{{{MEMBER}}})", "{{version}}"),),
                    description="More than one version in a job is refused.",
                ),
            ),
        ),
        Row(
            "Machines",
            (
                Panel(
                    "Processors",
                    (rate("node_cpu_seconds_total", f'{HOST}, mode!="idle"', "instance, mode", "{{instance}} {{mode}}"),),
                    description="Cores in use.",
                    stacked=True,
                ),
                Panel(
                    "Memory available",
                    (
                        Series(
                            f"node_memory_MemAvailable_bytes{{{HOST}}} / node_memory_MemTotal_bytes{{{HOST}}}", "{{instance}}"
                        ),
                    ),
                    "percentunit",
                    max=1,
                ),
                Panel(
                    "Network",
                    (
                        Series(
                            f"8 * sum by (instance) (rate(node_network_receive_bytes_total{{{HOST}}}[$__rate_interval]))",
                            "{{instance}} received",
                        ),
                        Series(
                            f"8 * sum by (instance) (rate(node_network_transmit_bytes_total{{{HOST}}}[$__rate_interval]))",
                            "{{instance}} sent",
                        ),
                    ),
                    "bps",
                ),
                Panel(
                    "UDP errors",
                    (
                        Series(
                            f"rate(node_netstat_Udp_RcvbufErrors{{{HOST}}}[$__rate_interval])",
                            "{{instance}} receive buffer full",
                        ),
                        Series(f"rate(node_netstat_Udp_InErrors{{{HOST}}}[$__rate_interval])", "{{instance}} other"),
                    ),
                    "pps",
                ),
                Panel(
                    "Disk space",
                    (
                        Series(
                            f"node_filesystem_avail_bytes{{{DISKS}}} / node_filesystem_size_bytes{{{DISKS}}}",
                            "{{instance}} {{mountpoint}}",
                        ),
                    ),
                    "percentunit",
                    "Share that is free.",
                    max=1,
                ),
                Panel(
                    "Disk busy",
                    (Series(f"rate(node_disk_io_time_seconds_total{{{HOST}}}[$__rate_interval])", "{{instance}} {{device}}"),),
                    "percentunit",
                ),
            ),
        ),
    ),
)

DASHBOARDS = {"job": JOB_DASHBOARD, "switch": SWITCH_DASHBOARD, "server": SERVER_DASHBOARD, "host": HOST_DASHBOARD}


def main() -> None:
    """Writes or compares all dashboards."""
    only_compared = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not only_compared:
        raise SystemExit("usage: dashboards.py [--check]")
    for name, dashboard in DASHBOARDS.items():
        path = Path(__file__).with_name(f"{name}.json")
        text = json.dumps(dashboard.json(), indent=2) + "\n"
        if not only_compared:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is not what dashboards.py makes: run it again")


if __name__ == "__main__":
    main()
