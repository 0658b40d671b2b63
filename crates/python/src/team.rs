//! The threads that torch computes with.
//!
//! Torch runs its operators in the teams of an OpenMP library, whose threads spin for a while between two of them. A thread of our own
//! would take a core from such a thread; work that runs in the same team has both.
#![expect(unsafe_code, reason = "OpenMP is called as compilers call it")]

use core::ffi::{c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::backend::alone::lock;

/// `GOMP_parallel` of libgomp, LLVM's and Intel's libraries: runs a function with its data in so many threads, of which the caller is one.
type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

/// Work on fewer values is done before other threads have begun.
const VALUES_MIN: usize = 1 << 14;

/// The OpenMP team of the calling thread.
pub(crate) struct Team {
    /// Threads that torch computes with.
    threads: AtomicUsize,
}

impl Team {
    pub(crate) fn new() -> Self {
        Self { threads: AtomicUsize::new(1) }
    }

    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// Does something with each item, and returns the results in the order of the items. Those of `values` numbers together that are many
    /// are shared among the threads. The order in which items are begun is theirs; nothing else is known about it.
    pub(crate) fn map<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        values: usize,
        work: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        let threads = self.threads.load(Ordering::Relaxed).min(items.len());
        let parallel = if threads < 2 || values < VALUES_MIN { None } else { openmp() };
        let Some(parallel) = parallel else { return items.into_iter().map(work).collect() };
        let places: Vec<Mutex<Place<T, R>>> =
            items.into_iter().map(|item| Mutex::new(Place { item: Some(item), result: None })).collect();
        let (next, panic) = (AtomicUsize::new(0), Mutex::new(None));
        let turns = || {
            while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut place = lock(place);
                let item = place.item.take().expect("each place has one turn");
                place.result = Some(work(item));
            }
        };
        run(parallel, threads, &|| {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(turns)) {
                *lock(&panic) = Some(payload);
            }
        });
        if let Some(payload) = lock(&panic).take() {
            resume_unwind(payload);
        }
        let result = |place: Mutex<Place<T, R>>| {
            let place = place.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            place.result.expect("each place has had its turn")
        };
        places.into_iter().map(result).collect()
    }
}

struct Place<T, R> {
    item: Option<T>,
    result: Option<R>,
}

/// The function of the OpenMP library that torch has loaded for all; None without one.
fn openmp() -> Option<Parallel> {
    static FOUND: OnceLock<Option<Parallel>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends with 0.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"GOMP_parallel".as_ptr()) };
        // SAFETY: a function of this name has had this type in all libraries since GCC 4.9.
        (!address.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Parallel>(address) })
    })
}

type Turns<'a> = &'a (dyn Fn() + Sync);

fn run(parallel: Parallel, threads: usize, mut turns: Turns<'_>) {
    extern "C" fn enter(data: *mut c_void) {
        // SAFETY: `data` is that of the call below, which returns after all threads have left this function.
        let turns = unsafe { &*data.cast::<Turns<'_>>() };
        turns();
    }
    let threads = c_uint::try_from(threads).unwrap_or(c_uint::MAX);
    // SAFETY: `turns` may be called by several threads at once, and does not unwind.
    unsafe { parallel(enter, (&raw mut turns).cast(), threads, 0) };
}
