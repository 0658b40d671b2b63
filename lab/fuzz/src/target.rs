//! A target: its inputs, what became of them, and the memory that a reader may take.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

use crate::changes::Changes;
use crate::corpus;

/// Time for random inputs of one target, unless `BOLERO_RANDOM_TEST_TIME_MS` says otherwise.
pub const TEST_TIME: Duration = Duration::from_millis(400);
/// Attempts of that time to read enough inputs: a thread may wait longer than one for a busy processor.
pub const ATTEMPTS_MAX: u32 = 50;
/// Random inputs below which their shares say nothing.
const INPUTS_MIN: u64 = 50;
/// Memory that a reader may take for an input of any length.
const MEMORY_BYTES: u64 = 1 << 20;
/// Memory that it may take beside that for each byte of its input.
const MEMORY_PER_BYTE: u64 = 256;
/// Share of random inputs that must come past the first check of their reader, in percent.
const BEYOND_PERCENT_MIN: u64 = 2;

/// Result of reading one input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    is_beyond: bool,
    name: String,
}

impl Outcome {
    /// The reader refused the input at its first check: a magic number, a checksum.
    #[must_use]
    pub fn refused(name: impl Into<String>) -> Self {
        Self { is_beyond: false, name: name.into() }
    }

    /// The reader came past its first check, and may have refused the input for another reason.
    #[must_use]
    pub fn beyond(name: impl Into<String>) -> Self {
        Self { is_beyond: true, name: name.into() }
    }

    /// The same outcome of an input that came past the first check.
    #[must_use]
    pub fn past_the_first_check(self) -> Self {
        Self { is_beyond: true, ..self }
    }

    /// Past the first check if it is `Ok`; otherwise named after the variant of the error.
    #[must_use]
    pub fn of<T, E: fmt::Debug>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::beyond("ok"),
            Err(error) => Self::refused(variant(error)),
        }
    }
}

/// The name of the variant of a value, without its fields.
fn variant(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// A reader with its inputs, and the counts of a run.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    seal: Option<fn(&mut [u8])>,
    memory_bytes: u64,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    inputs: u64,
    beyond: u64,
    /// The most memory that one input took.
    memory_bytes_max: u64,
    outcomes: BTreeMap<Outcome, Vec<u8>>,
}

impl Target {
    /// A target with valid inputs, of which random ones are made.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn new(name: &'static str, seeds: Vec<Vec<u8>>) -> Self {
        assert!(!seeds.is_empty(), "{name} has no input to begin with");
        Self { name, seeds, seal: None, memory_bytes: MEMORY_BYTES, counts: Mutex::default() }
    }

    /// Half of the random inputs get checksums that are right, by this function.
    #[must_use]
    pub fn sealed(self, seal: fn(&mut [u8])) -> Self {
        Self { seal: Some(seal), ..self }
    }

    /// The reader may take so much memory for an input of any length.
    #[must_use]
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }

    /// Generates random inputs.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes { seeds: self.seeds.clone(), seal: self.seal }
    }

    /// Reads every seed, and every input that is stored for this target, as it is.
    ///
    /// # Panics
    /// The reader fails or takes too much memory, or refuses a seed.
    pub fn replay(&self, read: impl Fn(&[u8]) -> Outcome) {
        for seed in &self.seeds {
            self.run(seed, |bytes| {
                let outcome = read(bytes);
                assert!(outcome.is_beyond, "{} refuses a valid input: {outcome:?}", self.name);
                outcome
            });
        }
        for stored in corpus::stored(self.name) {
            self.run(&stored, &read);
        }
        // The report is of random inputs.
        let counts = &mut *self.counts();
        (counts.inputs, counts.beyond) = (0, 0);
    }

    /// Reads one input.
    ///
    /// # Panics
    /// The reader fails, or takes memory that the input is too short for: it has allocated what a number in the input asked for.
    pub fn run(&self, bytes: &[u8], read: impl Fn(&[u8]) -> Outcome) {
        let checked = || {
            let (outcome, Measured { memory_bytes }) = measured(|| read(bytes));
            let most = self.memory_bytes + MEMORY_PER_BYTE * bytes.len() as u64;
            let (name, length) = (self.name, bytes.len());
            assert!(memory_bytes <= most, "{name} took {memory_bytes} bytes of memory for {length} bytes");
            self.count(bytes, outcome, memory_bytes);
        };
        if let Err(failure) = catch_unwind(AssertUnwindSafe(checked)) {
            let path = corpus::failed(self.name, bytes);
            eprintln!("an input that {} fails for: {}", self.name, path.display());
            resume_unwind(failure);
        }
    }

    fn count(&self, bytes: &[u8], outcome: Outcome, memory_bytes: u64) {
        let counts = &mut *self.counts();
        counts.inputs += 1;
        counts.beyond += u64::from(outcome.is_beyond);
        counts.memory_bytes_max = counts.memory_bytes_max.max(memory_bytes);
        let shortest = counts.outcomes.get(&outcome).map_or(usize::MAX, Vec::len);
        if bytes.len() < shortest {
            counts.outcomes.insert(outcome, bytes.to_vec());
        }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        // An input that failed is reported by its panic, and the counts are whole all the same.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts are those of enough random inputs to judge them.
    #[must_use]
    pub fn has_enough_inputs(&self) -> bool {
        self.counts().inputs >= INPUTS_MIN
    }

    /// Prints the counts.
    ///
    /// # Panics
    /// Hardly an input came past the first check: the target tests nothing.
    pub fn report(&self) {
        let counts = &*self.counts();
        let Counts { inputs, beyond, memory_bytes_max, outcomes } = counts;
        let percent = 100 * beyond / (*inputs).max(1);
        println!(
            "fuzz {:<12} {inputs:>9} inputs, {percent:>3}% past the first check, {:>3} outcomes, {:>6} KiB of memory at most",
            self.name,
            outcomes.len(),
            memory_bytes_max.div_ceil(1024),
        );
        assert!(percent >= BEYOND_PERCENT_MIN, "{} tests nothing: {outcomes:?}", self.name);
        if corpus::collects() {
            for (outcome, bytes) in outcomes {
                corpus::store(self.name, &outcome.name, bytes);
            }
        }
    }
}

/// Memory that a function took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The most bytes that it had allocated at one time.
    pub memory_bytes: u64,
}

/// Runs a function and counts the memory that this thread allocates meanwhile.
///
/// # Panics
/// The function does.
pub fn measured<T>(run: impl FnOnce() -> T) -> (T, Measured) {
    let mut result = None;
    // The counter must see the end, even if it is a panic.
    let counted = allocation_counter::measure(|| result = Some(catch_unwind(AssertUnwindSafe(run))));
    match result.expect("it was run") {
        Ok(value) => (value, Measured { memory_bytes: counted.bytes_max }),
        Err(failure) => resume_unwind(failure),
    }
}

#[cfg(test)]
mod tests;
