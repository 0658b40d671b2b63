//! Comparison of every row with its expected value, to the bit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};

use super::history::Deaths;
use super::load::Load;
use super::records::{self, Record, Step};
use super::worker::{RowsRead, has_left};

/// Number of differences that are named.
const NAMED_MAX: usize = 8;
/// Beyond this f32 rounds whole numbers.
const EXACT_MAX: i64 = 1 << 24;
/// Time limit, in microseconds, until what a switch has accepted is durable, and until a worker has replayed what
/// died with a switch. Both are far shorter by design; a switch and a worker that die together may take with them what was
/// accepted and not durable, and that must not be taken for a fault.
const DURABLE_WITHIN: u64 = 500_000;
const REPLAYED_WITHIN: u64 = 1_500_000;

/// Result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) workers_ended: usize,
    /// They were asked to end, and left when all that they had pushed was visible.
    pub(super) workers_left: usize,
    pub(super) workers_killed: usize,
    pub(super) pushes_issued: u64,
    pub(super) pushes_acknowledged: u64,
    /// Pushes of killed workers that may count or not, packet by packet.
    pub(super) pushes_open: u64,
    pub(super) values: u64,
    pub(super) differences: u64,
    /// The first of them, in words.
    pub(super) named: Vec<String>,
}

impl Verdict {
    pub(super) fn is_equal(&self) -> bool {
        self.differences == 0
    }

    pub(super) fn result(&self) -> Result<()> {
        if !self.is_equal() {
            bail!(
                "not equal to the bit: {} differences, the first: {}",
                self.differences,
                self.named.join("; ")
            );
        }
        Ok(())
    }

    fn differ(&mut self, what: impl FnOnce() -> String) {
        self.differences += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(what());
        }
    }
}

/// Expected contents of a lane, row by row.
#[derive(Debug)]
struct Lane {
    /// The sum of what counts for sure; empty if nothing does.
    sums: Vec<i64>,
    /// The rows behind those that are sums.
    steps: Vec<Stepped>,
    /// Gradients that may count or not.
    open: BTreeMap<usize, Vec<i64>>,
}

/// A value that takes steps of Adagrad, of rate 1 and with an epsilon of 1.
#[derive(Debug, Clone, Copy, Default)]
struct Stepped {
    value: f32,
    squares: f32,
}

impl Stepped {
    fn step(&mut self, gradient: f32) {
        self.squares += gradient * gradient;
        self.value -= gradient / (self.squares.sqrt() + 1.0);
    }
}

/// Compares what every worker has read at the end with the records of all.
pub(super) fn check(load: &Load, directory: &Path, deaths: &Deaths) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let mut lanes = Vec::new();
    let mut readers = Vec::new();
    for worker in 0..load.lanes {
        let records = records::read(directory, worker)?;
        let rows = RowsRead::open(directory, worker, load)?;
        let end = match rows.is_some() {
            true => End::WithJob,
            false if has_left(directory, worker) => End::Left,
            false => End::Killed,
        };
        let pushes = Pushes::of(&records, worker, end, deaths, &mut verdict);
        lanes.push(pushes.lane(load, worker)?);
        readers.extend(rows);
    }
    if readers.is_empty() {
        bail!("no worker has read the rows at the end");
    }
    let (missing, killed) = (verdict.workers_killed, deaths.workers.len());
    if missing > killed {
        verdict.differ(|| format!("{missing} workers did not come to the end, and {killed} were killed"));
    }
    compare(load, &lanes, &mut readers, &mut verdict)?;
    Ok(verdict)
}

/// How a worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    WithJob,
    Left,
    Killed,
}

/// The pushes of one worker.
#[derive(Debug, Default)]
struct Pushes {
    certain: BTreeSet<u32>,
    open: BTreeSet<u32>,
}

