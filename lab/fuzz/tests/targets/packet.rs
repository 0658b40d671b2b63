//! Hot packets: their header, and the pipeline that gets them.

use libra_dataplane::{
    Arithmetic, HEADER_BYTES, Header, Kind, Malformed, Packet, Region, RegionConfig, Verdict, entries_in,
};
use libra_fuzz::{Outcome, Target};

use crate::job::job;
use crate::scene::{TestPipeline, pipeline};

/// A region that takes the packets of the simulated job.
pub(crate) fn of_the_job() -> TestPipeline {
    let headers = || job().datagrams.iter().map(|bytes| Header::parse(bytes).unwrap());
    // The newest view: of packets of an older one most are refused.
    let newest = headers().max_by_key(|header| header.view).unwrap();
    let (job, plan, view) = (newest.job, newest.plan, newest.view);
    let mut regions: Vec<u8> = headers().map(|header| header.region).collect();
    regions.sort_unstable();
    regions.dedup();
    let configs: Vec<RegionConfig> = regions
        .into_iter()
        .map(|region| RegionConfig {
            job,
            region,
            plan,
            view: view.into(),
            lanes: 1,
            cells: 100,
            flows: 4,
            bank_packets_max: 16,
            arithmetic: Arithmetic::Fixed { bound: i32::MAX.unsigned_abs() / 16 },
        })
        .collect();
    let mut pipeline = pipeline(&configs);
    pipeline.regions_mut().for_each(|region| region.set_readable(true));
    pipeline
}

/// Everything in a region but its counters: values, rounds, packets accepted, and the sums of both banks.
fn contents(region: &Region<Vec<u32>>) -> impl PartialEq + std::fmt::Debug + use<> {
    let windows: Vec<Vec<_>> =
        (0..).map_while(|flow| region.window(flow)).map(|window| window.accepted().collect()).collect();
    let mut copy = region.clone();
    let sums = [(); 2].map(|()| {
        let mut sums = Vec::new();
        copy.drain(|first, block| sums.push((first, block.to_vec())));
        copy.flip().expect("the idle bank was drained");
        sums
    });
    let changed: Vec<u16> = region.changed_flows().collect();
    (region.values().to_vec(), region.round(), windows, sums, region.active_packets(), changed)
}

/// A header that is parsed is emitted as it was, and parsed again to the same.
pub(crate) fn read_header(
    parse: impl Fn(&[u8]) -> Result<Header, Malformed>,
    bytes: &[u8],
) -> Result<Header, Malformed> {
    let header = parse(bytes)?;
    assert_eq!(header.packet_bytes(), bytes.len());
    let mut emitted = bytes.to_vec();
    emitted[..HEADER_BYTES].fill(0xaa);
    header.emit(&mut emitted);
    assert_eq!(emitted, bytes, "{header:?}");
    assert_eq!(parse(&emitted), Ok(header));
    Ok(header)
}

/// Whatever is refused or dropped changes nothing but one counter.
pub(crate) fn read(bytes: &[u8]) -> Outcome {
    let parsed = read_header(Header::parse, bytes);
    let mut pipeline = of_the_job();
    // Some packets before, so that there is something to change.
    for packet in job().datagrams.iter().filter(|packet| packet[1] == Kind::Push as u8).take(4) {
        assert!(matches!(pipeline.process(&mut packet.clone()), Verdict::Reply(_)));
    }
    let before: Vec<_> = pipeline.regions().iter().map(contents).collect();
    let packets_before = pipeline.counters().packets;
    let mut buffer = bytes.to_vec();
    let verdict = pipeline.process(&mut buffer);
    let refused = match verdict {
        Verdict::Reply(length) => {
            assert!(length <= bytes.len());
            let answer = Packet::parse(&buffer[..length]).expect("an answer is a packet").header;
            assert!(matches!(answer.kind, Kind::Ack | Kind::Nack | Kind::Pull | Kind::Drain));
            answer.nack_reason()
        }
        Verdict::Drop(_) => None,
    };
    if matches!(verdict, Verdict::Drop(_)) || refused.is_some() {
        assert!(pipeline.regions().iter().map(contents).eq(before), "{verdict:?} {refused:?}");
    }
    let counters = pipeline.counters();
    assert_eq!(counters.packets, packets_before + 1);
    let accepted =
        counters.pushes + counters.duplicates + counters.pulls + counters.installs + counters.drains;
    assert_eq!(counters.packets, accepted + counters.refused() + counters.dropped());
    // A burst of one packet is the packet.
    let mut answers = Vec::new();
    let mut buffer = bytes.to_vec();
    let sender = parsed.map_or((0, 0), |header| (header.job, header.worker));
    of_the_job().process_burst(sender, [buffer.as_mut_slice()], |answer| answers.push(answer.to_vec()));
    for answer in answers {
        Packet::parse(&answer).expect("an answer is a packet");
    }
    let name = match (parsed, verdict, refused) {
        (Err(malformed), ..) => return Outcome::refused(format!("{malformed:?}")),
        (_, _, Some(reason)) => format!("{reason:?}"),
        (_, Verdict::Drop(reason), _) => format!("{reason:?}"),
        (Ok(header), Verdict::Reply(_), None) => format!("{:?}", header.kind),
    };
    Outcome::beyond(name)
}

/// Makes the number of entries agree with the length, if a number does.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_BYTES {
        bytes[3] = entries_in(bytes.len());
    }
}

pub(crate) fn target() -> Target {
    Target::new("packet", job().datagrams.clone()).sealed(seal)
}
