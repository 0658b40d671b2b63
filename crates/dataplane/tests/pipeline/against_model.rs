//! The pipeline and its [model](crate::model), over random steps and a long run of sound ones.

use libra_dataplane::{Arithmetic, Entry, Kind, RegionConfig};
use proptest::prelude::*;

use crate::model::{Model, Step, any_step, check_end, send, step};
use crate::scene::{JOB, PLAN, VIEW_ID, any_config, header, pipeline};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    // rules W5, W6, W10, D2, D7
    #[test]
    fn the_pipeline_does_what_the_model_does(
        config in any_config(0),
        steps in prop::collection::vec(any_step(), 0..150),
    ) {
        let mut pipeline = pipeline(&[config]);
        let mut model = Model::new(config);
        for next in steps {
            step(&mut pipeline, &mut model, next);
        }
        check_end(&pipeline, &model);
    }
}

// rules D1, D4, W11
/// Random bytes rarely make many pushes in a row that are sound, so here all of them are; windows go round, and rounds
/// wrap.
#[test]
fn a_long_run_of_sound_pushes() {
    let config = RegionConfig {
        job: JOB,
        region: 0,
        plan: PLAN,
        view: VIEW_ID,
        lanes: 1,
        cells: 50,
        flows: 1,
        bank_packets_max: 4,
        arithmetic: Arithmetic::Fixed { bound: i32::MAX.unsigned_abs() / 4 },
    };
    let mut pipeline = pipeline(&[config]);
    let mut model = Model::new(config);
    let region = pipeline.region_mut(JOB, 0).unwrap();
    region.resume_after(u16::MAX - 300);
    (model.round, model.durable) = (u16::MAX - 299, u16::MAX - 300);
    for seq in 0..3000_u32 {
        let cell = u16::try_from(seq % 40).unwrap();
        let value = |sign: i32| (sign * (i32::MAX / 4)).cast_unsigned();
        let entries = [(cell, value(1)), (cell + 3, value(-1)), (cell + 9, seq)];
        let entries = entries.map(|(cell, value)| Entry { cell, value });
        send(&mut pipeline, &mut model, header(Kind::Push, 0, seq), &entries);
        send(&mut pipeline, &mut model, header(Kind::Push, 0, seq.saturating_sub(seq % 1500)), &entries);
        if seq % 4 == 3 {
            step(&mut pipeline, &mut model, Step::Drain);
            step(&mut pipeline, &mut model, Step::Flip);
        }
    }
    assert_eq!(pipeline.counters().pushes, 3000);
    assert_eq!(pipeline.counters().refused(), 0);
}
