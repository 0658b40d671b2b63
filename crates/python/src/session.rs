//! The session of a process: its tables, and where their rows are.

use core::time::Duration;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use libra_client::{FaultRates, LifecycleCounts, Mode, Optimizer, Sizes, TableSpec};
use libra_lookup::{IdSpace, OPEN_IDS, Pass, RowSums, Rows, WorkingSet, add_rows, gather};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::backend::alone::{Alone, lock};
use crate::backend::cluster::{Cluster, Samples};
use crate::backend::{Backend, Page, Part, Wanted, Written};
use crate::border::{input, output};
use crate::failure::{Failure, bad_id, not_finite, run};
use crate::fork::check_fork;
use crate::lookups::{Ahead, Gradient, PooledLookup, Request, backward, look_up, read_ahead};
use crate::profile::Recorder;
use crate::rules::{Numbers, init, rule};
use crate::table::Table;
use crate::team::Team;

/// Tables and the backend of their rows.
#[pyclass(frozen)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// Ids, values, states, steps, next, shards.
type PageOfPython<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64, Option<u64>, u16);

/// Look-up, address, values from row to row, of rows, address of the gradient of weights.
type GradientOfPython = (Py<PooledLookup>, usize, Option<usize>, bool, usize);

/// Rows that are kept, gradients that made no row, and rows that were evicted, by table.
type Kept = HashMap<String, (u64, u64, u64)>;

struct Shared {
    tables: Mutex<Vec<Table>>,
    /// Gradients of whole tables, for the next push.
    staged: Mutex<Vec<Part>>,
    /// None after a shutdown.
    backend: Mutex<Option<Arc<Backend>>>,
    recorder: Recorder,
    team: Arc<Team>,
}

impl Shared {
    fn new(backend: Backend, team: Arc<Team>) -> Arc<Self> {
        let backend = Mutex::new(Some(Arc::new(backend)));
        let (tables, staged, recorder) = Default::default();
        Arc::new(Self { tables, staged, backend, recorder, team })
    }

    fn backend(&self) -> Result<Arc<Backend>, Failure> {
        check_fork()?;
        let closed = || Failure::Libra("Error", "the session was shut down: call init() again".to_owned());
        lock(&self.backend).clone().ok_or_else(closed)
    }
}

impl Session {
    /// Does something in the cluster that has the rows, without the lock of the interpreter.
    fn in_cluster<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Cluster) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        run(py, || act(self.shared.backend()?.cluster().ok_or_else(not_a_cluster)?))
    }
}

#[pymethods]
impl Session {
    /// Starts a session whose rows are in this process.
    #[staticmethod]
    fn alone(py: Python<'_>, seed: u64, is_sync: bool) -> PyResult<Self> {
        let team = Arc::new(Team::new());
        let alone = run(py, || {
            check_fork()?;
            Alone::start(seed, is_sync, Arc::clone(&team))
        })?;
        Ok(Self { shared: Shared::new(Backend::Alone(alone), team) })
    }

    /// Starts a session whose rows are in a cluster, which begins when its tables are known. `loss` is the share of outgoing datagrams that
    /// are lost, for tests.
    #[staticmethod]
    fn cluster(py: Python<'_>, mode: &str, staleness: u32, seed: u64, loss: f64) -> PyResult<Self> {
        let mode = match mode {
            "sync" => Mode::Sync,
            "ssp" => Mode::Ssp { staleness },
            _ => Mode::Async,
        };
        let faults = run(py, || {
            check_fork()?;
            FaultRates::new(loss, 0.0, 0.0).map_err(|error| Failure::Value(format!("LIBRA_LOSS: {error}")))
        })?;
        let cluster = Cluster::new(mode, seed, faults);
        Ok(Self { shared: Shared::new(Backend::Cluster(Box::new(cluster)), Arc::new(Team::new())) })
    }

