//! The program and its maps, taken apart.

use std::net::Ipv4Addr;

use aya::maps::PerCpuValues;
use aya::util::nr_cpus;
use libra_dataplane::{
    Arithmetic, BODY_KEY_BYTES, BodyKey, Header, Kind, PathKeys, RegionMemory as Memory, TAG_KEY_BYTES,
    TagKey,
};

use super::*;
use crate::layout::WORKER_WORDS;

/// As `struct handover` of `bpf/parts.h`.
const HANDOVER_WORDS: usize = WORKER_WORDS + 1;

fn config(lanes: u8, view: u64) -> RegionConfig {
    RegionConfig {
        job: 1,
        region: 0,
        plan: 1,
        view,
        lanes,
        cells: 9,
        flows: 1,
        bank_packets_max: 1,
        arithmetic: Arithmetic::F32,
    }
}

// rule W13
#[test]
fn a_region_of_more_than_one_lane_is_refused_with_what_to_do() {
    assert!(check(&config(1, 1)).is_ok());
    let reason = check(&config(16, 1)).unwrap_err().to_string();
    assert!(reason.contains("--lanes 1") && reason.contains("--plane udp"), "{reason}");
}

/// As if the agent had opened it between the verification and the lock; or as if another packet had come between, with a handover
/// of its own.
// rule A3
#[test]
fn what_changed_since_a_tag_was_verified_is_dropped() {
    let here = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7700);
    let mut pipeline = match XdpPipeline::load(here.into()) {
        Ok(pipeline) => pipeline,
        Err(error) if std::env::var_os("LIBRA_XDP_REQUIRED").is_none() => {
            return eprintln!("SKIPPED: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let body = BodyKey::from_bytes(&[1; BODY_KEY_BYTES]);
    let key = TagKey::from_bytes([2; TAG_KEY_BYTES]);
    let tags = Tags::Mac { body: &body, keys: PathKeys { up: key, down: key } };
    pipeline.set_worker(here, 1, 0, Some(tags)).unwrap();
    let view = (1 << 16) + 9;
    let config = config(1, view);
    let memory = Memory::allocate(&config, |words| vec![0; words]);
    pipeline.open(&Region::new(config, memory).unwrap(), BankPackets::default()).unwrap();

    let mut handovers: PerCpuArray<MapData, [u64; HANDOVER_WORDS]> =
        pipeline.loaded.take_map("handovers").unwrap().try_into().unwrap();
    let words = |worker| workers::words(workers::Name { job: 1, worker, place: 0 }, Some(tags));
    let push = Header { job: 1, plan: 1, view: 9, ..Header::of_kind(Kind::Push) }.to_bytes();
    let mut frame = Vec::new();
    frame::write(&mut frame, here, here, &push);
    let after = view + (1 << 16);
    for (worker, tagged, verdict) in
        [(0, 9, DROPPED), (0, after, DROPPED), (1, view, DROPPED), (0, view, SENT)]
    {
        let mut handover = [tagged; HANDOVER_WORDS];
        handover[..WORKER_WORDS].copy_from_slice(&words(worker));
        let everywhere = PerCpuValues::try_from(vec![handover; nr_cpus().unwrap()]).unwrap();
        handovers.set(0, everywhere, 0).unwrap();
        let mut options = TestRunOptions::new();
        options.data_in = Some(&frame);
        let ran = pipeline.program("libra_execute").test_run(options).unwrap();
        assert_eq!(ran.return_value, verdict, "of worker {worker}, over view {tagged}");
    }
    let counters = pipeline.counters().unwrap().0;
    assert_eq!((counters.stale, counters.foreign, counters.pushes), (2, 1, 1));
}
