use libra_client::Widths;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{super::data::Reading, *};
use crate::{ModelKind, deeplight::Synthetic};

const FEATURES: usize = 12;

fn model(layout: Layout, lanes: usize, hidden: &[usize]) -> Model {
    let hidden = hidden.to_vec();
    let settings = DeepLightConfig { width: lanes, hidden, dropout: 0.0, ..DeepLightConfig::default() };
    let reading = Reading { min_count: 1, test: 0.5 };
    let dataset = Synthetic { rows: 2, values: vec![3], ..Synthetic::default() }.generate(reading).unwrap();
    let model = Model::new(&settings, &ModelKind::Deeplight.config(), &dataset);
    Model { layout, features: 0..FEATURES as u64, ..model }
}

/// One without pairs, some with a rest behind the blocks of the loops, a bag; with and without layers.
fn models() -> Vec<Model> {
    vec![
        model(Layout::Fields(3), 2, &[4, 3]),
        model(Layout::Fields(11), 3, &[5]),
        model(Layout::Fields(8), 1, &[]),
        model(Layout::Fields(1), 4, &[2]),
        model(Layout::Bag, 3, &[4, 2]),
        model(Layout::Bag, 2, &[]),
    ]
}

/// Values of all rows and layers, and nine samples.
fn case(model: &Model) -> (Vec<f32>, Samples) {
    let mut random = SmallRng::seed_from_u64(5);
    let count = FEATURES * model.width() + model.layer_values();
    let values = (0..count).map(|_| random.random_range(-0.8..0.8)).collect();
    let mut samples = Samples::default();
    for sample in 0..9 {
        let features = match model.layout() {
            Layout::Fields(fields) => fields,
            Layout::Bag => 1 + sample % 5,
        };
        let features = (0..features).map(|_| random.random_range(0..12)).collect::<Vec<u32>>();
        samples.push(features.into_iter(), sample % 3 == 0);
    }
    (values, samples)
}

fn random() -> SmallRng {
    SmallRng::seed_from_u64(1)
}

fn naive_loss(model: &Model, values: &[f64], samples: &Samples) -> f64 {
    naive_loss_weighted(model, values, samples, |_| 1.0)
}

/// The loss as the paper writes it, in f64 and without any trick.
fn naive_loss_weighted(model: &Model, values: &[f64], samples: &Samples, weight: fn(usize) -> f32) -> f64 {
    let (lanes, width) = (model.lanes(), model.width());
    let (rows, rest) = values.split_at(values.len() - model.layer_values());
    let (pairs, layers) = rest.split_at(model.pairs());
    let mut loss = 0.0;
    for (sample, clicked) in samples.clicked().enumerate() {
        let row = |row: usize| rows[row * width..][..width].to_vec();
        let rows = match model.layout() {
            Layout::Fields(fields) => {
                let mut means = vec![vec![0.0; width]; fields];
                for (field, feature, part) in samples.fields(sample) {
                    means[field]
                        .iter_mut()
                        .zip(row(feature))
                        .for_each(|(sum, a)| *sum += f64::from(part) * a);
                }
                means
            }
            Layout::Bag => samples.features(sample).iter().map(|&feature| row(feature as usize)).collect(),
        };
        let mut logit: f64 = rows.iter().map(|row| row[lanes]).sum();
        let mut pairs = pairs.iter();
        for left in 0..rows.len() {
            for right in left + 1..rows.len() {
                let weight = if model.layout() == Layout::Bag { 1.0 } else { *pairs.next().unwrap() };
                logit += weight * (0..lanes).map(|lane| rows[left][lane] * rows[right][lane]).sum::<f64>();
            }
        }
        // The inputs of the layers are lane by lane.
        let mut last: Vec<f64> = match model.layout() {
            Layout::Fields(_) => (0..lanes).flat_map(|lane| rows.iter().map(move |row| row[lane])).collect(),
            Layout::Bag => (0..lanes)
                .map(|lane| rows.iter().map(|row| row[lane]).sum::<f64>() / rows.len() as f64)
                .collect(),
        };
        let mut rest = layers;
        for layer in model.layers() {
            let (row, others) = rest.split_at(layer.width());
            rest = others;
            last.truncate(layer.inputs);
            last = (0..layer.outputs)
                .map(|column| {
                    let terms = last.iter().enumerate();
                    let sum = terms.map(|(k, value)| value * row[k * layer.outputs + column]).sum::<f64>()
                        + row[layer.weights() + column];
                    if layer.name == "output" { sum } else { sum.max(0.0) }
                })
                .collect();
        }
        logit += last[0];
        let probability = 1.0 / (1.0 + (-logit).exp());
        loss -= f64::from(weight(sample)) * if clicked { probability.ln() } else { (1.0 - probability).ln() };
    }
    loss / samples.len() as f64
}

