//! Rules for the rows that tables have, as a person types them: `--admission occurrences:2 --eviction idle:100000` (rules G1, G2).

use libra_store::{Admission, Eviction, RowLifecycle, UpdateRule};

use super::{Typed, checked, number, plain, steps};

/// Number of keys that are counted at once, unless another is typed: 5 MB.
const KEYS: u64 = 1_000_000;
/// Steps after which updates count half, unless something else is typed: some epochs of a small data set.
const HALF_LIFE: u32 = 10_000;

const ADMISSIONS: &str = "expected occurrences:N or probability:P, as in occurrences:2,keys=1000000";
const EVICTIONS: &str =
    "expected idle:STEPS, least-used:ROWS or lowest-norm:ROWS, as in least-used:1000000,half_life=10000";

/// Parses the gradients that make a row (rule G1).
pub(super) fn parse_admission(text: &str) -> Result<Admission, String> {
    let (name, amount, mut typed) = split_amount(text).ok_or(ADMISSIONS)??;
    let (admission, fields): (_, &[&str]) = match name {
        "occurrences" => {
            let updates = whole("occurrences", amount)?;
            let updates = u8::try_from(updates)
                .map_err(|_| format!("occurrences = {updates} must be from 2 to 255"))?;
            let keys = typed.take("keys", whole)?.unwrap_or(KEYS);
            (Admission::Occurrences { updates, keys }, &["keys"])
        }
        "probability" => (Admission::Probability(number("probability", amount)?), &[]),
        _ => return Err(format!("there is no admission `{name}`: {ADMISSIONS}")),
    };
    end(typed, fields)?;
    let growth = RowLifecycle { admission: Some(admission), ..RowLifecycle::default() };
    // The store calls them updates: the text has the word of the option.
    let rule = checked(UpdateRule { growth, ..plain() });
    rule.map_err(|wrong| wrong.replace("updates =", "occurrences =")).map(|_| admission)
}

/// Parses the rows that go (rule G2).
pub(super) fn parse_eviction(text: &str) -> Result<Eviction, String> {
    let (name, amount, mut typed) = split_amount(text).ok_or(EVICTIONS)??;
    let (eviction, fields): (_, &[&str]) = match name {
        "idle" => (Eviction::Idle { steps: steps_of_word("steps", amount)? }, &[]),
        "least-used" => {
            let rows_max = whole("rows", amount)?;
            let half_life = typed.take("half_life", steps_of_word)?.unwrap_or(HALF_LIFE);
            (Eviction::LeastUsed { rows_max, half_life }, &["half_life"])
        }
        "lowest-norm" => (Eviction::LowestNorm { rows_max: whole("rows", amount)? }, &[]),
        _ => return Err(format!("there is no eviction `{name}`: {EVICTIONS}")),
    };
    end(typed, fields)?;
    let growth = RowLifecycle { eviction: Some(eviction), ..RowLifecycle::default() };
    let rule = checked(UpdateRule { growth, ..plain() });
    rule.map_err(|wrong| wrong.replace("rows_max =", "rows =")).map(|_| eviction)
}

/// `name:amount` or `name:amount,field=value,..`.
fn split_amount(text: &str) -> Option<Result<(&str, &str, Typed<'_>), String>> {
    let (name, rest) = text.split_once(':')?;
    let (amount, fields) = rest.split_once(',').map_or((rest, None), |(amount, rest)| (amount, Some(rest)));
    Some(Typed::of(name, fields).map(|typed| (name, amount, typed)))
}

/// Refuses fields that were not taken, also if there are none to take.
fn end(typed: Typed<'_>, known: &[&'static str]) -> Result<(), String> {
    match (typed.fields.first(), known) {
        (Some((field, _)), []) => Err(format!("`{}` has no field `{field}`, and no other", typed.name)),
        _ => typed.end(known.iter().copied()),
    }
}

fn whole(field: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{field} = `{text}` is no whole number"))
}

