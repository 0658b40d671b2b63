//! Limits of this machine: the figures beside which those of the servers are read.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::rows::Rows;
use super::usage::processor_time;

/// Duration of each measurement of a limit.
pub(super) const TIME: Duration = Duration::from_millis(700);
/// Writes to the stream, as large as messages are.
const MESSAGE_BYTES: usize = 128 << 10;
const COPY_BYTES: usize = 64 << 20;

/// Of one core each, but for the stream, which has one at either end.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Limits {
    /// Additions to values at random places of as much memory as the values and state of all rows have.
    pub(super) random_accesses_per_second: f64,
    /// From one place of memory to another, larger than caches.
    pub(super) memcpy_bytes_per_second: f64,
    /// Through a TCP stream on loopback.
    pub(super) tcp_bytes_per_second: f64,
}

impl Limits {
    pub(super) fn measure(rows: &Rows) -> Result<Self> {
        Ok(Self {
            random_accesses_per_second: RandomAccesses::new(rows)?.per_second(TIME),
            memcpy_bytes_per_second: memcpy(),
            tcp_bytes_per_second: tcp()?,
        })
    }
}

/// Accesses to random places of memory, independent of each other.
pub(super) struct RandomAccesses {
    memory: Vec<f32>,
    state: u64,
}

impl RandomAccesses {
    /// Of as much memory as the values and state of all rows have.
    pub(super) fn new(rows: &Rows) -> Result<Self> {
        let words = usize::try_from(rows.keys * rows.payload_bytes())? / size_of::<f32>();
        Ok(Self { memory: vec![1.0; words], state: 1 })
    }

    pub(super) fn per_second(&mut self, time: Duration) -> f64 {
        const COUNT: usize = 1 << 16;
        let Self { memory, state } = self;
        rate(COUNT, time, processor_time, || {
            for _ in 0..COUNT {
                // The places must not follow from what is read, or each access would wait for the one before.
                *state =
                    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (u128::from(*state) * memory.len() as u128) >> 64;
                memory[usize::try_from(place).unwrap_or(0)] += 1.0;
            }
            black_box(&mut *memory);
        })
    }
}

/// Pairs added into slots per second, as they are pushed: those of each batch ascend, and they come from memory, larger than caches.
pub(super) fn additions(batches: &[Vec<u64>], slots: usize) -> f64 {
    const PAIRS: usize = 1 << 24;
    let pair = |&key: &u64| (u32::try_from(key).unwrap_or(0), 1);
    let pairs: Vec<(u32, u32)> = batches.iter().flatten().map(pair).cycle().take(PAIRS).collect();
    let mut sums = vec![0_u32; slots];
    rate(PAIRS, TIME, processor_time, || {
        for &(slot, value) in &pairs {
            let sum = &mut sums[slot as usize];
            *sum = sum.wrapping_add(value);
        }
        black_box(&mut sums);
    })
}

/// Repeats `step`, which does `count` things, until the time is over. Returns things per second.
fn rate(count: usize, time: Duration, clock: impl Fn() -> Duration, mut step: impl FnMut()) -> f64 {
    let (began, mut steps) = (clock(), 0_u32);
    while clock() - began < time {
        step();
        steps += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of things in a second")]
    let things = f64::from(steps) * count as f64;
    things / (clock() - began).as_secs_f64()
}

pub(super) fn memcpy() -> f64 {
    let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
    rate(COPY_BYTES, TIME, processor_time, || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    })
}

fn tcp() -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
    let mut sender = TcpStream::connect(listener.local_addr()?).context("cannot connect on loopback")?;
    let (mut receiver, _) = listener.accept()?;
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; MESSAGE_BYTES];
        while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    let message = vec![1; MESSAGE_BYTES];
    let mut failed = None;
    let began = Instant::now();
    let rate = rate(
        MESSAGE_BYTES,
        TIME,
        || began.elapsed(),
        || {
            if let Err(error) = sender.write_all(&message) {
                failed.get_or_insert(error);
            }
        },
    );
    drop(sender);
    let _ = reader.join();
    match failed {
        Some(error) => Err(error).context("a stream on loopback broke"),
        None => Ok(rate),
    }
}
