//! Update rules and initial values by their names in Python.

use std::collections::HashMap;

use libra_client::{Admission, Decay, Eviction, Init, Optimizer, RowLifecycle, Schedule, UpdateRule};

use crate::failure::Failure;

/// The numbers of a rule by name.
pub(crate) type Numbers = HashMap<String, f64>;

/// Returns a rule. `optimizer` is one of the names below, and `numbers` has its fields, those of a schedule, and those of the rows that
/// the table keeps.
pub(crate) fn rule(optimizer: &str, decay: &str, numbers: &Numbers) -> Result<UpdateRule, Failure> {
    let number = |name: &str| number(optimizer, numbers, name);
    let optimizer = match optimizer {
        "sgd" => Optimizer::Sgd { rate: number("lr")? },
        "momentum" => Optimizer::Momentum {
            rate: number("lr")?,
            momentum: number("momentum")?,
            nesterov: number("nesterov")? != 0.0,
        },
        "adagrad" => Optimizer::Adagrad { rate: number("lr")?, epsilon: number("eps")? },
        "rowwise_adagrad" => Optimizer::RowAdagrad { rate: number("lr")?, epsilon: number("eps")? },
        "adam" => {
            let (rate, epsilon) = (number("lr")?, number("eps")?);
            Optimizer::Adam { rate, beta1: number("beta1")?, beta2: number("beta2")?, epsilon }
        }
        "adamw" => {
            let (rate, epsilon) = (number("lr")?, number("eps")?);
            Optimizer::AdamW { rate, beta1: number("beta1")?, beta2: number("beta2")?, epsilon }
        }
        "ftrl" => {
            let (l1, l2) = (number("l1")?, number("l2")?);
            Optimizer::Ftrl { alpha: number("alpha")?, beta: number("beta")?, l1, l2 }
        }
        "rmsprop" => {
            Optimizer::RmsProp { rate: number("lr")?, decay: number("decay")?, epsilon: number("eps")? }
        }
        other => return Err(Failure::Value(format!("there is no optimizer \"{other}\""))),
    };
    let mut rule = UpdateRule::from(optimizer);
    if numbers.contains_key("weight_decay") {
        rule.weight_decay = number("weight_decay")?;
    }
    if numbers.contains_key("warmup") {
        rule.schedule = Schedule { warmup: steps(numbers, "warmup")?, decay: schedule(decay, numbers)? };
    }
    rule.growth = lifecycle(numbers)?;
    rule.check().map_err(|error| Failure::Value(error.to_string()))?;
    Ok(rule)
}

fn lifecycle(numbers: &Numbers) -> Result<RowLifecycle, Failure> {
    let whole = |name: &str| steps(numbers, name);
    let has = |name: &str| numbers.contains_key(name);
    let admission = if has("admission_after") {
        let updates = u8::try_from(whole("admission_after")?).unwrap_or(0);
        Some(Admission::Occurrences { updates, keys: whole("admission_keys")? })
    } else if has("admission_probability") {
        Some(Admission::Probability(number("admission", numbers, "admission_probability")?))
    } else {
        None
    };
    let short = |name: &str| Ok::<_, Failure>(u32::try_from(whole(name)?).unwrap_or(u32::MAX));
    let eviction = if has("eviction_idle") {
        Some(Eviction::Idle { steps: short("eviction_idle")? })
    } else if has("eviction_half_life") {
        let (rows_max, half_life) = (whole("eviction_rows")?, short("eviction_half_life")?);
        Some(Eviction::LeastUsed { rows_max, half_life })
    } else if has("eviction_rows") {
        Some(Eviction::LowestNorm { rows_max: whole("eviction_rows")? })
    } else {
        None
    };
    Ok(RowLifecycle { admission, eviction })
}

fn schedule(decay: &str, numbers: &Numbers) -> Result<Decay, Failure> {
    let number = |name: &str| number(decay, numbers, name);
    Ok(match decay {
        "none" => Decay::None,
        "step" => Decay::Step { every: steps(numbers, "every")?, factor: number("factor")? },
        "exponential" => Decay::Exponential { every: steps(numbers, "every")?, factor: number("factor")? },
        "linear" => Decay::Linear { steps: steps(numbers, "steps")?, floor: number("floor")? },
        "cosine" => Decay::Cosine { steps: steps(numbers, "steps")?, floor: number("floor")? },
        "inverse_root" => Decay::InverseRoot,
        other => return Err(Failure::Value(format!("there is no schedule \"{other}\""))),
    })
}

/// Returns initial values.
pub(crate) fn init(kind: &str, value: f64) -> Result<Init, Failure> {
    let value = narrow(value);
    match kind {
        "zero" => Ok(Init::Zero),
        "uniform" => Ok(Init::Uniform { bound: value }),
        "normal" => Ok(Init::Normal { deviation: value }),
        other => Err(Failure::Value(format!("there are no initial values \"{other}\""))),
    }
}

fn number(of: &str, numbers: &Numbers, name: &str) -> Result<f32, Failure> {
    let value = numbers.get(name).ok_or_else(|| Failure::Value(format!("{of} needs \"{name}\"")))?;
    Ok(narrow(*value))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is checked to be a whole number"
)]
fn steps(numbers: &Numbers, name: &str) -> Result<u64, Failure> {
    let value = numbers.get(name).copied().unwrap_or(0.0);
    if value >= 0.0 && value.fract() == 0.0 && value < 1e15 {
        Ok(value as u64)
    } else {
        Err(Failure::Value(format!("{name} = {value} must be a number of steps")))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rules compute in f32, and infinity is refused")]
fn narrow(value: f64) -> f32 {
    value as f32
}
