//! Reads what test cases need, and ranks.

use libra_client::{Parameters, Widths};

use super::{
    data::{Dataset, TestCase},
    model::{Model, Network, SampleRows},
};
use crate::{
    TrainError,
    quality::{Ranking, better},
    rows::DistinctRows,
    trainer::read_rows,
};

/// Ranks the item of each of `cases` among its negatives. The network has its layers already.
pub(super) fn evaluate(
    model: &Model,
    widths: &Widths,
    network: &mut Network,
    distinct: &mut DistinctRows,
    parameters: &mut dyn Parameters,
    cases: &[TestCase],
) -> Result<Ranking, TrainError> {
    // All candidates, case by case; the item of a case comes first.
    let mut keys = Vec::new();
    let mut samples = SampleRows::default();
    let mut candidates = Vec::with_capacity(cases.len());
    let mut negatives = Vec::new();
    distinct.start();
    for case in cases {
        distinct_negatives(case, &mut negatives);
        candidates.push(negatives.len() + 1);
        let user = distinct.index(model.user_key(case.user), &mut keys);
        for &item in [case.item].iter().chain(&negatives) {
            let item = distinct.index(model.item_key(item), &mut keys);
            samples.push(user, item);
        }
    }

    let rows = read_rows(parameters, widths, &keys)?;

    let mut scores = Vec::new();
    network.score(&rows, &samples, &mut scores);

    let mut quality = Ranking::default();
    let mut rest = &scores[..];
    for (case, &count) in cases.iter().zip(&candidates) {
        let (own, others) = rest.split_at(count);
        rest = others;
        if let Some(&score) = own.iter().find(|score| !score.is_finite()) {
            let what = format!("item {} for user {}", case.item, case.user);
            return Err(TrainError::Score { what, score });
        }
        quality.add_rank(better(own[0], &own[1..]));
    }
    Ok(quality)
}

/// Replaces `negatives` by those of `case`, each once, and never its own item: in MovieLens 1M the item of 156 users is
/// among their own negatives, and would count against itself.
fn distinct_negatives(case: &TestCase, negatives: &mut Vec<u32>) {
    negatives.clear();
    negatives.extend(case.negatives.iter().copied().filter(|&negative| negative != case.item));
    negatives.sort_unstable();
    negatives.dedup();
}

/// Returns the quality of recommending the most popular items to every user.
pub(super) fn popularity(dataset: &Dataset) -> Ranking {
    let counts = dataset.popularity();
    let mut quality = Ranking::default();
    let mut negatives = Vec::new();
    let mut scores = Vec::new();
    for case in &dataset.test {
        distinct_negatives(case, &mut negatives);
        scores.clear();
        scores.extend(negatives.iter().map(|&item| counts[item as usize]));
        quality.add_rank(better(counts[case.item as usize], &scores));
    }
    quality
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_item_and_repeated_negatives_do_not_count() {
        let case = TestCase { user: 0, item: 5, negatives: vec![7, 5, 7, 1] };
        let mut negatives = vec![9];
        distinct_negatives(&case, &mut negatives);
        assert_eq!(negatives, [1, 7]);
    }
}
