//! As many regions as there can be, and the longest packets.

use core::net::SocketAddr;

use libra_plan::{HotRow, REGIONS_MAX, Scale};

use super::*;
use crate::testing;

#[test]
fn a_worker_has_as_many_regions_as_a_plan_may_have() {
    let rows = u64::try_from(REGIONS_MAX).unwrap();
    for regions in [rows - 1, rows] {
        let mut cluster = testing::cluster(1);
        cluster.view.servers = vec![SocketAddr::from(([10, 0, 0, 1], 4000))];
        // One row for each.
        cluster.hot_path.cells_max = 1 + u16::try_from(testing::WIDTH).unwrap();
        cluster.tables[0].keys = 0..rows;
        let mut plan = cluster.plan.take().unwrap();
        plan.tables[0].keys = 0..rows;
        plan.rows = (0..regions).map(|key| HotRow { key, count: 1000 - key, scale: Scale(0) }).collect();
        let placement = cluster.place(&plan).unwrap();
        let mut client = HotClient::new(&cluster, 0, &plan, &placement);
        client.enter(&View {
            number: 1,
            ownerships: vec![Ownership::default(); placement.regions().len()],
            ..View::default()
        });
        let frontiers = client.frontiers();
        assert_eq!((frontiers.len() as u64, client.is_durable(&frontiers)), (regions, true));
    }
}

#[test]
fn the_longest_packet_is_one_of_whole_rows() {
    let of = |slots, width| RegionLayout { region: 0, shard: 0, rows: Vec::new(), slots, width };
    let longest = |regions: &[RegionLayout]| longest_packet(regions, 240);
    assert_eq!(longest(&[of(3000, Some(32))]), 224);
    assert_eq!(longest(&[of(3000, Some(32)), of(3000, Some(16))]), 240);
    assert_eq!(longest(&[of(96, Some(32))]), 96, "no more rows than there are");
    assert_eq!(longest(&[of(3000, None)]), 240);
}
