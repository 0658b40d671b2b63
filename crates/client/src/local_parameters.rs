//! A parameter server without servers: the store of this process.

use std::collections::{HashMap, VecDeque};

use libra_proto::{ClientError, Parameters, PullId, Pulled, Tick};
use libra_store::{RowError, Store};

/// [`Parameters`] over a [`Store`] in memory: the reference that runs over a network are compared with, and where profile runs
/// train.
///
/// A pull reads when it is started, as one over a network would at the soonest.
#[derive(Debug)]
pub struct LocalParameters {
    store: Store,
    pulls: VecDeque<(PullId, Pulled)>,
    next_pull: u64,
    /// Pushes whose sum is one update.
    pushes_per_update: usize,
    pending: Pending,
    /// Buffers of finished pushes, for later pulls.
    spare: Vec<Vec<f32>>,
}

/// Sums of gradients that are not applied yet.
#[derive(Debug, Default)]
struct Pending {
    pushes: usize,
    /// Start of the sum of each row in `sums`.
    starts: HashMap<u64, usize>,
    keys: Vec<u64>,
    sums: Vec<f32>,
}

impl LocalParameters {
    /// Every push is an update at once.
    pub fn new(store: Store) -> Self {
        Self::with_pushes_per_update(store, 1)
    }

    /// The sum of every `pushes` pushes is applied as one update, as if all rows were hot in a switch whose rounds have that
    /// many pushes. 0 counts as 1.
    pub fn with_pushes_per_update(store: Store, pushes: usize) -> Self {
        Self {
            store,
            pulls: VecDeque::new(),
            next_pull: 0,
            pushes_per_update: pushes.max(1),
            pending: Pending::default(),
            spare: Vec::new(),
        }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn width(&self, key: u64) -> Result<usize, ClientError> {
        self.store.width(key).ok_or(ClientError::UnknownKey { key })
    }

    fn apply_pending(&mut self) -> Result<(), ClientError> {
        let Pending { pushes, starts, keys, sums } = &mut self.pending;
        *pushes = 0;
        starts.clear();
        let mut rest = &sums[..];
        for key in keys.drain(..) {
            let width = self.store.width(key).ok_or(ClientError::UnknownKey { key })?;
            let (sum, others) = rest.split_at(width);
            rest = others;
            self.store.update(key, sum).map_err(|error| client_error(key, &error))?;
        }
        sums.clear();
        Ok(())
    }
}

fn client_error(key: u64, error: &RowError) -> ClientError {
    match error {
        RowError::UnknownKey { key } => ClientError::UnknownKey { key: *key },
        other => {
            unreachable!("widths are those of the store itself, and gradients fit them: key {key}: {other}")
        }
    }
}

impl Parameters for LocalParameters {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        let mut values = self.spare.pop().unwrap_or_default();
        values.clear();
        for &key in &keys {
            let start = values.len();
            values.resize(start + self.width(key)?, 0.0);
            self.store.read(key, &mut values[start..]).map_err(|error| client_error(key, &error))?;
        }
        let pull = PullId(self.next_pull);
        self.next_pull += 1;
        self.pulls.push_back((pull, Pulled { keys, values }));
        Ok(pull)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        let place = self.pulls.iter().position(|(known, _)| *known == pull);
        let found = place.and_then(|place| self.pulls.remove(place));
        found.map(|(_, pulled)| pulled).ok_or(ClientError::UnknownPull(pull))
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        let mut expected = 0;
        for &key in &keys {
            let width = self.width(key)?;
            let gradient = gradients.get(expected..expected + width).unwrap_or_default();
            if let Some(lane) = gradient.iter().position(|value| !value.is_finite()) {
                let table = self.store.tables().iter().find(|table| table.keys.contains(&key));
                let table = table.map(|table| table.name.clone()).unwrap_or_default();
                return Err(ClientError::NotFinite { table, key, lane, bits: gradient[lane].to_bits() });
            }
            expected += width;
        }
        if expected != gradients.len() {
            let found = gradients.len();
            return Err(ClientError::WrongLength { keys: keys.len(), expected, found });
        }
        let mut rest = &gradients[..];
        for &key in &keys {
            let (gradient, others) = rest.split_at(self.width(key)?);
            rest = others;
            if self.pushes_per_update == 1 {
                self.store.update(key, gradient).map_err(|error| client_error(key, &error))?;
            } else {
                self.pending.add(key, gradient);
            }
        }
        self.spare.push(gradients);
        self.pending.pushes += 1;
        if self.pending.pushes >= self.pushes_per_update {
            self.apply_pending()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.apply_pending()
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        Ok(())
    }

