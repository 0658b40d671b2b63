use libra_client::Widths;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::ModelKind;

const USERS: usize = 3;
const ITEMS: usize = 4;

fn model(branches: Branches, factors: usize) -> Model {
    let ncf = NcfConfig { branches, factors, ..NcfConfig::default() };
    let train = vec![(0, 0)];
    let dataset = Dataset { name: "tiny".into(), users: 3, items: 4, train, test: vec![], files: vec![] };
    Model::new(&ncf, &ModelKind::Neumf.config(), &dataset)
}

/// Values of all rows and layers, seven samples and their labels.
fn case(model: &Model) -> (Vec<f32>, SampleRows, Vec<f32>) {
    let mut random = SmallRng::seed_from_u64(5);
    let count = (USERS + ITEMS) * model.width() + model.layer_values();
    let values = (0..count).map(|_| random.random_range(-0.8..0.8)).collect();
    let samples = SampleRows { users: vec![0, 0, 1, 2, 2, 0, 2], items: vec![3, 4, 5, 6, 3, 3, 3] };
    (values, samples, vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0])
}

/// The loss as the paper writes it, in f64 and without any trick.
fn naive_loss(model: &Model, values: &[f64], samples: &SampleRows, labels: &[f32]) -> f64 {
    let (width, split) = (model.width(), model.product_width());
    let (rows, layers) = values.split_at(values.len() - model.layer_values());
    let mut loss = 0.0;
    for ((&user, &item), &label) in samples.users.iter().zip(&samples.items).zip(labels) {
        let user = &rows[user as usize * width..][..width];
        let item = &rows[item as usize * width..][..width];
        let products: Vec<f64> = (0..split).map(|lane| user[lane] * item[lane]).collect();
        let mut last: Vec<f64> = user[split..].iter().chain(&item[split..]).copied().collect();
        let mut rest = layers;
        let mut logit = 0.0;
        for layer in model.layers() {
            let (row, others) = rest.split_at(layer.width());
            rest = others;
            let output = layer.name == "output";
            let input: Vec<f64> = if output { [products.clone(), last].concat() } else { last };
            assert_eq!(input.len(), layer.inputs);
            last = (0..layer.outputs)
                .map(|column| {
                    let weighted = (0..layer.inputs).map(|k| input[k] * row[k * layer.outputs + column]);
                    let sum = weighted.sum::<f64>() + row[layer.inputs * layer.outputs + column];
                    if output { sum } else { sum.max(0.0) }
                })
                .collect();
            logit = last[0];
        }
        let probability = 1.0 / (1.0 + (-logit).exp());
        let label = f64::from(label);
        loss -= label * probability.ln() + (1.0 - label) * (1.0 - probability).ln();
    }
    loss / labels.len() as f64
}

#[test]
fn gradients_are_those_of_finite_differences() {
    // 3 factors leave rests in every loop of the fused operation, 40 go through all of them.
    for (kind, factors) in Branches::ALL.into_iter().flat_map(|kind| [(kind, 3), (kind, 8), (kind, 40)]) {
        let model = model(kind, factors);
        let (values, samples, labels) = case(&model);
        let mut gradients = vec![7.0; 3];
        let mut network = Network::new(&model);
        let loss = network.step(&values, &samples, &labels, &mut gradients);

        let mut exact: Vec<f64> = values.iter().copied().map(f64::from).collect();
        assert!((loss - naive_loss(&model, &exact, &samples, &labels)).abs() < 1e-5, "{kind} {factors}");
        assert_eq!(gradients.len(), values.len());
        // All of a small model, a part of a large one.
        for place in (0..values.len()).step_by(if factors > 8 { 37 } else { 1 }) {
            let middle = exact[place];
            let mut at = |value| {
                exact[place] = value;
                naive_loss(&model, &exact, &samples, &labels)
            };
            let difference = (at(middle + 1e-6) - at(middle - 1e-6)) / 2e-6;
            exact[place] = middle;
            let found = f64::from(gradients[place]);
            assert!(
                (found - difference).abs() < 1e-4 * (1.0 + difference.abs()),
                "{kind} {factors}: value {place} has gradient {found}, should be {difference}"
            );
        }
        assert!(gradients.chunks(model.width()).take(USERS + ITEMS).all(|row| row.iter().any(|&g| g != 0.0)));
    }
}

