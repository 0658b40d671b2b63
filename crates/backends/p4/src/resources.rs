//! Resources of a Tofino that the program takes, by the sizes that it is generated from: registers and the memory blocks they lie in, tables,
//! the stages that its steps need one after another, and the bits that a packet carries through them.
//!
//! It is an estimate, made without a compiler. Small tables, gateways and what a compiler adds are not in it; `docs/operating/p4.md` has beside it
//! what a compiler took, and a test compares the two.

use serde::Serialize;

use crate::adder::Adder;
use crate::sizes::{OutOfRange, Sizes, Sums};

/// Resources of a pipe of a Tofino 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Stages that a packet passes.
    pub stages: u32,
    /// Stateful ALUs of a stage: how many registers it has.
    pub stateful_alus_of_stage: u32,
    /// Memory blocks of a stage.
    pub sram_blocks_of_stage: u32,
    /// Bytes of a block.
    pub sram_block_bytes: u64,
    /// Bits of the containers that headers and metadata pass through actions in.
    pub phv_bits: u32,
    /// The most bytes of a packet that a design for it may have, as its parser and its containers hold no more.
    pub packet_bytes: usize,
    /// Bits a second of a port.
    pub port_bits_per_second: u64,
    /// States a second that the parser of a port passes: one a cycle, rounded down.
    pub parser_states_per_second: u64,
}

/// A Tofino 1.
pub const TOFINO: Limits = Limits {
    stages: 12,
    stateful_alus_of_stage: 4,
    sram_blocks_of_stage: 80,
    sram_block_bytes: 16 << 10,
    phv_bits: 64 * 8 + 96 * 16 + 64 * 32,
    packet_bytes: 192,
    port_bits_per_second: 100_000_000_000,
    parser_states_per_second: 1_200_000_000,
};

/// A register, or one for each lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Array {
    /// Its name in `registers.p4`.
    pub name: &'static str,
    /// Number of arrays like it.
    pub count: u32,
    /// Cells of one.
    pub cells: u64,
    /// Bits of a cell.
    pub cell_bits: u32,
    /// The first stage that it may be in: everything before it must be known there.
    pub stage: u32,
}

impl Array {
    /// Bytes of all that are like it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.count) * self.bytes_of_one()
    }

    const fn bytes_of_one(&self) -> u64 {
        self.cells * self.cell_bits as u64 / 8
    }

    /// Memory blocks of all that are like it. Each has one beside its cells: a block is read and written in the same moment by means of
    /// another.
    #[must_use]
    pub fn sram_blocks(&self) -> u64 {
        u64::from(self.count) * (self.bytes_of_one().div_ceil(TOFINO.sram_block_bytes) + 1)
    }
}

/// A table that the agent fills, or those of all lanes of the same name, whose entries are part of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableSize {
    /// Its name from the control `Ingress` on.
    pub name: &'static str,
    /// Entries that it has room for.
    pub entries: u64,
    /// Bits of a key.
    pub key_bits: u64,
    /// Bits of what its action is given.
    pub data_bits: u64,
}

impl TableSize {
    /// Bytes of its entries, without what finds them.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.entries * (self.key_bits + self.data_bits).div_ceil(8)
    }
}

/// Resources that a program of some sizes takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Registers of sums, which is how many entries a packet has.
    pub lanes: u32,
    /// Slots of 4 bytes for each bank, padding included.
    pub slots: u64,
    /// Registers.
    pub arrays: Vec<Array>,
    /// Tables.
    pub tables: Vec<TableSize>,
    /// Stages of ingress.
    pub stages: u32,
    /// Stages of egress beside the one that it has anyway: where floats are added.
    pub egress_stages: u32,
    /// Bits of all headers, of which no packet has all, and of the metadata.
    pub phv_bits: PhvBits,
    /// Bytes of a packet with its entries, without Ethernet, IP and UDP.
    pub packet_bytes: usize,
    /// States of the parser that a packet with its entries passes, one after another.
    pub parser_states: u32,
}

/// Bits that a packet carries through the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PhvBits {
    /// Headers of a packet of Libra.
    pub headers: u32,
    /// Metadata of the program about it.
    pub metadata: u32,
}

/// The stage in which it is decided what becomes of a packet: the clock, the window and the decision each need what was there a
/// stage before, and the clock needs the tables.
const DECISION_STAGE: u32 = 3;
/// Steps of an adder, each of which needs the one before: magnitudes, order, exponent and rest, mantissa, term, rounding, difference, change,
/// exponent of the sum, its fraction, result.
const ADDER_STAGES: u32 = 11;
/// Sums and values.
const ARRAYS_OF_LANE: u32 = 2;
/// States of the parser beside one for each lane: Ethernet, IPv4, UDP, header, its fields, the kind, and the end.
const PARSER_STATES: u32 = 7;
/// Bytes of a frame around a packet: Ethernet with its check sequence, IPv4, UDP; and on the wire preamble and gap.
const FRAME_BYTES: u64 = 14 + 4 + 20 + 8 + 20;

