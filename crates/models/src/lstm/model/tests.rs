use libra_client::Widths;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::{ModelKind, lstm::batches::Batch};

const STREAMS: usize = 3;
const STEPS: usize = 2;

fn model(lstm: &LstmConfig) -> Model {
    Model::new(lstm, &ModelKind::Lstm.config(), 9)
}

fn settings(layers: usize, projection: usize) -> LstmConfig {
    LstmConfig { embedding: 3, hidden: 5, projection, layers, ..LstmConfig::default() }
}

/// Values of all rows, a batch in which a negative is what follows, and what was before.
fn case(model: &Model) -> (Vec<f32>, Batch, Memory) {
    let mut random = SmallRng::seed_from_u64(5);
    let layers: usize = model.cells().iter().map(Cell::width).sum();
    let count = 4 * model.embedding() + 6 * model.output_width() + layers;
    let values = (0..count).map(|_| random.random_range(-0.8..0.8)).collect();
    let batch = Batch {
        is_first: true,
        streams: STREAMS,
        inputs: vec![0, 1, 2, 1, 3, 1],
        targets: vec![4, 0, 5, 3, 2, 4],
        words: 4,
        negatives: 4,
        log_expected: vec![-0.1, -0.5, -0.9, -1.5, -2.5, -3.0],
        seed: 1,
    };
    let mut memory = Memory::new(model, STREAMS);
    memory.set(&mut || random.random_range(-0.8..0.8));
    (values, batch, memory)
}

/// Computes one step of one stream in a layer, by the formulas of its documentation.
fn naive_cell(cell: &Cell, row: &[f64], input: &[f64], cells: &mut Vec<f64>, output: &mut Vec<f64>) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gates = 4 * cell.hidden;
    let incoming: Vec<f64> = input.iter().chain(&*output).copied().collect();
    let biases = &row[incoming.len() * gates..];
    let gate = |kind: usize, k: usize| {
        let column = kind * cell.hidden + k;
        let sum: f64 = incoming.iter().enumerate().map(|(i, value)| value * row[i * gates + column]).sum();
        sum + biases[column]
    };
    let next: Vec<f64> = (0..cell.hidden)
        .map(|k| sigmoid(gate(1, k) + 1.0) * cells[k] + sigmoid(gate(0, k)) * gate(2, k).tanh())
        .collect();
    let seen: Vec<f64> = (0..cell.hidden).map(|k| sigmoid(gate(3, k)) * next[k].tanh()).collect();
    let projection = &biases[gates..];
    *output = if cell.projection == 0 {
        seen
    } else {
        let out = |p: usize| (0..cell.hidden).map(|k| seen[k] * projection[k * cell.projection + p]).sum();
        (0..cell.projection).map(out).collect()
    };
    *cells = next;
}

/// The sum of the losses, in f64 and without any trick.
fn naive_loss(model: &Model, values: &[f64], batch: &Batch, memory: &Memory) -> f64 {
    let (words, rest) = values.split_at(batch.words * model.embedding());
    let (outputs, layers) = rest.split_at(batch.log_expected.len() * model.output_width());
    let mut loss = 0.0;
    for stream in 0..STREAMS {
        let mut states: Vec<(Vec<f64>, Vec<f64>)> =
            (0..model.cells().len()).map(|layer| memory.of(layer, stream)).collect();
        for step in 0..STEPS {
            let sample = step * STREAMS + stream;
            let word = batch.inputs[sample] as usize * model.embedding();
            let mut last = words[word..][..model.embedding()].to_vec();
            let mut rest = layers;
            for (cell, (cells, output)) in model.cells().iter().zip(&mut states) {
                let row;
                (row, rest) = rest.split_at(cell.width());
                naive_cell(cell, row, &last, cells, output);
                last.clone_from(output);
            }
            let exponential = |word: usize| {
                let row = &outputs[word * model.output_width()..][..model.output_width()];
                let logit: f64 = row.iter().zip(last.iter().chain(&[1.0])).map(|(a, b)| a * b).sum();
                (logit - f64::from(batch.log_expected[word])).exp()
            };
            let target = batch.targets[sample] as usize;
            let others = (0..batch.negatives).filter(|&negative| negative != target);
            let own = exponential(target);
            loss -= (own / (own + others.map(exponential).sum::<f64>())).ln();
        }
    }
    loss
}

