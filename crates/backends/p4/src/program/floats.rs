//! Generated parts of a program that adds floats: the entries of its tables, and the code for each lane beside registers.

use super::{each_lane, head};
use crate::adder::{Adder, Change, Prefix};

/// There are thousands of them.
const ENTRIES_OF_LINE: usize = 8;

pub(super) fn log_m() -> String {
    let entry = |(log, scale): &(u32, u16)| format!("mantissa({log:#010x}, {scale:#06x})");
    by_number(
        "by 11 bits of a fraction, logarithms of mantissas",
        Adder::of_program().log_m.iter().map(entry),
    )
}

pub(super) fn log_d() -> String {
    let entry = |log: &u16| format!("rest({log:#06x})");
    by_number("by the bits after those, their logarithms", Adder::of_program().log_d.iter().map(entry))
}

pub(super) fn float() -> String {
    let entry = |fraction: &u32| format!("fraction({fraction:#010x})");
    let about = "by what is behind the point of a logarithm, fractions of powers";
    by_number(about, Adder::of_program().float.iter().map(entry))
}

pub(super) fn exp() -> String {
    let entry = |Prefix { key, mask, entry }: &Prefix<u32>| {
        format!("{key:#06x} &&& {mask:#06x} : term({entry:#06x});")
    };
    let about = "by differences of the two, what the bits add to the logarithm of a mantissa";
    entries(about, Adder::of_program().exp.iter().map(entry))
}

pub(super) fn mi() -> String {
    let of_signs = |(differ, prefixes): (usize, &'static Vec<Prefix<Change>>)| {
        prefixes.iter().map(move |Prefix { key, mask, entry }| {
            let change = match entry {
                Change::By(by) => format!("change({by:#010x})"),
                Change::Cancel => "cancel()".to_owned(),
            };
            format!("({key:#06x} &&& {mask:#06x}, {differ}) : {change};")
        })
    };
    let about = "by θ and whether signs differ, what a summand changes of a logarithm";
    entries(about, Adder::of_program().mi.iter().enumerate().flat_map(of_signs))
}

fn by_number(about: &str, made: impl Iterator<Item = String>) -> String {
    entries(about, made.enumerate().map(|(key, entry)| format!("{key} : {entry};")))
}

fn entries(about: &str, entries: impl Iterator<Item = String>) -> String {
    let mut text = head(&format!("Entries of a table: {about}."));
    for line in entries.collect::<Vec<_>>().chunks(ENTRIES_OF_LINE) {
        text += &line.join(" ");
        text += "\n";
    }
    text
}

/// The header of a push between its passes.
pub(super) fn again(lanes: u8) -> String {
    let all = |between: &str, of_lane: &dyn Fn(u8) -> String| {
        (0..lanes).map(of_lane).collect::<Vec<_>>().join(between)
    };
    let words = |name: &str| each_lane(lanes, |lane| format!("    bit<32> {name}{lane};"));
    format!(
        "{}#pragma once

// When the push has passed for the last time, by which port it came, and how often it has passed: after an odd number of times it has read
// sums. Of each lane the turn in which its sum was read, the sum, and what is added to it.
header again_h {{
    bit<32> clock;
    bit<16> came_by;
    bit<16> passes;
{}
{}
{}
}}

// Of each lane a field of its own, as hardware writes all of them at once: 1 if it is its turn.
#define TURNS {}
#define ALL_TURNS(meta) ({})
#define NO_TURNS(meta) {}
",
        head("The header of a push between its passes."),
        words("turn"),
        words("sum"),
        words("value"),
        all(" ", &|lane| format!("bit<8> is_turn{lane};")),
        all(" && ", &|lane| format!("meta.is_turn{lane} == 1")),
        all(" ", &|lane| format!("meta.is_turn{lane} = 0;"))
    )
}

/// Returns the code that places the cells of a packet: the turns of a cell are those of both banks, and needed before it is known which one it is.
pub(super) fn cells_of_region_and_bank(lanes: u8) -> String {
    let place = |with: &str| {
        each_lane(lanes, |lane| {
            format!("        hdr.entries[{lane}].cell = hdr.entries[{lane}].cell | {with};")
        })
    };
    format!(
        "control CellsOfRegion(inout headers_t hdr) {{
    action place(bit<16> base) {{
{}
    }}

    table bases {{
        key = {{
            hdr.libra.job : exact @name(\"job\");
            hdr.libra.region : exact @name(\"region\");
        }}
        actions = {{ place; @defaultonly NoAction; }}
        const default_action = NoAction;
        size = REGIONS;
    }}

    apply {{ bases.apply(); }}
}}

control CellsOfBank(inout headers_t hdr, in metadata_t meta) {{
    action place() {{
{}
    }}

    apply {{
        if (meta.bank_of_action == 1) {{
            place();
        }}
    }}
}}",
        place("base"),
        place("1 << CELL_BITS")
    )
}

/// The controls that fill that header, and compare it.
pub(super) fn passes(lanes: u8) -> String {
    let turn = |lane| {
        format!(
            "        turn{lane}.apply(hdr.entries[{lane}], hdr.again.turn{lane}, hdr.again.passes[0:0], meta, meta.is_turn{lane});"
        )
    };
    let copy = |lane| format!("        hdr.again.value{lane} = hdr.entries[{lane}].value;");
    format!(
        "
// Whose turn it is.
control Turns(inout headers_t hdr, inout metadata_t meta) {{
{}

    apply {{
{}
    }}
}}

// A push that will pass again takes along what is added.
control Summands(inout headers_t hdr) {{
    action take_along() {{
{}
    }}

    apply {{ take_along(); }}
}}
",
        each_lane(lanes, |lane| format!("    Turn() turn{lane};")),
        each_lane(lanes, turn),
        each_lane(lanes, copy)
    )
}

/// The control that computes its sums.
pub(super) fn adders(lanes: u8) -> String {
    let apply = |lane| format!("        adder{lane}.apply(again.sum{lane}, again.value{lane});");
    format!(
        "{}#pragma once

control Adders(inout again_h again) {{
{}

    apply {{
{}
    }}
}}
",
        head("The adders of all lanes."),
        each_lane(lanes, |lane| format!("    Adder() adder{lane};")),
        each_lane(lanes, apply)
    )
}
