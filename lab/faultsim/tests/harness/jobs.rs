//! Two jobs, one after the other, at the same addresses.

use core::time::Duration;

use libra_dataplane::{Header, Kind};
use libra_faultsim::{ClusterHarness, HarnessConfig};
use libra_proto::Level;

/// Runs a job, at whose beginning packets come from the address of its worker. Returns the packets that the worker sent itself.
fn run(instance: u64, late: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut harness = ClusterHarness::started(HarnessConfig { instance, ..HarnessConfig::small(1, 1, 1) });
    let (worker, switch) = (harness.workers().start, harness.switches().start);
    for packet in late {
        harness.world.inject(harness.world.address(worker), switch, packet.clone());
    }
    for key in 0..25 {
        harness.push(worker, &[key], &[1.0; 3], Level::Accepted);
        harness.run_for(Duration::from_millis(1));
    }
    harness.flush_all();
    harness.check()?;
    let sent = harness.world.observer.recorder.datagrams.iter().map(|sent| sent.bytes.clone());
    Ok(sent.filter(|bytes| Header::parse(bytes).is_ok_and(|header| header.kind == Kind::Push)).collect())
}

// rule M18
#[test]
fn late_packets_of_the_job_before_count_for_nothing() {
    let of_another = 0x5_0001_0009;
    let before = run(9, &[]).unwrap();
    assert!(before.len() >= 25);
    assert_eq!(run(of_another, &before).map(|sent| sent.len() >= 25), Ok(true));
    // Were it the same instance, they would count.
    assert!(run(9, &before).is_err());
    // Views differ as well as jobs: an instance with the same job of 16 bits takes nothing, either.
    let header = |packets: &[Vec<u8>]| Header::parse(&packets[0]).unwrap();
    let other = run(of_another, &[]).unwrap();
    assert_eq!(header(&before).job, header(&other).job);
    assert_ne!(header(&before).view, header(&other).view);
}
