//! Rows that a snapshot still has to give, and rows that have changed since the last one.

use super::snapshot::Extent;

/// Rows whose marks are one word.
pub(super) const GROUP: usize = u64::BITS as usize;
/// Groups of a chunk.
const CHUNK: usize = 64;

/// A bit for each row of a chunk.
type Bits = [u64; CHUNK];

/// Marks of rows by position.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    chunks: Vec<Chunk>,
}

/// Progress of the snapshots of a store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Snapshots {
    /// Number of snapshots that were begun.
    pub(super) begun: u64,
    /// The last one that was read to its end, counted from 1; those after it that are not active were cancelled.
    pub(super) finished: u64,
    /// Extent of the active one, which is the last one that was begun.
    pub(super) active: Option<Extent>,
    /// True if changes are remembered for the next one.
    pub(super) tracks: bool,
}

/// The marks of neighbouring rows; nothing where no row has the mark.
///
/// A snapshot begins in a chunk when the chunk is first looked at: so a snapshot of any number of rows begins at
/// once. One that is read to its end has looked at all chunks that have marks.
#[derive(Debug, Clone, Default)]
struct Chunk {
    /// The last snapshot that began here, counted from 1.
    begun: u64,
    /// That snapshot still has to give these, if it is active and they were there when it began.
    pending: Option<Box<Bits>>,
    /// Made or changed since it began here.
    changed: Option<Box<Bits>>,
    /// The value of `changed` then: these rows count as changed again if it is cancelled.
    before: Option<Box<Bits>>,
}

impl Chunk {
    /// Begins the active snapshot here.
    #[cold]
    fn enter(&mut self, extent: Extent, snapshots: Snapshots) {
        let before = self.before.take().filter(|_| self.begun > snapshots.finished);
        self.before = match (self.changed.take(), before) {
            (Some(mut bits), Some(before)) => {
                bits.iter_mut().zip(&*before).for_each(|(bits, before)| *bits |= before);
                Some(bits)
            }
            (changed, before) => changed.or(before),
        };
        self.pending = match extent {
            Extent::Full => Some(Box::new([u64::MAX; CHUNK])),
            Extent::Changed => self.before.clone(),
        };
        self.begun = snapshots.begun;
    }
}

impl Marks {
    /// The row at a position changes, is made or is removed. Whether the active snapshot still had to give it: now it need
    /// not.
    #[inline]
    pub(super) fn touch(&mut self, position: usize, snapshots: &Snapshots) -> bool {
        let (group, bit) = (position / GROUP % CHUNK, 1 << (position % GROUP));
        let chunk = self.entered(position, snapshots);
        let mut was_pending = false;
        if let Some(pending) = chunk.pending.as_mut().filter(|_| snapshots.active.is_some()) {
            was_pending = pending[group] & bit != 0;
            pending[group] &= !bit;
        }
        if snapshots.tracks {
            chunk.changed.get_or_insert_with(|| Box::new([0; CHUNK]))[group] |= bit;
        }
        was_pending
    }

    /// The row at a position moves away. Returns whether the active snapshot still had to give it, and whether it has changed since the
    /// last snapshot that was not cancelled: to the next one, since one that may yet be.
    pub(super) fn leave(&mut self, position: usize, snapshots: &Snapshots) -> (bool, bool) {
        let bit = 1 << (position % GROUP);
        let chunk = self.entered(position, snapshots);
        let group = position / GROUP % CHUNK;
        let take = |bits: &mut Option<Box<Bits>>| {
            bits.as_mut().is_some_and(|bits| {
                let had = bits[group] & bit != 0;
                bits[group] &= !bit;
                had
            })
        };
        let was_pending = snapshots.active.is_some() && take(&mut chunk.pending);
        let had_changed = chunk.begun > snapshots.finished && take(&mut chunk.before);
        (was_pending, take(&mut chunk.changed) || had_changed)
    }

    /// A row that moves arrives at a position. The active snapshot need not give it.
    pub(super) fn arrive(&mut self, position: usize, changed: bool, snapshots: &Snapshots) {
        let (group, bit) = (position / GROUP % CHUNK, 1 << (position % GROUP));
        let chunk = self.entered(position, snapshots);
        if let Some(pending) = chunk.pending.as_mut().filter(|_| snapshots.active.is_some()) {
            pending[group] &= !bit;
        }
        if changed {
            chunk.changed.get_or_insert_with(|| Box::new([0; CHUNK]))[group] |= bit;
        }
    }

    /// The active snapshot has yet to give the row at a position, which has just arrived there.
    pub(super) fn set_pending(&mut self, position: usize, snapshots: &Snapshots) {
        let pending = &mut self.entered(position, snapshots).pending;
        let pending = pending.get_or_insert_with(|| Box::new([0; CHUNK]));
        pending[position / GROUP % CHUNK] |= 1 << (position % GROUP);
    }

    /// The chunk of a position, in which the active snapshot has begun.
    #[inline]
    fn entered(&mut self, position: usize, snapshots: &Snapshots) -> &mut Chunk {
        let number = position / GROUP / CHUNK;
        if self.chunks.len() <= number {
            self.grow(number);
        }
        let chunk = &mut self.chunks[number];
        if let Some(extent) = snapshots.active
            && chunk.begun != snapshots.begun
        {
            chunk.enter(extent, *snapshots);
        }
        chunk
    }

    #[cold]
    fn grow(&mut self, chunk: usize) {
        self.chunks.resize(chunk + 1, Chunk::default());
    }

    /// Returns true if a row has changed since the last snapshot began that was not cancelled. None may be active.
    pub(super) fn has_changed(&self, position: usize, snapshots: Snapshots) -> bool {
        let group = position / GROUP;
        let has = |bits: &Bits| bits[group % CHUNK] >> (position % GROUP) & 1 == 1;
        self.chunks.get(group / CHUNK).is_some_and(|chunk| {
            let before = chunk.before.as_ref().filter(|_| chunk.begun > snapshots.finished);
            chunk.changed.as_ref().is_some_and(|bits| has(bits)) || before.is_some_and(|bits| has(bits))
        })
    }

    /// The next group, from this one on and before another, of which the active snapshot still has to give rows, and which
    /// ones: a bit each. What lies before it need not be asked about again.
    pub(super) fn next_pending(
        &mut self,
        mut group: usize,
        end: usize,
        extent: Extent,
        snapshots: Snapshots,
    ) -> Option<(usize, &mut u64)> {
        while group < end {
            let number = group / CHUNK;
            if self.chunks.len() <= number {
                self.grow(number);
            }
            let chunk = &mut self.chunks[number];
            if chunk.begun != snapshots.begun {
                chunk.enter(extent, snapshots);
            }
            if let Some(pending) = &chunk.pending
                && let Some(skipped) = pending[group % CHUNK..].iter().position(|group| *group != 0)
            {
                let found = group + skipped;
                let pending = self.chunks[number].pending.as_mut().expect("it was looked at");
                return (found < end).then_some((found, &mut pending[found % CHUNK]));
            }
            chunk.pending = None;
            group = (number + 1) * CHUNK;
        }
        None
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let bits = |chunk: &Chunk| {
            [&chunk.pending, &chunk.changed, &chunk.before].into_iter().filter(|bits| bits.is_some()).count()
        };
        let bits: usize = self.chunks.iter().map(bits).sum();
        bits * size_of::<Bits>() + self.chunks.capacity() * size_of::<Chunk>()
    }
}