    /// Starts the controller, the servers and the switches of a cluster in this process; returns the address of the controller.
    #[pyo3(signature = (servers, switches, workers, plan))]
    fn host(
        &self,
        py: Python<'_>,
        servers: u16,
        switches: u16,
        workers: u16,
        plan: Option<&str>,
    ) -> PyResult<String> {
        let sizes = Sizes { servers, switches, workers };
        self.in_cluster(py, |cluster| Ok(cluster.host(sizes, plan)?.to_string()))
    }

    /// Joins the cluster of a controller, and waits until it is complete. With the number of `workers` that the job has, the controller
    /// may take the job from this one. Returns the number of the next barrier.
    #[pyo3(signature = (address, timeout, workers, plan))]
    fn join(
        &self,
        py: Python<'_>,
        address: &str,
        timeout: f64,
        workers: Option<u16>,
        plan: Option<&str>,
    ) -> PyResult<u64> {
        self.in_cluster(py, |cluster| {
            let bad = |_| Failure::Value(format!("\"{address}\" must be an address and a port"));
            let address: SocketAddr = address.parse().map_err(bad)?;
            let timeout = seconds(timeout)?;
            match workers {
                Some(workers) => cluster.join_with_job(address, timeout, workers, plan),
                None => cluster.join(address, timeout),
            }
        })
    }

    /// Lets the job of a cluster deal its samples in chunks, in a number of epochs. The text is the same in all workers.
    fn deal_samples(&self, py: Python<'_>, text: String, epochs: u32, chunks: u32) -> PyResult<()> {
        self.in_cluster(py, |cluster| cluster.deal_samples(Samples { text, epochs, chunks }))
    }

    /// Waits for the next chunk: returns the phase of this worker, and the chunk. None: the phase has just begun, or no chunk is at hand and
    /// one is to be finished.
    fn next_chunk(&self, py: Python<'_>) -> PyResult<(u64, Option<u32>)> {
        self.in_cluster(py, Cluster::next_chunk)
    }

    /// All of a chunk was pushed. The account of the phase so far is for those who read the records of the job.
    fn finish_chunk(&self, py: Python<'_>, chunk: u32, account: String) -> PyResult<()> {
        self.in_cluster(py, |cluster| cluster.finish_chunk(chunk, account))
    }

