//! Values that users read, and the bounds between which they must be.

use libra_proto::{Instant, Pulled};

use super::{Account, Least, Progress, Task, User, Workload};
use crate::rows::{Rows, Sums};

impl User {
    /// Lower bounds of a push with pull that begins now, value by value: what this worker has made visible.
    pub(super) fn own_least(&self, rows: &Rows, keys: &[u64]) -> Least {
        keys.iter().map(|key| (*key, self.visible.0[rows.range(*key)].to_vec())).collect()
    }

    /// Lower bounds of a pull: those, and what the clocks of others stand for.
    pub(super) fn least(&self, rows: &Rows, keys: &[u64]) -> Least {
        let mut least = self.own_least(rows, keys);
        for (key, values) in &mut least {
            self.clocks.add_others(rows.range(*key), values);
        }
        least
    }

    pub(super) fn pulled(
        &mut self,
        now: Instant,
        number: u64,
        pulled: &Pulled,
        workload: &Workload,
        account: &Account,
    ) -> Result<(), String> {
        let task = self.close(now, number)?;
        // A push with pull may be answered by the owner of before, whatever its worker has set since.
        let fresh_since = if matches!(task, Task::Pull { .. }) { number } else { 0 };
        let (Task::Pull { least } | Task::PushPull { least }) = task else {
            return Err(format!("operation {number} of worker {} completes as a pull", self.worker));
        };
        let rows = &account.rows;
        let width: usize = pulled.keys.iter().map(|key| rows.width(*key)).sum();
        if pulled.keys.len() != least.len() || pulled.values.len() != width {
            return Err(format!("operation {number} is answered with {} values", pulled.values.len()));
        }
        let mut values = pulled.values.iter();
        for key in &pulled.keys {
            if let (Some(set), Some(history)) = (rows.set_table_of(*key), &account.set) {
                let (of_row, rest) = values.as_slice().split_at(set.width);
                let is_last = self.progress == Progress::Reading;
                history.check_read((self.worker, fresh_since), *key, of_row, is_last)?;
                values = rest.iter();
                continue;
            }
            let Some(least) = least.get(key) else {
                return Err(format!("operation {number} is answered with row {key}"));
            };
            for ((most, least), value) in
                account.pushed.0[rows.range(*key)].iter().zip(least).zip(&mut values)
            {
                let read = -f64::from(*value);
                if workload.positive && (read < *least || read > *most) {
                    return Err(format!(
                        "worker {} reads row {key} as {value}; {least} is visible to it, all have pushed {most}",
                        self.worker
                    ));
                }
            }
        }
        if self.progress == Progress::Reading {
            let mut read = Sums::zero(rows);
            let negated: Vec<f32> = pulled.values.iter().map(|value| -value).collect();
            read.add(rows, &pulled.keys, &negated);
            self.read = Some(read);
            self.progress = Progress::Read;
        }
        Ok(())
    }
}