#[test]
fn gradients_are_those_of_finite_differences() {
    for model in models() {
        let (values, samples) = case(&model);
        assert_gradients(&model, &values, &samples, |_| 1.0);
    }
}

/// Fields have one to three features, and samples weights from 0 on.
#[test]
fn gradients_of_lists_and_weights_are_right() {
    let weight = |sample: usize| (sample % 4) as f32 / 2.0;
    for model in models() {
        let Layout::Fields(fields) = model.layout() else { continue };
        let (values, _) = case(&model);
        let mut random = random();
        let mut samples = Samples::default();
        for sample in 0..9 {
            for field in 0..fields {
                let count = 1 + (sample + field) % 3;
                for _ in 0..count {
                    let field = u32::try_from(field).unwrap();
                    samples.add(random.random_range(0..12), Some((field, 1.0 / count as f32)));
                }
            }
            samples.end(f32::from(u8::from(sample % 3 == 0)));
            samples.weigh(&[weight(sample)]);
        }
        assert_gradients(&model, &values, &samples, weight);
    }
}

fn assert_gradients(model: &Model, values: &[f32], samples: &Samples, weight: fn(usize) -> f32) {
    let naive_loss = |values: &[f64]| naive_loss_weighted(model, values, samples, weight);
    let mut gradients = vec![7.0; 3];
    let loss = Network::new(model).step(values, samples, &mut random(), &mut gradients);
    let mut exact: Vec<f64> = values.iter().copied().map(f64::from).collect();
    let naive = naive_loss(&exact);
    assert!((loss - naive).abs() < 1e-5, "{model:?}: {loss} {naive}");
    assert_eq!(gradients.len(), values.len());
    for place in 0..values.len() {
        let middle = exact[place];
        let mut at = |value| {
            exact[place] = value;
            naive_loss(&exact)
        };
        let difference = (at(middle + 1e-6) - at(middle - 1e-6)) / 2e-6;
        exact[place] = middle;
        let found = f64::from(gradients[place]);
        assert!(
            (found - difference).abs() < 1e-4 * (1.0 + difference.abs()),
            "{model:?}: value {place} has gradient {found}, should be {difference}"
        );
    }
    assert!(gradients.iter().filter(|gradient| **gradient != 0.0).count() > gradients.len() / 4);
}

#[test]
fn scores_are_the_logits_of_training() {
    for model in models() {
        let (values, samples) = case(&model);
        let (rows, layers) = values.split_at(values.len() - model.layer_values());
        let mut network = Network::new(&model);
        let mut logits = Vec::new();
        network.load_layers(layers);
        network.score(rows, &samples, &mut logits);
        let exact: Vec<f64> = values.iter().copied().map(f64::from).collect();
        assert_eq!(logits.len(), samples.len());
        for (index, &logit) in logits.iter().enumerate() {
            let mut one = Samples::default();
            one.push(samples.features(index).iter().copied(), true);
            let loss = naive_loss(&model, &exact, &one);
            assert!((f64::from(logit) + (loss.exp() - 1.0).ln()).abs() < 1e-4, "{model:?}");
        }
    }
}

#[test]
fn a_batch_of_several_parts_is_the_same_as_one() {
    for model in models() {
        let (values, samples) = case(&model);
        let mut network = Network::new(&model);
        let mut gradients = Vec::new();
        let loss = network.step(&values, &samples, &mut random(), &mut gradients);
        // The same samples over and over have the same mean, but do not fit in a part.
        let mut often = Samples::default();
        for _ in 0..40 {
            for (sample, clicked) in samples.clicked().enumerate() {
                often.push(samples.features(sample).iter().copied(), clicked);
            }
        }
        let mut others = Vec::new();
        let other = network.step(&values, &often, &mut random(), &mut others);
        assert!((loss - other).abs() < 1e-5);
        assert!(gradients.iter().zip(&others).all(|(a, b)| (a - b).abs() < 1e-5), "{model:?}");
    }
}

