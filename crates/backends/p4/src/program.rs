//! Generated parts of the program, from the constants of `libra-dataplane`: sizes, codes, and everything that is there once for
//! each lane.

mod floats;

use std::fmt::Write as _;

use libra_dataplane::{Flags, Kind, MAGIC, NackReason, VERSION, WINDOW};

use crate::packet::{CONDITION_ACTIVE, CONDITION_READABLE, KIND_FLIP};
use crate::sizes::{BARE_BYTES, IP_HEADER_BYTES, OutOfRange, Sizes, Sums, UDP_HEADER_BYTES};

/// A file of the program that is written by [`generate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its name in the directory `generated` of the program.
    pub name: &'static str,
    /// Its content.
    pub text: String,
}

/// The files of a program of these sizes.
///
/// # Errors
/// The sizes make no program.
pub fn generate(sizes: &Sizes) -> Result<Vec<Generated>, OutOfRange> {
    sizes.check()?;
    let file = |name, text| Generated { name, text };
    let mut files = vec![
        file("constants.p4", constants(sizes)),
        file("entries.p4", entries(sizes)),
        file("entries_rest.p4", entries_rest(sizes.lanes)),
        file("lanes.p4", lanes(sizes)),
    ];
    match sizes.sums {
        Sums::Fixed { .. } => files.push(file("acked_bits.p4", acked_bits())),
        Sums::Table => files.extend([
            file("again.p4", floats::again(sizes.lanes)),
            file("adders.p4", floats::adders(sizes.lanes)),
            file("log_m.p4", floats::log_m()),
            file("log_d.p4", floats::log_d()),
            file("exp.p4", floats::exp()),
            file("mi.p4", floats::mi()),
            file("float.p4", floats::float()),
        ]),
    }
    Ok(files)
}

/// Returns the first lines of a generated file.
fn head(about: &str) -> String {
    format!("// {about} Written by `libra p4 generate`: do not edit.\n\n")
}

/// A line for each lane.
fn each_lane(lanes: u8, line: impl Fn(u8) -> String) -> String {
    (0..lanes).map(line).collect::<Vec<_>>().join("\n")
}

fn constants(sizes: &Sizes) -> String {
    let Sizes { lanes, cell_bits, flow_bits, regions, sums } = *sizes;
    let mut text = head("Sizes and codes.");
    text += "#pragma once\n\n";
    let window_bits = WINDOW.trailing_zeros();
    let sizes_of = [
        ("LANES", u64::from(lanes)),
        ("CELL_BITS", cell_bits.into()),
        ("CELLS", sizes.cells() as u64),
        ("FLOW_BITS", flow_bits.into()),
        ("FLOWS", sizes.flows() as u64),
        ("WINDOW_BITS", window_bits.into()),
        ("WINDOW", WINDOW as u64),
        ("ACKED_WORD_BITS", u64::from(1 + u32::from(flow_bits) + window_bits - 5)),
        ("ACKED_WORDS", sizes.acked_words() as u64),
        ("REGIONS", regions.into()),
    ];
    // Widths and sizes must be literals to some compilers, so they are macros.
    for (name, value) in sizes_of {
        let _ = writeln!(text, "#define {name} {value}");
    }
    if let Sums::Fixed { bound_bits } = sums {
        let _ = writeln!(text, "#define BOUND_BITS {bound_bits}");
    }
    text += "\n";
    let flags_known = Flags::RETRANSMIT.with(Flags::VALUES).with(Flags::LAST).bits();
    let codes = [
        ("MAGIC", MAGIC),
        ("VERSION", VERSION),
        ("KIND_PUSH", Kind::Push as u8),
        ("KIND_PULL", Kind::Pull as u8),
        ("KIND_INSTALL", Kind::Install as u8),
        ("KIND_DRAIN", Kind::Drain as u8),
        ("KIND_ACK", Kind::Ack as u8),
        ("KIND_NACK", Kind::Nack as u8),
        ("KIND_FLIP", KIND_FLIP),
        ("FLAG_VALUES", Flags::VALUES.bits()),
        ("FLAG_LAST", Flags::LAST.bits()),
        ("FLAGS_UNKNOWN", !flags_known),
        ("CONDITION_ACTIVE", CONDITION_ACTIVE),
        ("CONDITION_READABLE", CONDITION_READABLE),
    ];
    for (name, code) in codes {
        let _ = writeln!(text, "const bit<8> {name} = {code:#04x};");
    }
    text += "\n";
    for reason in NackReason::ALL {
        let _ = writeln!(text, "const bit<16> {} = {};", screaming(&format!("{reason:?}")), reason as u16);
    }
    text += "\n";
    for (name, payload) in [("BARE", BARE_BYTES), ("FULL", sizes.packet_bytes())] {
        let udp = payload + UDP_HEADER_BYTES;
        let _ = writeln!(text, "const bit<16> UDP_BYTES_{name} = {udp};");
        let _ = writeln!(text, "const bit<16> IP_BYTES_{name} = {};", udp + IP_HEADER_BYTES);
    }
    match sums {
        Sums::Fixed { bound_bits } => {
            let bits = 32 - u32::from(bound_bits);
            text += "\n// The upper bits of a value within bounds that is less than zero.\n";
            let _ = writeln!(text, "const bit<{bits}> VALUE_NEGATIVE = {:#x};", (1_u64 << bits) - 1);
        }
        Sums::Table => text += "\n// The exponent of what is not finite.\nconst bit<8> NOT_FINITE = 0xff;\n",
    }
    text
}

