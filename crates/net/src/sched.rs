//! Scheduling policies of the kernel for busy threads.

use rustix::process::getpriority_process;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// The number that the library has for a niceness of 0.
const NOT_NICE: u8 = 48;

/// From now on this thread runs only on idle processors (`SCHED_IDLE`), unless its kernel refuses.
pub(crate) fn set_sched_idle() {
    set_policy(NormalThreadSchedulePolicy::Idle);
}

fn set_policy(policy: NormalThreadSchedulePolicy) {
    if let Ok(priority) = NOT_NICE.try_into() {
        let (priority, policy) =
            (ThreadPriority::Crossplatform(priority), ThreadSchedulePolicy::Normal(policy));
        let _refused = set_thread_priority_and_policy(thread_native_id(), priority, policy);
    }
}

/// From now on this thread waits for its turn when it wakes, instead of pushing another one aside (`SCHED_BATCH`, see sched(7)). Where there
/// are more busy threads than processors, it then finds more datagrams each time, and caches are warm for longer; where there are not,
/// nothing changes. A thread with another niceness is left as it is, and so is one whose kernel refuses.
pub(crate) fn set_sched_batch() {
    if getpriority_process(None) == Ok(0) {
        set_policy(NormalThreadSchedulePolicy::Batch);
    }
}

#[cfg(test)]
mod tests {
    use thread_priority::thread_schedule_policy;

    use super::*;

    #[test]
    fn a_thread_gets_the_idle_policy() {
        std::thread::spawn(|| {
            set_sched_idle();
            let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
            assert_eq!(thread_schedule_policy().unwrap(), idle);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_batch_policy_keeps_the_niceness() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        set_sched_batch();
        assert_eq!(nice(), before);
        if before == 0 {
            let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
            assert_eq!(thread_schedule_policy().unwrap(), batch);
        }
    }
}