    /// Asks the worker of a cluster to leave after its step: operations raise `Drained` then.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.in_cluster(py, |cluster| {
            cluster.drain();
            Ok(())
        })
    }

    /// Adds a table; returns its number. `rows` of None means ids below 2^56, of which there may be any.
    #[pyo3(signature = (name, rows, is_hashed, width, init_kind, init_value))]
    fn add_table(
        &self,
        py: Python<'_>,
        name: String,
        rows: Option<u64>,
        is_hashed: bool,
        width: usize,
        init_kind: &str,
        init_value: f64,
    ) -> PyResult<usize> {
        run(py, || {
            let backend = self.shared.backend()?;
            let space = match rows {
                Some(rows) => IdSpace::Bounded { rows },
                None if is_hashed => IdSpace::Hashed,
                None => IdSpace::Open,
            };
            let mut tables = lock(&self.shared.tables);
            let first_key = first_key(&tables, space)?;
            let keys = first_key..first_key + rows.unwrap_or(OPEN_IDS);
            // No push comes before the rule of the optimizer.
            let none = Optimizer::Sgd { rate: 1.0 };
            let spec =
                TableSpec { init: init(init_kind, init_value)?, ..TableSpec::new(&name, keys, width, none) };
            backend.add_table(spec)?;
            tables.push(Table::new(name, space, width, first_key));
            Ok(tables.len() - 1)
        })
    }

    /// Sets the rule of a table. The state of its rows begins again unless it is kept.
    fn set_rule(
        &self,
        py: Python<'_>,
        table: usize,
        optimizer: &str,
        decay: &str,
        numbers: Numbers,
        keeps_state: bool,
    ) -> PyResult<()> {
        run(py, || {
            let rule = rule(optimizer, decay, &numbers).map_err(|failure| match failure {
                Failure::Value(text) => {
                    Failure::Value(format!("table \"{}\": {text}", lock(&self.shared.tables)[table].name))
                }
                other => other,
            })?;
            self.shared.backend()?.set_rule(table, rule, keeps_state)
        })
    }

    /// Says how many threads the caller computes with: they take part, or updates go on beside them.
    fn set_threads(&self, py: Python<'_>, threads: usize) -> PyResult<()> {
        run(py, || {
            self.shared.team.set_threads(threads);
            if let Some(alone) = self.shared.backend()?.stores() {
                alone.set_threads(threads);
            }
            Ok(())
        })
    }

    fn rename(&self, py: Python<'_>, table: usize, name: String) {
        py.detach(|| lock(&self.shared.tables)[table].name = name);
    }

    /// Sets the row of the padding id; None is 0.
    #[pyo3(signature = (table, address))]
    fn set_padding_row(&self, py: Python<'_>, table: usize, address: Option<usize>) {
        py.detach(|| {
            let table = &mut lock(&self.shared.tables)[table];
            table.padding_row = address.map(|address| input::<f32>(address, table.width).to_vec());
        });
    }

    fn look_up(
        &self,
        py: Python<'_>,
        requests: Vec<Request>,
        outputs: Vec<usize>,
        is_apart: bool,
        keeps: bool,
    ) -> PyResult<Vec<PooledLookup>> {
        run(py, || {
            let backend = self.shared.backend()?;
            let Shared { tables, team, .. } = &*self.shared;
            look_up(&mut lock(tables), team, &backend, &requests, &outputs, is_apart, keeps)
        })
    }

    /// Adds gradients of look-ups to a backward pass: (look-up, address of the gradient, values from row to row unless its rows lie one after
    /// the other, of rows, address of that of the weights).
    fn backward(
        &self,
        py: Python<'_>,
        task: i64,
        thread: u64,
        gradients: Vec<GradientOfPython>,
    ) -> PyResult<()> {
        let gradients: Vec<Gradient<'_>> = gradients
            .iter()
            .map(|(lookup, address, stride, of_rows, of_weights)| Gradient {
                lookup: lookup.get(),
                address: *address,
                stride: *stride,
                of_rows: *of_rows,
                of_weights: *of_weights,
            })
            .collect();
        run(py, || {
            check_fork()?;
            let Shared { tables, team, .. } = &*self.shared;
            backward(&mut lock(tables), team, Pass { task, thread }, gradients)
        })
    }

    /// Commits the gradients of a pass. The gradient of the handle at this address becomes the norm of all that the table has.
    fn commit(&self, py: Python<'_>, table: usize, task: i64, thread: u64, address: usize) -> PyResult<()> {
        run(py, || {
            check_fork()?;
            let Table { accumulator, set, .. } = &mut lock(&self.shared.tables)[table];
            let handle = output::<f32>(address, 1);
            handle[0] = accumulator.commit(Pass { task, thread }, handle[0], set)?;
            Ok(())
        })
    }

    fn remember(&self, py: Python<'_>, table: usize, handle: f32) {
        py.detach(|| lock(&self.shared.tables)[table].accumulator.remember(handle));
    }

    /// Does to the gradients of a table what was done to that of its handle, and checks that they are finite. Returns true if there are
    /// gradients that no pass has committed; they are dropped.
    fn settle(&self, py: Python<'_>, table: usize, handle: f32) -> PyResult<bool> {
        run(py, || {
            check_fork()?;
            let Table { accumulator, name, .. } = &mut lock(&self.shared.tables)[table];
            accumulator.settle(handle);
            let has_pending = accumulator.has_pending();
            accumulator.drop_pending();
            accumulator.check_finite().map_err(|error| not_finite(name, &error))?;
            Ok(has_pending)
        })
    }

    /// Returns true if a table has gradients.
    fn has_gradients(&self, py: Python<'_>, table: usize) -> bool {
        py.detach(|| {
            let accumulator = &lock(&self.shared.tables)[table].accumulator;
            !accumulator.sums().is_empty() || accumulator.has_pending()
        })
    }

    /// Pushes the gradients of tables, and ends the step. They stay until they are cleared; the values that were looked up do not.
    fn push(&self, py: Python<'_>, tables: Vec<usize>, factor: f64) -> PyResult<()> {
        run(py, || {
            let backend = self.shared.backend()?;
            let mut parts = core::mem::take(&mut *lock(&self.shared.staged));
            let mut states = lock(&self.shared.tables);
            tables.iter().for_each(|table| states[*table].is_spent = true);
            let pushed = states
                .iter_mut()
                .enumerate()
                .filter(|(table, state)| tables.contains(table) && !state.accumulator.sums().is_empty());
            let pushed: Vec<_> = pushed.collect();
            let values = pushed.iter().map(|(_, state)| state.accumulator.sums().values().len()).sum();
            parts.extend(self.shared.team.map(pushed, values, |(table, state)| state.part(table, factor)));
            if !parts.is_empty() {
                self.shared.recorder.record(backend.stores(), &parts)?;
                backend.push(parts)?;
            }
            backend.tick()
        })
    }

    /// Pushes gradients of ids, which may occur more than once.
    fn push_rows(
        &self,
        py: Python<'_>,
        table: usize,
        ids: usize,
        count: usize,
        gradients: usize,
    ) -> PyResult<()> {
        run(py, || {
            let backend = self.shared.backend()?;
            let state = &mut lock(&self.shared.tables)[table];
            let gradients = input::<f32>(gradients, count * state.width);
            let (mut set, mut sums) = (WorkingSet::new(state.width), RowSums::new(state.width));
            let lookup = set.assign(input::<i64>(ids, count), state.space, None);
            let lookup = lookup.map_err(|error| bad_id(&state.name, &error))?;
            add_rows(lookup.slots(), Rows::new(gradients, state.width), None, set.ids(), &mut sums);
            state.accumulator.leave_frozen(&mut sums);
            sums.check_finite().map_err(|error| not_finite(&state.name, &error))?;
            let keys: Vec<u64> = sums.ids().iter().map(|id| state.first_key + id).collect();
            state.is_spent = true;
            state.counts.rows_pushed += keys.len() as u64;
            state.counts.pushes += 1;
            if keys.is_empty() {
                return Ok(());
            }
            let parts = vec![Part { table, keys, gradients: sums.values().to_vec() }];
            self.shared.recorder.record(backend.stores(), &parts)?;
            backend.push(parts)
        })
    }

    /// Reads rows as they are now, without a trace in the working set.
    fn read(&self, py: Python<'_>, table: usize, ids: usize, count: usize, address: usize) -> PyResult<()> {
        run(py, || {
            let backend = self.shared.backend()?;
            let states = lock(&self.shared.tables);
            let state = &states[table];
            let mut set = WorkingSet::new(state.width);
            let lookup = set.assign(input::<i64>(ids, count), state.space, None);
            let lookup = lookup.map_err(|error| bad_id(&state.name, &error))?;
            backend.load(vec![Wanted { table, first_key: state.first_key, set: &mut set }], false)?;
            gather(set.values(), state.width, lookup.slots(), None, output(address, count * state.width));
            Ok(())
        })
    }

    /// Waits until all pushes of this process can be read.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.shared.backend()?.flush())
    }

    /// Sets rows to values, with the state of rows that never had a gradient unless it is given.
    #[pyo3(signature = (table, ids, count, values, state, state_words))]
    fn write(
        &self,
        py: Python<'_>,
        table: usize,
        ids: usize,
        count: usize,
        values: usize,
        state: usize,
        state_words: usize,
    ) -> PyResult<()> {
        run(py, || {
            let backend = self.shared.backend()?;
            let mut tables = lock(&self.shared.tables);
            let of_table = &mut tables[table];
            let ids = input::<i64>(ids, count);
            of_table.space.check(ids).map_err(|error| bad_id(&of_table.name, &error))?;
            let keys = ids.iter().map(|id| of_table.first_key + of_table.space.row(*id)).collect();
            let values = input::<f32>(values, count * of_table.width).to_vec();
            let states =
                if state == 0 { Vec::new() } else { input::<f32>(state, count * state_words).to_vec() };
            of_table.is_spent = true;
            backend.write(Written { table, keys, values, states })
        })
    }

    /// Makes all rows of a table those that never had a gradient, and sets how many steps it has had.
    fn reset(&self, py: Python<'_>, table: usize, steps: u64) -> PyResult<()> {
        run(py, || {
            let backend = self.shared.backend()?;
            lock(&self.shared.tables)[table].is_spent = true;
            backend.reset(table, steps)
        })
    }

    /// Reads the rows that are kept of a table by rising id, a page at a time: ids (i64), values and states (f32), steps of the table, what
    /// the next page begins behind, number of shards. Each shard has its own pages.
    #[pyo3(signature = (table, shard, after))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        table: usize,
        shard: u16,
        after: Option<u64>,
    ) -> PyResult<PageOfPython<'py>> {
        let (page, first_key) = run(py, || {
            let first_key = lock(&self.shared.tables)[table].first_key;
            Ok((self.shared.backend()?.scan(table, shard, after)?, first_key))
        })?;
        let Page { keys, values, states, steps, next, shards } = page;
        let ids: Vec<u64> = keys.into_iter().map(|key| key - first_key).collect();
        Ok((bytes_of(py, &ids), bytes_of(py, &values), bytes_of(py, &states), steps, next, shards))
    }

    /// Reads rows that a step will look up, (table, address of ids, number of ids, 64 bits, padding id), and the first rows of tables, (table,
    /// number of rows, address), in one turn. Ids that a table does not take are left to the look-up.
    fn read_ahead(&self, py: Python<'_>, ids: Vec<Ahead>, whole: Vec<(usize, u64, usize)>) -> PyResult<()> {
        run(py, || {
            let backend = self.shared.backend()?;
            read_ahead(&mut lock(&self.shared.tables), &backend, &ids, &whole)
        })
    }

    /// Keeps gradients of the first rows of a table for the next push.
    fn stage(&self, py: Python<'_>, table: usize, rows: u64, address: usize, factor: f64) -> PyResult<()> {
        run(py, || {
            let mut tables = lock(&self.shared.tables);
            let of_table = &mut tables[table];
            let count = usize::try_from(rows).expect("its gradients are in memory") * of_table.width;
            let mut gradients = input::<f32>(address, count).to_vec();
            if factor != 1.0 {
                gradients.iter_mut().for_each(|value| *value = narrow(f64::from(*value) * factor));
            }
            let keys = (of_table.first_key..of_table.first_key + rows).collect();
            of_table.counts.rows_pushed += rows;
            of_table.counts.pushes += 1;
            lock(&self.shared.staged).push(Part { table, keys, gradients });
            Ok(())
        })
    }

    /// Counts of each table: ids looked up, rows pulled, rows pushed, pushes.
    fn counts(&self, py: Python<'_>) -> HashMap<String, (u64, u64, u64, u64)> {
        let counts = |table: &Table| {
            let counts = table.counts;
            (counts.ids, counts.rows_pulled, counts.rows_pushed, counts.pushes)
        };
        py.detach(|| {
            lock(&self.shared.tables).iter().map(|table| (table.name.clone(), counts(table))).collect()
        })
    }

    /// Rows that are kept of each table, gradients that made no row, and rows that were evicted; None if the rows are not in this process.
    fn kept(&self, py: Python<'_>) -> PyResult<Option<Kept>> {
        run(py, || {
            let backend = self.shared.backend()?;
            let Some(alone) = backend.stores() else { return Ok(None) };
            let names: Vec<String> =
                lock(&self.shared.tables).iter().map(|table| table.name.clone()).collect();
            let of_table = |(number, name)| {
                let kept = alone.with_store(number, |store| {
                    let LifecycleCounts { dropped, evicted } = store.lifecycle_counts();
                    (store.rows() as u64, dropped, evicted)
                })?;
                Ok((name, kept))
            };
            names.into_iter().enumerate().map(of_table).collect::<Result<_, Failure>>().map(Some)
        })
    }

    /// Sets the ids whose rows are read, and have no gradient.
    fn freeze(&self, py: Python<'_>, table: usize, ids: usize, count: usize) -> PyResult<()> {
        run(py, || {
            let of_table = &mut lock(&self.shared.tables)[table];
            let ids = input::<i64>(ids, count);
            of_table.space.check(ids).map_err(|error| bad_id(&of_table.name, &error))?;
            of_table.accumulator.freeze(ids.iter().map(|id| of_table.space.row(*id)).collect());
            Ok(())
        })
    }

    /// Ends a step of pushes by `push_rows`.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.shared.backend()?.tick())
    }

    /// Takes note of samples that this process has trained on, above 0, and their mean loss.
    fn note_trained(&self, py: Python<'_>, samples: u64, loss: f64) -> PyResult<()> {
        run(py, || self.shared.backend()?.note_trained(samples, loss))
    }

    /// Takes note of the samples that this process will train on.
    fn note_planned(&self, py: Python<'_>, samples: u64) -> PyResult<()> {
        run(py, || self.shared.backend()?.note_planned(samples))
    }

    /// Waits until all workers have come here, and all pushes can be read.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || {
            lock(&self.shared.tables).iter_mut().for_each(|table| table.is_spent = true);
            self.shared.backend()?.barrier()
        })
    }

    /// Records the pushes of this process from the next one on.
    fn start_profile(&self) {
        self.shared.recorder.start();
    }

    /// Ends the profile; returns the text of its plan, or None if nothing was pushed.
    fn finish_profile(&self, py: Python<'_>, seed: u64) -> PyResult<Option<String>> {
        run(py, || Ok(self.shared.recorder.finish(seed)))
    }

    /// Ends the session. Pushes under way are applied first; a worker of a cluster that is done waits for the others. Returns the packets
    /// that switches of this process have added.
    fn shut_down(&self, py: Python<'_>, is_done: bool, timeout: f64) -> PyResult<u64> {
        run(py, || {
            check_fork()?;
            let backend = lock(&self.shared.backend).take();
            backend.map_or(Ok(0), |backend| backend.finish(is_done, seconds(timeout)?))
        })
    }
}

