//! Random inputs: valid ones with a few changes.

use core::fmt;
use core::ops::Bound;

use bolero::{Driver, ValueGenerator};

/// Changes of one input, at most.
const CHANGES_MAX: usize = 6;
/// Bytes that one change inserts, removes, repeats or overwrites, at most.
const LENGTH_MAX: usize = 64;
/// Inputs grow up to this length.
const INPUT_BYTES_MAX: usize = 1 << 16;
/// Numbers at which readers go wrong: at the ends of their types, and at powers of two between.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    u64::MAX >> 2,
    u64::MAX >> 1,
    u64::MAX,
];

/// Bytes for a reader. Shown in part only, as a failure names the file that has them.
#[derive(Clone, PartialEq, Eq)]
pub struct Input(pub Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(LENGTH_MAX)];
        write!(formatter, "{} bytes, {shown:02x?} ..", self.0.len())
    }
}

/// Generates inputs from seeds.
#[derive(Debug, Clone)]
pub struct Changes {
    pub(crate) seeds: Vec<Vec<u8>>,
    pub(crate) seal: Option<fn(&mut [u8])>,
}

impl ValueGenerator for Changes {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        let mut bytes = self.seeds[below(driver, self.seeds.len())?].clone();
        // Few more often than many.
        let most = 1 + below(driver, CHANGES_MAX)?;
        for _ in 0..1 + below(driver, most)? {
            self.change(driver, &mut bytes)?;
        }
        if let Some(seal) = self.seal
            && driver.gen_bool(None)?
        {
            seal(&mut bytes);
        }
        Some(Input(bytes))
    }
}

impl Changes {
    fn change<D: Driver>(&self, driver: &mut D, bytes: &mut Vec<u8>) -> Option<()> {
        let at = below(driver, bytes.len() + 1)?;
        let end = at + below(driver, LENGTH_MAX.min(bytes.len() - at) + 1)?;
        match below(driver, 8)? {
            0 => {
                let bit = below(driver, 8)?;
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
            }
            1 => {
                let new = driver.gen_u8(Bound::Unbounded, Bound::Unbounded)?;
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = new);
            }
            // A number of any width and either order of bytes, and one off.
            2 => {
                let number = NUMBERS[below(driver, NUMBERS.len())?].wrapping_sub(below(driver, 2)? as u64);
                let width = 1 << below(driver, 4)?;
                let number = if driver.gen_bool(None)? {
                    number.to_le_bytes()[..width].to_vec()
                } else {
                    number.to_be_bytes()[8 - width..].to_vec()
                };
                bytes[at..].iter_mut().zip(number).for_each(|(byte, new)| *byte = new);
            }
            // The same as one would type it.
            3 => {
                let number = NUMBERS[below(driver, NUMBERS.len())?];
                let digits = bytes[at..end].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(at..at + digits, number.to_string().into_bytes());
            }
            4 => drop(bytes.drain(at..end)),
            5 => bytes.truncate(at),
            // A part of this input or of another, in place of another part or between.
            kind => {
                let other = &self.seeds[below(driver, self.seeds.len())?];
                let from = below(driver, other.len() + 1)?;
                let to = from + below(driver, LENGTH_MAX.min(other.len() - from) + 1)?;
                let replaced = if kind == 6 { at..end } else { at..at };
                if bytes.len() < INPUT_BYTES_MAX {
                    bytes.splice(replaced, other[from..to].iter().copied());
                }
            }
        }
        Some(())
    }
}

fn below<D: Driver>(driver: &mut D, end: usize) -> Option<usize> {
    driver.gen_usize(Bound::Unbounded, Bound::Excluded(&end))
}

/// Generates sequences of inputs, each with a number below `kinds`, as [`join`] writes them.
#[derive(Debug, Clone)]
pub struct Sequences {
    changes: Changes,
    length_max: usize,
    kinds: u8,
}

impl Sequences {
    /// Sequences of up to `length_max` inputs, which are seeds or changes of them. The meaning of the numbers is the reader's.
    #[must_use]
    pub fn of(seeds: Vec<Vec<u8>>, length_max: usize, kinds: u8) -> Self {
        Self { changes: Changes { seeds, seal: None }, length_max, kinds }
    }

    /// Half of the changed inputs get checksums that are right, by this function.
    #[must_use]
    pub fn sealed(mut self, seal: fn(&mut [u8])) -> Self {
        self.changes.seal = Some(seal);
        self
    }
}

impl ValueGenerator for Sequences {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        let mut inputs = Vec::new();
        for _ in 0..1 + below(driver, self.length_max)? {
            let kind = driver.gen_u8(Bound::Unbounded, Bound::Excluded(&self.kinds))?;
            // Some as they are, so that those after them come upon another state.
            let seed = &self.changes.seeds[below(driver, self.changes.seeds.len())?];
            let input =
                if driver.gen_bool(Some(0.3))? { seed.clone() } else { self.changes.generate(driver)?.0 };
            inputs.push((kind, input));
        }
        Some(Input(join(&inputs)))
    }
}

/// Writes a sequence: of each input its number, its length in four bytes, and its bytes.
#[must_use]
pub fn join(inputs: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, input) in inputs {
        bytes.push(*kind);
        bytes.extend(u32::try_from(input.len()).expect("inputs are short").to_be_bytes());
        bytes.extend(input);
    }
    bytes
}

/// Reads what [`join`] has written, up to where it is cut off.
#[must_use]
pub fn split(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut inputs = Vec::new();
    while let Some(([kind, length @ ..], rest)) = bytes.split_first_chunk::<5>()
        && let Some((input, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)
    {
        inputs.push((*kind, input));
        bytes = rest;
    }
    inputs
}
