//! Rows in this process: a store for each table, and a thread that applies updates.

use core::num::NonZero;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;

use libra_client::{Store, TableSpec, UpdateRule};

use super::{Page, Part, Wanted, Whole, Written, check_signals};
use crate::failure::Failure;
use crate::team::Team;

/// Pushes that may be under way before the next one waits, as in a worker of a cluster.
const PUSHES_OPEN_MAX: usize = 2;
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// So many rows are looked at after each push at least, as on a server: tables with little traffic lose old rows, too.
const EVICTION_LOOKS_MIN: usize = 64;

/// Stores of this process.
pub(crate) struct Alone {
    shared: Arc<Shared>,
    seed: u64,
    /// A pull reads all pushes before it.
    is_sync: bool,
    /// Threads of the caller leave a core to the thread that applies updates. Else it would take one from threads that wait for
    /// each other, and an update is applied where it is pushed, by the team.
    has_spare_core: AtomicBool,
    team: Arc<Team>,
}

struct Shared {
    stores: RwLock<Vec<Arc<Mutex<Store>>>>,
    queue: Mutex<Queue>,
    /// There is a push to apply, or none will come.
    pushed: Condvar,
    applied: Condvar,
}

#[derive(Default)]
struct Queue {
    pushes: VecDeque<Vec<Part>>,
    /// A push that some thread has taken is being applied.
    is_applying: bool,
    is_closed: bool,
    failed: Option<String>,
}

impl Queue {
    fn open(&self) -> usize {
        self.pushes.len() + usize::from(self.is_applying)
    }
}