#[test]
fn gradients_are_those_of_finite_differences() {
    for (layers, projection) in [(1, 0), (2, 0), (2, 4)] {
        let model = model(&settings(layers, projection));
        let (values, batch, memory) = case(&model);
        let share = 0.5;
        let mut gradients = vec![7.0; 3];
        let mut network = Network::new(&model, 0.0);
        // What happened in an earlier batch must not show.
        network.step(&values, &batch, share, &mut memory.clone(), &mut gradients);
        let loss = network.step(&values, &batch, share, &mut memory.clone(), &mut gradients);

        let mut exact: Vec<f64> = values.iter().copied().map(f64::from).collect();
        assert!((loss - naive_loss(&model, &exact, &batch, &memory)).abs() < 1e-5);
        assert_eq!(gradients.len(), values.len());
        for place in 0..values.len() {
            let middle = exact[place];
            let mut at = |value| {
                exact[place] = value;
                naive_loss(&model, &exact, &batch, &memory)
            };
            let difference = f64::from(share) * (at(middle + 1e-6) - at(middle - 1e-6)) / 2e-6;
            exact[place] = middle;
            let found = f64::from(gradients[place]);
            assert!(
                (found - difference).abs() < 1e-4 * (1.0 + difference.abs()),
                "{layers} layers, projection {projection}: value {place} has gradient {found}, should be {difference}"
            );
        }
        assert!(gradients.chunks(model.embedding()).take(4).all(|row| row.iter().any(|&g| g != 0.0)));
    }
}

#[test]
fn memory_is_carried_from_batch_to_batch() {
    let model = model(&settings(2, 4));
    let (values, batch, start) = case(&model);
    let mut network = Network::new(&model, 0.0);
    let layers = &values[4 * model.embedding() + 6 * model.output_width()..];
    let mut memory = start.clone();
    let whole = network.read(&values, &batch.inputs, layers, STREAMS, &mut memory).to_vec();
    let mut memory = start;
    let mut parts = Vec::new();
    for inputs in batch.inputs.chunks(STREAMS) {
        parts.extend_from_slice(network.read(&values, inputs, layers, STREAMS, &mut memory));
    }
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-6));
    // Fewer streams, as at the end of a text: those that are left out remember what they did.
    let before = memory.of(1, 2);
    network.read(&values, &[0, 1], layers, 2, &mut memory);
    assert_eq!(memory.of(1, 2), before);
    memory.forget();
    assert!(memory.of(0, 1).0.iter().all(|&cell| cell == 0.0));
}

#[test]
fn dropout_keeps_the_mean_and_is_the_same_on_the_way_back() {
    let model = model(&LstmConfig { layers: 1, ..settings(1, 0) });
    let (values, batch, memory) = case(&model);
    let mut network = Network::new(&model, 0.5);
    let run = |network: &mut Network, seed| {
        let mut gradients = Vec::new();
        let batch = Batch { seed, ..batch.clone() };
        let loss = network.step(&values, &batch, 1.0, &mut memory.clone(), &mut gradients);
        (loss, gradients)
    };
    assert_eq!(run(&mut network, 3), run(&mut network, 3));
    assert_ne!(run(&mut network, 3).0, run(&mut network, 4).0);

    // The gradient of one value predicts the change of the loss when it is moved while the same are dropped.
    let (loss, gradients) = run(&mut network, 3);
    for place in (0..values.len()).step_by(5) {
        let mut moved = values.clone();
        moved[place] += 0.01;
        let mut ignored = Vec::new();
        let batch = Batch { seed: 3, ..batch.clone() };
        let after = network.step(&moved, &batch, 1.0, &mut memory.clone(), &mut ignored);
        let found = f64::from(gradients[place]);
        assert!((after - loss - 0.01 * found).abs() < 3e-4, "{place}: {after} {loss} {found}");
    }
}

#[test]
fn a_value_that_is_not_a_number_shows_in_the_loss() {
    let model = model(&settings(2, 0));
    let (values, batch, memory) = case(&model);
    let mut network = Network::new(&model, 0.0);
    // In a word, in an output, in the first layer.
    for place in [0, 4 * model.embedding(), 4 * model.embedding() + 6 * model.output_width()] {
        let mut values = values.clone();
        values[place] = f32::NAN;
        let loss = network.step(&values, &batch, 1.0, &mut memory.clone(), &mut Vec::new());
        assert!(loss.is_nan(), "{place}: {loss}");
    }
}

#[test]
fn tables_fit_the_rows() {
    for (layers, projection) in [(1, 0), (3, 4)] {
        let model = model(&settings(layers, projection));
        let tables = model.tables();
        assert_eq!(tables.len(), 2 + layers);
        let shapes = crate::shapes(tables.clone());
        assert!(shapes[0].hot && shapes[1].hot && !shapes[2..].iter().any(|shape| shape.hot));
        let widths = Widths::new(&tables);
        let keys: Vec<u64> = [model.word_key(8), model.output_key(0), model.output_key(8)]
            .into_iter()
            .chain(model.layer_keys())
            .collect();
        let cells: usize = model.cells().iter().map(Cell::width).sum();
        assert_eq!(widths.sum(&keys), model.embedding() + 2 * model.output_width() + cells);
        libra_client::Store::new(tables, 1).unwrap();
    }
    let largest = LstmConfig { embedding: 2048, hidden: 2048, projection: 2048, ..LstmConfig::default() };
    // What a message of the parameter server holds.
    assert!(model(&largest).cells()[0].width() < (256 << 20) / 4 - 1024);
}
