//! Findings about a path, from facts alone.

use core::net::SocketAddr;
use core::time::Duration;

use libra_net::Enquiry;
use libra_proto::VERSION;

use super::{Datagrams, Exchange, Meeting, Outcome, Path, Seen};
use crate::finding::{Finding, Unseen, grouped};
use crate::needs::Needs;

const REACH: &str = "reach";
/// Round trips that an empty path of one room does not have.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(5);

/// Findings about a path; those that depend on one that failed are left out.
pub(crate) fn judge(path: &Path, needs: &Needs) -> Vec<Finding> {
    let to = &path.to;
    match &path.outcome {
        Outcome::Met(meeting) => met(meeting, needs),
        Outcome::NoHost(error) => vec![
            Finding::bad(REACH, format!("{to}: {error}"), "no member finds it")
                .mend("the name as DNS or /etc/hosts has it, or the address"),
        ],
        Outcome::NoStream(error) => vec![
            Finding::bad(REACH, format!("no stream to {to}: {error}"), "no member reaches it")
                .mend("start `libra doctor --listen` there; let TCP and UDP of that port pass the firewall"),
        ],
        Outcome::Stranger(did, error) => vec![
            Finding::bad(
                REACH,
                format!("{to} is no doctor, for it {did}, and no controller of this job: {error}"),
                "members call the wrong address, or have another token",
            )
            .mend("the address that `libra doctor --listen` or the controller prints there, and its token"),
        ],
        Outcome::Controller(address, answer) => vec![controller(*address, answer)],
        Outcome::Busy => {
            vec![Finding::unseen(REACH, &Unseen(format!("{to} examines other machines: try again")))]
        }
        Outcome::OtherFormat(messages) => vec![version(*messages)],
    }
}

fn version(there: u16) -> Finding {
    const CHECK: &str = "version";
    if there == VERSION {
        return Finding::ok(CHECK, format!("both ends speak version {VERSION} of the messages"));
    }
    let found = format!("this end speaks version {VERSION} of the messages, the other {there}");
    Finding::bad(CHECK, found, "the controller turns such a member away")
        .mend("the same libra on all machines")
}

/// A controller answers streams alone.
fn controller(address: SocketAddr, answer: &Enquiry) -> Finding {
    match answer {
        Enquiry::SameVersion => Finding::ok(
            REACH,
            format!(
                "{address} is a controller, and speaks version {VERSION} of the messages; datagrams were not tried"
            ),
        ),
        Enquiry::OtherVersion(said) => {
            Finding::bad("version", said.clone(), "it turns members of this machine away")
                .mend("the same libra on all machines")
        }
    }
}

fn met(meeting: &Meeting, needs: &Needs) -> Vec<Finding> {
    let mut findings = vec![version(meeting.messages)];
    match &meeting.datagrams {
        Datagrams::Exchanged(exchange) => {
            findings.push(reach(meeting));
            findings.extend([
                address(meeting, exchange),
                mtu(exchange, meeting, needs),
                round_trip(exchange),
                loss(exchange),
                order(exchange),
                checksums(exchange),
                rate(exchange),
            ]);
        }
        Datagrams::NoneArrived => {
            findings.push(blocked(meeting, "none of this machine's datagrams comes there"))
        }
        Datagrams::NoAnswer => {
            findings.push(blocked(meeting, "datagrams come there, and none of its answers comes here"));
        }
        Datagrams::Ended(error) => findings.push(
            Finding::bad(
                REACH,
                format!("the exchange with {} ended: {error}", meeting.peer),
                "so do streams of members",
            )
            .mend("the same once more; a firewall may forget, or end, streams"),
        ),
    }
    findings
}

fn blocked(meeting: &Meeting, what: &str) -> Finding {
    Finding::bad(
        REACH,
        format!("{} by stream; {what}", meeting.peer),
        "no hot path: workers wait for the switch",
    )
    .mend("let UDP pass both ways: a firewall or a security group stops it")
}

fn reach(meeting: &Meeting) -> Finding {
    let peer = meeting.peer;
    if meeting.is_here {
        return Finding::warn(
            REACH,
            format!("{peer} is this machine"),
            "no path between machines was measured",
        )
        .mend("`libra doctor --to` on another machine");
    }
    Finding::ok(REACH, format!("{peer} by streams and datagrams, both ways"))
}

