//! The thread of a worker: it does what the threads of Python ask, in order, and knows how far its step is.

use std::sync::mpsc;

use libra_client::{AssignedRows, ClientError, Cluster, Mode, Parameters, TablePage, TrainingNote, Worker};

use super::watch::Watch;

/// Something that the thread of the worker is asked to do, and where its answer goes.
pub(super) enum Request {
    /// Reads rows, as a part of a step or beside it.
    Pull {
        keys: Vec<u64>,
        is_step: bool,
        reply: mpsc::Sender<Result<Vec<f32>, ClientError>>,
    },
    Push {
        keys: Vec<u64>,
        gradients: Vec<f32>,
    },
    /// Sets rows of a table, as they are numbered here.
    Assign {
        rows: AssignedRows,
        reply: mpsc::Sender<Result<(), ClientError>>,
    },
    /// Makes all rows of a table those that never had a gradient.
    Reset {
        table: usize,
        steps: u64,
        reply: mpsc::Sender<Result<(), ClientError>>,
    },
    /// Reads a page of a table. The answer has the number of shards, too.
    Scan {
        shard: u16,
        table: usize,
        after: Option<u64>,
        reply: mpsc::Sender<Result<(TablePage, u16), ClientError>>,
    },
    /// Ends a step.
    Tick,
    /// This worker has trained on samples, with this mean loss.
    Trained {
        samples: u64,
        loss: f64,
    },
    /// It will train on so many samples more.
    Plans {
        samples: u64,
    },
    Flush {
        reply: mpsc::Sender<Result<(), ClientError>>,
    },
    /// Takes the next chunk, if there is one. The answer has the phase, too.
    NextChunk {
        reply: mpsc::Sender<Result<(u64, Option<u32>), ClientError>>,
    },
    /// All of a chunk was pushed; the account is that of the phase so far.
    FinishChunk {
        chunk: u32,
        account: String,
    },
    Barrier {
        reply: mpsc::Sender<Result<(), ClientError>>,
    },
    /// Ends the part of this worker: with the others, or before them.
    Finish {
        is_done: bool,
        reply: mpsc::Sender<Result<(), ClientError>>,
    },
}

/// Losses of the samples since the last barrier, which ends an epoch.
#[derive(Default)]
struct Losses {
    samples: u64,
    sum: f64,
}

impl Losses {
    /// Takes the mean loss of more samples, and returns that of all.
    fn add(&mut self, samples: u64, loss: f64) -> f64 {
        self.samples += samples;
        self.sum += samples as f64 * loss;
        self.sum / self.samples as f64
    }
}

/// The worker, and where it is in its step.
pub(super) struct Driver {
    worker: Worker,
    /// Positions in the job of the tables of this process.
    positions: Vec<u16>,
    mode: Mode,
    /// Steps since the last barrier.
    step: u64,
    /// This step has begun to read.
    reads: bool,
    /// This step has read, and pushes.
    pushes: bool,
    losses: Losses,
    failed: Option<ClientError>,
    /// An operation has failed since this worker was asked to end.
    is_drained: bool,
}

impl Driver {
    /// A driver of a worker. The job has the tables of these names, and this process numbers them so.
    pub(super) fn new(worker: Worker, names: &[String]) -> Self {
        let Cluster { mode, tables, .. } = worker.cluster();
        let position = |name: &String| tables.iter().position(|table| table.name == *name);
        let positions = names.iter().filter_map(position).filter_map(|at| u16::try_from(at).ok()).collect();
        let mode = *mode;
        Self {
            mode,
            positions,
            worker,
            step: 0,
            reads: false,
            pushes: false,
            losses: Losses::default(),
            failed: None,
            is_drained: false,
        }
    }

