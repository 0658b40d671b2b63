//! Linked by `cargo xtask no-std` with nothing but `core`, never run: see `xtask/src/no_std.rs`.
#![no_std]
#![no_main]

use core::hint::black_box;
use core::panic::PanicInfo;
use core::ptr::addr_of_mut;

use libra_dataplane::{Arithmetic, Pipeline, Region, RegionConfig, RegionMemory, Verdict};

const WORDS: usize = 1 << 14;
static mut MEMORY: [u32; WORDS] = [0; WORDS];
static mut PACKET: [u8; 1500] = [0; 1500];

#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    // SAFETY: this is the only use of the two, and `_start` is entered once.
    let (memory, packet) = unsafe { (&mut *addr_of_mut!(MEMORY), &mut *addr_of_mut!(PACKET)) };
    let mut rest = memory.as_mut_slice();
    // Unknown to the compiler, so that all of the pipeline is linked and not only what one configuration needs.
    let arithmetic = match black_box(0) {
        0 => Arithmetic::Fixed { bound: 1 << 19 },
        1 => Arithmetic::F32,
        _ => Arithmetic::Table,
    };
    let config = black_box(RegionConfig {
        job: 1,
        region: 0,
        plan: 1,
        view: 1,
        lanes: 1,
        cells: 100,
        flows: 4,
        bank_packets_max: 4096,
        arithmetic,
    });
    let memory = RegionMemory::allocate(&config, |words| {
        let (taken, left) = core::mem::take(&mut rest).split_at_mut(words);
        rest = left;
        taken
    });
    let Ok(region) = Region::new(config, memory) else { stop() };
    let Ok(mut pipeline) = Pipeline::new([region]) else { stop() };
    loop {
        if let Verdict::Reply(bytes) = pipeline.process(black_box(packet)) {
            black_box(packet.get(..bytes));
        }
        pipeline.process_burst((1, 0), core::iter::once(packet.as_mut_slice()), |answer| {
            black_box(answer);
        });
        if let Some(region) = pipeline.region_mut(1, 0) {
            black_box(region.flip().is_ok());
            region.drain(|first_slot, sums| {
                black_box((first_slot, sums));
            });
        }
        black_box(pipeline.counters());
    }
}

fn stop() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    stop()
}

/// Functions that a compiler may call by itself, and that a bare-metal target provides. On the host libc has them, so
/// they are here instead.
#[cfg(not(target_os = "none"))]
mod memory {
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        for place in 0..bytes {
            // SAFETY: the caller owns `bytes` bytes at both. Volatile, lest this become a call of itself.
            unsafe { to.add(place).write_volatile(from.add(place).read()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
        for step in 0..bytes {
            let place = if to.cast_const() < from { step } else { bytes - 1 - step };
            // SAFETY: as above; from the end when the copy would overwrite what it still has to read.
            unsafe { to.add(place).write_volatile(from.add(place).read()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
        for place in 0..bytes {
            // SAFETY: the caller owns `bytes` bytes.
            unsafe { to.add(place).write_volatile(value.to_le_bytes()[0]) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
        for place in 0..bytes {
            // SAFETY: the caller owns `bytes` bytes at both.
            let (left, right) = unsafe { (left.add(place).read_volatile(), right.add(place).read_volatile()) };
            if left != right {
                return i32::from(left) - i32::from(right);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
        // SAFETY: the same contract.
        unsafe { memcmp(left, right, bytes) }
    }
}