impl Resources {
    /// Estimates the resources of a program of these sizes.
    ///
    /// # Errors
    /// The sizes make no program.
    pub fn of(sizes: &Sizes) -> Result<Self, OutOfRange> {
        sizes.check()?;
        let lanes = u32::from(sizes.lanes);
        let lane_stages = (lanes * ARRAYS_OF_LANE).div_ceil(TOFINO.stateful_alus_of_stage);
        let egress_stages = match sizes.sums {
            Sums::Fixed { .. } => 0,
            Sums::Table => ADDER_STAGES,
        };
        Ok(Self {
            lanes,
            slots: u64::from(lanes) * sizes.cells() as u64,
            arrays: arrays(sizes),
            tables: tables(sizes),
            stages: first_lane_stage(sizes) + lane_stages,
            egress_stages,
            phv_bits: phv_bits(sizes),
            packet_bytes: sizes.packet_bytes(),
            parser_states: PARSER_STATES + lanes,
        })
    }

    /// Packets a second with their entries that the parser of a port takes: fewer than a fast port brings.
    #[must_use]
    pub fn packets_per_second(&self) -> u64 {
        TOFINO.parser_states_per_second / u64::from(self.parser_states)
    }

    /// Returns the share of a port that is full of such packets which its parser takes, at most all of it.
    #[must_use]
    pub fn share_of_port(&self) -> f64 {
        let bits = 8 * (FRAME_BYTES + self.packet_bytes as u64);
        let full = TOFINO.port_bits_per_second as f64 / bits as f64;
        (self.packets_per_second() as f64 / full).min(1.0)
    }

    /// Bytes of all registers.
    #[must_use]
    pub fn array_bytes(&self) -> u64 {
        self.arrays.iter().map(Array::bytes).sum()
    }

    /// Bytes of all entries of tables.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.tables.iter().map(TableSize::bytes).sum()
    }

    /// Memory blocks of registers.
    #[must_use]
    pub fn sram_blocks(&self) -> u64 {
        self.arrays.iter().map(Array::sram_blocks).sum()
    }

    /// Stateful ALUs: one a register.
    #[must_use]
    pub fn stateful_alus(&self) -> u32 {
        self.arrays.iter().map(|array| array.count).sum()
    }

    /// Lists the resources that a Tofino has too few of, in words.
    #[must_use]
    pub fn lacking(&self) -> Vec<String> {
        let pairs = [
            ("stages", u64::from(self.stages.max(self.egress_stages)), u64::from(TOFINO.stages)),
            (
                "stateful ALUs",
                self.stateful_alus().into(),
                (TOFINO.stages * TOFINO.stateful_alus_of_stage).into(),
            ),
            ("memory blocks", self.sram_blocks(), (TOFINO.stages * TOFINO.sram_blocks_of_stage).into()),
            ("PHV bits", (self.phv_bits.headers + self.phv_bits.metadata).into(), TOFINO.phv_bits.into()),
        ];
        pairs
            .into_iter()
            .filter(|(_, used, of)| used > of)
            .map(|(what, used, of)| format!("{used} {what}, there are {of}"))
            .collect()
    }
}

/// Returns the stage of the decision. If floats are added, room is given after the turns of the cells, which are known two stages after the clock.
const fn decision_stage(sizes: &Sizes) -> u32 {
    match sizes.sums {
        Sums::Fixed { .. } => DECISION_STAGE,
        Sums::Table => DECISION_STAGE + 3,
    }
}

const fn first_lane_stage(sizes: &Sizes) -> u32 {
    match sizes.sums {
        Sums::Fixed { .. } => decision_stage(sizes) + 1,
        Sums::Table => decision_stage(sizes) + 2,
    }
}

fn arrays(sizes: &Sizes) -> Vec<Array> {
    let (decision, lane, room) = (decision_stage(sizes), first_lane_stage(sizes), decision_stage(sizes) - 2);
    let (lanes, regions, flows) = (u32::from(sizes.lanes), u64::from(sizes.regions), sizes.flows() as u64);
    let (cells, entries) = (sizes.cells() as u64, sizes.window_entries() as u64);
    let array = |name, count, cells, cell_bits, stage| Array { name, count, cells, cell_bits, stage };
    let turns = (sizes.sums == Sums::Table).then(|| array("turns", lanes, cells, 32, room - 1));
    let others = [
        array("clocks", 1, regions, 32, 1),
        array("conditions", 1, regions, 8, 1),
        array("arrivals", 1, regions, 32, room),
        array("generations", 1, entries, 32, room + 1),
        array("banks", 1, entries, 8, decision),
        array("counts", 1, regions, 32, decision),
        array("words", 1, sizes.acked_words() as u64, 32, decision),
        array("next", 1, 2 * flows, 32, decision),
        array("sums", lanes, 2 * cells, 32, lane),
        array("values", lanes, cells, 32, lane),
    ];
    turns.into_iter().chain(others).collect()
}