impl Pushes {
    fn of(records: &[Record], worker: u16, end: End, deaths: &Deaths, verdict: &mut Verdict) -> Self {
        let mut pushes = Self::default();
        let Some(last) = records.iter().map(|record| record.at).max() else { return pushes };
        let uncertain_after = if end == End::Killed { uncertain_after(last, deaths) } else { u64::MAX };
        for Record { at, push, step } in records {
            let new = match step {
                Step::Issued => pushes.open.insert(*push),
                Step::Acknowledged if *at > uncertain_after => true,
                Step::Acknowledged => pushes.open.remove(push) && pushes.certain.insert(*push),
            };
            verdict.pushes_issued += u64::from(*step == Step::Issued);
            verdict.pushes_acknowledged += u64::from(*step == Step::Acknowledged);
            if !new {
                verdict.differ(|| format!("worker {worker} has {step:?} push {push} twice"));
            }
        }
        if end == End::Killed {
            verdict.workers_killed += 1;
            verdict.pushes_open += pushes.open.len() as u64;
        } else {
            *(if end == End::Left { &mut verdict.workers_left } else { &mut verdict.workers_ended }) += 1;
            for push in core::mem::take(&mut pushes.open) {
                verdict.differ(|| format!("push {push} of worker {worker} was never acknowledged"));
            }
        }
        pushes
    }

    fn lane(&self, load: &Load, worker: u16) -> Result<Lane> {
        let (rows, summed) = (index(load.rows()), index(load.summed_rows()));
        let mut lane = Lane { sums: Vec::new(), steps: Vec::new(), open: BTreeMap::new() };
        if !self.certain.is_empty() {
            lane.sums = vec![0; summed];
            lane.steps = vec![Stepped::default(); rows - summed];
        }
        for push in &self.certain {
            for (row, value) in parts(load, worker, *push) {
                match row.checked_sub(summed) {
                    None => lane.sums[row] += value,
                    Some(row) => lane.steps[row].step(exact_f32(value)),
                }
            }
        }
        for push in &self.open {
            for (row, value) in parts(load, worker, *push) {
                if row >= summed {
                    bail!("push {push} of worker {worker}, which may count or not, has steps of Adagrad");
                }
                lane.open.entry(row).or_default().push(value);
            }
        }
        Ok(lane)
    }
}

/// A push has each row once: what occurs twice was added up before.
fn parts(load: &Load, worker: u16, push: u32) -> BTreeMap<usize, i64> {
    let mut parts = BTreeMap::new();
    for (key, value) in load.push(worker, push) {
        *parts.entry(index(key)).or_default() += i64::from(value);
    }
    parts
}

/// Of a worker that was killed, and whose last record is of this time: since when what was accepted may be lost, because a
/// switch died before it was durable and no worker is left to replay it.
fn uncertain_after(last: u64, deaths: &Deaths) -> u64 {
    let died = deaths.workers.iter().copied().filter(|at| *at >= last).min().unwrap_or(last);
    let lost_with = |switch: &&u64| {
        (**switch <= died && died < **switch + REPLAYED_WITHIN)
            || (**switch > died && **switch < died + DURABLE_WITHIN)
    };
    let switch = deaths.switches.iter().filter(lost_with).min();
    switch.map_or(u64::MAX, |switch| switch.min(&died).saturating_sub(DURABLE_WITHIN))
}

