//! Options of single models.

use anyhow::{Result, bail};
use clap::Args;
use libra_models::{ModelConfig, ModelKind};

const HEADING: &str = "Options of single models; the defaults suit the model";

/// Settings of any model.
#[derive(Args, Debug, Clone, Default)]
pub struct ModelOptions {
    /// gmf, mlp, neumf: predictive factors [default: 8]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    factors: Option<usize>,
    /// deeplight, lstm: dimension of the embedding of a feature or word [default: deeplight 10, lstm 200]
    #[arg(long, alias = "width", value_name = "N", help_heading = HEADING)]
    embedding_dim: Option<usize>,
    /// deeplight: outputs of each hidden layer, as in 400,400,400; `none` leaves the factorisation machine alone [default: 32,32]
    #[arg(long, value_name = "N,..", help_heading = HEADING, value_parser = parse_hidden)]
    hidden: Option<Hidden>,
    /// deeplight: rarer values share one row for each field [default: 20]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    min_count: Option<u32>,
    /// deeplight: share of the rows, from the end of the log, to test on [default: 0.2]
    #[arg(long, value_name = "F", help_heading = HEADING)]
    test_share: Option<f64>,
    /// deeplight, lstm: share of the outputs of layers that a step of training leaves out [default: deeplight 0.5, lstm 0.25]
    #[arg(long, value_name = "F", help_heading = HEADING)]
    dropout: Option<f32>,
    /// deeplight: share of the values of embeddings, of the weights of pairs of fields, and of those of hidden layers that are pruned [default: 0]
    #[arg(long, value_name = "F", help_heading = HEADING)]
    prune: Option<f32>,
    /// deeplight: steps in which a hundredth of the remaining weights to prune is pruned [default: 100; a small log needs fewer]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    prune_interval: Option<u32>,
    /// lstm: cells of a layer [default: 200]
    #[arg(long, alias = "cells", value_name = "N", help_heading = HEADING)]
    hidden_size: Option<usize>,
    /// lstm: values that the cells of a layer are projected to; 0 for no projection [default: 0]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    projection: Option<usize>,
    /// lstm: layers of cells [default: 1]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    layers: Option<usize>,
    /// lstm: words of each stream in a batch, and steps back in time of gradients; --batch, the words of a step, is a multiple [default: 32]
    #[arg(long, alias = "steps", value_name = "N", help_heading = HEADING)]
    sequence_length: Option<usize>,
    /// lstm: words drawn for each batch that stand for all that do not follow; as many as there are words make the softmax exact [default: 1024]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    softmax_samples: Option<usize>,
    /// lstm: size of the vocabulary, the most frequent words; others are one unknown word [default: 800000]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    vocabulary: Option<usize>,
    /// lstm: largest norm of the gradient of a batch, over all its rows [default: 1]
    #[arg(long, value_name = "F", help_heading = HEADING)]
    batch_clip: Option<f32>,
}

/// Outputs of hidden layers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hidden(Vec<usize>);

fn parse_hidden(text: &str) -> Result<Hidden, String> {
    if text == "none" {
        return Ok(Hidden(Vec::new()));
    }
    let units = text.split(',').map(str::parse).collect::<Result<_, _>>();
    units.map(Hidden).map_err(|_| "expected whole numbers with commas between, or none".to_owned())
}

