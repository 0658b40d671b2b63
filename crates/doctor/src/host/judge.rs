//! Findings about a machine, from facts alone.

use libra_net::ReceiveBuffer;
use libra_proto::{PACKETS_IN_FLIGHT_MAX, packets_in_flight};

use super::{Capabilities, Host, Limits, Vectors};
use crate::finding::{Finding, Unseen, bytes, grouped};
use crate::needs::{KernelPlane, Needs, Tables};

/// Packets in flight below which a worker waits for round trips most of the time, or nearly always.
const FEW_PACKETS: u32 = 64;
const FEWEST_PACKETS: u32 = 16;
/// As much as a switch asks for without CAP_NET_ADMIN: more does not help it.
const RMEM_MAX_WANTED: u64 = 4 << 20;
/// A burst of all workers that the kernel should hold while a core is busy elsewhere.
const BACKLOG_MIN: u64 = 1000;
/// Cores without which a member stands still for most of each period.
const CORES_MIN: f64 = 1.0;
/// Streams and files of a member, beside a stream for each worker.
const DESCRIPTORS_OF_A_MEMBER: u64 = 64;
/// Bytes that a member takes beside rows: buffers, messages, and code.
const MEMBER_BYTES: u64 = 256 << 20;

pub(crate) fn judge(host: &Host, needs: &Needs) -> Vec<Finding> {
    let mut findings = vec![
        receive_buffer(host, needs),
        backlog(&host.backlog),
        cores(host, needs),
        quota(&host.limits),
        numa(&host.nodes),
        smt(&host.is_smt),
        governor(&host.governor),
        clock(&host.clocksource),
        vectors(host.vectors),
        memory(host, needs),
        huge_pages(&host.huge_pages, needs.tables),
        descriptors(host.descriptors, needs),
    ];
    if let Some(plane) = needs.kernel_plane {
        findings.extend(kernel_plane(host, plane));
    }
    findings
}