#[test]
fn pruned_weights_count_as_zero_and_have_gradients() {
    for model in models() {
        let (values, samples) = case(&model);
        let mut network = Network::new(&model);
        network.limits = Limits { embeddings: 0.3, pairs: 0.4, hidden: vec![0.5; model.layers().len() - 1] };
        let mut gradients = Vec::new();
        let loss = network.step(&values, &samples, &mut random(), &mut gradients);
        // The same with the zeros written out, and no limits.
        let mut pruned = values.clone();
        let (rows, layers) = pruned.split_at_mut(FEATURES * model.width());
        for row in rows.chunks_exact_mut(model.width()) {
            row[..model.lanes()].iter_mut().for_each(|value| *value = network::keep(*value, 0.3));
        }
        let (pairs, mut rest) = layers.split_at_mut(model.pairs());
        pairs.iter_mut().for_each(|value| *value = network::keep(*value, 0.4));
        for layer in model.layers().iter().filter(|layer| layer.name != "output") {
            let row;
            (row, rest) = rest.split_at_mut(layer.width());
            row[..layer.weights()].iter_mut().for_each(|value| *value = network::keep(*value, 0.5));
        }
        assert_ne!(pruned, values);
        let mut others = Vec::new();
        let other = Network::new(&model).step(&pruned, &samples, &mut random(), &mut others);
        assert_eq!((loss, gradients), (other, others), "{model:?}");
    }
}

#[test]
fn dropout_leaves_out_in_training_alone() {
    let model = Model { dropout: 0.5, ..model(Layout::Fields(3), 2, &[40, 3]) };
    let (values, samples) = case(&model);
    let mut network = Network::new(&model);
    let mut gradients = Vec::new();
    let loss = network.step(&values, &samples, &mut random(), &mut gradients);
    assert_ne!(loss, network.step(&values, &samples, &mut SmallRng::seed_from_u64(2), &mut Vec::new()));
    // With the same outputs left out, gradients are those of finite differences; wide, as these are f32.
    for place in 0..values.len() {
        let mut at = |difference: f32| {
            let mut values = values.clone();
            values[place] += difference;
            network.step(&values, &samples, &mut random(), &mut Vec::new())
        };
        let difference = (at(2e-3) - at(-2e-3)) / 4e-3;
        let found = f64::from(gradients[place]);
        assert!((found - difference).abs() < 3e-3, "value {place}: {found}, should be {difference}");
    }
    let (rows, layers) = values.split_at(values.len() - model.layer_values());
    network.load_layers(layers);
    let (mut logits, mut others) = (Vec::new(), Vec::new());
    network.score(rows, &samples, &mut logits);
    network.score(rows, &samples, &mut others);
    assert_eq!(logits, others);
}

#[test]
fn a_value_that_is_not_a_number_shows_in_the_loss() {
    for model in models() {
        let (values, samples) = case(&model);
        // In every row, and in the last layer.
        for place in [0..FEATURES * model.width(), values.len() - 1..values.len()] {
            let mut values = values.clone();
            values[place].fill(f32::NAN);
            let mut network = Network::new(&model);
            network.limits.embeddings = 0.1;
            assert!(network.step(&values, &samples, &mut random(), &mut Vec::new()).is_nan());
        }
    }
}

#[test]
fn shapes_are_those_of_the_paper() {
    // Deng et al., section 5: 39 fields, 10 lanes, three layers of 400.
    let paper = model(Layout::Fields(39), 10, &[400, 400, 400]);
    let sizes: Vec<(usize, usize)> =
        paper.layers().iter().map(|layer| (layer.inputs, layer.outputs)).collect();
    assert_eq!(sizes, [(390, 400), (400, 400), (400, 400), (400, 1)]);
    assert_eq!((paper.width(), paper.pairs()), (11, 741));
    for model in models() {
        let tables = model.tables();
        assert_eq!(model.layer_keys().count(), tables.len() - 1);
        assert_eq!(model.layer_values(), tables[1..].iter().map(|table| table.width).sum::<usize>());
        libra_client::Store::new(tables.clone(), 1).unwrap();
        let shapes = crate::shapes(tables);
        assert!(shapes[0].hot && !shapes[1..].iter().any(|shape| shape.hot));
        let keys: Vec<u64> = [0, 6].into_iter().chain(model.layer_keys()).collect();
        assert_eq!(Widths::new(&model.tables()).sum(&keys), 2 * model.width() + model.layer_values());
    }
}
