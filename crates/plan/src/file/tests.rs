use proptest::prelude::*;

use super::*;
use crate::plan::tests::{example, plan};

proptest! {
    #[test]
    fn a_plan_comes_back_from_its_file(plan in plan()) {
        let text = plan.to_toml();
        prop_assert_eq!(Plan::from_toml(&text), Ok(plan), "{}", text);
    }

    #[test]
    fn no_text_panics(text in ".*") {
        let _ = Plan::from_toml(&text);
    }

    #[test]
    fn no_damaged_plan_panics(at in any::<prop::sample::Index>(), with in "[-0-9\\[\\],\"=\n a-z]{0,3}") {
        let mut text = example().to_toml();
        let at = at.index(text.len());
        text.replace_range(at..(at + 1).min(text.len()), &with);
        if let Ok(plan) = Plan::from_toml(&text) {
            prop_assert_eq!(plan.check(), Ok(()));
        }
    }
}

/// The message for the example plan with one text replaced by another.
fn message(from: &str, to: &str) -> String {
    let text = example().to_toml();
    assert!(text.contains(from), "{text}");
    Plan::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string()
}

fn line_of(part: &str) -> usize {
    let text = example().to_toml();
    1 + text.lines().position(|line| line.contains(part)).expect("the example has the part")
}

#[test]
fn errors_name_line_and_field() {
    let rows = line_of("[7, 9, 16]");
    assert_eq!(
        message("[3, 5, -2]", "[600, 5, -2]"),
        format!("line {}: row 1: key 600 belongs to no table", rows + 1)
    );
    assert_eq!(
        message("[9, 5, 0]", "[7, 5, 0]"),
        format!("line {}: row 2: key 7 is there already", rows + 2)
    );
    assert_eq!(
        message("number = 3", "number = 0"),
        format!("line {}: the number of a plan is at least 1", line_of("number = 3"))
    );
    assert_eq!(
        message("headroom_bits = 12", "headroom_bits = 30"),
        format!("line {}: headroom_bits = 30 is above 24", line_of("headroom_bits = 12"))
    );
    assert_eq!(
        message("width = 8", "width = 0"),
        format!("line {}: table \"item\" has rows of width 0", line_of("\"item\"") - 1)
    );
    let unknown = message("seed = 1", "sead = 1");
    assert!(unknown.starts_with(&format!("line {}: unknown field `sead`", line_of("seed = 1"))), "{unknown}");
    let missing = message("pushes = 10\n", "");
    assert!(missing.contains("missing field `pushes`"), "{missing}");
    let kind = message("[9, 5, 0]", "[9, \"5\", 0]");
    assert!(kind.starts_with(&format!("line {}: ", rows + 2)), "{kind}");
    let syntax = message("[9, 5, 0],", "[9, 5, 0");
    assert!(syntax.starts_with("line "), "{syntax}");
    assert!(Plan::from_toml("").unwrap_err().to_string().contains("missing field `number`"));
}

#[test]
fn the_file_reads_well() {
    let text = example().to_toml();
    assert!(
        text.contains(
            "\nrows = [\n  [7, 9, 16],\n  [3, 5, -2],\n  [9, 5, 0],\n  [18446744073709551614, 1, 20],\n]\n"
        ),
        "{text}"
    );
    assert!(text.contains("keys = { start = 0, end = 500 }"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
}
