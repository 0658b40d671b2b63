//! Findings about interfaces, from facts alone.

use super::{Nic, Queues, Rings, Run};
use crate::finding::{Finding, grouped};
use crate::host::Host;
use crate::needs::Needs;

/// Runs that members send (`libra_proto::turn`), and those of kernels before 6.10.
const LONG_RUN: usize = 128;
const RUN: usize = 64;
/// Packets that a ring should hold while a core is busy elsewhere.
const RING_MIN: u32 = 512;
/// Microseconds that a packet may wait for others: a round trip is some 50.
const COALESCING_MAX: u32 = 100;

/// Findings about what the kernel does with runs.
pub(crate) fn judge_runs(runs: &[Run]) -> Vec<Finding> {
    const CHECK: &str = "runs";
    let merged =
        |length| runs.iter().filter(|run| run.sent == length).find_map(|run| run.merged.clone().ok());
    let finding = match (merged(RUN), merged(LONG_RUN)) {
        (_, Some(most)) if most >= LONG_RUN => {
            Finding::ok(CHECK, format!("{LONG_RUN} datagrams are sent, and come, in one call (GSO, GRO)"))
        }
        (Some(most), _) if most >= RUN => Finding::ok(
            CHECK,
            format!(
                "{RUN} datagrams are sent, and come, in one call (GSO, GRO); {LONG_RUN} since Linux 6.10"
            ),
        ),
        (None, None) => match runs.iter().find_map(|run| run.merged.clone().err()) {
            Some(unseen) => Finding::unseen(CHECK, &unseen),
            None => return Vec::new(),
        },
        (short, long) => Finding::warn(
            CHECK,
            format!("{} datagrams come in one call", short.max(long).unwrap_or(1)),
            "a call for each packet: packets a second are a twentieth",
        )
        .mend("Linux 5.0 or later, on the machine and not in a sandbox such as gVisor"),
    };
    vec![finding]
}

/// Findings about an interface.
pub(crate) fn judge(nic: &Nic, host: &Host, needs: &Needs) -> Vec<Finding> {
    let mut findings = vec![link(nic, needs), merging(nic), queues(nic, host), node(nic, host, needs)];
    findings.extend(hashing(nic));
    findings.extend(rings(nic));
    findings.extend(coalescing(nic));
    if needs.kernel_plane.is_some() {
        findings.push(native_xdp(nic));
    }
    findings.into_iter().map(|finding| finding.of(&nic.name)).collect()
}

