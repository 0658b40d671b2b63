//! A few hundred random packets from a seed: the cases that the other vectors do not think of.

use libra_conformance::{Key, Sender, WorkerName};
use libra_dataplane::{Arithmetic, Direction, Flags, HEADER_BYTES, Header, Kind, RegionConfig, set_tag};
use libra_plan::SplitMix64;

use crate::auth;
use crate::scene::{F32, FIXED, JOB, Profile, REGION, Scene, TABLE, header, packet};

pub(crate) fn scenes() -> Vec<Scene> {
    let small = RegionConfig { cells: 24, flows: 3, bank_packets_max: 12, ..FIXED };
    let software = Profile::Software;
    let f32 = RegionConfig { arithmetic: F32.arithmetic, ..small };
    let table = RegionConfig { arithmetic: TABLE.arithmetic, ..small };
    let lanes = RegionConfig { lanes: Profile::LANES, cells: 5, ..small };
    // Duplicates may use up room where lanes are wired, so that there is enough of it.
    let wired = RegionConfig { bank_packets_max: 4096, ..lanes };
    let macs = Keyed { key: auth::mac, steps: 1000 };
    let cookies = Keyed { key: auth::cookie, steps: 600 };
    vec![
        random(software, "random-fixed", "fixed point", small, 1, None),
        random(software, "random-f32", "single precision", f32, 2, None),
        random(software, "random-table", "single precision by tables", table, 4, None),
        random(software, "random-lanes", "fixed point in 16 lanes", lanes, 3, None),
        random(Profile::Wired, "random", "fixed point", wired, 5, None),
        random(software, "auth-random", "fixed point, packets with MACs", small, 6, Some(macs)),
        random(Profile::Wired, "auth-random", "fixed point, packets with cookies", wired, 7, Some(cookies)),
    ]
}

/// Steps of a vector without keys.
const STEPS: u32 = 400;

/// Keys of workers, and steps, so that there are enough of each cause why a packet is dropped.
struct Keyed {
    key: fn(u16) -> Key,
    steps: u32,
}

struct Random(SplitMix64);

impl Random {
    /// Any 32 bits.
    fn word(&mut self) -> u32 {
        u32::try_from(self.0.bits() >> 32).unwrap()
    }

    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.0.below(end.into())).unwrap()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// A gradient: mostly sound, often at an edge.
    fn gradient(&mut self, arithmetic: Arithmetic) -> u32 {
        let any = self.word();
        match (arithmetic, self.below(20)) {
            (_, 0) => 0,
            (Arithmetic::Fixed { bound }, 1) => bound,
            (Arithmetic::Fixed { bound }, 2) => bound.wrapping_neg(),
            (Arithmetic::Fixed { bound }, _) => (any % (2 * bound + 1)).wrapping_sub(bound),
            // Subnormal numbers; neighbours of one, whose sums cancel and tie; then what the others are not.
            (Arithmetic::F32 | Arithmetic::Table, 1..=3) => any & 0x807F_FFFF,
            (Arithmetic::F32 | Arithmetic::Table, 4..=9) => any & 0x81FF_FFFF | 0x3E00_0000,
            (Arithmetic::F32 | Arithmetic::Table, 10..=12) => any & 0x8180_0003 | 0x3F00_0000,
            (Arithmetic::F32 | Arithmetic::Table, _) => {
                let finite = any & 0x7F80_0000 != 0x7F80_0000;
                if finite { any } else { any ^ 0x4000_0000 }
            }
        }
    }

    /// Entries that a region can take: ascending in each lane, with gaps of padding where there are lanes.
    fn entries(&mut self, profile: Profile, config: &RegionConfig) -> Vec<(u16, u32)> {
        let lanes = usize::from(config.lanes);
        let (most, step_max) = match profile {
            Profile::Software if lanes == 1 => (9, 6),
            Profile::Software => (33, 4),
            // Fewer are filled up with padding.
            Profile::Wired => (16, 6),
        };
        let padding = config.cells - 1;
        let mut next = vec![0; lanes];
        let count = self.below(most + 1);
        let places = (0..lanes).cycle().take(count as usize);
        let entry = |lane: usize| {
            let step = u16::try_from(self.below(step_max)).unwrap();
            let cell = padding.min(next[lane] + step);
            next[lane] = padding.min(cell + 1);
            (cell, if cell == padding { 0 } else { self.gradient(config.arithmetic) })
        };
        places.map(entry).collect()
    }
}