fn address(meeting: &Meeting, exchange: &Exchange) -> Finding {
    const CHECK: &str = "address";
    let changed = |seen: &Seen| seen.here.ip().to_canonical() != seen.there.ip().to_canonical();
    let Seen { here, there } = exchange.addresses;
    if changed(&exchange.addresses) || changed(&meeting.stream) || here.port() != there.port() {
        return Finding::bad(
            CHECK,
            format!("this end is {here}, and the other sees {there} (NAT)"),
            "a switch does not know the sender of packets: the hot path ends",
        )
        .mend(
            "a route without NAT: the network of the host (hostNetwork), or no masquerading between members",
        );
    }
    Finding::ok(CHECK, format!("the other end sees {}", here.ip()))
}

fn mtu(exchange: &Exchange, meeting: &Meeting, needs: &Needs) -> Finding {
    const CHECK: &str = "path-mtu";
    let Exchange { mtu, mtu_there, .. } = *exchange;
    if mtu < needs.mtu {
        let way = if mtu_there > mtu { " back" } else { "" };
        return Finding::bad(
            CHECK,
            format!(
                "{} lets {} bytes through{way}, and packets have {}",
                meeting.peer.ip(),
                grouped(mtu.into()),
                grouped(needs.mtu.into())
            ),
            "full packets are lost without a trace: the job stands still",
        )
        .mend(format!("--mtu {mtu} (controller, or libra train)"));
    }
    Finding::ok(CHECK, format!("{} bytes pass both ways", grouped(mtu.into())))
}

fn round_trip(exchange: &Exchange) -> Finding {
    const CHECK: &str = "round-trip";
    let times = &exchange.round_trips;
    let at = |share: usize| {
        times.get(times.len() * share / 100).or_else(|| times.last()).copied().unwrap_or_default()
    };
    let microseconds = |time: Duration| grouped(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let found = format!("{} us, the slowest of a hundred {} us", microseconds(at(50)), microseconds(at(99)));
    if at(50) > LONG_ROUND_TRIP {
        return Finding::warn(CHECK, found, "a step waits for at least two of them; rounds last as long")
            .mend("machines of one room, or of one placement group");
    }
    Finding::ok(CHECK, found)
}

fn loss(exchange: &Exchange) -> Finding {
    const CHECK: &str = "loss";
    let Exchange { sent, arrived, answered, .. } = *exchange;
    let share = |lost: u32, of: u32| 100.0 * f64::from(lost) / f64::from(of.max(1));
    let (there, back) = (sent.saturating_sub(arrived), arrived.saturating_sub(answered));
    let found = format!(
        "{:.1}% on the way there, {:.1}% on the way back, of {sent} probes",
        share(there, sent),
        share(back, arrived)
    );
    let costs = "each lost packet is sent again, and a round waits for it";
    let mend = "look at ethtool -S of both ends and of the switch between them: cable, ring, duplex, policer";
    // Checksums are a finding of their own, and what they refuse is lost.
    let lost = (there + back).saturating_sub(u32::try_from(exchange.corrupted).unwrap_or(u32::MAX));
    if lost * 100 >= sent {
        Finding::bad(CHECK, found, costs).mend(mend)
    } else if lost > 0 {
        Finding::warn(CHECK, found, costs).mend(mend)
    } else {
        Finding::ok(CHECK, found)
    }
}

fn order(exchange: &Exchange) -> Finding {
    const CHECK: &str = "order";
    let Exchange { duplicates, reordered, sent, .. } = *exchange;
    let found = format!("{reordered} came out of order, {duplicates} twice, of {sent} probes");
    if (duplicates + reordered) * 100 >= sent {
        return Finding::warn(CHECK, found, "a packet that is overtaken is sent again, for nothing")
            .mend("one way for a flow: look at bonds that deal packets in turn, and at mirrored ports");
    }
    Finding::ok(CHECK, found)
}

fn checksums(exchange: &Exchange) -> Finding {
    const CHECK: &str = "checksums";
    if exchange.corrupted > 0 {
        return Finding::bad(
            CHECK,
            format!("{} datagrams with a wrong checksum", exchange.corrupted),
            "the kernel drops them without a trace",
        )
        .mend("ethtool -K IF tx off, if a program forwards packets (XDP); else the cable or the device");
    }
    Finding::ok(CHECK, "all are right")
}

fn rate(exchange: &Exchange) -> Finding {
    const CHECK: &str = "rate";
    match exchange.rate {
        Some(rate) => Finding::ok(
            CHECK,
            format!("{:.2} Gbit/s there, in packets of {} bytes", rate / 1e9, exchange.mtu),
        ),
        None => Finding::unseen(CHECK, &Unseen("none of a run came there".to_owned())),
    }
}
