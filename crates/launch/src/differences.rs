//! Differences between the configurations of two jobs, in the words of options.

use libra_models::ModelConfig;
use libra_store::UpdateRule;
use serde::Serialize;
use serde_json::{Map, Value};

/// Settings of models, and their options. Those that are not here have none.
const MODEL_OPTIONS: [(&str, &str); 21] = [
    ("ncf.branches", "--model"),
    ("ncf.factors", "--factors"),
    ("deeplight.width", "--embedding-dim"),
    ("deeplight.hidden", "--hidden"),
    ("deeplight.min_count", "--min-count"),
    ("deeplight.test", "--test-share"),
    ("deeplight.dropout", "--dropout"),
    ("deeplight.prune.embeddings", "--prune"),
    ("deeplight.prune.pairs", "--prune"),
    ("deeplight.prune.layers", "--prune"),
    ("deeplight.prune.interval", "--prune-interval"),
    ("lstm.embedding", "--embedding-dim"),
    ("lstm.hidden", "--hidden-size"),
    ("lstm.projection", "--projection"),
    ("lstm.layers", "--layers"),
    ("lstm.steps", "--sequence-length"),
    ("lstm.samples", "--softmax-samples"),
    ("lstm.vocabulary", "--vocabulary"),
    ("lstm.dropout", "--dropout"),
    ("lstm.clip", "--batch-clip"),
    ("synthetic_lr.name", "--model"),
];

/// Options of update rules: for embeddings, and for layers.
const RULE_OPTIONS: [(&str, [&str; 2]); 6] = [
    ("optimizer", ["--optimizer", "--layer-optimizer"]),
    ("schedule", ["--schedule", "--layer-schedule"]),
    ("weight_decay", ["--weight-decay", "--layer-weight-decay"]),
    ("clip", ["--clip", "--layer-clip"]),
    ("admission", ["--admission", "the admission of layers"]),
    ("eviction", ["--eviction", "the eviction of layers"]),
];

/// Names of optimizers that are not their words with hyphens between.
const NAMES: [(&str, &str); 3] =
    [("RowAdagrad", "rowwise-adagrad"), ("AdamW", "adamw"), ("RmsProp", "rmsprop")];

/// The rows whose rule is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows {
    Embeddings,
    Layers,
}

/// Returns the settings of a model that are not those of the job before, as options.
pub(crate) fn of_models(was: &ModelConfig, is: &ModelConfig) -> Vec<String> {
    let (was, is) = (fields(was), fields(is));
    let mut found = Vec::new();
    for (kind, is) in &is {
        match was.get(kind) {
            Some(was) => compare(kind, was, is, &mut found),
            None => {
                let was = was.iter().map(|(kind, model)| name_of(kind, model)).collect::<String>();
                found.push(difference("--model", &name_of(kind, is), &was));
            }
        }
    }
    found
}

/// Returns the name by which a model is chosen.
pub(crate) fn name_of_model(model: &ModelConfig) -> String {
    fields(model).iter().map(|(kind, model)| name_of(kind, model)).collect()
}

/// Returns the parts of an update rule that are not those of the job before, as options.
pub(crate) fn of_rules(rows: Rows, was: &UpdateRule, is: &UpdateRule) -> Vec<String> {
    let flat = |rule: &UpdateRule| {
        let mut fields = fields(rule);
        if let Some(Value::Object(growth)) = fields.remove("growth") {
            fields.extend(growth);
        }
        fields
    };
    let (was, is) = (flat(was), flat(is));
    let part = |(field, options): &(&str, [&'static str; 2])| {
        let option = options[rows as usize];
        let text = |rule: &Map<String, Value>| rule.get(*field).map_or_else(|| "none".to_owned(), as_typed);
        (was.get(*field) != is.get(*field)).then(|| difference(option, &text(&is), &text(&was)))
    };
    RULE_OPTIONS.iter().filter_map(part).collect()
}

fn difference(option: &str, is: &str, was: &str) -> String {
    format!("{option} is {is}, and was {was}")
}

/// The fields of a configuration. They go through text, which has as few digits of an `f32` as tell it from others.
fn fields(configuration: &impl Serialize) -> Map<String, Value> {
    let text = serde_json::to_string(configuration).expect("a configuration has numbers and names");
    serde_json::from_str(&text).expect("a configuration has fields")
}

/// The name by which a model is chosen.
fn name_of(kind: &str, model: &Value) -> String {
    let name = model.get("branches").or_else(|| model.get("name")).map(as_typed);
    name.unwrap_or_else(|| kind.to_owned())
}

/// Adds the differences below a path.
fn compare(path: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    if was == is {
        return;
    }
    if let (Value::Object(was), Value::Object(is)) = (was, is) {
        for (name, is) in is {
            compare(&format!("{path}.{name}"), was.get(name).unwrap_or(&Value::Null), is, found);
        }
        return;
    }
    let option = MODEL_OPTIONS.iter().find(|(setting, _)| *setting == path);
    let option = option.map_or_else(|| format!("the setting {path}"), |(_, option)| (*option).to_owned());
    let line = difference(&option, &as_typed(is), &as_typed(was));
    // One option may be for several settings.
    if !found.contains(&line) {
        found.push(line);
    }
}

/// A value as a person types it: `adam:lr=0.002,beta1=0.9`.
fn as_typed(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(name) => with_hyphens(name),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => values.iter().map(as_typed).collect::<Vec<_>>().join(","),
        Value::Object(fields) => match (fields.get("decay"), fields.get("warmup")) {
            (Some(decay), Some(warmup)) => schedule(decay, warmup),
            _ => fields.iter().map(|(name, value)| choice(name, value)).collect(),
        },
        number => number.to_string(),
    }
}