fn screaming(name: &str) -> String {
    let mut text = String::new();
    for (place, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && place > 0 {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

fn acked_bits() -> String {
    let mut text = head("Entries of a table: the bit of a number in its word of an acked set.");
    for bit in 0..32 {
        let _ = writeln!(text, "{bit} : set_bit({:#010x});", 1_u32 << bit);
    }
    text
}

fn entries(sizes: &Sizes) -> String {
    let lanes = sizes.lanes;
    let mut text = head("States of the parser that take the entries and look at them, one for each lane.");
    for lane in 0..lanes {
        let next =
            |chain: &str| if lane + 1 < lanes { format!("{chain}{}", lane + 1) } else { "sound".to_owned() };
        let (push, cell, rest) = (next("push"), next("cell"), rest_after(lane, lanes));
        let (bits, sound) = match sizes.sums {
            Sums::Fixed { .. } => (
                "31:BOUND_BITS",
                format!(
                    "            (0, 0): {push};
            (0, VALUE_NEGATIVE): {push};
            default: {rest};"
                ),
            ),
            Sums::Table => (
                "30:23",
                format!(
                    "            (0, NOT_FINITE): {rest};
            (0, _): {push};
            default: {rest};"
                ),
            ),
        };
        let _ = write!(
            text,
            "    state push{lane} {{
        packet.extract(hdr.entries[{lane}]);
        transition select(hdr.entries[{lane}].cell[15:CELL_BITS], hdr.entries[{lane}].value[{bits}]) {{
{sound}
        }}
    }}

    state cell{lane} {{
        packet.extract(hdr.entries[{lane}]);
        transition select(hdr.entries[{lane}].cell[15:CELL_BITS]) {{
            0: {cell};
            default: {rest};
        }}
    }}
"
        );
        text += if lane + 1 < lanes { "\n" } else { "" };
    }
    text
}

fn entries_rest(lanes: u8) -> String {
    let mut text = head("States of the parser that take the entries as they are, one for each lane.");
    for lane in 0..lanes {
        let rest = rest_after(lane, lanes);
        let _ = write!(
            text,
            "    state rest{lane} {{
        packet.extract(hdr.entries[{lane}]);
        transition {rest};
    }}
"
        );
        text += if lane + 1 < lanes { "\n" } else { "" };
    }
    text
}

fn rest_after(lane: u8, lanes: u8) -> String {
    if lane + 1 < lanes { format!("rest{}", lane + 1) } else { "accept".to_owned() }
}