fn receive_buffer(host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "receive-buffer";
    let ReceiveBuffer { bytes: granted, is_forced } = match &host.receive_buffer {
        Ok(buffer) => *buffer,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let packets = packets_in_flight(granted, needs.workers);
    let limit = match (&host.rmem_max, is_forced) {
        (_, true) => "forced past net.core.rmem_max (CAP_NET_ADMIN)".to_owned(),
        (Ok(limit), false) => format!("net.core.rmem_max is {}", grouped(*limit)),
        (Err(_), false) => "net.core.rmem_max is not seen".to_owned(),
    };
    let found = format!(
        "{} workers: {packets} of {PACKETS_IN_FLIGHT_MAX} packets each; a switch gets {}, {limit}",
        needs.workers,
        bytes(granted.into())
    );
    let costs = "workers wait for a round trip after so few packets; a burst above them is lost";
    let capability = "CAP_NET_ADMIN for the switch (setcap cap_net_admin+ep libra, or of its container)";
    let mend = if host.rmem_max.as_ref().is_ok_and(|limit| *limit >= RMEM_MAX_WANTED) {
        capability.to_owned()
    } else {
        format!("sysctl -w net.core.rmem_max={RMEM_MAX_WANTED}, or {capability}")
    };
    match packets {
        ..FEWEST_PACKETS => Finding::bad(CHECK, found, costs).mend(mend),
        FEWEST_PACKETS..FEW_PACKETS => Finding::warn(CHECK, found, costs).mend(mend),
        _ => Finding::ok(CHECK, found),
    }
}

fn backlog(backlog: &Result<u64, Unseen>) -> Finding {
    const CHECK: &str = "backlog";
    match backlog {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(packets) if *packets < BACKLOG_MIN => Finding::warn(
            CHECK,
            format!("net.core.netdev_max_backlog is {}", grouped(*packets)),
            "bursts of workers are lost before a socket counts them",
        )
        .mend(format!("sysctl -w net.core.netdev_max_backlog={BACKLOG_MIN}")),
        Ok(packets) => Finding::ok(CHECK, format!("{} packets wait for a core", grouped(*packets))),
    }
}

fn cores(host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "cores";
    let cores = match &host.cores {
        Ok(cores) => cores,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let found = format!("{} for {}", counted(cores.len(), "core"), counted(needs.members.into(), "member"));
    if let Some(cpu) = needs.cpu.filter(|cpu| !cores.contains(cpu)) {
        return Finding::bad(CHECK, format!("{found}; core {cpu} is none of them"), "--cpu ends the member")
            .mend("another --cpu, or a larger cpuset of the container");
    }
    if cores.len() < usize::from(needs.members) {
        return Finding::warn(CHECK, found, "members take turns: a queue looks like a slow network")
            .mend("fewer members on this machine");
    }
    Finding::ok(CHECK, found)
}

fn quota(limits: &Limits) -> Finding {
    const CHECK: &str = "quota";
    let quota = match &limits.quota {
        Err(unseen) => return Finding::unseen(CHECK, unseen),
        Ok(quota) => *quota,
    };
    let Some(quota) = quota else { return Finding::ok(CHECK, "no control group limits processor time") };
    let found = format!(
        "{:.2} cores; stopped in {} of {} periods",
        quota.cores,
        grouped(quota.throttled),
        grouped(quota.periods)
    );
    let costs = "a stopped member answers late: packets are sent again, and members are taken for dead";
    let mend = "no limit of processor time for members: only requests (Kubernetes), no --cpus (Docker)";
    if quota.cores < CORES_MIN {
        return Finding::bad(CHECK, found, costs).mend(mend);
    }
    // One of twenty, once there were enough to tell.
    if quota.periods >= 20 && quota.throttled * 20 > quota.periods {
        return Finding::warn(CHECK, found, costs).mend(mend);
    }
    Finding::ok(CHECK, found)
}

fn numa(nodes: &Result<Vec<Vec<usize>>, Unseen>) -> Finding {
    const CHECK: &str = "numa";
    match nodes {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(nodes) if nodes.len() < 2 => Finding::ok(CHECK, "one node"),
        Ok(nodes) => Finding::ok(CHECK, format!("{} nodes: keep a member on one (--cpu)", nodes.len())),
    }
}

fn smt(is_smt: &Result<bool, Unseen>) -> Finding {
    const CHECK: &str = "smt";
    match is_smt {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(true) => Finding::ok(CHECK, "two threads share a core: count half of the cores for members"),
        Ok(false) => Finding::ok(CHECK, "each core has one thread"),
    }
}

fn governor(governor: &Result<String, Unseen>) -> Finding {
    const CHECK: &str = "governor";
    match governor {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(name) if name == "powersave" || name == "conservative" => Finding::warn(
            CHECK,
            format!("the frequency is chosen by {name}"),
            "a core that just woke is slow, and members sleep between packets",
        )
        .mend("cpupower frequency-set --governor performance"),
        Ok(name) => Finding::ok(CHECK, name.clone()),
    }
}

fn clock(clocksource: &Result<String, Unseen>) -> Finding {
    const CHECK: &str = "clocksource";
    // Read without a system call.
    const FAST: &[&str] = &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    match clocksource {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(name) if FAST.contains(&name.as_str()) => Finding::ok(CHECK, name.clone()),
        Ok(name) => Finding::warn(CHECK, name.clone(), "each look at the clock is a system call")
            .mend("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}

fn vectors(vectors: Vectors) -> Finding {
    const CHECK: &str = "vectors";
    match vectors {
        Vectors::Avx512 => Finding::ok(CHECK, "AVX-512"),
        Vectors::Avx2 => Finding::ok(CHECK, "AVX2"),
        Vectors::Common if cfg!(target_arch = "x86_64") => {
            Finding::warn(CHECK, "no AVX2", "sums and products take several times as long")
                .mend("a machine, or a kind of virtual one, with AVX2")
        }
        Vectors::Common => Finding::ok(CHECK, "those of every processor of its kind"),
    }
}

fn memory(host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "memory";
    let available = match &host.memory {
        Ok(available) => *available,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let limit = host.limits.memory.as_ref().ok().copied().flatten();
    let (room, whose) = match limit.filter(|limit| *limit < available) {
        Some(limit) => (limit, "in its control group"),
        None => (available, "available"),
    };
    let rows = needs.row_bytes();
    let wanted = rows.unwrap_or(0).saturating_add(MEMBER_BYTES);
    let found = match rows {
        Some(_) => format!("{} {whose}; a server needs {}", bytes(room), bytes(wanted)),
        None => format!("{} {whose}", bytes(room)),
    };
    if wanted > room {
        return Finding::bad(CHECK, found, "the kernel ends the server when its rows have grown").mend(
            format!(
                "more servers, or libra server --memory-limit {}",
                room.saturating_sub(MEMBER_BYTES).max(1 << 20)
            ),
        );
    }
    Finding::ok(CHECK, found)
}

fn huge_pages(chosen: &Result<String, Unseen>, tables: Option<Tables>) -> Finding {
    const CHECK: &str = "huge-pages";
    /// Below that, few misses of the TLB are of rows.
    const LARGE: u64 = 1 << 30;
    match chosen {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(mode) if mode == "never" && tables.is_some_and(|tables| tables.server_bytes() > LARGE) => {
            Finding::warn(CHECK, "never", "looking a row up costs a walk of the page table more")
                .mend("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
        }
        Ok(mode) => Finding::ok(CHECK, mode.clone()),
    }
}

fn descriptors(limit: u64, needs: &Needs) -> Finding {
    const CHECK: &str = "descriptors";
    let wanted = u64::from(needs.workers) + DESCRIPTORS_OF_A_MEMBER;
    if limit < wanted {
        return Finding::bad(
            CHECK,
            format!("{limit} files and sockets; a server of {} workers may need {wanted}", needs.workers),
            "callers are turned away once there are so many streams",
        )
        .mend("ulimit -n 65536; in a unit of systemd: LimitNOFILE=65536");
    }
    Finding::ok(CHECK, format!("{} files and sockets", grouped(limit)))
}

/// Requirements of a switch in the kernel.
fn kernel_plane(host: &Host, plane: KernelPlane) -> [Finding; 3] {
    let build = match plane.left_out {
        Some(why) => Finding::bad(
            "xdp-build",
            format!("this libra has no data plane in the kernel: {why}"),
            "--plane xdp is refused",
        )
        .mend("apt-get install clang libc6-dev, and build libra again"),
        None => Finding::ok("xdp-build", "this libra has the data plane in the kernel"),
    };
    let btf = if host.has_btf {
        Finding::ok("btf", format!("kernel {} has its BTF", host.kernel))
    } else {
        Finding::warn(
            "btf",
            format!("kernel {} has no BTF in /sys/kernel/btf", host.kernel),
            "the kernel may refuse the program, and then --plane xdp ends the switch",
        )
        .mend("a kernel with CONFIG_DEBUG_INFO_BTF, or --plane udp")
    };
    let capabilities = match &host.capabilities {
        Err(unseen) => Finding::unseen("capabilities", unseen),
        Ok(Capabilities { net_admin: true, bpf: true, perfmon: true }) => {
            Finding::ok("capabilities", "CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")
        }
        Ok(Capabilities { net_admin, bpf, perfmon }) => {
            let has = [(net_admin, "CAP_NET_ADMIN"), (bpf, "CAP_BPF"), (perfmon, "CAP_PERFMON")];
            let missing: Vec<_> = has.iter().filter(|(has, _)| !**has).map(|(_, name)| *name).collect();
            let user = if host.is_root { "root of this container" } else { "this user" };
            Finding::bad(
                "capabilities",
                format!("{user} lacks {}", missing.join(", ")),
                "the program cannot be loaded: --plane xdp ends the switch",
            )
            .mend("setcap cap_net_admin,cap_bpf,cap_perfmon+ep libra; or sudo")
        }
    };
    [build, btf, capabilities]
}

/// `1 core`, `2 cores`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