/// Locks, where a panic of another operation has left the lock poisoned, too: what it guards is changed in whole operations.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Alone {
    pub(crate) fn start(seed: u64, is_sync: bool, team: Arc<Team>) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            stores: RwLock::default(),
            queue: Mutex::default(),
            pushed: Condvar::new(),
            applied: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("libra updates".to_owned()).spawn(move || of_thread.run());
        spawned.map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
        Ok(Self { shared, seed, is_sync, has_spare_core: AtomicBool::new(true), team })
    }

    pub(crate) fn add_table(&self, spec: TableSpec) -> Result<(), Failure> {
        let store = Store::new(vec![spec], self.seed)?;
        self.stores_mut().push(Arc::new(Mutex::new(store)));
        Ok(())
    }

    fn stores_mut(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Arc<Mutex<Store>>>> {
        self.shared.stores.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rule of a table. The state of its rows begins again, unless it is kept: then the optimizer must be the same.
    pub(crate) fn set_rule(&self, table: usize, rule: UpdateRule, keeps_state: bool) -> Result<(), Failure> {
        self.flush()?;
        let store = self.shared.store(table);
        let mut store = lock(&store);
        if keeps_state {
            return Ok(store.set_rule(0, rule)?);
        }
        let spec = TableSpec { rule, ..store.tables()[0].clone() };
        let mut changed = Store::new(vec![spec], self.seed)?;
        let none = vec![0.0; rule.state_len(store.tables()[0].width)];
        let fits = "rows of the same width, and as much state";
        for (key, values, _) in store.rows_of(0) {
            changed.insert(key, values, &none).expect(fits);
        }
        *store = changed;
        Ok(())
    }

    pub(crate) fn load(&self, wanted: Vec<Wanted<'_>>) -> Result<(), Failure> {
        if self.is_sync {
            self.flush()?;
        }
        let values = wanted.iter().map(|wanted| wanted.set.missing().len() * wanted.set.width()).sum();
        let loaded = self.team.map(wanted, values, |Wanted { table, first_key, set }| {
            let store = self.shared.store(table);
            set.load(|ids, values| {
                let keys: Vec<u64> = ids.iter().map(|id| first_key + id).collect();
                lock(&store).read_many(&keys, values).expect("ids were checked, and the set is as wide");
                Ok::<(), Failure>(())
            })
        });
        loaded.into_iter().collect()
    }

    /// Says how many threads the caller computes with.
    pub(crate) fn set_threads(&self, threads: usize) {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        self.has_spare_core.store(threads < cores, Ordering::Relaxed);
    }

    pub(crate) fn push(&self, parts: Vec<Part>) -> Result<(), Failure> {
        if self.has_spare_core.load(Ordering::Relaxed) {
            let mut queue = self.wait_until(|queue| queue.open() < PUSHES_OPEN_MAX)?;
            queue.pushes.push_back(parts);
            drop(queue);
            self.shared.pushed.notify_one();
            return Ok(());
        }
        let mut queue = self.wait_until(|queue| queue.open() == 0)?;
        queue.is_applying = true;
        drop(queue);
        let values = parts.iter().map(|part| part.gradients.len()).sum();
        // Each is of a table of its own.
        let applied = self.team.map(parts, values, |part| self.shared.update(&part));
        self.shared.finish(applied.into_iter().find_map(Result::err));
        self.flush()
    }

    /// Waits until nothing is under way, and applies what no thread has begun.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        loop {
            let mut queue = lock(&self.shared.queue);
            if let Some(failed) = &queue.failed {
                return Err(Failure::Libra("Error", failed.clone()));
            }
            if queue.open() == 0 {
                return Ok(());
            }
            if !queue.is_applying
                && let Some(parts) = queue.pushes.pop_front()
            {
                queue.is_applying = true;
                drop(queue);
                self.shared.apply(&parts);
            } else {
                drop(queue);
                drop(self.wait_until(|queue| !queue.is_applying)?);
            }
        }
    }

    fn wait_until(&self, is_met: impl Fn(&Queue) -> bool) -> Result<MutexGuard<'_, Queue>, Failure> {
        let mut queue = lock(&self.shared.queue);
        loop {
            if let Some(failed) = &queue.failed {
                return Err(Failure::Libra("Error", failed.clone()));
            }
            if is_met(&queue) {
                return Ok(queue);
            }
            let waited = self.shared.applied.wait_timeout(queue, SIGNALS_EVERY);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if timeout.timed_out() {
                drop(queue);
                check_signals()?;
                queue = lock(&self.shared.queue);
            }
        }
    }

    pub(crate) fn read(&self, whole: Whole<'_>) -> Result<(), Failure> {
        if self.is_sync {
            self.flush()?;
        }
        let keys: Vec<u64> = whole.keys().collect();
        let store = self.shared.store(whole.table);
        lock(&store).read_many(&keys, whole.values).expect("keys were checked");
        Ok(())
    }

    pub(crate) fn write(&self, rows: &Written) -> Result<(), Failure> {
        let Written { table, keys, values, states } = rows;
        self.with_store(*table, |store| {
            let name = store.tables()[0].name.clone();
            let misfit = |error| Failure::Libra("Mismatch", format!("table \"{name}\": {error}"));
            store.assign(0, keys, values, states).map_err(misfit)
        })?
    }

    pub(crate) fn reset(&self, table: usize, steps: u64) -> Result<(), Failure> {
        self.with_store(table, |store| drop(store.reset(0, steps)))
    }

    /// Returns all rows behind a key as one page.
    pub(crate) fn scan(&self, table: usize, after: Option<u64>) -> Result<Page, Failure> {
        self.with_store(table, |store| {
            let mut rows: Vec<_> =
                store.rows_of(0).filter(|(key, _, _)| after.is_none_or(|after| *key > after)).collect();
            rows.sort_unstable_by_key(|(key, _, _)| *key);
            let spec = &store.tables()[0];
            let words = spec.rule.state_len(spec.width);
            let mut page = Page {
                keys: Vec::with_capacity(rows.len()),
                values: Vec::with_capacity(rows.len() * spec.width),
                states: Vec::with_capacity(rows.len() * words),
                steps: store.steps(0),
                next: None,
                shards: 1,
            };
            for (key, values, state) in rows {
                page.keys.push(key);
                page.values.extend_from_slice(values);
                page.states.extend_from_slice(state);
            }
            page
        })
    }

    /// Returns the definitions of all tables.
    pub(crate) fn tables(&self) -> Vec<TableSpec> {
        let stores = self.shared.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores.iter().map(|store| lock(store).tables()[0].clone()).collect()
    }

    /// Does something with the store of a table, after all pushes.
    pub(crate) fn with_store<T>(
        &self,
        table: usize,
        operation: impl FnOnce(&mut Store) -> T,
    ) -> Result<T, Failure> {
        self.flush()?;
        let store = self.shared.store(table);
        let mut store = lock(&store);
        Ok(operation(&mut store))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.pushed.notify_one();
    }
}

impl Shared {
    fn store(&self, table: usize) -> Arc<Mutex<Store>> {
        Arc::clone(&self.stores.read().unwrap_or_else(PoisonError::into_inner)[table])
    }

    fn run(&self) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.is_applying || queue.pushes.is_empty() {
                if queue.is_closed {
                    return;
                }
                queue = self.pushed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let parts = queue.pushes.pop_front().expect("it is not empty");
            queue.is_applying = true;
            drop(queue);
            self.apply(&parts);
        }
    }

    fn apply(&self, parts: &[Part]) {
        let applied: Result<Vec<()>, String> = parts.iter().map(|part| self.update(part)).collect();
        self.finish(applied.err());
    }

    fn update(&self, part: &Part) -> Result<(), String> {
        let Part { table, keys, gradients } = part;
        let store = self.store(*table);
        let mut store = lock(&store);
        let updated = store.update_many(keys, gradients);
        if store.tables()[0].rule.growth.eviction.is_some() {
            store.evict(2 * keys.len() + EVICTION_LOOKS_MIN);
        }
        updated.map_err(|error| format!("internal error, please report it: {error}"))
    }

    /// Ends a push that was applied.
    fn finish(&self, failed: Option<String>) {
        let mut queue = lock(&self.queue);
        queue.is_applying = false;
        queue.failed = queue.failed.take().or(failed);
        let is_more = !queue.pushes.is_empty();
        drop(queue);
        self.applied.notify_all();
        if is_more {
            self.pushed.notify_one();
        }
    }
}