    /// Does what it is asked, until the end of the job.
    pub(super) fn run(mut self, requests: &mpsc::Receiver<Request>, watch: Watch) {
        // Senders of answers fail where the caller was interrupted: it does not wait any more.
        while let Ok(request) = requests.recv() {
            match request {
                Request::Pull { keys, is_step, reply } => {
                    let outcome = self.pull(keys, is_step);
                    drop(reply.send(self.seen(outcome)));
                }
                Request::Push { keys, gradients } => {
                    let outcome = self.push(keys, gradients);
                    self.note(outcome);
                }
                Request::Assign { rows, reply } => drop(reply.send(self.assign(rows))),
                Request::Reset { table, steps, reply } => drop(reply.send(self.reset(table, steps))),
                Request::Scan { shard, table, after, reply } => {
                    drop(reply.send(self.scan(shard, table, after)));
                }
                Request::Tick => {
                    let outcome = self.tick();
                    self.note(outcome);
                }
                Request::Trained { samples, loss } => {
                    let loss = self.losses.add(samples, loss);
                    self.worker.note(TrainingNote::Trained { samples, loss });
                }
                Request::Plans { samples } => self.worker.note(TrainingNote::Plans { samples }),
                Request::Flush { reply } => {
                    let outcome = self.check().and_then(|()| self.worker.flush());
                    drop(reply.send(self.seen(outcome)));
                }
                Request::NextChunk { reply } => {
                    let outcome = self.next_chunk();
                    drop(reply.send(self.seen(outcome)));
                }
                Request::FinishChunk { chunk, account } => {
                    let outcome = self.check().and_then(|()| self.worker.finish_chunk(chunk, account));
                    self.note(outcome);
                }
                Request::Barrier { reply } => {
                    let outcome = self.barrier();
                    drop(reply.send(self.seen(outcome)));
                }
                Request::Finish { is_done, reply } => {
                    let Self { worker, is_drained, failed, .. } = self;
                    let outcome = match is_drained {
                        true => worker.drain(),
                        false if is_done => worker.report(String::new()),
                        false => worker.leave(),
                    };
                    // A push that has failed since the last operation that waited.
                    let lost = failed.filter(|error| *error != ClientError::Drained);
                    let outcome = outcome.and_then(|()| lost.map_or(Ok(()), Err));
                    watch.ended(&outcome, is_drained);
                    drop(reply.send(outcome));
                    return;
                }
            }
        }
    }

    fn seen<T>(&mut self, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        self.is_drained |= matches!(outcome, Err(ClientError::Drained));
        outcome
    }

    /// Keeps the failure of an operation whose caller did not wait, for the next that does.
    fn note(&mut self, outcome: Result<(), ClientError>) {
        if let Err(error) = outcome {
            self.failed.get_or_insert(error);
        }
    }

    fn check(&mut self) -> Result<(), ClientError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn pull(&mut self, keys: Vec<u64>, is_step: bool) -> Result<Vec<f32>, ClientError> {
        self.check()?;
        if is_step {
            self.begin_reading()?;
        }
        Ok(self.worker.pull(keys)?.values)
    }

    fn begin_reading(&mut self) -> Result<(), ClientError> {
        if !self.reads {
            self.mode.before_pull(self.step, &mut self.worker)?;
            self.reads = true;
        }
        Ok(())
    }

    fn begin_pushing(&mut self) -> Result<(), ClientError> {
        self.begin_reading()?;
        if !self.pushes {
            self.mode.after_pull(&mut self.worker)?;
            self.mode.before_push(self.step, &mut self.worker)?;
            self.pushes = true;
        }
        Ok(())
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        self.begin_pushing()?;
        self.worker.push(keys, gradients)
    }

    fn tick(&mut self) -> Result<(), ClientError> {
        self.begin_pushing()?;
        self.mode.after_push(&mut self.worker)?;
        self.step += 1;
        (self.reads, self.pushes) = (false, false);
        Ok(())
    }

    fn assign(&mut self, rows: AssignedRows) -> Result<(), ClientError> {
        self.check()?;
        let table = self.positions[usize::from(rows.table)];
        self.worker.assign(AssignedRows { table, ..rows })
    }

    fn reset(&mut self, table: usize, steps: u64) -> Result<(), ClientError> {
        self.check()?;
        self.worker.reset(self.positions[table], steps)
    }

    fn scan(
        &mut self,
        shard: u16,
        table: usize,
        after: Option<u64>,
    ) -> Result<(TablePage, u16), ClientError> {
        self.check()?;
        let page = self.worker.scan(shard, self.positions[table], after)?;
        Ok((page, self.worker.cluster().shards()))
    }

    fn next_chunk(&mut self) -> Result<(u64, Option<u32>), ClientError> {
        self.check()?;
        let before = self.worker.phase();
        let chunks = self.worker.cluster().chunks(before);
        if chunks == 0 {
            return Ok((before, None));
        }
        let chunk = self.worker.next_chunk(chunks, None)?;
        let phase = self.worker.phase();
        if phase > before {
            self.begin_epoch();
        }
        Ok((phase, chunk))
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        self.check()?;
        self.worker.flush()?;
        self.worker.barrier()?;
        self.begin_epoch();
        Ok(())
    }

    fn begin_epoch(&mut self) {
        self.step = 0;
        self.losses = Losses::default();
        (self.reads, self.pushes) = (false, false);
    }
}