fn link(nic: &Nic, needs: &Needs) -> Finding {
    const CHECK: &str = "link";
    let mtu = match &nic.mtu {
        Ok(mtu) => *mtu,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let driver = nic.driver.as_deref().unwrap_or("virtual");
    let speed = match &nic.speed {
        Ok(megabits) => format!("{} Mbit/s", grouped(*megabits)),
        Err(_) => "speed not told".to_owned(),
    };
    let found = format!("{driver}, {speed}, MTU {}", grouped(mtu));
    if mtu < u64::from(needs.mtu) {
        let costs = "packets by this interface do not fit, and a job ends with an error";
        let mend = format!("--mtu {mtu} (controller), or ip link set {} mtu {}", nic.name, needs.mtu);
        // Packets of the hot path may go by another one, unless it was named.
        let named = needs.interfaces.contains(&nic.name);
        return if named {
            Finding::bad(CHECK, found, costs).mend(mend)
        } else {
            Finding::warn(CHECK, found, costs).mend(mend)
        };
    }
    Finding::ok(CHECK, found)
}

fn merging(nic: &Nic) -> Finding {
    const CHECK: &str = "gro";
    match &nic.features {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(features) if features.iter().any(|name| name == "rx-gro") => {
            Finding::ok(CHECK, "packets that come are merged")
        }
        Ok(_) => Finding::warn(
            CHECK,
            "packets that come are not merged",
            "each goes through the kernel by itself: packets a second are a twentieth",
        )
        .mend(format!("ethtool -K {} gro on", nic.name)),
    }
}

fn queues(nic: &Nic, host: &Host) -> Finding {
    const CHECK: &str = "queues";
    let Queues { count, are_spread } = match &nic.queues {
        Ok(queues) => *queues,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let cores = host.cores.as_ref().map_or(1, Vec::len);
    let queues = if count == 1 { "one queue".to_owned() } else { format!("{count} queues") };
    let found = format!("{queues} of received packets, {cores} cores");
    if count > 1 || cores == 1 {
        return Finding::ok(CHECK, found);
    }
    if are_spread {
        return Finding::ok(CHECK, format!("{found}; the kernel spreads them (RPS)"));
    }
    // As many ones as there are cores.
    let mask = u64::MAX >> (64 - cores.min(64));
    Finding::warn(CHECK, found, "one core takes all packets of the interface").mend(format!(
        "ethtool -L {0} rx {cores} (or combined), or echo {mask:x} > /sys/class/net/{0}/queues/rx-0/rps_cpus",
        nic.name
    ))
}

/// Nothing where there is one queue: nothing is hashed then.
fn hashing(nic: &Nic) -> Option<Finding> {
    const CHECK: &str = "udp-hash";
    if nic.queues.as_ref().is_ok_and(|queues| queues.count < 2) {
        return None;
    }
    Some(match &nic.hashes_ports {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(true) => Finding::ok(CHECK, "ports decide the queue of a UDP packet"),
        Ok(false) => Finding::warn(
            CHECK,
            "ports do not decide the queue of a UDP packet",
            "all workers of a machine share one queue, and one core",
        )
        .mend(format!("ethtool -N {} rx-flow-hash udp4 sdfn", nic.name)),
    })
}

fn node(nic: &Nic, host: &Host, needs: &Needs) -> Finding {
    const CHECK: &str = "nic-node";
    let (Some(node), Ok(nodes), Some(cpu)) = (nic.node, &host.nodes, needs.cpu) else {
        return Finding::ok(
            CHECK,
            nic.node.map_or_else(|| "no node of its own".to_owned(), |node| format!("node {node}")),
        );
    };
    let at = usize::try_from(node).ok().and_then(|node| nodes.get(node));
    if at.is_none_or(|cores| cores.contains(&cpu)) {
        return Finding::ok(CHECK, format!("node {node}, that of core {cpu}"));
    }
    Finding::warn(
        CHECK,
        format!("node {node}, and core {cpu} is of another"),
        "each packet crosses from the memory of one node to the other",
    )
    .mend(format!("--cpu with a core of /sys/devices/system/node/node{node}/cpulist"))
}

/// Nothing where a device has no rings.
fn rings(nic: &Nic) -> Option<Finding> {
    const CHECK: &str = "rings";
    let Rings { now, most } = *nic.rings.as_ref().ok()?;
    let found = format!("{now} of {most} packets");
    if now < RING_MIN && now < most {
        let costs = "bursts are lost in the device";
        let wanted = most.min(4096);
        return Some(Finding::warn(CHECK, found, costs).mend(format!("ethtool -G {} rx {wanted}", nic.name)));
    }
    Some(Finding::ok(CHECK, found))
}

/// Nothing where a device keeps nothing back.
fn coalescing(nic: &Nic) -> Option<Finding> {
    const CHECK: &str = "coalescing";
    let microseconds = *nic.coalescing.as_ref().ok()?;
    let found = format!("packets wait {microseconds} us for others");
    if microseconds > COALESCING_MAX {
        let costs = "each round trip takes so much longer";
        return Some(Finding::warn(CHECK, found, costs).mend(format!("ethtool -C {} rx-usecs 20", nic.name)));
    }
    Some(Finding::ok(CHECK, found))
}

fn native_xdp(nic: &Nic) -> Finding {
    const CHECK: &str = "native-xdp";
    match &nic.native_xdp {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(true) => Finding::ok(CHECK, "the driver runs programs"),
        Ok(false) => Finding::warn(
            CHECK,
            "the driver runs no programs",
            "a switch in the kernel runs in generic mode, behind the stack",
        )
        .mend("a device whose driver does (mlx5, ice, i40e, ena, virtio_net, veth)"),
    }
}