fn tables(sizes: &Sizes) -> Vec<TableSize> {
    let (regions, flows, flow_bits) =
        (u64::from(sizes.regions), sizes.flows() as u64, u64::from(sizes.flow_bits));
    let table = |name, entries, key_bits, data_bits| TableSize { name, entries, key_bits, data_bits };
    let agents = [
        table("admission.addresses", 8, 48, 0),
        table("admission.workers", flows, 144, 0),
        table("admission.agents", 8, 9, 0),
        table("admission.regions", regions, 24, 8 + 16 + 16 + flow_bits + 32),
        table("admission.ownerships", regions, 56, 0),
        table("aggregate.cells_inside.masks", regions, 24, 16),
        table("aggregate.cells_of_bank.bases", 2 * regions, 9, 16),
        table("aggregate.cells_again.masks", regions, 24, 16),
        table("host.names", 8, 48, 48),
        table("host.pings", 8, 40, 0),
        table("forward.stations", 1024, 48, 9),
    ];
    let adders = match sizes.sums {
        Sums::Fixed { .. } => Vec::new(),
        Sums::Table => {
            let adder = Adder::of_program();
            let each = |name, entries: usize, key_bits, data_bits| {
                table(name, u64::from(sizes.lanes) * entries as u64, key_bits, data_bits)
            };
            // An adder has two logarithms.
            vec![
                each("adders.log_m", 2 * adder.log_m.len(), 11, 48),
                each("adders.log_d", 2 * adder.log_d.len(), 12, 16),
                each("adders.exp", 2 * adder.exp.len(), 16, 32),
                each("adders.mi", adder.mi.iter().map(Vec::len).sum(), 17, 32),
                each("adders.float", adder.float.len(), 8, 32),
            ]
        }
    };
    agents.into_iter().chain(adders).collect()
}

/// The headers and the metadata of the program.
const HEADERS: &str = include_str!("../program/headers.p4");

/// Widths as the program declares them.
fn phv_bits(sizes: &Sizes) -> PhvBits {
    let of = |name: &str| declared_bits(name, sizes);
    let frame = ["ethernet_h", "ipv4_h", "udp_h", "libra_h"].map(of).iter().sum::<u32>();
    let lanes = u32::from(sizes.lanes);
    // A clock, a port and passes, and of each lane a turn, a sum and a value.
    let again = if sizes.sums == Sums::Table { 32 + 16 + 16 + lanes * 96 } else { 0 };
    PhvBits { headers: frame + lanes * of("entry_h") + again, metadata: of("metadata_t") }
}

fn declared_bits(name: &str, sizes: &Sizes) -> u32 {
    let start = [format!("header {name} {{"), format!("struct {name} {{")];
    let mut lines = HEADERS.lines();
    lines.find(|line| start.contains(&(*line).to_owned())).expect("the program declares it");
    let mut is_of_program = true;
    let fields = lines.take_while(|line| *line != "}").filter(|line| {
        match *line {
            "#ifdef SUMS_BY_TABLE" => is_of_program = sizes.sums == Sums::Table,
            "#endif" => is_of_program = true,
            _ => {}
        }
        is_of_program
    });
    fields.filter_map(|line| field_bits(line.trim(), sizes)).sum()
}

/// The width of a field; nothing if the line is no field.
fn field_bits(line: &str, sizes: &Sizes) -> Option<u32> {
    if line.starts_with("//") {
        return None;
    }
    let (kind, _) = line.strip_suffix(';')?.split_once(' ')?;
    let width = match kind.strip_prefix("bit<") {
        None if kind == "bool" => "1",
        Some(rest) => rest.strip_suffix('>')?,
        None => enum_width(kind)?,
    };
    if width == "FLOW_BITS" { Some(sizes.flow_bits.into()) } else { width.parse().ok() }
}