#[test]
fn scores_are_the_logits_of_training() {
    for kind in Branches::ALL {
        let model = model(kind, 5);
        let (values, samples, _) = case(&model);
        let (rows, layers) = values.split_at(values.len() - model.layer_values());
        let mut network = Network::new(&model);
        let mut logits = Vec::new();
        network.load_layers(layers);
        network.score(rows, &samples, &mut logits);
        assert_eq!(logits.len(), samples.len());
        for (index, &logit) in logits.iter().enumerate() {
            let one = SampleRows { users: vec![samples.users[index]], items: vec![samples.items[index]] };
            let exact: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let loss = naive_loss(&model, &exact, &one, &[1.0]);
            assert!((f64::from(logit) + (loss.exp() - 1.0).ln()).abs() < 1e-4);
        }
    }
}

#[test]
fn a_batch_of_several_parts_is_the_same_as_one() {
    let model = model(Branches::Neumf, 8);
    let (values, samples, labels) = case(&model);
    let mut network = Network::new(&model);
    let mut gradients = Vec::new();
    let loss = network.step(&values, &samples, &labels, &mut gradients);
    // The same samples over and over have the same mean, but do not fit in a part.
    let often = SampleRows { users: samples.users.repeat(400), items: samples.items.repeat(400) };
    let mut others = Vec::new();
    let other = network.step(&values, &often, &labels.repeat(400), &mut others);
    assert!((loss - other).abs() < 1e-5);
    assert!(gradients.iter().zip(&others).all(|(a, b)| (a - b).abs() < 1e-5));
    let mut scores = Vec::new();
    let (rows, layers) = values.split_at(values.len() - model.layer_values());
    network.load_layers(layers);
    network.score(rows, &often, &mut scores);
    assert_eq!((scores.len(), scores[0]), (often.len(), scores[often.len() - 7]));
}

#[test]
fn a_sure_model_has_a_finite_loss() {
    let model = model(Branches::Gmf, 1);
    let mut network = Network::new(&model);
    let samples = SampleRows { users: vec![0, 0], items: vec![1, 1] };
    let mut gradients = Vec::new();
    let values = [100.0, 100.0, 1.0, 0.0];
    let loss = network.step(&values, &samples, &[1.0, 0.0], &mut gradients);
    assert_eq!(loss, 5000.0);
    assert!(gradients.iter().all(|gradient| gradient.is_finite()));
}

#[test]
fn a_value_that_is_not_a_number_shows_in_the_loss() {
    for model in Branches::ALL.map(|kind| model(kind, 2)) {
        let mut network = Network::new(&model);
        let (values, samples, labels) = case(&model);
        // In a row, and in the first layer.
        for place in [0, values.len() - model.layer_values()] {
            let mut values = values.clone();
            values[place] = f32::NAN;
            assert!(network.step(&values, &samples, &labels, &mut Vec::new()).is_nan());
        }
    }
}

#[test]
fn shapes_are_those_of_the_paper() {
    // He et al., section 4.1: with 8 predictive factors the tower is 32 -> 16 -> 8 and the embedding size 16.
    let neumf = model(Branches::Neumf, 8);
    let sizes: Vec<(usize, usize)> =
        neumf.layers().iter().map(|layer| (layer.inputs, layer.outputs)).collect();
    assert_eq!(sizes, [(32, 16), (16, 8), (16, 1)]);
    assert_eq!(
        (neumf.width(), model(Branches::Gmf, 8).width(), model(Branches::Mlp, 8).width()),
        (24, 8, 16)
    );
    assert_eq!((neumf.user_key(2), neumf.item_key(0), neumf.item_key(3)), (2, 3, 6));
    for kind in Branches::ALL {
        let model = model(kind, 8);
        let tables = model.tables();
        assert_eq!(model.layer_keys().count(), model.layers().len());
        assert_eq!(model.layer_values(), tables[2..].iter().map(|table| table.width).sum::<usize>());
        libra_client::Store::new(tables, 1).unwrap();
        let shapes = crate::shapes(model.tables());
        let hot: Vec<bool> = shapes.iter().map(|shape| shape.hot).collect();
        assert!(hot[0] && hot[1] && !hot[2..].contains(&true));
        libra_client::Frequencies::new(shapes).unwrap();
        let keys: Vec<u64> = [0, 6].into_iter().chain(model.layer_keys()).collect();
        assert_eq!(Widths::new(&model.tables()).sum(&keys), 2 * model.width() + model.layer_values());
    }
}
