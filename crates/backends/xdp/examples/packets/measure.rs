//! The measurement itself.

use std::net::{Ipv4Addr, SocketAddrV4};

use libra_dataplane::{
    Arithmetic, BODY_KEY_BYTES, BankPackets, BodyKey, Flags, Header, Kind, PacketWriter, PathKeys, Region,
    RegionConfig, RegionMemory, TAG_KEY_BYTES, TagKey, Tags, packet_bytes,
};
use libra_xdp::XdpPipeline;

const REPEAT: u32 = 200_000;
/// Of these the median is shown.
const ROUNDS: u32 = 9;

pub(crate) fn run() -> Result<(), Box<dyn std::error::Error>> {
    let here = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7700);
    println!(
        "{:<10} {:<4} {:>8} {:>6} {:>10} {:>12}",
        "arithmetic", "tags", "entries", "bytes", "ns/packet", "pairs/s"
    );
    let body = BodyKey::from_bytes(&[0xa7; BODY_KEY_BYTES]);
    let key = |byte| TagKey::from_bytes([byte; TAG_KEY_BYTES]);
    let mac = Tags::Mac { body: &body, keys: PathKeys { up: key(1), down: key(2) } };
    let arithmetics =
        [("fixed", Arithmetic::Fixed { bound: 1 }), ("f32", Arithmetic::F32), ("table", Arithmetic::Table)];
    for (name, arithmetic) in arithmetics {
        let tagged =
            [0, 16, 27, 228, 240].map(|entries| [(entries, "off", None), (entries, "mac", Some(mac))]);
        for (entries, kind, tags) in tagged.into_iter().flatten() {
            let mut pipeline = XdpPipeline::load_to_measure(here.into())?;
            pipeline.set_worker(here, 1, 0, tags)?;
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
            let bytes = packet_bytes(entries);
            println!("{name:<10} {kind:<4} {entries:>8} {bytes:>6} {nanoseconds:>10} {rate:>10} M");
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