/// A choice with its numbers.
fn choice(name: &str, value: &Value) -> String {
    let name = with_hyphens(name);
    let Value::Object(fields) = value else { return format!("{name}:{}", as_typed(value)) };
    let field = |(field, value): (&String, &Value)| {
        let field = if field == "rate" { "lr" } else { field.as_str() };
        format!("{field}={}", as_typed(value))
    };
    match fields.iter().next() {
        Some((field, value)) if fields.len() == 1 && field != "rate" => format!("{name}:{}", as_typed(value)),
        _ => format!("{name}:{}", fields.iter().map(field).collect::<Vec<_>>().join(",")),
    }
}

fn schedule(decay: &Value, warmup: &Value) -> String {
    let name = if decay == "None" { "constant".to_owned() } else { as_typed(decay) };
    match warmup.as_u64() {
        Some(0) | None => name,
        Some(steps) => format!("{name}{}warmup={steps}", if name.contains(':') { "," } else { ":" }),
    }
}

fn with_hyphens(name: &str) -> String {
    if let Some((_, typed)) = NAMES.iter().find(|(variant, _)| *variant == name) {
        return (*typed).to_owned();
    }
    let mut typed = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !typed.is_empty() {
            typed.push('-');
        }
        typed.extend(letter.to_lowercase());
    }
    typed
}

#[cfg(test)]
mod tests {
    use libra_models::ModelKind;
    use libra_store::{Clip, Decay, Optimizer, Schedule};

    use super::*;

    #[test]
    fn settings_of_models_are_told_as_options() {
        let was = ModelKind::Deeplight.config().model;
        let mut is = was.clone();
        assert_eq!(of_models(&was, &is), Vec::<String>::new());
        let ModelConfig::Deeplight(changed) = &mut is else { panic!("{is:?}") };
        (changed.width, changed.hidden) = (8, Vec::new());
        (changed.prune.embeddings, changed.prune.pairs, changed.prune.layers) = (0.9, 0.9, 0.9);
        let mut found = of_models(&was, &is);
        found.sort();
        let expected = [
            "--embedding-dim is 8, and was 10",
            "--hidden is none, and was 32,32",
            "--prune is 0.9, and was 0.0",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn another_model_is_told_by_its_name() {
        let model = |kind: ModelKind| kind.config().model;
        let differences = |was, is| of_models(&model(was), &model(is));
        assert_eq!(differences(ModelKind::Neumf, ModelKind::AdsLr), ["--model is ads-lr, and was neumf"]);
        assert_eq!(differences(ModelKind::Lstm, ModelKind::Gmf), ["--model is gmf, and was lstm"]);
        assert!(
            differences(ModelKind::Neumf, ModelKind::Mlp)
                .contains(&"--model is mlp, and was neumf".to_owned())
        );
    }

    #[test]
    fn update_rules_are_told_as_they_are_typed() {
        let was: UpdateRule = Optimizer::Sgd { rate: 0.1 }.into();
        let is = UpdateRule {
            optimizer: Optimizer::RmsProp { rate: 0.005, decay: 0.9, epsilon: 1e-8 },
            schedule: Schedule { warmup: 100, decay: Decay::Cosine { steps: 9000, floor: 0.5 } },
            clip: Clip::Norm { limit: 1.5 },
            ..was
        };
        let found = of_rules(Rows::Layers, &was, &is);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("--layer-optimizer is rmsprop:"), "{found:?}");
        assert!(found[0].contains("lr=0.005") && found[0].ends_with(", and was sgd:lr=0.1"), "{found:?}");
        assert!(found[1].starts_with("--layer-schedule is cosine:"), "{found:?}");
        assert!(found[1].ends_with(",warmup=100, and was constant"), "{found:?}");
        assert_eq!(found[2], "--layer-clip is norm:1.5, and was none");
        let found = of_rules(Rows::Embeddings, &is, &was);
        assert_eq!(found[2], "--clip is none, and was norm:1.5");
    }
}
