//! Fuzz targets of what the crates read from others: from the network, from disks, from users. See the documentation of `libra-fuzz`.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use libra_fuzz::fuzz;

mod checkpoint;
mod commit;
mod data;
mod job;
mod log;
mod message;
mod packet;
mod pipeline;
mod plan;
mod recording;
mod role;
mod state;

#[path = "../../../../crates/dataplane/tests/pipeline/model.rs"]
mod model;
#[path = "../../../../crates/dataplane/tests/pipeline/scene.rs"]
#[expect(dead_code, reason = "the properties of the pipeline need more of it")]
mod scene;

// rules W2, W3, W6, W12
#[test]
fn fuzz_packets() {
    fuzz!(packet::target(), packet::read);
}

// rules W5, W6, W10, D2, D7
#[test]
fn fuzz_pipeline() {
    fuzz!(pipeline::target(), pipeline::read);
}

#[test]
fn fuzz_messages() {
    fuzz!(message::target(), message::read);
}

// rule C4
#[test]
fn fuzz_roles() {
    let (target, sequences) = role::target();
    fuzz!(target, sequences.clone(), role::read);
}

#[test]
fn fuzz_logs() {
    fuzz!(log::target(), log::read);
}

#[test]
fn fuzz_manifests() {
    fuzz!(checkpoint::manifests(), checkpoint::read_manifest);
}

#[test]
fn fuzz_commits() {
    fuzz!(commit::target(), commit::read);
}

#[test]
fn fuzz_rows() {
    fuzz!(checkpoint::rows(), checkpoint::read_rows);
}

#[test]
fn fuzz_states() {
    fuzz!(state::target(), state::read_state);
}

// rule L3
#[test]
fn fuzz_records() {
    let (target, sequences) = state::records_after_a_state();
    let state = state::unfinished();
    fuzz!(target, sequences.clone(), |bytes: &[u8]| state::read_records(&state, bytes));
}

#[test]
fn fuzz_plans() {
    fuzz!(plan::target(), plan::read);
}

#[test]
fn fuzz_recordings() {
    fuzz!(recording::target(), recording::read);
}

#[test]
fn fuzz_descriptions() {
    fuzz!(data::descriptions(), data::read_description);
}

#[test]
fn fuzz_texts() {
    fuzz!(data::texts(), data::read_text);
}

#[test]
fn fuzz_parquet() {
    fuzz!(data::parquets(), data::read_parquet);
}
