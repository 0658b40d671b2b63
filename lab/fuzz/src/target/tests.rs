use super::*;

/// A reader of a length and as many bytes.
fn sound(bytes: &[u8]) -> Outcome {
    match bytes.split_first_chunk::<4>() {
        Some((length, rest)) if u32::from_be_bytes(*length) as usize == rest.len() => Outcome::beyond("ok"),
        _ => Outcome::refused("length"),
    }
}

/// The same, with memory for what the length promises.
fn gullible(bytes: &[u8]) -> Outcome {
    if let Some(length) = bytes.first_chunk::<4>() {
        let promised: Vec<u8> = Vec::with_capacity(u32::from_be_bytes(*length) as usize);
        std::hint::black_box(promised);
    }
    sound(bytes)
}

fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0, 0, 0, 1, 7], vec![0; 4]]
}

/// The message of the panic that `run` ends with.
fn failure(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it must fail");
    panic.downcast_ref::<String>().cloned().expect("a message with fields")
}

#[test]
fn a_sound_reader_passes() {
    let target = Target::new("sound", seeds());
    crate::fuzz!(target, sound);
    assert!(target.counts().inputs > 100);
}

#[test]
fn memory_that_a_length_promises_is_found() {
    let target = Target::new("gullible", seeds());
    target.run(&[0, 0, 0, 1, 7], gullible);
    let failure = failure(|| target.run(&[0x7f, 0xff, 0xff, 0xff], gullible));
    assert!(failure.contains("2147483647 bytes of memory for 4 bytes"), "{failure}");
}

#[test]
fn changes_come_upon_a_length_that_promises_much() {
    let target = Target::new("gullible", seeds());
    let failure = catch_unwind(AssertUnwindSafe(|| crate::fuzz!(target, gullible)));
    assert!(failure.is_err(), "the planted fault was not found");
}

#[test]
fn a_target_without_valid_inputs_fails() {
    let target = Target::new("nothing", vec![b"valid".to_vec()]);
    let refuses = |_: &[u8]| Outcome::refused("magic");
    assert!(failure(|| target.replay(refuses)).contains("refuses a valid input"));
    target.run(b"other", refuses);
    assert!(failure(|| target.report()).contains("tests nothing"));
}

#[test]
fn outcomes_are_named_after_variants() {
    let error: Result<(), _> = Err(Some("fields"));
    assert_eq!(Outcome::of(&error), Outcome::refused("Some"));
    assert_eq!(Outcome::of(&Ok::<_, ()>(7)), Outcome::beyond("ok"));
}

#[test]
fn a_panic_of_a_reader_does_not_upset_the_counter() {
    for _ in 0..200 {
        let panics = || measured(|| -> () { resume_unwind(Box::new("planted")) });
        assert!(catch_unwind(panics).is_err());
    }
    let ((), measured) = measured(|| drop(vec![0u8; 1000]));
    assert_eq!(measured.memory_bytes, 1000);
}