/// A worker that keeps the sender rule: it may number 1,024 packets above the oldest that is not acknowledged.
struct Flow {
    profile: Profile,
    sender: Sender,
    worker: u16,
    /// Every packet it has made, from [`FIRST`] on, and whether it was acknowledged.
    packets: Vec<(Vec<u8>, bool)>,
    /// Packets as they were sent, whatever became of them.
    sent: Vec<Vec<u8>>,
}

/// Numbers that every flow has behind it: soon its window wraps around.
const FIRST: u32 = 1018;

fn random(
    profile: Profile,
    file: &'static str,
    what: &str,
    config: RegionConfig,
    seed: u64,
    keyed: Option<Keyed>,
) -> Scene {
    let about = format!(
        "{what}: three workers that keep the sender rule, over a network that loses, repeats, overtakes and damages,\n\
         with an agent that flips, drains and installs by chance. Seed {seed}."
    );
    let mut scene = Scene::of(profile, file, &about);
    let mut flows: Vec<_> = (0..config.flows).map(|worker| Flow::new(profile, worker)).collect();
    for worker in 0..config.flows {
        scene.worker(WorkerName { job: JOB, worker });
    }
    let steps = keyed.as_ref().map_or(STEPS, |keyed| keyed.steps);
    for (worker, Keyed { key, .. }) in (0..config.flows).zip(keyed.iter().cycle()) {
        scene.key(WorkerName { job: JOB, worker }, &key(worker));
    }
    let seen: Vec<_> = (0..config.flows).map(|flow| (flow, 0..FIRST)).collect();
    scene.open(config, 0xFFFA, &seen);
    let mut random = Random(SplitMix64::new(seed));
    let mut agent = Agent { profile, active: true, is_drained: true };
    let mut at = 0;
    for _ in 0..steps {
        if random.chance(30) {
            at = random.below(u32::from(config.flows)) as usize;
        }
        if random.chance(75) {
            flows[at].act(&mut scene, &config, &mut random);
        } else {
            agent.act(&mut scene, &config, &mut random);
        }
    }
    for _ in 0..2 {
        scene.drain(REGION);
        scene.close_round(REGION, config.flows);
    }
    scene.values(REGION);
    scene
}

impl Flow {
    fn new(profile: Profile, worker: u16) -> Self {
        Self { profile, sender: crate::scene::worker(worker), worker, packets: vec![], sent: vec![] }
    }

    fn act(&mut self, scene: &mut Scene, config: &RegionConfig, random: &mut Random) {
        if scene.has_keys() && random.chance(10) {
            return self.forge(scene, config, random);
        }
        match random.below(100) {
            0..50 => {
                let made = self.make(config, random);
                // One in six is lost on its way.
                if !random.chance(16) {
                    self.push(scene, made, Flags::NONE);
                }
            }
            50..75 if !self.packets.is_empty() => {
                let recent = u32::try_from(self.packets.len()).unwrap().min(30);
                let again = self.packets.len() - 1 - random.below(recent) as usize;
                self.push(scene, again, Flags::RETRANSMIT);
            }
            50..85 => {
                let cells = random
                    .entries(self.profile, config)
                    .into_iter()
                    .map(|(cell, _)| (cell, 0))
                    .collect::<Vec<_>>();
                let seq = random.below(1000);
                let pull = scene.signed(packet(header(Kind::Pull, self.worker, seq), &cells));
                scene.send(self.sender, &pull);
            }
            85..88 => {
                let probe = scene.signed(packet(header(Kind::Pull, self.worker, u32::MAX - 1), &[]));
                scene.send(self.sender, &probe);
            }
            _ => self.damaged(scene, config, random),
        }
    }

    /// Makes the next packet, and returns its place.
    fn make(&mut self, config: &RegionConfig, random: &mut Random) -> usize {
        let place = self.packets.len();
        let seq = FIRST + u32::try_from(place).unwrap();
        let last = if random.chance(40) { Flags::LAST } else { Flags::NONE };
        let values = if random.chance(20) { Flags::VALUES } else { Flags::NONE };
        let tag = if random.chance(10) { random.0.bits() } else { 0 };
        // The table of senders of such a switch has a tag: zero where there are no keys.
        let tag = if self.profile.is_wired() { 0 } else { tag };
        let header = Header { flags: last.with(values), tag, ..header(Kind::Push, self.worker, seq) };
        self.packets.push((packet(header, &random.entries(self.profile, config)), false));
        place
    }

