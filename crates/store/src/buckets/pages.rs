//! Memory of buckets: pages of one size, so that what one partition leaves fits any other.

use super::shape::PAGE_WORDS;

/// Pages of one allocation, which are not touched before they are used.
const SLAB_PAGES: usize = 1 << 8;

/// The pages of all partitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    pub(super) slabs: Vec<Vec<Page>>,
    /// Those of no partition. They have no rows.
    pub(super) free: Vec<u32>,
}

/// Aligned as pages of the machine are: what an allocator leaves unused between slabs is then least.
#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u32; PAGE_WORDS]);

impl Page {
    pub(super) const FREE: Self = Self([u32::MAX; PAGE_WORDS]);
}

impl Pages {
    #[inline]
    pub(super) fn words(&self, page: u32) -> &[u32; PAGE_WORDS] {
        &self.slabs[page as usize / SLAB_PAGES][page as usize % SLAB_PAGES].0
    }

    #[inline]
    pub(super) fn words_mut(&mut self, page: u32) -> &mut [u32; PAGE_WORDS] {
        &mut self.slabs[page as usize / SLAB_PAGES][page as usize % SLAB_PAGES].0
    }

    /// Returns the number of pages that were ever used.
    pub(super) fn len(&self) -> usize {
        // All slabs but the last are full.
        self.slabs.last().map_or(0, |last| (self.slabs.len() - 1) * SLAB_PAGES + last.len())
    }

    /// A page without rows.
    pub(super) fn take(&mut self) -> u32 {
        if let Some(page) = self.free.pop() {
            return page;
        }
        let page = self.len();
        if page.is_multiple_of(SLAB_PAGES) {
            self.slabs.push(Vec::with_capacity(SLAB_PAGES));
        }
        self.slabs.last_mut().expect("pushed above").push(Page::FREE);
        u32::try_from(page).expect("fewer pages than rows")
    }
}
