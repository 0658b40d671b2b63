//! Properties that the text of the program must have, and that no compiler for bmv2 checks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn source(file: &str) -> String {
    fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/backends/p4/program").join(file),
    )
    .unwrap()
}

/// The fields of the metadata: `meta` in the program.
fn fields() -> BTreeSet<String> {
    let headers = source("headers.p4");
    let lines = headers
        .lines()
        .skip_while(|line| *line != "struct metadata_t {")
        .skip(1)
        .take_while(|line| *line != "}");
    let field = |line: &str| Some(line.trim().strip_suffix(';')?.split_once(' ')?.1.to_owned());
    lines.filter_map(field).collect()
}

#[test]
fn metadata_of_the_v1model_is_set_before_it_is_read() {
    let start = source("v1model/start.p4");
    let set: Vec<_> = start
        .lines()
        .filter_map(|line| Some(line.strip_prefix("meta.")?.split_once(" = ")?.0.to_owned()))
        .collect();
    assert_eq!(set.iter().cloned().collect::<BTreeSet<_>>(), fields());
    assert_eq!(set.len(), fields().len(), "each once");
    assert!(fields().len() > 30 && start.contains("NO_TURNS(meta)"));
    let top = source("libra_v1model.p4");
    assert!(top.contains("    state start {\n#include \"v1model/start.p4\"\n"), "before all else");
}

#[test]
fn metadata_of_a_tofino_is_initialised_by_its_compiler() {
    let top = source("libra_tna.p4");
    let annotation = top.find("\n@pa_auto_init_metadata\n").expect("the compiler is told to");
    assert!(annotation < top.find("\ncontrol Ingress(").expect("it has an ingress"));
}

#[test]
fn a_tofino_compares_the_checksum_of_ipv4_in_its_parser() {
    let (top, parser) = (source("libra_tna.p4"), source("parser.p4"));
    let define = top.find("#define CHECKSUMS_IN_PARSER").expect("it does");
    assert!(define < top.find("#include \"parser.p4\"").expect("it has a parser"));
    assert!(
        parser
            .contains("header_checksum.add(hdr.ipv4);\n        meta.is_damaged = header_checksum.verify();")
    );
    // Who names it takes packets that are cut off.
    assert!(!top.contains("from_parser.parser_err"));
}
