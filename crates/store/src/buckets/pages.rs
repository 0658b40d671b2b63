//! Memory of buckets: pages of one size, so that what one partition leaves fits any other.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::size_of;

use memmap2::MmapMut;

use super::shape::PAGE_WORDS;

/// The words of a page.
pub(super) type Page = [u32; PAGE_WORDS];

/// A page without rows.
pub(super) const FREE_PAGE: Page = [u32::MAX; PAGE_WORDS];
/// Pages of one allocation, which is as large as a huge page of most machines. They take no memory before they are used.
const SLAB_PAGES: usize = 1 << 8;
const SLAB_BYTES: usize = SLAB_PAGES * size_of::<Page>();
/// So many slabs are of pages as usual: those of a small table would waste most of a huge one.
const USUAL_SLABS: usize = 8;

/// The pages of all partitions.
///
/// They are mapped rather than allocated, for not every allocator can be asked for huge pages. A row is found in random memory, and with pages
/// as usual, as the allocator of the GNU C library has them, a tenth of the time of a look-up goes to where they are.
#[derive(Debug, Default)]
pub(super) struct Pages {
    slabs: Vec<MmapMut>,
    /// Number of pages that were ever used.
    len: usize,
    /// Those of no partition. They have no rows.
    pub(super) free: Vec<u32>,
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        let slabs = (0..self.slabs.len()).map(slab).collect();
        let mut pages = Self { slabs, len: self.len, free: self.free.clone() };
        for page in self.numbers() {
            *pages.words_mut(page) = *self.words(page);
        }
        pages
    }
}

/// Memory of the slab of a number.
fn slab(number: usize) -> MmapMut {
    let Ok(slab) = MmapMut::map_anon(SLAB_BYTES) else {
        handle_alloc_error(Layout::new::<[Page; SLAB_PAGES]>());
    };
    #[cfg(target_os = "linux")]
    if number >= USUAL_SLABS {
        // A machine without them has pages as usual.
        let _ = slab.advise(memmap2::Advice::HugePage);
    }
    slab
}

fn bytes_of(page: u32) -> std::ops::Range<usize> {
    let start = page as usize % SLAB_PAGES * size_of::<Page>();
    start..start + size_of::<Page>()
}

impl Pages {
    #[inline]
    pub(super) fn words(&self, page: u32) -> &Page {
        bytemuck::from_bytes(&self.slabs[page as usize / SLAB_PAGES][bytes_of(page)])
    }

    #[inline]
    pub(super) fn words_mut(&mut self, page: u32) -> &mut Page {
        bytemuck::from_bytes_mut(&mut self.slabs[page as usize / SLAB_PAGES][bytes_of(page)])
    }

    /// Returns the number of pages that were ever used.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The pages that were ever used.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.len).expect("fewer pages than rows")
    }

    /// A page without rows.
    pub(super) fn take(&mut self) -> u32 {
        if let Some(page) = self.free.pop() {
            return page;
        }
        let page = self.len;
        if page.is_multiple_of(SLAB_PAGES) {
            self.slabs.push(slab(self.slabs.len()));
        }
        self.len += 1;
        let page = u32::try_from(page).expect("fewer pages than rows");
        *self.words_mut(page) = FREE_PAGE;
        page
    }

    /// Bytes that they take. Memory of a slab for pages to come is not touched, and does not count.
    pub(super) fn memory_bytes(&self) -> usize {
        self.len * size_of::<Page>()
            + self.slabs.capacity() * size_of::<MmapMut>()
            + self.free.capacity() * size_of::<u32>()
    }
}