impl ModelOptions {
    /// Changes the settings of a model by the options given.
    ///
    /// # Errors
    /// Something was given that is not of this model.
    pub fn apply(&self, kind: ModelKind, model: &mut ModelConfig) -> Result<()> {
        let mut given = self.clone();
        match model {
            ModelConfig::Ncf(ncf) => set(&mut ncf.factors, given.factors.take()),
            ModelConfig::Deeplight(deeplight) => {
                set(&mut deeplight.width, given.embedding_dim.take());
                set(&mut deeplight.hidden, given.hidden.take().map(|hidden| hidden.0));
                set(&mut deeplight.min_count, given.min_count.take());
                set(&mut deeplight.test, given.test_share.take());
                set(&mut deeplight.dropout, given.dropout.take());
                if let Some(share) = given.prune.take() {
                    let prune = &mut deeplight.prune;
                    (prune.embeddings, prune.pairs, prune.layers) = (share, share, share);
                }
                set(&mut deeplight.prune.interval, given.prune_interval.take());
            }
            ModelConfig::Lstm(lstm) => {
                set(&mut lstm.embedding, given.embedding_dim.take());
                set(&mut lstm.hidden, given.hidden_size.take());
                set(&mut lstm.projection, given.projection.take());
                set(&mut lstm.layers, given.layers.take());
                set(&mut lstm.steps, given.sequence_length.take());
                set(&mut lstm.samples, given.softmax_samples.take());
                set(&mut lstm.vocabulary, given.vocabulary.take());
                set(&mut lstm.dropout, given.dropout.take());
                set(&mut lstm.clip, given.batch_clip.take());
            }
            ModelConfig::SyntheticLr(_) => {}
        }
        given.refuse_the_rest(kind)
    }

    fn refuse_the_rest(&self, kind: ModelKind) -> Result<()> {
        let rest = [
            ("factors", self.factors.is_some()),
            ("embedding-dim", self.embedding_dim.is_some()),
            ("hidden", self.hidden.is_some()),
            ("min-count", self.min_count.is_some()),
            ("test-share", self.test_share.is_some()),
            ("dropout", self.dropout.is_some()),
            ("prune", self.prune.is_some()),
            ("prune-interval", self.prune_interval.is_some()),
            ("hidden-size", self.hidden_size.is_some()),
            ("projection", self.projection.is_some()),
            ("layers", self.layers.is_some()),
            ("sequence-length", self.sequence_length.is_some()),
            ("softmax-samples", self.softmax_samples.is_some()),
            ("vocabulary", self.vocabulary.is_some()),
            ("batch-clip", self.batch_clip.is_some()),
        ];
        match rest.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                bail!("--{option} is not an option of {kind}: --help names its model")
            }
            None => Ok(()),
        }
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_takes_its_own_options_and_no_others() {
        let options = ModelOptions {
            hidden: Some(parse_hidden("400,200").unwrap()),
            prune: Some(0.9),
            ..ModelOptions::default()
        };
        let mut deeplight = ModelKind::Deeplight.config().model;
        options.apply(ModelKind::Deeplight, &mut deeplight).unwrap();
        let ModelConfig::Deeplight(changed) = &deeplight else { panic!("{deeplight:?}") };
        assert_eq!((&changed.hidden[..], changed.width), (&[400, 200][..], 10));
        assert_eq!((changed.prune.embeddings, changed.prune.layers), (0.9, 0.9));
        let error = options.apply(ModelKind::AdsLr, &mut ModelKind::AdsLr.config().model).unwrap_err();
        assert_eq!(error.to_string(), "--hidden is not an option of ads-lr: --help names its model");
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ModelOptions,
    }

    #[test]
    fn old_and_new_names_of_options_mean_the_same() {
        let model = |names: [&str; 3]| {
            let words = [names[0], "12", names[1], "34", names[2], "16"];
            let line = <Line as clap::Parser>::parse_from([&["libra"], &words[..]].concat());
            let mut model = ModelKind::Lstm.config().model;
            line.options.apply(ModelKind::Lstm, &mut model).unwrap();
            model
        };
        let ModelConfig::Lstm(lstm) = model(["--embedding-dim", "--hidden-size", "--sequence-length"]) else {
            panic!("lstm is a language model")
        };
        assert_eq!((lstm.embedding, lstm.hidden, lstm.steps), (12, 34, 16));
        assert_eq!(model(["--width", "--cells", "--steps"]), ModelConfig::Lstm(lstm));
    }

    #[test]
    fn hidden_layers_are_numbers_or_none() {
        assert_eq!(parse_hidden("none"), Ok(Hidden(Vec::new())));
        assert!(parse_hidden("32,many").unwrap_err().contains("whole numbers"));
    }
}
