//! Stalls of pushes with default settings, on a network of 100 us: while a standby takes over, and while a
//! switch is replaced as planned.

use core::time::Duration;

use libra_faultsim::{AnyRole, ClusterHarness, Event, HarnessConfig};
use libra_proto::{ControllerCommand, HotPath, Level, Role, WorkerEvent};

/// Workers that push one hot row each, one push after the other. The longest pause between two completed pushes of any
/// worker, from `fault` on, for two seconds.
fn longest_stall(fault: impl Fn(&mut ClusterHarness)) -> Duration {
    let mut config = HarnessConfig::small(2, 1, 2);
    config.hot_path = HotPath::for_workers(2);
    let mut harness = ClusterHarness::started(config);
    harness.add_switch();
    harness.run_for(Duration::from_millis(500));
    let workers: Vec<usize> = harness.workers().collect();
    let began = harness.world.now();
    let mut last = vec![began; workers.len()];
    let mut longest = Duration::ZERO;
    for &worker in &workers {
        harness.push(worker, &[3], &[1.0; 3], Level::Accepted);
    }
    let mut hit = false;
    while harness.world.now().since(began) < Duration::from_secs(2) {
        if !hit && harness.world.now().since(began) > Duration::from_millis(333) {
            hit = true;
            fault(&mut harness);
        }
        harness.step();
        for (worker, last) in workers.iter().zip(&mut last) {
            while let Some(event) = harness.next_event(*worker) {
                if matches!(event, Event::Worker(WorkerEvent::Pushed { .. })) {
                    let now = harness.world.now();
                    longest = longest.max(now.since(*last));
                    *last = now;
                    harness.push(*worker, &[3], &[1.0; 3], Level::Accepted);
                }
            }
        }
    }
    harness.flush_all();
    assert_eq!(harness.check(), Ok(()));
    longest
}

#[test]
fn a_switch_that_is_killed_stalls_pushes_for_less_than_a_second() {
    let killed = longest_stall(|harness| harness.world.crash(harness.switches().start));
    let powerless = longest_stall(|harness| harness.world.fail_machine(harness.switches().start));
    println!("process killed: {killed:?}; machine without power: {powerless:?}");
    assert!(killed < Duration::from_millis(400) && powerless < Duration::from_secs(1));
}

#[test]
fn a_planned_migration_stalls_pushes_for_less_than_100_ms() {
    let stall = longest_stall(|harness| {
        harness.act(0, |role, now| match role {
            AnyRole::Controller(role) => role.handle_command(now, ControllerCommand::Migrate { switch: 0 }),
            other => panic!("{other:?} is no controller"),
        });
    });
    println!("planned migration: {stall:?}");
    assert!(stall < Duration::from_millis(100));
}
