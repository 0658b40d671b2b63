//! The life cycle of the rows of a table: admission and eviction.

use serde::{Deserialize, Serialize};

use crate::table::OutOfRange;

/// Rows that a table has. The default: any row from its first gradient on, for ever.
///
/// A row that was not made, or went, reads as its first values. A gradient for one that went makes it again from these
/// and from no state, if the admission lets it; its counts start at zero again as well. So what was learned of it is lost, by
/// definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RowLifecycle {
    /// Gradients that make a row; `None`: all.
    pub admission: Option<Admission>,
    /// Rows that go, when [`Store::evict`](crate::Store::evict) looks at them; `None`: none.
    pub eviction: Option<Eviction>,
}

/// Condition for a gradient to make a row that is not there. Others are dropped, and counted in
/// [`LifecycleCounts::dropped`](crate::LifecycleCounts::dropped). What goes on follows from the seed and the updates of the
/// table alone, so the same updates always make the same rows.
///
/// As in the embedding tables of TFRA and PERSIA, it keeps rows of keys that come once from taking memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Admission {
    /// The `updates`-th gradient for a row makes it.
    ///
    /// Gradients before are counted in a table of fixed size, 5.3 bytes for each of `keys`. It errs to one side, but for
    /// one key in 350 million that is taken for another: a row never comes too early, as it would by a count-min
    /// sketch (Cormode, Muthukrishnan 2005), and comes too late if its count is forgotten. The table is one of many sets of 12 keys, and
    /// each set forgets the key that was not updated for longest. So a count is lost with a probability of about 1 in 10,000
    /// if a quarter of `keys` other keys were dropped between two gradients, of 2% at half of them, and of one half at
    /// all.
    Occurrences {
        /// From 2 to 255.
        updates: u8,
        /// Number of keys that are counted at once, at least 1 and at most 2^32; rounded up to a multiple of 12.
        keys: u64,
    },
    /// Each gradient makes a row with this probability, above 0 and at most 1. Gradients of one step of a table for the
    /// same key have the same luck.
    Probability(f32),
}

/// Condition for a row to go. See [`Store::evict`](crate::Store::evict) for when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Eviction {
    /// Those that were not updated in the last `steps` steps of the table. A word of each row.
    Idle {
        /// At least 1 and at most 2^30.
        steps: u32,
    },
    /// Those with the fewest updates, and of these the ones that were updated longest ago, as long as there are more than
    /// `rows_max`. Two words of each row.
    LeastUsed {
        /// At least 1.
        rows_max: u64,
        /// Each time the table has made so many steps, the updates of all rows so far count half, rounded down. At least 1 and at
        /// most 2^30.
        half_life: u32,
    },
    /// Those whose values have the lowest Euclidean norm, as long as there are more than `rows_max`. A row that is not finite
    /// goes first. It costs no memory, and is unfair to new rows where first values are small.
    LowestNorm {
        /// At least 1.
        rows_max: u64,
    },
}

/// Steps are counted modulo this: below it, a word is also the bits of a finite f32, which anyone may copy.
const STEPS: u32 = 0x7f80_0000;
const COUNT_MAX: u32 = STEPS - 1;

/// Words that an update leaves in a row for its eviction, the last ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trace {
    words: usize,
    now: u32,
    half_life: u32,
}

impl RowLifecycle {
    /// Words of a row that eviction needs, after the state of the optimizer.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        match self.eviction {
            None | Some(Eviction::LowestNorm { .. }) => 0,
            Some(Eviction::Idle { .. }) => 1,
            Some(Eviction::LeastUsed { .. }) => 2,
        }
    }

    /// Returns the trace for the present step of the table, one of so many.
    #[inline]
    pub(crate) fn trace(&self, steps: u64) -> Trace {
        if self.words() == 0 {
            return Trace { words: 0, now: 0, half_life: 1 };
        }
        let half_life = match self.eviction {
            Some(Eviction::LeastUsed { half_life, .. }) => half_life,
            _ => 1,
        };
        let now = u32::try_from(steps % u64::from(STEPS)).expect("it is below STEPS");
        Trace { words: self.words(), now, half_life }
    }

    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        let unless = |good: bool, field, value: f64, wanted| {
            #[expect(clippy::cast_possible_truncation, reason = "it is only shown")]
            let error = OutOfRange { field, value: value as f32, wanted };
            if good { Ok(()) } else { Err(error) }
        };
        let steps =
            |field, steps| unless((1..=1 << 30).contains(&steps), field, f64::from(steps), "from 1 to 2^30");
        match self.admission {
            None => {}
            Some(Admission::Occurrences { updates, keys }) => {
                unless(updates >= 2, "updates", f64::from(updates), "from 2 to 255")?;
                unless((1..=1 << 32).contains(&keys), "keys", keys as f64, "from 1 to 2^32")?;
            }
            Some(Admission::Probability(probability)) => {
                let good = probability > 0.0 && probability <= 1.0;
                unless(good, "probability", f64::from(probability), "above 0 and at most 1")?;
            }
        }
        match self.eviction {
            None => Ok(()),
            Some(Eviction::Idle { steps: idle }) => steps("steps", idle),
            Some(Eviction::LeastUsed { rows_max, half_life }) => {
                unless(rows_max > 0, "rows_max", 0.0, "at least 1")?;
                steps("half_life", half_life)
            }
            Some(Eviction::LowestNorm { rows_max }) => unless(rows_max > 0, "rows_max", 0.0, "at least 1"),
        }
    }
}