    fn push(&mut self, scene: &mut Scene, place: usize, flags: Flags) {
        let (bytes, acknowledged) = &mut self.packets[place];
        let mut bytes = bytes.clone();
        bytes[2] |= flags.bits();
        let bytes = scene.signed(bytes);
        self.sent.push(bytes.clone());
        let answer = scene.send(self.sender, &bytes);
        *acknowledged |= answer.is_some_and(|answer| answer.header.kind == Kind::Ack);
    }

    /// A packet that the network has done something to. It leaves the number as it is: a flow would not survive that. Where lanes are wired it
    /// leaves entries as they are, too: a cell of no region is not always noticed there.
    fn damaged(&mut self, scene: &mut Scene, config: &RegionConfig, random: &mut Random) {
        let place = self.make(config, random);
        let mut bytes = scene.signed(self.packets[place].0.clone());
        for _ in 0..=random.below(2) {
            let at = random.below(u32::try_from(bytes.len()).unwrap()) as usize;
            // Where lanes are wired and there are no keys a tag is zero.
            let wired_end = if scene.has_keys() { HEADER_BYTES } else { HEADER_BYTES - 8 };
            if !(18..22).contains(&at) && (!self.profile.is_wired() || at < wired_end) {
                bytes[at] ^= 1 << random.below(8);
            }
        }
        if random.chance(20) {
            bytes.truncate(random.below(u32::try_from(bytes.len()).unwrap()) as usize);
        }
        scene.send(self.sender, &bytes);
    }

    /// A packet of an attacker: one that was on the way before, or one with a tag of another key, another view or chance.
    fn forge(&mut self, scene: &mut Scene, config: &RegionConfig, random: &mut Random) {
        if !self.sent.is_empty() && random.chance(40) {
            let at = random.below(u32::try_from(self.sent.len()).unwrap()) as usize;
            scene.send(self.sender, &self.sent[at]);
            return;
        }
        // No number of the flow, so that none is missing.
        let entries = random.entries(self.profile, config);
        let mut bytes = packet(header(Kind::Push, self.worker, FIRST), &entries);
        match random.below(3) {
            0 => bytes = scene.signed_with(&auth::mac((self.worker + 1) % config.flows), bytes),
            1 => auth::mac(self.worker).tags().sign(Direction::Up, &mut bytes, config.view + (1 << 16)),
            _ => set_tag(bytes.first_chunk_mut().unwrap(), random.0.bits()),
        }
        scene.send(self.sender, &bytes);
    }
}

/// The agent beside the pipeline.
struct Agent {
    profile: Profile,
    active: bool,
    /// That of a switch that wires lanes cannot know whether a bank holds sums without taking them out.
    is_drained: bool,
}

impl Agent {
    fn act(&mut self, scene: &mut Scene, config: &RegionConfig, random: &mut Random) {
        if !self.active {
            self.active = true;
            return scene.active(REGION, true);
        }
        match random.below(100) {
            _ if self.profile.is_wired() && !self.is_drained => {
                scene.drain(REGION);
                self.is_drained = true;
            }
            0..15 if self.profile.is_wired() => {
                scene.close_round(REGION, config.flows);
            }
            0..30 => self.is_drained = scene.flip(REGION).is_none(),
            30..60 => {
                scene.drain(REGION);
                self.is_drained = true;
            }
            60..68 => {
                let slots = u32::from(config.cells - 1) * u32::from(config.lanes);
                let values = |_| (random.below(slots), random.word());
                let values: Vec<_> = (0..5).map(values).collect();
                scene.install(REGION, &values);
            }
            68..78 => scene.durable(REGION, u16::try_from(random.below(1 << 16)).unwrap()),
            78..84 => scene.readable(REGION, random.chance(80)),
            84..90 => {
                self.active = false;
                scene.active(REGION, false);
            }
            90..95 => {
                scene.live_acked(REGION, u16::try_from(random.below(config.flows.into())).unwrap());
            }
            _ => {
                scene.bank(REGION);
            }
        }
    }
}
