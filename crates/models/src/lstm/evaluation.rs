//! Reads the validation text, with a softmax over all words.

use std::ops::Range;

use libra_client::{Parameters, Widths};

use super::{
    data::Text,
    model::{LogSum, Memory, Model, Network},
};
use crate::{
    Chunk, TrainError,
    matrix::{add, matrix, set_product, strided},
    quality::Language,
    rows::DistinctRows,
    trainer::read_rows,
};

/// The validation text is read in runs of at most so many words, each from an empty memory, so that they can be read side by side, and in any number of
/// chunks with the same result. In Penn Treebank that costs a word in a thousand its context.
pub(super) const RUN: usize = 1 << 10;

/// Words of all runs that go through the network at once, ..
const WORDS_MAX: usize = 2048;

/// .. and runs that are read side by side.
const STREAMS_MAX: usize = 128;

/// Words whose logits are computed at once, and of how many outputs: 1 MiB, which a second-level cache holds.
const BLOCK: (usize, usize) = (256, 1024);

/// The rows of a model that any text takes.
pub(super) struct Rows {
    outputs: Vec<f32>,
    layers: Vec<f32>,
}

impl Rows {
    pub(super) fn read(
        model: &Model,
        widths: &Widths,
        parameters: &mut dyn Parameters,
    ) -> Result<Self, TrainError> {
        let outputs = read_rows(parameters, widths, &model.output_keys().collect::<Vec<u64>>())?;
        let layers = read_rows(parameters, widths, &model.layer_keys().collect::<Vec<u64>>())?;
        Ok(Self { outputs, layers })
    }
}

/// Measures the prediction of the next word in a chunk of the validation text.
pub(super) fn evaluate(
    model: &Model,
    network: &mut Network,
    Rows { outputs, layers }: &Rows,
    widths: &Widths,
    parameters: &mut dyn Parameters,
    text: &Text,
    chunk: Chunk,
) -> Result<Language, TrainError> {
    let runs = chunk.places(text.cases().div_ceil(RUN));
    let mut quality = Language::default();
    if runs.is_empty() {
        return Ok(quality);
    }
    let read = runs.start * RUN..text.cases().min(runs.end * RUN);
    let mut keys = Vec::new();
    let mut distinct = DistinctRows::new(model.vocabulary());
    distinct.start();
    let inputs: Vec<u32> = text.valid[read.clone()]
        .iter()
        .map(|&word| distinct.index(model.word_key(word), &mut keys))
        .collect();
    let words = read_rows(parameters, widths, &keys)?;

    let mut logits = Vec::new();
    // All runs but the last have the same length; as many at a time as fit, but one by itself in any case.
    let mut first = runs.start;
    while first < runs.end {
        let length = |run: usize| RUN.min(text.cases() - run * RUN);
        let alike = (first..runs.end).take_while(|&run| length(run) == length(first)).count();
        let streams = alike.min(STREAMS_MAX);
        let mut memory = Memory::new(model, streams);
        let steps_max = WORDS_MAX / streams;
        let mut step = 0;
        while step < length(first) {
            let steps = steps_max.min(length(first) - step);
            let places: Vec<usize> = (step..step + steps)
                .flat_map(|step| (first..first + streams).map(move |run| run * RUN + step))
                .collect();
            let inputs: Vec<u32> = places.iter().map(|&place| inputs[place - read.start]).collect();
            let hidden = network.read(&words, &inputs, layers, streams, &mut memory);
            for (places, hidden) in places.chunks(BLOCK.0).zip(hidden.chunks(BLOCK.0 * model.outputs())) {
                let targets: Vec<u32> = places.iter().map(|&place| text.valid[place + 1]).collect();
                let nats = score(model, outputs, hidden, &targets, &mut logits);
                for (place, nats) in places.iter().zip(nats) {
                    if !nats.is_finite() {
                        let what = format!("word {} of the validation text", place + 1);
                        #[expect(clippy::cast_possible_truncation, reason = "infinite or not a number")]
                        return Err(TrainError::Score { what, score: nats as f32 });
                    }
                    quality.nats += nats;
                    quality.words += 1;
                }
            }
            step += steps;
        }
        first += streams;
    }
    Ok(quality)
}

/// -ln of the probability of each of `targets`, for each of which `hidden` has a row.
fn score(model: &Model, outputs: &[f32], hidden: &[f32], targets: &[u32], logits: &mut Vec<f32>) -> Vec<f64> {
    let (lanes, width) = (model.outputs(), model.output_width());
    let mut sums = vec![LogSum::NOTHING; targets.len()];
    let mut own = vec![0.0; targets.len()];
    let mut biases = Vec::new();
    for (rows, words) in outputs.chunks(BLOCK.1 * width).zip(blocks(model.vocabulary())) {
        let hidden = matrix(hidden, targets.len(), lanes);
        logits.resize(targets.len() * words.len(), 0.0);
        set_product(logits, hidden, strided(rows, words.len(), lanes, width).t());
        biases.clear();
        biases.extend(rows.chunks_exact(width).map(|row| row[lanes]));
        for (sample, logits) in logits.chunks_exact_mut(words.len()).enumerate() {
            add(logits, &biases);
            if let Some(place) = (targets[sample] as usize).checked_sub(words.start)
                && let Some(&logit) = logits.get(place)
            {
                own[sample] = f64::from(logit);
            }
            sums[sample].add(logits);
        }
    }
    sums.iter().zip(own).map(|(sum, own)| sum.log() - own).collect()
}

/// The words whose outputs are taken at once.
fn blocks(vocabulary: usize) -> impl Iterator<Item = Range<usize>> {
    (0..vocabulary).step_by(BLOCK.1).map(move |start| start..vocabulary.min(start + BLOCK.1))
}

/// Measures the prediction by the frequencies of words alone. Each word counts as if it had occurred once more: no word is
/// impossible.
pub(super) fn unigrams(text: &Text) -> Language {
    let total = text.counts.iter().sum::<u64>() + text.vocabulary() as u64;
    let mut quality = Language::default();
    for &word in &text.valid[1..] {
        let count = text.counts[word as usize] + 1;
        quality += Language { nats: (total as f64 / count as f64).ln(), words: 1 };
    }
    quality
}