fn enum_width(name: &str) -> Option<&'static str> {
    HEADERS.lines().find_map(|line| {
        let (width, rest) = line.strip_prefix("enum bit<")?.split_once("> ")?;
        rest.starts_with(&format!("{name} {{")).then_some(width)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Resources {
        Resources::of(&Sizes::default()).unwrap()
    }

    #[test]
    fn the_usual_sizes_fit_in_all_stages() {
        let usual = usual();
        assert_eq!((usual.lanes, usual.slots, usual.packet_bytes), (16, 32_768, 126));
        assert_eq!((usual.stages, usual.stateful_alus()), (12, 40));
        assert_eq!(usual.lacking(), [""; 0]);
        let one = |name: &str| usual.arrays.iter().find(|array| array.name == name).unwrap();
        assert_eq!((one("sums").bytes(), one("sums").sram_blocks()), (16 * 16_384, 32));
        assert_eq!((one("values").bytes(), one("values").sram_blocks()), (16 * 8192, 32));
        assert_eq!(one("generations").sram_blocks(), 17);
    }

    /// Returns the figures of `docs/operating/p4.md` for the usual sizes: the estimate, and what the compiler took.
    fn documented(what: &str) -> [u64; 2] {
        let start = format!("| {what} | ");
        let docs = include_str!("../../../../docs/operating/p4.md");
        let line = docs.lines().find_map(|line| line.strip_prefix(&start)).expect("it is documented");
        let mut figures = line.split(" | ").map(|figure| figure.parse().expect("it is a figure"));
        std::array::from_fn(|_| figures.next().expect("there are two"))
    }

    #[test]
    fn the_compiler_took_what_was_estimated() {
        let usual = usual();
        let same = [
            ("stages", u64::from(usual.stages)),
            ("stateful ALUs", u64::from(usual.stateful_alus())),
            ("SRAM blocks of registers", usual.sram_blocks()),
        ];
        for (what, estimate) in same {
            assert_eq!(documented(what), [estimate; 2], "{what}");
        }
        // Containers have bits to spare, and frames that are not of Libra have headers, too.
        let bits = u64::from(usual.phv_bits.headers + usual.phv_bits.metadata);
        let [estimate, took] = documented("PHV bits");
        assert_eq!(estimate, bits);
        assert!(bits < took && took < bits + bits / 8, "{took}");
    }

    /// p4c takes eleven stages of ingress and eleven of egress for them.
    #[test]
    fn two_lanes_of_floats_fit() {
        let floats = Resources::of(&Sizes::of_tables()).unwrap();
        assert_eq!((floats.stages, floats.egress_stages, floats.stateful_alus()), (9, 11, 14));
        assert_eq!(floats.lacking(), [""; 0]);
        let entries = |name: &str| floats.tables.iter().find(|table| table.name == name).unwrap().entries;
        assert_eq!((entries("adders.log_m"), entries("adders.log_d")), (2 * 4096, 2 * 8192));
    }

    #[test]
    fn a_lane_needs_half_a_stage() {
        let of = |lanes| Resources::of(&Sizes { lanes, ..Sizes::default() }).unwrap().stages;
        assert_eq!([1, 2, 3, 8, 15].map(of), [5, 5, 6, 8, 12]);
    }

    #[test]
    fn a_port_full_of_pushes_is_more_than_a_parser_takes() {
        let usual = usual();
        assert_eq!((usual.parser_states, usual.packets_per_second()), (23, 52_173_913));
        assert_eq!(format!("{:.2}", usual.share_of_port()), "0.80");
        // The states that a push passes, as the program has them: each is entered once.
        let generated = crate::generate(&Sizes::default()).unwrap();
        let entries = generated.iter().find(|file| file.name == "entries.p4").unwrap();
        let pushes = entries.text.matches("    state push").count();
        let shared = ["start", "ipv4", "udp", "full", "full_of_version", "push", "sound"];
        let parser = include_str!("../program/parser.p4");
        assert!(shared.iter().all(|state| parser.contains(&format!("    state {state} {{"))));
        assert_eq!(usual.parser_states as usize, shared.len() + pushes);
    }

    /// The larger size that `docs/operating/p4.md` offers beside the usual sizes.
    #[test]
    fn eight_times_as_many_slots_fit_the_same_stages() {
        let large = Resources::of(&Sizes { cell_bits: 14, ..Sizes::default() }).unwrap();
        assert_eq!((large.slots, large.stages, large.sram_blocks()), (262_144, 12, 258));
        assert_eq!(large.lacking(), [""; 0]);
    }

    #[test]
    fn lacking_resources_are_listed() {
        let lacking = Resources { stages: 13, ..usual() }.lacking();
        assert_eq!(lacking, ["13 stages, there are 12"]);
    }

    #[test]
    fn bits_are_those_that_the_program_declares() {
        let sizes = Sizes::default();
        let of = |name: &str| declared_bits(name, &sizes);
        assert_eq!([of("ethernet_h"), of("ipv4_h"), of("udp_h"), of("entry_h")], [112, 160, 64, 48]);
        assert_eq!(of("libra_h"), 8 * 30);
        let fewer = Sizes { flow_bits: 5, ..sizes };
        assert_eq!(of("metadata_t") - declared_bits("metadata_t", &fewer), 1);
    }
}
