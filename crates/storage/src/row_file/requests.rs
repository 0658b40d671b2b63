//! Reads and writes of blocks, many at once: by io_uring where the kernel has it and lets it be used, by threads otherwise.
//!
//! Memory that the kernel reads or writes meanwhile belongs to `compio-driver` until it has done so, so this is without `unsafe` of ours, and
//! blocks are copied once more.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use compio_buf::{BufResult, IntoInner, IoBuf, Slice};
use compio_driver::op::{ReadAt, WriteAt};
use compio_driver::{DriverType, OpCode, Proactor, PushEntry};
use libra_store::Block;

/// Neighbouring blocks that are one request, at most.
pub(super) const RUN_BLOCKS: usize = 8;
/// Requests that a disk has at once.
const DEPTH: usize = 64;
const BLOCK_BYTES: usize = size_of::<Block>();

thread_local! {
    /// A ring of the kernel is of one thread, files are not.
    static QUEUE: RefCell<Option<Queue>> = const { RefCell::new(None) };
}

/// Neighbouring blocks.
pub(super) struct Run<'b> {
    /// Number of the first.
    pub(super) first: u32,
    pub(super) blocks: &'b mut [Block],
    /// Result of its request.
    pub(super) result: io::Result<()>,
}

impl Run<'_> {
    fn offset(&self) -> u64 {
        u64::from(self.first) * BLOCK_BYTES as u64
    }
}

/// Reads runs into their blocks.
pub(super) fn read(file: &Arc<File>, runs: &mut [Run<'_>]) -> io::Result<()> {
    let start = |run: &Run<'_>, buffer| ReadAt::new(Arc::clone(file), run.offset(), buffer);
    with_queue(|queue| {
        queue.carry_out(runs, start, |run, bytes, moved| {
            // The rest, or the reason why there is none.
            file.read_exact_at(&mut bytes[moved..], run.offset() + moved as u64)?;
            for (block, bytes) in run.blocks.iter_mut().zip(bytes.chunks_exact(BLOCK_BYTES)) {
                bytemuck::cast_slice_mut(&mut block.0).copy_from_slice(bytes);
            }
            Ok(())
        })
    })
}

/// Writes the blocks of runs.
pub(super) fn write(file: &Arc<File>, runs: &mut [Run<'_>]) -> io::Result<()> {
    let start = |run: &Run<'_>, mut buffer: Slice<Vec<u8>>| {
        for (block, bytes) in run.blocks.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            bytes.copy_from_slice(bytemuck::cast_slice(&block.0));
        }
        WriteAt::new(Arc::clone(file), run.offset(), buffer)
    };
    with_queue(|queue| {
        queue.carry_out(runs, start, |run, bytes, moved| {
            file.write_all_at(&bytes[moved..], run.offset() + moved as u64)
        })
    })
}

fn with_queue(act: impl FnOnce(&mut Queue) -> io::Result<()>) -> io::Result<()> {
    QUEUE.with_borrow_mut(|queue| {
        let queue = match queue {
            Some(queue) => queue,
            None => queue.insert(Queue::new(None)?),
        };
        act(queue)
    })
}

/// Has this thread read and write with other threads, as where there is no io_uring.
#[cfg(test)]
pub(super) fn without_io_uring() {
    QUEUE.set(Some(Queue::new(Some(DriverType::Poll)).expect("threads can be had")));
}

/// The requests of a thread.
struct Queue {
    proactor: Proactor,
    /// Those that no request has.
    buffers: Vec<Vec<u8>>,
}

impl Queue {
    fn new(kind: Option<DriverType>) -> io::Result<Self> {
        let mut builder = Proactor::builder();
        builder.capacity(u32::try_from(DEPTH).expect("it is small"));
        if let Some(kind) = kind {
            builder.driver_type(kind);
        }
        // Direct I/O wants aligned memory, for which there is a block more.
        let buffers = vec![vec![0; (RUN_BLOCKS + 1) * BLOCK_BYTES]; DEPTH];
        Ok(Self { proactor: builder.build()?, buffers })
    }

    /// Starts a request for each run, and calls `finish` with its memory and how much was moved. All have ended when it returns, unless the
    /// requests themselves cannot be made.
    fn carry_out<'b, O: OpCode + IntoInner<Inner = Slice<Vec<u8>>> + 'static>(
        &mut self,
        runs: &mut [Run<'b>],
        start: impl Fn(&Run<'b>, Slice<Vec<u8>>) -> O,
        finish: impl Fn(&mut Run<'b>, &mut [u8], usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut next = 0;
        let mut open = Vec::with_capacity(DEPTH);
        while next < runs.len() || !open.is_empty() {
            while next < runs.len()
                && let Some(buffer) = self.buffers.pop()
            {
                let begin = buffer.as_ptr().align_offset(BLOCK_BYTES);
                let end = begin + runs[next].blocks.len() * BLOCK_BYTES;
                let entry = self.proactor.push(start(&runs[next], buffer.slice(begin..end)));
                open.push((next, entry));
                next += 1;
            }
            if open.iter().all(|(_, entry)| matches!(entry, PushEntry::Pending(_))) {
                match self.proactor.poll(None) {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                    _ => {}
                }
            }
            for (run, entry) in std::mem::replace(&mut open, Vec::with_capacity(DEPTH)) {
                let entry = match entry {
                    PushEntry::Pending(key) => self.proactor.pop(key),
                    ready => ready,
                };
                match entry {
                    PushEntry::Ready(BufResult(moved, request)) => {
                        let mut buffer = request.into_inner();
                        let run = &mut runs[run];
                        run.result = moved.and_then(|moved| finish(run, &mut buffer, moved));
                        self.buffers.push(buffer.into_inner());
                    }
                    pending => open.push((run, pending)),
                }
            }
        }
        Ok(())
    }
}
