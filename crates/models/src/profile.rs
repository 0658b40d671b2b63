//! A profile run: trains on a sample, and counts which rows its pushes update.

use std::sync::Arc;

use libra_client::{Frequencies, LocalParameters, Observed, Profile, Provenance, Store};

use crate::{Progress, TrainConfig, TrainError, Workload, tables::shapes};

/// Passes over the sample together train on at least this share of the data set ..
const TRAINED_SHARE: f64 = 0.25;

/// .. and make at least this many pushes ..
const PUSHES_MIN: u64 = 1000;

/// .. but there are at most this many passes, and no more samples than the workload wants.
const PASSES_MAX: u64 = 16;

/// Trains on a random `sample` of the training data, in memory, counts the rows of every push and notes how large gradients get.
///
/// Batches are made exactly as in training, and a batch is a push; so a row's count divided by the pushes is how often a push
/// of a worker will update it. Rows of layers count in the total, but are no candidates (see [`Frequencies`]).
///
/// The first pass over the sample is what is counted. Small samples are passed over again, for the gradients alone: they
/// grow with the embeddings, which begin near zero. On MovieLens 1M with a sample of 5 %, a third of the hot rows later had
/// gradients more than 8 times larger than any of the first pass. For the same reason a row is given at least the median of
/// the maxima of its table: rows that were seen a few times have not grown yet. `progress` counts over all passes.
///
/// # Errors
/// `sample` is not in (0, 1], settings or data set cannot be used, or the model diverged.
pub fn profile(
    workload: &Arc<dyn Workload>,
    config: &TrainConfig,
    sample: f64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Frequencies, TrainError> {
    let mut training = workload.clone().training(sample)?;
    let tables = workload.tables();
    let shapes = shapes(tables.clone());
    let store = Store::new(tables, config.seed)?;
    let mut local = LocalParameters::new(store);
    let profile = Profile::new(shapes).expect("the store took these tables");
    let mut parameters = Observed::new(&mut local, profile);
    let pass_samples = training.samples_per_epoch();
    let enough = u32::try_from(workload.profile_samples_max() / pass_samples.max(1)).unwrap_or(u32::MAX);
    let passes = passes(sample, pass_samples.div_ceil(config.batch as u64)).min(enough.max(1));
    for pass in 0..passes {
        training.train_epoch(&mut parameters, pass, training.chunks_alone(), &mut |part| {
            progress(Progress {
                epoch: 0,
                samples: u64::from(pass) * pass_samples + part.samples,
                samples_total: u64::from(passes) * pass_samples,
                loss: part.loss,
            });
        })?;
        parameters.observer.stop_counting();
    }
    Ok(parameters.observer.finish())
}

/// Returns the number of passes over a sample.
fn passes(sample: f64, pushes: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and the clamp does the rest")]
    let for_share = (TRAINED_SHARE / sample).ceil() as u64;
    let for_pushes = PUSHES_MIN.div_ceil(pushes.max(1));
    // A sample that is everything is an epoch of real training, however small.
    let passes = if sample < 1.0 { for_share.max(for_pushes).clamp(1, PASSES_MAX) } else { 1 };
    u32::try_from(passes).expect("clamped")
}

/// Returns the provenance of a plan made from `frequencies`.
pub fn provenance(
    workload: &dyn Workload,
    config: &TrainConfig,
    sample: f64,
    frequencies: &Frequencies,
) -> Provenance {
    Provenance {
        model: workload.model(),
        data: workload.data().to_owned(),
        sample,
        seed: config.seed,
        batch: u32::try_from(config.batch).unwrap_or(u32::MAX),
        pushes: frequencies.pushes(),
        tool: concat!("libra ", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use libra_client::{Budget, DEFAULT_HEADROOM_BITS, Plan};

    use super::*;
    use crate::{
        LAYER_KEYS, ModelConfig, ModelKind,
        ncf::{Dataset, Ncf, NcfConfig, Synthetic},
    };

    fn workload(batch: usize, dataset: Dataset) -> (Arc<dyn Workload>, TrainConfig) {
        let ncf = NcfConfig { factors: 2, ..NcfConfig::default() };
        let config = TrainConfig { model: ModelConfig::Ncf(ncf.clone()), batch, ..ModelKind::Neumf.config() };
        (Arc::new(Ncf::new(&ncf, &config, Arc::new(dataset)).unwrap()), config)
    }

    #[test]
    fn counts_rows_once_a_push_and_sees_gradients() {
        let dataset = Synthetic { users: 100, items: 150, picks_min: 10, ..Synthetic::default() }.generate();
        let samples = dataset.train.len().div_ceil(2) as u64 * 5;
        let (workload, config) = workload(50, dataset);
        let mut last = None;
        let frequencies = profile(&workload, &config, 0.5, &mut |progress| last = Some(progress)).unwrap();
        assert_eq!(frequencies.pushes(), samples.div_ceil(50));
        let last = last.unwrap();
        let passes = u64::from(passes(0.5, frequencies.pushes()));
        assert!(passes > 1);
        assert_eq!((last.samples, last.samples_total), (passes * samples, passes * samples));

        let ranked = frequencies.ranked();
        assert!(ranked.iter().all(|row| row.count <= frequencies.pushes() && row.key < LAYER_KEYS));
        let candidates: u64 = ranked.iter().map(|row| row.count).sum();
        // Three layers are in every push, and are no candidates.
        assert_eq!(frequencies.total(), candidates + 3 * frequencies.pushes());
        let provenance = provenance(&*workload, &config, 0.5, &frequencies);
        assert_eq!((&provenance.model[..], &provenance.data[..]), ("neumf, 2 factors", "synthetic"));
        assert_eq!((provenance.batch, provenance.pushes), (50, frequencies.pushes()));
        let budget = Budget { p: 0.5, ..Budget::default() };
        let plan = Plan::new(1, provenance, &frequencies, budget, DEFAULT_HEADROOM_BITS).unwrap();
        plan.fits(&shapes(workload.tables())).unwrap();
        // Without gradients every scale would be that of 1.
        assert!(plan.rows.iter().any(|row| row.scale != plan.rows[0].scale));
    }

    #[test]
    fn a_sample_of_nothing_is_an_error() {
        let (workload, config) =
            workload(50, Synthetic { users: 5, items: 9, ..Synthetic::default() }.generate());
        for sample in [0.0, -1.0, 1.5, f64::NAN] {
            let error = profile(&workload, &config, sample, &mut |_| ()).unwrap_err();
            assert!(matches!(error, TrainError::Sample { .. }), "{error}");
        }
        assert_eq!([passes(0.05, 243), passes(0.5, 10_000), passes(1.0, 1), passes(1e-9, 1)], [5, 1, 1, 16]);
    }
}
