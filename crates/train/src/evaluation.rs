//! Reads what test cases need, and ranks.

use std::collections::VecDeque;

use libra_proto::{Parameters, PullId};

use crate::{
    data::TestCase,
    model::{Model, Network, SampleRows},
    quality::{Quality, better, distinct_negatives},
    rows::DistinctRows,
    trainer::{TrainError, check_answer},
};

/// Rows of one pull.
const PULLED_MAX: usize = 4096;

/// Pulls that are under way at the same time.
const PULLS_MAX: usize = 4;

pub(crate) fn evaluate<P: Parameters + ?Sized>(
    model: &Model,
    network: &mut Network,
    distinct: &mut DistinctRows,
    parameters: &mut P,
    cases: &[TestCase],
) -> Result<Quality, TrainError> {
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

    network.load_layers(&read(model, parameters, &model.layer_keys().collect::<Vec<u64>>())?)?;
    let rows = read(model, parameters, &keys)?;

    let mut scores = Vec::new();
    network.score(&rows, &samples, &mut scores)?;

    let mut quality = Quality::default();
    let mut rest = &scores[..];
    for (case, &count) in cases.iter().zip(&candidates) {
        let (own, others) = rest.split_at(count);
        rest = others;
        if let Some(&score) = own.iter().find(|score| !score.is_finite()) {
            return Err(TrainError::Score { user: case.user, item: case.item, score });
        }
        quality.add_rank(better(own[0], &own[1..]));
    }
    Ok(quality)
}

/// The values of rows, read in several pulls.
fn read<P: Parameters + ?Sized>(
    model: &Model,
    parameters: &mut P,
    keys: &[u64],
) -> Result<Vec<f32>, TrainError> {
    let mut values = Vec::with_capacity(model.values_of(keys));
    let mut pulls: VecDeque<(PullId, usize)> = VecDeque::new();
    let mut finish = |parameters: &mut P, (pull, expected)| -> Result<(), TrainError> {
        let pulled = parameters.finish_pull(pull)?;
        check_answer(expected, &pulled.values)?;
        values.extend_from_slice(&pulled.values);
        Ok(())
    };
    for part in keys.chunks(PULLED_MAX) {
        if pulls.len() == PULLS_MAX
            && let Some(pull) = pulls.pop_front()
        {
            finish(parameters, pull)?;
        }
        pulls.push_back((parameters.start_pull(part.to_vec())?, model.values_of(part)));
    }
    for pull in pulls {
        finish(parameters, pull)?;
    }
    Ok(values)
}