/// Compares what each worker has read, row by row.
fn compare(load: &Load, lanes: &[Lane], readers: &mut [RowsRead], verdict: &mut Verdict) -> Result<()> {
    let summed = index(load.summed_rows());
    let mut disagree = false;
    for row in 0..index(load.rows()) {
        let mut first = Vec::new();
        for rows in &mut *readers {
            let reader = rows.worker;
            let values = rows.next_row()?;
            for (worker, (value, lane)) in values.iter().zip(lanes).enumerate() {
                verdict.values += 1;
                let wrong = match row.checked_sub(summed) {
                    None => differs_from_sum(row, worker, *value, lane)?,
                    Some(row) => {
                        let expected = lane.steps.get(row).copied().unwrap_or_default().value;
                        (value.to_bits() != expected.to_bits()).then(|| expected.to_string())
                    }
                };
                if let Some(expected) = wrong {
                    verdict.differ(|| {
                        format!(
                            "lane {worker} of row {row} is {value} for worker {reader} instead of {expected}"
                        )
                    });
                }
            }
            // Where several results are possible, all must have read the same.
            if first.is_empty() {
                first.extend_from_slice(values);
            }
            disagree |= first.iter().zip(values).any(|(a, b)| a.to_bits() != b.to_bits());
        }
    }
    if disagree {
        verdict.differ(|| "workers have read different values".to_owned());
    }
    Ok(())
}

/// Returns the expected value in words if a lane has another one.
fn differs_from_sum(row: usize, worker: usize, value: f32, lane: &Lane) -> Result<Option<String>> {
    let sum = lane.sums.get(row).copied().unwrap_or(0);
    let open = lane.open.get(&row).map_or(&[][..], Vec::as_slice);
    if sum.abs() + open.iter().map(|value| value.abs()).sum::<i64>() >= EXACT_MAX {
        bail!("row {row} of worker {worker} has a sum that f32 rounds: soak for a shorter time");
    }
    let is_possible = exact(value).is_some_and(|found| is_subset_sum(found - sum, open));
    let maybe = if open.is_empty() { String::new() } else { format!(", perhaps with some of {open:?}") };
    Ok((!is_possible).then(|| format!("{}{maybe}", -sum)))
}

#[expect(clippy::cast_precision_loss, reason = "a push has few parts of a row, each below 1,000")]
fn exact_f32(value: i64) -> f32 {
    value as f32
}

/// The sum that a value stands for; `None` if it is no whole number, or zero with a sign that no subtraction leaves.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "it is compared to the bit")]
fn exact(value: f32) -> Option<i64> {
    let sum = -(value as i64);
    ((0.0 - sum as f32).to_bits() == value.to_bits()).then_some(sum)
}