    fn tick(&mut self, _: Tick) -> Result<(), ClientError> {
        Ok(())
    }

    /// There is no other worker, so all that may be missing are sums of its own that are not applied yet.
    fn wait_for_clocks(&mut self, _: u64) -> Result<(), ClientError> {
        self.apply_pending()
    }
}

impl Pending {
    fn add(&mut self, key: u64, gradient: &[f32]) {
        let start = *self.starts.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.sums.len()
        });
        if start == self.sums.len() {
            self.sums.extend_from_slice(gradient);
        } else {
            for (sum, value) in self.sums[start..].iter_mut().zip(gradient) {
                *sum += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use libra_store::{Init, Optimizer, TableSpec};

    use super::*;

    fn store() -> Store {
        let table = |name: &str, keys, width| TableSpec {
            name: name.into(),
            keys,
            width,
            rule: Optimizer::Sgd { rate: 1.0 }.into(),
            init: Init::Zero,
        };
        Store::new(vec![table("a", 0..10, 2), table("b", 10..12, 1)], 1).unwrap()
    }

    fn read(parameters: &mut LocalParameters, keys: &[u64]) -> Vec<f32> {
        let pull = parameters.start_pull(keys.to_vec()).unwrap();
        let pulled = parameters.finish_pull(pull).unwrap();
        assert_eq!(pulled.keys, keys);
        pulled.values
    }

    #[test]
    fn pushes_are_applied_and_read() {
        let mut parameters = LocalParameters::new(store());
        parameters.push(vec![3, 11], vec![1.0, 2.0, 3.0]).unwrap();
        let early = parameters.start_pull(vec![11, 3]).unwrap();
        parameters.push(vec![3, 3], vec![1.0; 4]).unwrap();
        assert_eq!(read(&mut parameters, &[11, 4, 3]), [-3.0, 0.0, 0.0, -3.0, -4.0]);
        assert_eq!(parameters.finish_pull(early).unwrap().values, [-3.0, -1.0, -2.0]);
        assert_eq!(parameters.finish_pull(early), Err(ClientError::UnknownPull(early)));
    }

    #[test]
    fn sums_of_several_pushes_are_applied_together() {
        let mut parameters = LocalParameters::with_pushes_per_update(store(), 2);
        parameters.push(vec![3, 11], vec![1.0, 2.0, 3.0]).unwrap();
        assert_eq!(read(&mut parameters, &[3, 11]), [0.0; 3]);
        parameters.push(vec![10, 3], vec![5.0, 1.0, 1.0]).unwrap();
        assert_eq!(read(&mut parameters, &[3, 10, 11]), [-2.0, -3.0, -5.0, -3.0]);
        parameters.push(vec![10], vec![1.0]).unwrap();
        assert_eq!(read(&mut parameters, &[10]), [-5.0]);
        parameters.flush().unwrap();
        assert_eq!(read(&mut parameters, &[10]), [-6.0]);
    }

    #[test]
    fn bad_requests_are_errors_and_change_nothing() {
        let mut parameters = LocalParameters::new(store());
        assert_eq!(parameters.start_pull(vec![1, 12]), Err(ClientError::UnknownKey { key: 12 }));
        assert_eq!(parameters.push(vec![12], vec![1.0]), Err(ClientError::UnknownKey { key: 12 }));
        let error = parameters.push(vec![1, 10], vec![1.0; 4]).unwrap_err();
        assert_eq!(error, ClientError::WrongLength { keys: 2, expected: 3, found: 4 });
        let error = parameters.push(vec![10, 1], vec![1.0, f32::NAN, 0.0]).unwrap_err();
        let bits = f32::NAN.to_bits();
        assert_eq!(error, ClientError::NotFinite { table: "a".into(), key: 1, lane: 0, bits });
        assert_eq!(read(&mut parameters, &[1, 10]), [0.0; 3]);
        assert_eq!(parameters.store().rows(), 0);
    }
}