fn lanes(sizes: &Sizes) -> String {
    let each = |line: &dyn Fn(u8) -> String| each_lane(sizes.lanes, line);
    let mut text = head("Everything that is there once for each lane.");
    let _ = write!(
        text,
        "#pragma once

// The words of all entries, for checksums.
#define ENTRY_WORDS {}

control Lanes(inout headers_t hdr, in metadata_t meta) {{
{}

    apply {{
{}
    }}
}}

// Leaves a packet without entries.
control EntriesRemoval(inout headers_t hdr) {{
    action remove() {{
        hdr.ipv4.total_bytes = IP_BYTES_BARE;
        hdr.udp.bytes = UDP_BYTES_BARE;
{}
    }}

    apply {{ remove(); }}
}}

// Cells of a packet are those of its region, from 0 on. In registers those of a region begin at its base, with the bank in the bit
// above them.
control CellsInside(inout headers_t hdr) {{
    action keep(bit<16> mask) {{
{}
    }}

    table masks {{
        key = {{
            hdr.libra.job : exact @name(\"job\");
            hdr.libra.region : exact @name(\"region\");
        }}
        actions = {{ keep; @defaultonly NoAction; }}
        const default_action = NoAction;
        size = REGIONS;
    }}

    apply {{ masks.apply(); }}
}}

{}
",
        (0..sizes.lanes)
            .map(|lane| format!("hdr.entries[{lane}].cell, hdr.entries[{lane}].value"))
            .collect::<Vec<_>>()
            .join(", \\\n    "),
        each(&|lane| format!("    Lane() lane{lane};")),
        each(&|lane| match sizes.sums {
            Sums::Fixed { .. } => format!("        lane{lane}.apply(hdr.entries[{lane}], meta);"),
            Sums::Table => format!("        lane{lane}.apply(hdr.entries[{lane}], hdr.again.sum{lane}, meta);"),
        }),
        each(&|lane| format!("        hdr.entries[{lane}].setInvalid();")),
        each(&|lane| format!("        hdr.entries[{lane}].cell = hdr.entries[{lane}].cell & mask;")),
        match sizes.sums {
            Sums::Fixed { .. } => cells_of_bank(sizes.lanes),
            Sums::Table => floats::cells_of_region_and_bank(sizes.lanes),
        }
    );
    if sizes.sums == Sums::Table {
        text += &floats::passes(sizes.lanes);
    }
    text
}

fn cells_of_bank(lanes: u8) -> String {
    format!(
        "control CellsOfBank(inout headers_t hdr, in metadata_t meta) {{
    action place(bit<16> base) {{
{}
    }}

    table bases {{
        key = {{
            meta.index : exact @name(\"index\");
            meta.bank_of_action : exact @name(\"bank\");
        }}
        actions = {{ place; @defaultonly NoAction; }}
        const default_action = NoAction;
        size = 2 * REGIONS;
    }}

    apply {{ bases.apply(); }}
}}",
        each_lane(lanes, |lane| format!(
            "        hdr.entries[{lane}].cell = hdr.entries[{lane}].cell | base;"
        ))
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn checked_in_files_are_those_generated() {
        for (folder, sizes) in [("generated", Sizes::default()), ("generated/table", Sizes::of_tables())] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("program").join(folder);
            let files = std::fs::read_dir(&folder).unwrap().map(Result::unwrap);
            let names: BTreeSet<_> = files
                .filter(|file| file.file_type().unwrap().is_file())
                .map(|file| file.file_name().into_string().unwrap())
                .collect();
            let generated = generate(&sizes).unwrap();
            assert_eq!(names, generated.iter().map(|file| file.name.to_owned()).collect());
            for Generated { name, text } in generated {
                assert!(
                    std::fs::read_to_string(folder.join(name)).unwrap() == text,
                    "{} is stale: run `libra p4 generate`, and look at what it changes",
                    folder.join(name).display()
                );
            }
        }
    }

    #[test]
    fn names_of_reasons_are_written_as_p4_has_them() {
        assert_eq!(screaming("StaleView"), "STALE_VIEW");
    }
}
