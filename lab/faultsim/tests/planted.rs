//! The swarm finds every bug that is planted, within a stated number of seeds.
//!
//! `cargo test -p libra-faultsim --release --features planted-bugs --test planted -- --nocapture` prints the table.

use libra_dataplane::planted::{PlantedBug, clear, plant};
use libra_faultsim::{Options, run};

/// Number of seeds that the swarm may need for a bug.
fn seeds_max(bug: PlantedBug) -> u64 {
    match bug {
        // A stream must break, and an epoch close while the switch and the shard find each other again.
        PlantedBug::CommitAppliedTwice => 2500,
        // A switch must start again at its address, and answer before its worker has received the view.
        PlantedBug::StrangerBelieved => 300,
        // A flow must number more packets than a window has entries.
        PlantedBug::GenerationNotChecked => 100,
        // A server must die between an answer and the sync.
        PlantedBug::AnswerBeforeDurable => 200,
        // A server must come back, and a push again that it had applied.
        PlantedBug::PushesForgotten => 2500,
        // What is replaced must come back, or be replayed, with something to lose.
        PlantedBug::ColdPushAppliedTwice => 400,
        // A data plane must be late, and a worker read what it is to have.
        PlantedBug::DoneBeforeDone => 300,
        // An answer must be forged, and the switch of the worker that accepted it must die.
        PlantedBug::DurableOfAnyAnswer => 100,
        // A flow must be short.
        PlantedBug::RenewalKeepsCut => 50,
        // A worker must read before the epoch ends that a clock stands for.
        PlantedBug::TickBeforeVisible => 100,
        PlantedBug::UnheardClockIgnored => 50,
        // A sync must fail and forget what it was about, and the machine fail before a checkpoint has that.
        PlantedBug::SyncFailureRetried => 100,
        // A scenario must have two controllers, and members that come back to the first; or a clock that jumps while a stream is opened; or
        // bits that flip in cells; or a server that is silent for 10 s.
        PlantedBug::CellOrderNotChecked
        | PlantedBug::OldControllerBelieved
        | PlantedBug::LeftBehindDecides
        | PlantedBug::WakeUpBlamesOthers
        | PlantedBug::SilentServerGivenUp => 1500,
        PlantedBug::FencingIgnored | PlantedBug::ColdReplayWithoutDedup => 50,
        _ => 20,
    }
}

#[test]
fn the_swarm_finds_every_planted_bug() {
    // A planted bug may make a role panic; that is a find like any other, and no reason to print a trace.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    println!("{:<28} {:<10} {:>5} {:>6}  its report", "bug", "checker", "seeds", "at most");
    for bug in PlantedBug::ALL {
        plant(bug);
        let most = seeds_max(bug);
        let found = (0..most).find_map(|seed| Some((seed, run(seed, Options::default()).violation?)));
        clear();
        match found {
            Some((seed, violation)) => {
                let (checker, text) = (violation.checker, violation.text);
                println!("{bug:<28} {checker:<10} {:>5} {most:>6}  {text}", seed + 1);
            }
            None => missed.push((bug, most)),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found, in so many seeds: {missed:?}");
}
