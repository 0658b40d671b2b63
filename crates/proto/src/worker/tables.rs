//! Operations of a worker on tables: rows that are set, and scans.

use libra_store::{TableSpec, first_non_finite};

use super::operations::{Level, Operation, PushAnswer};
use super::rows::{Found, by_shard, rise};
use super::session::Session;
use super::{AssignedRows, WorkerEvent};
use crate::client::ClientError;
use crate::message::TablePage;
use crate::server::first_bad_state;

/// Both end as a push does.
const ENDS_AS_PUSH: Option<PushAnswer> = Some(PushAnswer::Level(Level::Accepted));

impl Session {
    /// Sets rows. They go to their shards, also those that switches hold: these get the new values from there (rule C12).
    pub(super) fn assign(&mut self, number: u64, rows: AssignedRows) {
        let found = self
            .check_rows(&rows)
            .and_then(|words| Ok((self.directory.find(&rows.keys, rise(&rows.keys))?, words)));
        let (Found { mut cold, .. }, words) = match found {
            Ok(found) => found,
            Err(error) => return self.events.push_back(WorkerEvent::Refused { number, error }),
        };
        if let Some((hot, demotion)) = self.directory.hot_rows() {
            cold.extend(hot.map(|row| demotion.to_cold(&row)));
        }
        self.operations.insert(number, Operation::new(Vec::new(), 0, Vec::new(), ENDS_AS_PUSH));
        let cold = by_shard(cold, self.cluster.shards());
        self.operations.operation(number).missing = self.cold.assign(number, cold, rows, words);
        self.complete_if_empty(number);
    }

    /// Resets a table in all shards.
    pub(super) fn reset(&mut self, number: u64, table: u16, steps: u64) {
        if let Err(error) = self.spec(table) {
            return self.events.push_back(WorkerEvent::Refused { number, error });
        }
        self.operations.insert(number, Operation::new(Vec::new(), 0, Vec::new(), ENDS_AS_PUSH));
        self.operations.operation(number).missing = self.cold.reset(number, table, steps);
    }

    /// Reads a page of a table (rule C13).
    pub(super) fn scan(&mut self, number: u64, shard: u16, table: u16, after: Option<u64>) {
        if let Err(error) = self.spec(table) {
            return self.events.push_back(WorkerEvent::Refused { number, error });
        }
        assert!(shard < self.cluster.shards(), "the caller scans the shards of the cluster");
        self.operations.insert(number, Operation::new(Vec::new(), 0, Vec::new(), None));
        self.operations.operation(number).missing = 1;
        self.cold.scan(number, shard, table, after);
    }

    /// A shard has sent a page.
    pub(super) fn scanned(&mut self, shard: u16, number: u64, page: TablePage) -> Result<(), String> {
        let Some(request) = self.cold.answered(shard, number) else {
            self.statistics.dropped += 1;
            return Ok(());
        };
        if !request.is_scan() {
            return Err(format!("a server answered request {number} with a page of a table"));
        }
        let operation = request.operation;
        drop(self.operations.answered(operation));
        self.events.push_back(WorkerEvent::Scanned { number: operation, page });
        self.end_visibility_waits();
        Ok(())
    }

    fn spec(&self, table: u16) -> Result<&TableSpec, ClientError> {
        let tables = &self.cluster.tables;
        let unknown = || ClientError::UnknownTable { table: table.into(), tables: tables.len() };
        tables.get(usize::from(table)).ok_or_else(unknown)
    }

    /// Checks shapes and values, and returns the number of states of a row.
    fn check_rows(&self, rows: &AssignedRows) -> Result<usize, ClientError> {
        let AssignedRows { table, keys, values, states } = rows;
        let spec = self.spec(*table)?;
        if let Some(key) = keys.iter().find(|key| !spec.keys.contains(key)) {
            return Err(ClientError::UnknownKey { key: *key });
        }
        let words = spec.rule.state_len(spec.width);
        let (expected, found) = (keys.len() * spec.width, values.len());
        if found != expected {
            return Err(ClientError::WrongLength { keys: keys.len(), expected, found });
        }
        let (expected, found) = (keys.len() * words, states.len());
        if found != expected && found != 0 {
            let table = spec.name.clone();
            return Err(ClientError::WrongStates { table, keys: keys.len(), expected, found });
        }
        let not_finite = |position: usize, width: usize, values: &[f32]| ClientError::NotFinite {
            table: spec.name.clone(),
            key: keys[position / width],
            lane: position % width,
            bits: values[position].to_bits(),
        };
        if let Some(bad) = first_non_finite(values) {
            return Err(not_finite(bad, spec.width, values));
        }
        match first_bad_state(spec, states) {
            Some(bad) => Err(not_finite(bad, words, states)),
            None => Ok(words),
        }
    }
}
