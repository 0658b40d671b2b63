//! DenseNet: the layers, differentiated by candle.

use candle_core::{DType, Device, Error, Result, Tensor, Var};

use super::{Layer, Model, sparse::Inputs};
use crate::affine::Affine;

/// The layers of a model, and what they are made of at the moment.
pub(super) struct DenseNet {
    layers: Vec<Layer>,
    product_width: usize,
    tower_width: usize,
    /// The row of each layer: weights and below them the biases, (inputs + 1) x outputs.
    variables: Vec<Var>,
}

impl DenseNet {
    pub(super) fn new(model: &Model) -> Result<Self> {
        let layers = model.layers();
        let variables = layers
            .iter()
            .map(|layer| Var::zeros((layer.inputs + 1, layer.outputs), DType::F32, &Device::Cpu))
            .collect::<Result<_>>()?;
        Ok(Self {
            layers,
            product_width: model.product_width(),
            tower_width: 2 * model.tower_width(),
            variables,
        })
    }

    /// Takes over the rows of the layers, one after the other.
    pub(super) fn load(&mut self, mut rows: &[f32]) -> Result<()> {
        for (layer, variable) in self.layers.iter().zip(&mut self.variables) {
            let (row, rest) = rows.split_at(layer.width());
            rows = rest;
            *variable = Var::from_slice(row, (layer.inputs + 1, layer.outputs), &Device::Cpu)?;
        }
        Ok(())
    }

    /// Adds the logits of `samples` samples to the end of `logits`.
    pub(super) fn logits(&self, inputs: &Inputs, samples: usize, logits: &mut Vec<f32>) -> Result<()> {
        let products = Tensor::from_slice(&inputs.products, (samples, self.product_width), &Device::Cpu)?;
        let tower = Tensor::from_slice(&inputs.tower, (samples, self.tower_width), &Device::Cpu)?;
        let result = self.forward(&products, &tower)?.detach();
        logits.extend_from_slice(&result.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }

    fn forward(&self, products: &Tensor, tower: &Tensor) -> Result<Tensor> {
        let (output, hidden) = self.variables.split_last().expect("a model has an output layer");
        let mut last = tower.clone();
        for row in hidden {
            last = last.apply_op2(row, Affine { relu: true })?;
        }
        let input = match (self.product_width, self.tower_width) {
            (_, 0) => products.clone(),
            (0, _) => last,
            _ => Tensor::cat(&[products, &last], 1)?,
        };
        input.apply_op2(output, Affine { relu: false })
    }

    /// Computes the logits, asks `loss` for the gradient of the loss by them, and passes it back.
    ///
    /// The gradients of the inputs replace `input_gradients`; those of the layers are laid out like their rows and added to
    /// `layer_gradients`.
    pub(super) fn step(
        &self,
        inputs: &Inputs,
        samples: usize,
        loss: impl FnOnce(&mut [f32]),
        input_gradients: &mut Inputs,
        layer_gradients: &mut [f32],
    ) -> Result<()> {
        let products = Var::from_slice(&inputs.products, (samples, self.product_width), &Device::Cpu)?;
        let tower = Var::from_slice(&inputs.tower, (samples, self.tower_width), &Device::Cpu)?;
        let logits = self.forward(&products, &tower)?;
        let mut by_logit = logits.flatten_all()?.to_vec1::<f32>()?;
        loss(&mut by_logit);
        // The gradient of this sum by the logits is `by_logit`, so the loss itself needs no operations in candle.
        let by_logit = Tensor::from_vec(by_logit, (samples, 1), &Device::Cpu)?;
        let gradients = (logits * by_logit)?.sum_all()?.backward()?;
        let copy = |variable: &Var, target: &mut Vec<f32>| -> Result<()> {
            let gradient = gradients.get(variable).ok_or_else(|| Error::Msg("no gradient".into()))?;
            *target = gradient.flatten_all()?.to_vec1::<f32>()?;
            Ok(())
        };
        if self.product_width > 0 {
            copy(&products, &mut input_gradients.products)?;
        }
        if self.tower_width > 0 {
            copy(&tower, &mut input_gradients.tower)?;
        }
        let mut rest = layer_gradients;
        let mut row = Vec::new();
        for variable in &self.variables {
            copy(variable, &mut row)?;
            let sums;
            (sums, rest) = rest.split_at_mut(row.len());
            for (sum, gradient) in sums.iter_mut().zip(&row) {
                *sum += gradient;
            }
        }
        Ok(())
    }
}