impl Trace {
    /// Returns the number of words that a row has for it.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// The row is updated. The words of a row that is new are 0.
    #[inline]
    pub(crate) fn leave(&self, words: &mut [u32]) {
        if words.len() == 2 {
            words[1] = self.updates(words).saturating_add(1).min(COUNT_MAX);
        }
        words[0] = self.now;
    }

    /// Returns the number of steps since the row was updated.
    pub(crate) fn age(&self, words: &[u32]) -> u32 {
        let then = words[0] % STEPS;
        if self.now >= then { self.now - then } else { self.now + (STEPS - then) }
    }

    /// Returns the number of updates of the row; those long ago count less.
    pub(crate) fn updates(&self, words: &[u32]) -> u32 {
        let halvings =
            (u64::from(words[0] % self.half_life) + u64::from(self.age(words))) / u64::from(self.half_life);
        words[1].checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Optimizer, UpdateRule};

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        let field =
            |admission, eviction| RowLifecycle { admission, eviction }.check().map_err(|error| error.field);
        let counted = |updates, keys| field(Some(Admission::Occurrences { updates, keys }), None);
        assert_eq!(counted(1, 10), Err("updates"));
        assert_eq!(counted(2, 0), Err("keys"));
        assert_eq!(counted(2, 1 << 33), Err("keys"));
        for probability in [0.0, -0.5, 1.5, f32::NAN] {
            assert_eq!(field(Some(Admission::Probability(probability)), None), Err("probability"));
        }
        let evicted = |eviction| field(None, Some(eviction));
        assert_eq!(evicted(Eviction::Idle { steps: 0 }), Err("steps"));
        assert_eq!(evicted(Eviction::Idle { steps: u32::MAX }), Err("steps"));
        assert_eq!(evicted(Eviction::LeastUsed { rows_max: 0, half_life: 1 }), Err("rows_max"));
        assert_eq!(evicted(Eviction::LeastUsed { rows_max: 1, half_life: 0 }), Err("half_life"));
        assert_eq!(evicted(Eviction::LowestNorm { rows_max: 0 }), Err("rows_max"));
        assert_eq!(counted(255, 1 << 32), Ok(()));
        assert_eq!(field(None, None), Ok(()));
    }

    #[test]
    fn texts_without_growth_mean_none() {
        let rule: UpdateRule = Optimizer::Sgd { rate: 0.5 }.into();
        let text = serde_json::to_string(&rule).unwrap();
        let old = text.replace(",\"growth\":{\"admission\":null,\"eviction\":null}", "");
        assert_ne!(old, text);
        assert_eq!(serde_json::from_str::<UpdateRule>(&old).unwrap(), rule);
        let growth = r#"{"eviction": {"LeastUsed": {"rows_max": 9, "half_life": 5}}}"#;
        let growth: RowLifecycle = serde_json::from_str(growth).unwrap();
        assert_eq!(growth.eviction, Some(Eviction::LeastUsed { rows_max: 9, half_life: 5 }));
        let rule = UpdateRule { growth, ..Optimizer::Adagrad { rate: 0.5, epsilon: 1.0 }.into() };
        assert_eq!((rule.state_len(3), rule.optimizer.state_len(3)), (5, 3));
    }

    #[test]
    fn steps_count_on_beyond_a_word() {
        let eviction = Some(Eviction::LeastUsed { rows_max: 1, half_life: 1 << 30 });
        let growth = RowLifecycle { eviction, ..RowLifecycle::default() };
        let mut words = [0; 2];
        let last = u64::from(STEPS) - 1;
        for (step, updates) in [(last - 5, 1), (last, 2), (last + 7, 3)] {
            growth.trace(step).leave(&mut words);
            assert_eq!((growth.trace(step).age(&words), growth.trace(step + 9).age(&words)), (0, 9));
            assert_eq!(growth.trace(step).updates(&words), updates);
            assert!(words.iter().all(|word| f32::from_bits(*word).is_finite()));
        }
        words[1] = COUNT_MAX;
        growth.trace(last + 8).leave(&mut words);
        assert_eq!(words[1], COUNT_MAX);
    }
}