fn steps_of_word(field: &str, text: &str) -> Result<u32, String> {
    let steps = steps(field, text)?;
    u32::try_from(steps).map_err(|_| format!("{field} = {steps} must be from 1 to 2^30"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rules;
    use super::*;

    fn growth(words: &[&str]) -> RowLifecycle {
        let [embeddings, layers] = rules(words).unwrap();
        assert_eq!(layers.growth, RowLifecycle::default(), "layers are always there");
        embeddings.growth
    }

    // rule G1
    #[test]
    fn every_admission_can_be_had() {
        let admission = |text: &str| growth(&["--admission", text]).admission.unwrap();
        assert_eq!(admission("occurrences:3"), Admission::Occurrences { updates: 3, keys: 1_000_000 });
        assert_eq!(admission("occurrences:255,keys=50"), Admission::Occurrences { updates: 255, keys: 50 });
        assert_eq!(admission("probability:0.25"), Admission::Probability(0.25));
        assert_eq!(growth(&[]), RowLifecycle::default());
    }

    // rule G2
    #[test]
    fn every_eviction_can_be_had() {
        let eviction = |text: &str| growth(&["--eviction", text]).eviction.unwrap();
        assert_eq!(eviction("idle:500"), Eviction::Idle { steps: 500 });
        assert_eq!(eviction("least-used:500"), Eviction::LeastUsed { rows_max: 500, half_life: 10_000 });
        assert_eq!(
            eviction("least-used:500,half_life=7"),
            Eviction::LeastUsed { rows_max: 500, half_life: 7 }
        );
        assert_eq!(eviction("lowest-norm:500"), Eviction::LowestNorm { rows_max: 500 });
        let both = growth(&["--eviction", "idle:5", "--admission", "probability:1"]);
        assert!(both.eviction.is_some() && both.admission.is_some());
    }

    #[test]
    fn wrong_names_are_listed_with_the_valid_ones() {
        for (option, text, words) in [
            ("--admission", "2", &["--admission", "expected occurrences:N or probability:P"][..]),
            ("--admission", "twice:2", &["no admission `twice`", "occurrences:N or probability:P"]),
            ("--admission", "occurrences:1", &["occurrences = 1 must be from 2 to 255"]),
            ("--admission", "occurrences:256", &["occurrences = 256 must be from 2 to 255"]),
            ("--admission", "occurrences:few", &["occurrences = `few` is no whole number"]),
            ("--admission", "occurrences:2,keys=0", &["keys = 0 must be from 1 to 2^32"]),
            ("--admission", "occurrences:2,keys=1,keys=2", &["`keys` comes twice"]),
            ("--admission", "occurrences:2,rows=1", &["`occurrences` has no field `rows`: it has keys"]),
            ("--admission", "occurrences:2,5", &["expected FIELD=VALUE behind `occurrences:`, not `5`"]),
            ("--admission", "probability:0", &["probability = 0 must be above 0 and at most 1"]),
            ("--admission", "probability:x", &["probability = `x` is no number"]),
            ("--admission", "probability:0.5,keys=2", &["`probability` has no field `keys`"]),
            (
                "--eviction",
                "old",
                &["--eviction", "expected idle:STEPS, least-used:ROWS or lowest-norm:ROWS"],
            ),
            (
                "--eviction",
                "age:9",
                &["no eviction `age`", "idle:STEPS, least-used:ROWS or lowest-norm:ROWS"],
            ),
            ("--eviction", "idle:0", &["steps = 0 must be from 1 to 2^30"]),
            ("--eviction", "idle:9999999999", &["steps = 9999999999 must be from 1 to 2^30"]),
            ("--eviction", "idle:soon", &["steps = `soon` is no whole number of steps"]),
            ("--eviction", "least-used:0", &["rows = 0 must be at least 1"]),
            ("--eviction", "least-used:9,half_life=0", &["half_life = 0 must be from 1 to 2^30"]),
            ("--eviction", "lowest-norm:0", &["rows = 0 must be at least 1"]),
            ("--eviction", "lowest-norm:-4", &["rows = `-4` is no whole number"]),
        ] {
            let error = rules(&[option, text]).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{option} {text}: {word:?} is not in {error}");
            }
        }
    }
}