/// True if some of `parts` make the sum.
fn is_subset_sum(sum: i64, parts: &[i64]) -> bool {
    // To leave out a negative part is to add its size to the sum of all of them: what is left are sums of sizes.
    let negative: i64 = parts.iter().filter(|part| **part < 0).sum();
    let most: u64 = parts.iter().map(|part| part.unsigned_abs()).sum();
    let Ok(wanted) = u64::try_from(sum - negative) else { return false };
    if wanted > most {
        return false;
    }
    // Bit n is set if some of the parts so far make n.
    let mut sums = vec![0u64; index(most / 64) + 1];
    sums[0] = 1;
    for part in parts {
        let size = part.unsigned_abs();
        let (words, bits) = (index(size / 64), size % 64);
        for to in (words..sums.len()).rev() {
            let from = to - words;
            let carried = if bits > 0 && from > 0 { sums[from - 1] >> (64 - bits) } else { 0 };
            sums[to] |= sums[from] << bits | carried;
        }
    }
    sums[index(wanted / 64)] >> (wanted % 64) & 1 == 1
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a soak has few rows, and small numbers")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::soak::records::Records;

    const LOAD: Load = Load { seed: 3, lanes: 2, cold_rows: 500, walked_rows: 0 };

    /// Worker 0 comes to the end after ten pushes; worker 1 is killed when it has made three, of which two are acknowledged.
    fn check_spoiled(directory: &Path, spoil: impl FnOnce(&mut Vec<f32>)) -> Verdict {
        let mut rows = vec![0.0; usize::try_from(LOAD.rows()).unwrap() * 2];
        for (worker, pushes) in [(0u16, 10u32), (1, 2)] {
            let mut records = Records::create(directory, worker).unwrap();
            for push in 0..pushes {
                records.write(Record { at: 5, push, step: Step::Issued }).unwrap();
                records.write(Record { at: 6, push, step: Step::Acknowledged }).unwrap();
                add(&mut rows, worker, &LOAD.push(worker, push));
            }
            if worker == 1 {
                records.write(Record { at: 7, push: 2, step: Step::Issued }).unwrap();
            }
        }
        spoil(&mut rows);
        let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(directory.join("rows-0"), bytes).unwrap();
        check(&LOAD, directory, &Deaths { workers: vec![8], switches: Vec::new() }).unwrap()
    }

    fn add(rows: &mut [f32], worker: u16, parts: &[(u64, i32)]) {
        for (key, value) in parts {
            rows[usize::try_from(*key).unwrap() * 2 + usize::from(worker)] -=
                f32::from(i16::try_from(*value).unwrap());
        }
    }

    #[test]
    fn acknowledged_pushes_count_and_others_may() {
        let directory = tempfile::TempDir::new().unwrap();
        let verdict = check_spoiled(directory.path(), |_| ());
        assert!(verdict.is_equal(), "{:?}", verdict.named);
        assert_eq!((verdict.pushes_issued, verdict.pushes_acknowledged, verdict.pushes_open), (13, 12, 1));
        let directory = tempfile::TempDir::new().unwrap();
        assert!(check_spoiled(directory.path(), |rows| add(rows, 1, &LOAD.push(1, 2))).is_equal());
    }

    /// As above, but worker 1 was asked to end, and has left.
    fn check_left(directory: &Path, spoil: impl FnOnce(&mut Vec<f32>)) -> Verdict {
        File::create(directory.join("left-1")).unwrap();
        check_spoiled(directory, spoil)
    }

    #[test]
    fn of_a_worker_that_left_every_push_counts() {
        let directory = tempfile::TempDir::new().unwrap();
        let verdict = check_left(directory.path(), |_| ());
        // Its third push was never acknowledged.
        assert_eq!((verdict.workers_left, verdict.workers_killed, verdict.differences), (1, 0, 1));
        assert!(verdict.named[0].contains("never acknowledged"), "{:?}", verdict.named);
    }

    #[test]
    fn a_part_too_few_or_too_many_is_found() {
        for (worker, push) in [(0, 4), (1, 1), (1, 17)] {
            let directory = tempfile::TempDir::new().unwrap();
            let part = LOAD.push(worker, push)[5];
            let verdict = check_spoiled(directory.path(), |rows| add(rows, worker, &[part]));
            assert_eq!(verdict.differences, 1, "{:?}", verdict.named);
            let row = format!("lane {worker} of row {}", part.0);
            assert!(verdict.result().unwrap_err().to_string().contains(&row));
        }
    }

    #[test]
    fn packets_that_die_with_switch_and_worker_may_be_lost() {
        let deaths = Deaths { switches: vec![20_000_000], workers: vec![9_000_000, 21_000_000] };
        assert_eq!(uncertain_after(20_900_000, &deaths), 19_500_000);
        assert_eq!(uncertain_after(8_990_000, &deaths), u64::MAX);
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!([exact(0.0), exact(-0.0), exact(-3.0), exact(0.5)], [Some(0), None, Some(3), None]);
    }

    #[test]
    fn subset_sums_are_those_that_trying_finds() {
        for parts in [&[][..], &[3, 2, 9], &[-7, 200, 64, -64, 1], &[500, -999, 63, 65, -128, 7]] {
            let tried: BTreeSet<i64> = (0..1u32 << parts.len())
                .map(|chosen| {
                    (0..).zip(parts).filter(|(bit, _)| chosen >> bit & 1 == 1).map(|(_, part)| part).sum()
                })
                .collect();
            for sum in -1_500..1_500 {
                assert_eq!(is_subset_sum(sum, parts), tried.contains(&sum), "{sum} of {parts:?}");
            }
        }
    }
}
