//! SparseNet: from embedding rows to the inputs of the layers, and gradients back.

use super::Model;

/// Rows that the samples of a batch use: indices into the rows of a pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SampleRows {
    /// The user's row of each sample.
    pub(crate) users: Vec<u32>,
    /// The item's row of each sample.
    pub(crate) items: Vec<u32>,
}

impl SampleRows {
    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }

    pub(crate) fn clear(&mut self) {
        self.users.clear();
        self.items.clear();
    }

    pub(crate) fn push(&mut self, user: u32, item: u32) {
        self.users.push(user);
        self.items.push(item);
    }
}

/// Inputs of the layers, or their gradients. One row a sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Inputs {
    /// Products of the factors: samples x F, or empty.
    pub(super) products: Vec<f32>,
    /// User and item side by side: samples x 4F, or empty.
    pub(super) tower: Vec<f32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SparseNet {
    product_width: usize,
    tower_width: usize,
}

impl SparseNet {
    pub(super) fn new(model: &Model) -> Self {
        Self { product_width: model.product_width(), tower_width: model.tower_width() }
    }

    fn width(&self) -> usize {
        self.product_width + self.tower_width
    }

    /// Reads the rows of some samples from `values`, rows one after the other.
    pub(super) fn gather(&self, values: &[f32], users: &[u32], items: &[u32], inputs: &mut Inputs) {
        let (width, split) = (self.width(), self.product_width);
        inputs.products.clear();
        inputs.tower.clear();
        for (&user, &item) in users.iter().zip(items) {
            let user = &values[user as usize * width..][..width];
            let item = &values[item as usize * width..][..width];
            inputs.products.extend(user[..split].iter().zip(&item[..split]).map(|(a, b)| a * b));
            inputs.tower.extend_from_slice(&user[split..]);
            inputs.tower.extend_from_slice(&item[split..]);
        }
    }

    /// Adds the gradients of the inputs of some samples to the gradients of their rows, laid out like `values`.
    pub(super) fn scatter(
        &self,
        values: &[f32],
        users: &[u32],
        items: &[u32],
        input_gradients: &Inputs,
        gradients: &mut [f32],
    ) {
        let (width, split) = (self.width(), self.product_width);
        for (sample, (&user, &item)) in users.iter().zip(items).enumerate() {
            let (user, item) = (user as usize * width, item as usize * width);
            let product = &input_gradients.products[sample * split..][..split];
            let tower = &input_gradients.tower[sample * 2 * self.tower_width..][..2 * self.tower_width];
            let (tower_user, tower_item) = tower.split_at(self.tower_width);

            let row = &mut gradients[user..][..width];
            add_products(&mut row[..split], product, &values[item..][..split]);
            add(&mut row[split..], tower_user);
            let row = &mut gradients[item..][..width];
            add_products(&mut row[..split], product, &values[user..][..split]);
            add(&mut row[split..], tower_item);
        }
    }
}

fn add(sums: &mut [f32], terms: &[f32]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += term;
    }
}

fn add_products(sums: &mut [f32], left: &[f32], right: &[f32]) {
    for ((sum, a), b) in sums.iter_mut().zip(left).zip(right) {
        *sum += a * b;
    }
}