fn seconds(seconds: f64) -> Result<Duration, Failure> {
    let text = || Failure::Value(format!("a timeout of {seconds} s must be at least 0"));
    Duration::try_from_secs_f64(seconds).map_err(|_| text())
}

fn not_a_cluster() -> Failure {
    Failure::Runtime("the rows of this session are in this process".to_owned())
}

/// Bytes of values in the order of the machine.
fn bytes_of<'py, T: bytemuck::NoUninit>(py: Python<'py>, values: &[T]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytemuck::cast_slice(values))
}

#[expect(clippy::cast_possible_truncation, reason = "gradients are f32")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// Bounded tables take neighbouring keys, so that stores find rows by key; each open one has 2^56 keys of its own.
fn first_key(tables: &[Table], space: IdSpace) -> Result<u64, Failure> {
    const OPEN_TABLES_MAX: u64 = 120;
    if let IdSpace::Bounded { rows } = space {
        let bounded = tables.iter().filter_map(|table| match table.space {
            IdSpace::Bounded { rows } => Some(table.first_key + rows),
            IdSpace::Open | IdSpace::Hashed => None,
        });
        let first = bounded.max().unwrap_or(0);
        let end = first.checked_add(rows).filter(|end| *end <= OPEN_IDS);
        return end
            .map(|_| first)
            .ok_or_else(|| Failure::Value("tables have more than 2^56 rows".to_owned()));
    }
    let open = tables.iter().filter(|table| !matches!(table.space, IdSpace::Bounded { .. })).count() as u64;
    if open >= OPEN_TABLES_MAX {
        return Err(Failure::Value(format!("a job has at most {OPEN_TABLES_MAX} tables without a bound")));
    }
    Ok((open + 1) << 56)
}
