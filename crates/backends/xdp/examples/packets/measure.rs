//! The measurement itself.

use std::net::{Ipv4Addr, SocketAddrV4};

use libra_dataplane::{
    Arithmetic, BankPackets, Flags, Header, Kind, PacketWriter, Region, RegionConfig, RegionMemory,
    packet_bytes,
};
use libra_xdp::XdpPipeline;

const REPEAT: u32 = 200_000;
/// Of these the median is shown.
const ROUNDS: u32 = 9;

pub(crate) fn run() -> Result<(), Box<dyn std::error::Error>> {
    let here = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7700);
    println!("{:<10} {:>8} {:>6} {:>10} {:>12}", "arithmetic", "entries", "bytes", "ns/packet", "pairs/s");
    let arithmetics =
        [("fixed", Arithmetic::Fixed { bound: 1 }), ("f32", Arithmetic::F32), ("table", Arithmetic::Table)];
    for (name, arithmetic) in arithmetics {
        for entries in [0, 16, 27, 228, 240] {
            let mut pipeline = XdpPipeline::load_to_measure(here.into())?;
            pipeline.set_worker(here, 1, 0)?;
            let config = RegionConfig {
                job: 1,
                region: 0,
                plan: 1,
                view: 1,
                lanes: 1,
                cells: 32_000,
                flows: 1,
                bank_packets_max: i32::MAX.unsigned_abs(),
                arithmetic,
            };
            let memory = RegionMemory::allocate(&config, |words| vec![0; words]);
            let due = BankPackets { pushes: u32::MAX, last: u32::MAX };
            pipeline.open(&Region::new(config, memory)?, due)?;
            let mut rounds: Vec<_> = (0..ROUNDS)
                .map(|round| pipeline.measure(&push(entries, arithmetic, round * REPEAT), REPEAT))
                .collect::<Result<_, _>>()?;
            rounds.sort();
            let nanoseconds = rounds[rounds.len() / 2].as_nanos();
            assert_eq!(pipeline.counters()?.0.pushes, u64::from(ROUNDS * REPEAT), "all were new");
            let rate = u128::from(entries) * 1000 / nanoseconds.max(1);
            println!("{name:<10} {entries:>8} {:>6} {nanoseconds:>10} {rate:>10} M", packet_bytes(entries));
        }
    }
    Ok(())
}

/// A push of rows of eight slots, spread over the region.
fn push(entries: u8, arithmetic: Arithmetic, seq: u32) -> Vec<u8> {
    let header = Header { flags: Flags::LAST, job: 1, plan: 1, view: 1, seq, ..Header::of_kind(Kind::Push) };
    let mut packet = vec![0; packet_bytes(entries)];
    let mut writer = PacketWriter::new(header, &mut packet);
    for entry in 0..u16::from(entries) {
        let value = match arithmetic {
            Arithmetic::Fixed { .. } => u32::from(entry % 2).wrapping_neg(),
            Arithmetic::F32 | Arithmetic::Table => (f32::from(entry % 7) * 0.37 - 1.0).to_bits(),
        };
        assert!(writer.push(entry / 8 * 1000 + entry % 8, value));
    }
    let bytes = writer.finish();
    packet.truncate(bytes);
    packet
}
