use libra_dataplane::{Counters, RegionConfig};

use super::*;
use crate::bulk::Bulk;
use crate::message::SlotValues;
use crate::testing::cluster;

/// A plane with one lane, as the one in the kernel.
#[derive(Debug, Clone, Default)]
struct OneLane;

impl Plane for OneLane {
    fn check(&self, config: &RegionConfig) -> Result<(), String> {
        if config.lanes == 1 { Ok(()) } else { Err(format!("{} lanes are too many", config.lanes)) }
    }

    fn begin(&mut self, _job: u16) {}

    fn set_workers(&mut self, _workers: &BTreeMap<u16, WorkerPath>) {}

    fn open(&mut self, _config: RegionConfig, _durable: u16, _contents: &RoundContents, _due: BankPackets) {
        unreachable!("no shard has sent the contents of a region");
    }

    fn forget(&mut self, _region: u8) {}

    fn set_active(&mut self, _region: u8, _active: bool) {}

    fn settle(&mut self, _region: u8, _durable: u16) {}

    fn install(&mut self, _region: u8, _values: &SlotValues) {}

    fn taken(&self, _region: u8) -> BankPackets {
        BankPackets { pushes: 0, last: 0 }
    }

    fn close_round(&mut self, _region: u8) -> Option<Round> {
        None
    }

    fn handle_datagrams(&mut self, _: SocketAddr, _: &mut [u8], _: usize, _: &mut Outgoing) {}

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn unknown_senders(&self) -> u64 {
        0
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

// rule W13
#[test]
fn a_plane_without_the_lanes_of_a_job_takes_no_part_in_it() {
    let of_lanes = |lanes| {
        let mut cluster = cluster(1);
        cluster.view.servers = vec![SocketAddr::from(([127, 0, 0, 1], 5000))];
        Cluster { hot_path: cluster.hot_path.clone().with_lanes(lanes), ..cluster }
    };
    assert!(Agent::new(0, of_lanes(1), OneLane).is_ok());
    assert_eq!(Agent::new(0, of_lanes(16), OneLane).err(), Some("16 lanes are too many".to_owned()));
}

// rule E8
#[test]
fn a_round_is_late_from_when_there_is_a_controller() {
    let mut cluster = cluster(1);
    cluster.view.servers = vec![SocketAddr::from(([127, 0, 0, 1], 5000))];
    cluster.view.number = 1;
    cluster.view.ownerships = vec![Ownership { owner: Some(0), view_id: 1 }];
    let mut agent = Agent::new(0, cluster, OneLane).unwrap();
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    let late = |agent: &Agent<OneLane>, directed_since| {
        (0..10_000).find(|ms| agent.is_stuck(at(directed_since), at(*ms)))
    };
    assert_eq!(late(&agent, 0), None);
    let owned = agent.owned.values_mut().next().unwrap();
    owned.drained_at = at(100);
    assert_eq!(late(&agent, 0), None);
    let (region, view_id, round) = (0, 1, 1);
    let contents = RoundContents::default();
    let drained = Drained { region, view_id, round, contents, slots: Vec::new(), sums: Bulk(Vec::new()) };
    agent.owned.values_mut().next().unwrap().uncommitted = Some(Arc::new(drained));
    assert_eq!([0, 50, 5000].map(|since| late(&agent, since)), [Some(2100), Some(2100), Some(7000)]);
}
