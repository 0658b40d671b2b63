use proptest::prelude::*;

use super::*;

pub(crate) fn tables() -> Vec<TableShape> {
    vec![
        TableShape { name: "item".into(), keys: 0..500, width: 8, hot: true },
        TableShape { name: "dense".into(), keys: 500..600, width: 100_000, hot: false },
        TableShape { name: "user \"x\"\n".into(), keys: u64::MAX - 100..u64::MAX, width: 1, hot: true },
    ]
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..500, u64::MAX - 100..u64::MAX]
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let rows = prop::collection::hash_map(key(), (0_u64..9, any::<i8>()), 0..60);
    let provenance = (".*", ".*", 0.0..=1.0, any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
        |(model, data, sample, seed, batch, pushes)| Provenance {
            model,
            data,
            sample,
            seed,
            batch,
            pushes,
            tool: "libra 0.1.0".into(),
        },
    );
    (1_u16.., provenance, 1e-300..=1.0, 0.01..=1.0, 0..=HEADROOM_BITS_MAX, 0.0..=1.0, rows).prop_map(
        |(number, provenance, p, c, headroom_bits, predicted_share, rows)| {
            let mut rows: Vec<HotRow> = rows
                .into_iter()
                .map(|(key, (count, scale))| HotRow { key, count, scale: Scale(scale) })
                .collect();
            rows.sort_by_key(|row| (std::cmp::Reverse(row.count), row.key));
            let budget = Budget { p, c, on_chip_bytes: 1 << 20 };
            Plan { number, provenance, tables: tables(), budget, headroom_bits, predicted_share, rows }
        },
    )
}

/// A small valid plan.
pub(crate) fn example() -> Plan {
    let row = |key, count, scale| HotRow { key, count, scale: Scale(scale) };
    Plan {
        number: 3,
        provenance: Provenance {
            model: "deepfm".into(),
            data: "clicks".into(),
            sample: 0.08,
            seed: 1,
            batch: 512,
            pushes: 10,
            tool: "libra 0.1.0".into(),
        },
        tables: tables(),
        budget: Budget::default(),
        headroom_bits: 12,
        predicted_share: 0.75,
        rows: vec![row(7, 9, 16), row(3, 5, -2), row(9, 5, 0), row(u64::MAX - 1, 1, 20)],
    }
}

proptest! {
    #[test]
    fn every_generated_plan_is_valid(plan in plan()) {
        prop_assert_eq!(plan.check(), Ok(()));
    }

    #[test]
    fn a_plan_survives_a_message(plan in plan()) {
        let bytes = postcard::to_stdvec(&plan).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Plan>(&bytes).unwrap(), plan);
    }
}

#[test]
fn a_plan_has_the_rows_that_principle_1_picks_with_their_scales() {
    let mut frequencies = Frequencies::new(tables()).unwrap();
    frequencies.record_push([5, 1, 510]);
    frequencies.record_push([5, 2, 510]);
    frequencies.record_push([5, 1, 510]);
    frequencies.record_push([5, 2, 510]);
    frequencies.record_gradient(5, 0.5);
    frequencies.record_gradient(1, 4.0);
    let budget = Budget { p: 0.45, ..Budget::default() };
    let plan =
        Plan::new(2, Provenance { pushes: 99, ..Provenance::default() }, &frequencies, budget, 12).unwrap();
    // 524287 / (64 x 0.5) is just below 2^14, / (64 x 4) just below 2^11.
    let expected = [(5, 4, Scale(13)), (1, 2, Scale(10))];
    assert_eq!(plan.rows.iter().map(|row| (row.key, row.count, row.scale)).collect::<Vec<_>>(), expected);
    assert_eq!(plan.provenance.pushes, 4);
    // Of 12 updates rows 5 and 1 have 6; row 1 would leave the first two without one of its updates.
    assert!((plan.predicted_share - 4.0 / 12.0).abs() < 1e-12);
    assert_eq!(plan.check(), Ok(()));
    assert_eq!((plan.bound(), plan.pushes_per_bank_max()), (524_287, 4096));
}

