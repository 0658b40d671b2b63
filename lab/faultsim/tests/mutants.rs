//! The swarm finds every mutant, within a stated number of seeds.
//!
//! `cargo test -p libra-faultsim --release --features mutants --test mutants -- --nocapture` prints the table;
//! `LIBRA_MUTANT=NAME` before it limits it to one.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use libra_dataplane::mutants::{Mutant, clear, enable};
use libra_faultsim::check::Violation;
use libra_faultsim::{OPEN_WORK_FROM, Options, run};

/// Faults that the tests of `libra-dataplane` find: no view of a simulation has the lower 16 bits of another, and what is sent back to its
/// sender is none of the kinds that it takes.
const FOUND_BY_VECTORS: [Mutant; 2] = [Mutant::SinceNotInTag, Mutant::OneKeyBothWays];

/// Seeds in whose scenarios a bug can show, or that are near the first one in which it does, where many before that would take minutes.
fn seeds(bug: Mutant) -> Range<u64> {
    let first = match bug {
        Mutant::AddedPhasesLost | Mutant::VacancyNotAwaited => OPEN_WORK_FROM,
        Mutant::WorkDoneNotLearned => 12_700,
        Mutant::WakeUpBlamesOthers => 840,
        Mutant::CommitAppliedTwice => 230,
        Mutant::SilentServerGivenUp | Mutant::OtherShardsNotAwaited => 200,
        Mutant::OldControllerBelieved | Mutant::CellOrderNotChecked => 190,
        Mutant::HeldChunkDealt => 900,
        Mutant::AssignAppliedTwice => 300,
        Mutant::ShareGivenTwice => 180,
        Mutant::PathTakenForWide => 140,
        // Behind a scenario that takes as long as a thousand others.
        Mutant::GenerationNotChecked
        | Mutant::UnheardClockIgnored
        | Mutant::LeftBehindDecides
        | Mutant::AssignNotLogged
        | Mutant::RestoringNotAwaited
        | Mutant::ChunkDoneBeforeVisible
        | Mutant::DoneBeforeDone => 48,
        _ => 0,
    };
    first..first + seeds_max(bug)
}

/// Number of seeds that the swarm may need for a bug.
fn seeds_max(bug: Mutant) -> u64 {
    match bug {
        // A stream must break, and a round close while the switch and the shard find each other again.
        Mutant::CommitAppliedTwice => 2500,
        // A switch must start again at its address, and answer before its worker has received the view.
        Mutant::StrangerBelieved => 300,
        // A flow must number more packets than a window has entries.
        Mutant::GenerationNotChecked => 100,
        // A server must die between an answer and the sync.
        Mutant::AnswerBeforeDurable => 200,
        // A server must come back, and a push again that it had applied.
        Mutant::PushesForgotten => 2500,
        // What is replaced must come back, or be replayed, with something to lose.
        Mutant::ColdPushAppliedTwice => 400,
        // A data plane must be late, and a worker read what it is to have.
        Mutant::DoneBeforeDone => 300,
        // An answer must be forged, and the switch of the worker that accepted it must die.
        Mutant::DurableOfAnyAnswer => 100,
        // A flow must be short.
        Mutant::RenewalKeepsAcked => 50,
        // A worker must read before the round ends that a clock stands for.
        Mutant::TickBeforeVisible => 100,
        Mutant::UnheardClockIgnored => 200,
        // A sync must fail and forget what it was about, and the machine fail before a checkpoint has that.
        Mutant::SyncFailureRetried => 100,
        // All workers and the controller must be gone at once, before another worker has left, and a phase be over.
        Mutant::WorkDoneNotLearned => 1500,
        // A scenario must have two controllers, and members that come back to the first; or a clock that jumps while a stream is opened; or
        // bits that flip in cells; or a server that is silent for 10 s.
        Mutant::CellOrderNotChecked
        | Mutant::OldControllerBelieved
        | Mutant::LeftBehindDecides
        | Mutant::WakeUpBlamesOthers
        | Mutant::SilentServerGivenUp => 1500,
        // A server must read its disk for longer than a member may be away; or one of several shards.
        Mutant::RestoringNotAwaited => 1500,
        Mutant::OtherShardsNotAwaited => 2500,
        // A packet must be altered on its way, or forged and then missed; or a server called by an impostor.
        Mutant::AnswerTagIgnored | Mutant::PaddingNotHashed | Mutant::PassIgnored => 200,
        // A stream must break behind an assignment; or a server die; or switches hold rows of a table that is reset.
        Mutant::AssignAppliedTwice | Mutant::AssignNotLogged | Mutant::ResetKeptFromSwitches => 400,
        // A worker must be away for a moment, and another come meanwhile.
        Mutant::ShareGivenTwice => 600,
        // A scan must have a second page; or a worker disagree.
        Mutant::ScanRepeatsRow | Mutant::OtherProposalAccepted => 100,
        // A link must be narrow, and its worker push more rows at once than come through.
        Mutant::PathTakenForWide => 300,
        // Work must be dealt in chunks, and a controller be replaced; or both, just when a worker has left; or a worker read at the start of a phase.
        Mutant::HeldChunkDealt | Mutant::RecordOfLeaverLost | Mutant::ChunkDoneBeforeVisible => 1500,
        // Work must be open, and a controller be replaced.
        Mutant::AddedPhasesLost => 600,
        Mutant::FencingIgnored | Mutant::ColdReplayWithoutDedup => 50,
        // They show in the scenarios without MACs alone, which are less than half.
        _ => 60,
    }
}

#[test]
fn the_swarm_finds_every_mutant() {
    // A mutant may make a role panic; that is a find like any other, and no reason to print a trace.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    println!("{:<28} {:<10} {:>5} {:>6}  its report", "bug", "checker", "seeds", "at most");
    let only = std::env::var("LIBRA_MUTANT").ok();
    let is_asked = |bug: &Mutant| only.as_ref().is_none_or(|only| *only == bug.name());
    let of_swarm = Mutant::ALL.into_iter().filter(|bug| !FOUND_BY_VECTORS.contains(bug));
    for bug in of_swarm.filter(is_asked) {
        enable(bug);
        let (seeds, most) = (seeds(bug), seeds_max(bug));
        let begin = seeds.start;
        let found = first_found(seeds);
        clear();
        match found {
            Some((seed, violation)) => {
                let (checker, text) = (violation.checker, violation.text);
                println!("{bug:<28} {checker:<10} {:>5} {most:>6}  {text}", seed - begin + 1);
            }
            None => missed.push((bug, most)),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found, in so many seeds: {missed:?}");
}

/// The first of the seeds that finds something. Every core runs some of them.
fn first_found(seeds: Range<u64>) -> Option<(u64, Violation)> {
    let (next, first) = (AtomicU64::new(seeds.start), Mutex::new(None::<(u64, Violation)>));
    let search = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_later = first.lock().unwrap().as_ref().is_some_and(|(first, _)| *first < seed);
            if seed >= seeds.end || is_later {
                return;
            }
            if let Some(violation) = run(seed, Options::default()).violation {
                let mut first = first.lock().unwrap();
                if first.as_ref().is_none_or(|(first, _)| seed < *first) {
                    *first = Some((seed, violation));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(search);
        }
    });
    first.into_inner().unwrap()
}