#[test]
fn what_is_wrong_is_said() {
    let fault = |change: fn(&mut Plan)| {
        let mut plan = example();
        change(&mut plan);
        plan.check().unwrap_err()
    };
    assert_eq!(fault(|plan| plan.number = 0), Invalid::Number);
    assert_eq!(fault(|plan| plan.headroom_bits = 25), Invalid::Headroom { headroom_bits: 25 });
    assert_eq!(fault(|plan| plan.predicted_share = 1.1), Invalid::PredictedShare { share: 1.1 });
    assert!(matches!(fault(|plan| plan.predicted_share = f64::NAN), Invalid::PredictedShare { .. }));
    assert_eq!(fault(|plan| plan.provenance.sample = -0.5), Invalid::Sample { sample: -0.5 });
    assert!(matches!(fault(|plan| plan.budget.p = 0.0), Invalid::Budget(_)));
    assert!(matches!(fault(|plan| plan.tables[0].width = 0), Invalid::Tables(_)));
    assert_eq!(fault(|plan| plan.rows[1].key = 700), Invalid::UnknownKey { rank: 1, key: 700 });
    let not_hot = Invalid::NotHot { rank: 1, key: 505, table: "dense".into() };
    assert_eq!(fault(|plan| plan.rows[1].key = 505), not_hot);
    assert_eq!(fault(|plan| plan.rows[3].key = 7), Invalid::Twice { rank: 3, key: 7 });
    assert_eq!(fault(|plan| plan.rows[2].count = 6), Invalid::Order { rank: 2, key: 9 });
    assert_eq!(fault(|plan| plan.rows.swap(1, 2)), Invalid::Order { rank: 2, key: 3 });
    let memory = Invalid::Memory { rank: 2, slots: 24, slots_max: 20 };
    assert_eq!(fault(|plan| plan.budget = Budget { p: 0.9, c: 1.0, on_chip_bytes: 80 }), memory);
}

#[test]
fn a_plan_fits_the_tables_it_was_made_for() {
    let plan = example();
    let mut model = tables();
    model.reverse();
    assert_eq!(plan.fits(&model), Ok(()));
    let misfit = |change: fn(&mut Vec<TableShape>)| {
        let mut model = tables();
        change(&mut model);
        plan.fits(&model).unwrap_err().to_string()
    };
    assert_eq!(
        misfit(|model| model[0].keys.end = 400),
        r#"table "item" has keys 0..400 in the model, 0..500 in the plan"#
    );
    assert_eq!(
        misfit(|model| model[0].width = 16),
        r#"table "item" has rows of 16 values in the model and of 8 in the plan"#
    );
    assert_eq!(
        misfit(|model| model[1].hot = true),
        r#"table "dense" has `hot = true` in the model and `hot = false` in the plan"#
    );
    assert_eq!(
        misfit(|model| model[0].name = "goods".into()),
        r#"the model has a table "goods", the plan has none of that name"#
    );
    assert_eq!(
        misfit(|model| drop(model.remove(0))),
        r#"the plan is for a model with a table "item", this one has none of that name"#
    );
}

#[test]
fn the_summary_is_a_screenful() {
    let mut plan = example();
    plan.tables[2].name = "user".into();
    let expected = "\
plan 3 for deepfm on clicks
made by libra 0.1.0, seed 1: 8.0 % of the data, 10 pushes of 512 records
4 hot rows are expected to take 75.0 % of the row updates (wanted: 90.0 %)
25 slots of 4 bytes take 0.0 % of the on-chip memory (allowed: 5.0 %)
a bank takes 4096 pushes; a value is at most 524287";
    let summary = plan.summary();
    assert_eq!(summary.to_string(), expected);
    let rows: Vec<_> = summary.rows().collect();
    assert_eq!(
        rows,
        [
            ["item", "500", "8", "3", "24", "9..5", "-2..16"],
            ["dense", "100", "100000", "0", "0", "-", "-"],
            ["user", "100", "1", "1", "1", "1..1", "20..20"],
        ]
    );
}
