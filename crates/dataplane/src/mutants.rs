//! Mutants: single faults to enable, so that a test can show that it would notice each of them.
//!
//! Only with the feature `mutants`, which no build of the product has: without it [`is_enabled`] is always false, and
//! the compiler removes what asks. Mutants are enabled for the whole process, as a region has nowhere to carry them: tests
//! that enable one must run one at a time, and clear when they end.

use core::fmt;
#[cfg(feature = "mutants")]
use core::sync::atomic::{AtomicU64, Ordering};

/// The mutants that are enabled, one bit each. Nothing is ordered by it, so relaxed accesses do.
#[cfg(feature = "mutants")]
static ENABLED: AtomicU64 = AtomicU64::new(0);

/// A single fault. Its place is in this crate, or in the roles that drive it, which ask [`is_enabled`] themselves. What `libra-p4` has of a
/// program for switches has those of this crate, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Mutant {
    /// The window takes every packet for a new one.
    NoDedup,
    /// The window takes a packet for a duplicate when any packet was accepted in its entry, an older one too.
    GenerationNotChecked,
    /// Of every seventh push that a region takes, the second half of the entries goes into the idle bank.
    FlipInTheMiddle,
    /// The acked set of a flow lacks the highest sequence number accepted.
    AckedOffByOne,
    /// A region takes packets of any view.
    StaleViewAccepted,
    /// A region takes packets of any plan.
    StalePlanAccepted,
    /// A region does not remember the packets that were accepted before: a standby starts with empty windows.
    MarkSeenForgotten,
    /// In the roles: a commit that comes twice is applied twice.
    CommitAppliedTwice,
    /// In the roles: after a switch is lost, packets that the contents of a round name are sent again too.
    ReplayWithoutContents,
    /// In the roles: a worker lets go of a packet when it is acknowledged, not when its round is durable.
    FreeOnAck,
    /// In the roles: a role that was replaced goes on as if it were not.
    FencingIgnored,
    /// In the roles: a standby does not receive what was accepted before.
    StandbyStartsEmpty,
    /// In the roles: packets are sent again under new sequence numbers.
    ReplayWithNewNumbers,
    /// In the roles: a push of cold rows that comes twice is applied twice.
    ColdPushAppliedTwice,
    /// In the roles: a push of cold rows that is sent again is not recognised.
    ColdReplayWithoutDedup,
    /// In the roles: a switch that does not have a region is trusted about what is durable there.
    StrangerBelieved,
    /// In the roles: a server answers before its log has what it applied.
    AnswerBeforeDurable,
    /// In the roles: a server that was started again has forgotten the pushes that it has applied.
    PushesForgotten,
    /// In the roles: a worker reports a tick before the pushes before it are visible.
    TickBeforeVisible,
    /// In the roles: a controller waits for no worker that has not sent its clock yet.
    UnheardClockIgnored,
    /// In the roles: a switch reports the state that its data plane has yet to reach.
    DoneBeforeDone,
    /// In the roles: a worker takes the durable round from any packet, also from one that answers no request.
    DurableOfAnyAnswer,
    /// In the roles: a shard keeps the part of the acked set of a flow that was renewed.
    RenewalKeepsAcked,
    /// Below the roles: a sync that failed is asked for again, and its success is taken for that of the first.
    SyncFailureRetried,
    /// In the data plane: cells of a packet need not increase.
    CellOrderNotChecked,
    /// In the roles: a controller that was left behind does not notice that its members have a newer view.
    OldControllerBelieved,
    /// In the roles: a controller passes barriers without those it has given up before its servers have agreed.
    LeftBehindDecides,
    /// In the roles: a member takes the time that it slept for time in which it tried to reach another.
    WakeUpBlamesOthers,
    /// In the roles: a server that is silent on an open stream is given up though it can come back.
    SilentServerGivenUp,
    /// In the roles: rows that are set again by the same message are set twice.
    AssignAppliedTwice,
    /// In the roles: rows that are set are not in the log.
    AssignNotLogged,
    /// In the roles: switches keep the values of rows of a table that was reset.
    ResetKeptFromSwitches,
    /// In the roles: a page of a scan begins with the last row of the page before.
    ScanRepeatsRow,
    /// In the roles: a controller takes in a worker that has described another job.
    OtherProposalAccepted,
    /// In the roles: a controller does not wait for a server that reads its disk.
    RestoringNotAwaited,
    /// In the roles: a controller waits for the shard that a server reads, and not for the others of its process.
    OtherShardsNotAwaited,
    /// A switch carries out packets whatever their tag.
    TagIgnored,
    /// In the roles: a worker takes answers whatever their tag.
    AnswerTagIgnored,
    /// Of the view the tag covers the lower 16 bits alone.
    SinceNotInTag,
    /// The tags of answers are made with the key of requests.
    OneKeyBothWays,
    /// The tag covers no entry behind the last multiple of 32 bytes.
    PaddingNotHashed,
    /// In the roles: a server believes whom a stream says it is of.
    PassIgnored,
    /// A switch answers packets of another view before it looks at their tag.
    StaleAnsweredBeforeTag,
    /// In the roles: a server that was asked to end does so before its disk has what it has answered.
    DrainedBeforeSaved,
    /// In the roles: a server removes a checkpoint that all shards have when it has a newer one itself.
    CheckpointRemovedAlone,
    /// In the roles: members call a server where it was before.
    OldAddressCalled,
    /// In the roles: the share of a worker that is away for a moment is given to another.
    ShareGivenTwice,
    /// In the roles: a worker makes packets of the length of the job before it knows that they come through.
    PathTakenForWide,
    /// In the roles: a controller that has taken over deals chunks before workers have told which they hold.
    HeldChunkDealt,
    /// In the roles: a worker that leaves goes before the servers have the record of what it has done.
    RecordOfLeaverLost,
    /// In the roles: a chunk is done before its pushes are visible.
    ChunkDoneBeforeVisible,
    /// In the roles: servers do not have the phases that are added to open work, so that a controller that takes over has none.
    AddedPhasesLost,
    /// In the roles: a job whose last worker is lost ends although others come in its place.
    VacancyNotAwaited,
    /// In the roles: a controller that takes over does not learn from servers what is done of the work.
    WorkDoneNotLearned,
}

impl Mutant {
    /// Those of this crate, which vectors find: all before the first of the roles, which are the simulator's to find.
    pub const OF_DATA_PLANE: &[Self] = Self::ALL.split_at(Self::CommitAppliedTwice as usize).0;

    /// Every bug, in the order of their bits.
    pub const ALL: [Self; 54] = [
        Self::NoDedup,
        Self::GenerationNotChecked,
        Self::FlipInTheMiddle,
        Self::AckedOffByOne,
        Self::StaleViewAccepted,
        Self::StalePlanAccepted,
        Self::MarkSeenForgotten,
        Self::CommitAppliedTwice,
        Self::ReplayWithoutContents,
        Self::FreeOnAck,
        Self::FencingIgnored,
        Self::StandbyStartsEmpty,
        Self::ReplayWithNewNumbers,
        Self::ColdPushAppliedTwice,
        Self::ColdReplayWithoutDedup,
        Self::StrangerBelieved,
        Self::AnswerBeforeDurable,
        Self::PushesForgotten,
        Self::TickBeforeVisible,
        Self::UnheardClockIgnored,
        Self::DoneBeforeDone,
        Self::DurableOfAnyAnswer,
        Self::RenewalKeepsAcked,
        Self::SyncFailureRetried,
        Self::CellOrderNotChecked,
        Self::OldControllerBelieved,
        Self::LeftBehindDecides,
        Self::WakeUpBlamesOthers,
        Self::SilentServerGivenUp,
        Self::AssignAppliedTwice,
        Self::AssignNotLogged,
        Self::ResetKeptFromSwitches,
        Self::ScanRepeatsRow,
        Self::OtherProposalAccepted,
        Self::RestoringNotAwaited,
        Self::OtherShardsNotAwaited,
        Self::TagIgnored,
        Self::AnswerTagIgnored,
        Self::SinceNotInTag,
        Self::OneKeyBothWays,
        Self::PaddingNotHashed,
        Self::PassIgnored,
        Self::StaleAnsweredBeforeTag,
        Self::DrainedBeforeSaved,
        Self::CheckpointRemovedAlone,
        Self::OldAddressCalled,
        Self::ShareGivenTwice,
        Self::PathTakenForWide,
        Self::HeldChunkDealt,
        Self::RecordOfLeaverLost,
        Self::ChunkDoneBeforeVisible,
        Self::AddedPhasesLost,
        Self::VacancyNotAwaited,
        Self::WorkDoneNotLearned,
    ];

    /// The name to type on a command line. [`Display`](fmt::Display) writes the same.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoDedup => "no-dedup",
            Self::GenerationNotChecked => "generation-not-checked",
            Self::FlipInTheMiddle => "flip-in-the-middle",
            Self::AckedOffByOne => "acked-off-by-one",
            Self::StaleViewAccepted => "stale-view-accepted",
            Self::StalePlanAccepted => "stale-plan-accepted",
            Self::MarkSeenForgotten => "mark-seen-forgotten",
            Self::CommitAppliedTwice => "commit-applied-twice",
            Self::ReplayWithoutContents => "replay-without-contents",
            Self::FreeOnAck => "free-on-ack",
            Self::FencingIgnored => "fencing-ignored",
            Self::StandbyStartsEmpty => "standby-starts-empty",
            Self::ReplayWithNewNumbers => "replay-with-new-numbers",
            Self::ColdPushAppliedTwice => "cold-push-applied-twice",
            Self::ColdReplayWithoutDedup => "cold-replay-without-dedup",
            Self::StrangerBelieved => "stranger-believed",
            Self::AnswerBeforeDurable => "answer-before-durable",
            Self::PushesForgotten => "pushes-forgotten",
            Self::TickBeforeVisible => "tick-before-visible",
            Self::UnheardClockIgnored => "unheard-clock-ignored",
            Self::DoneBeforeDone => "done-before-done",
            Self::DurableOfAnyAnswer => "durable-of-any-answer",
            Self::RenewalKeepsAcked => "renewal-keeps-acked",
            Self::SyncFailureRetried => "sync-failure-retried",
            Self::CellOrderNotChecked => "cell-order-not-checked",
            Self::OldControllerBelieved => "old-controller-believed",
            Self::LeftBehindDecides => "left-behind-decides",
            Self::WakeUpBlamesOthers => "wake-up-blames-others",
            Self::SilentServerGivenUp => "silent-server-given-up",
            Self::AssignAppliedTwice => "assign-applied-twice",
            Self::AssignNotLogged => "assign-not-logged",
            Self::ResetKeptFromSwitches => "reset-kept-from-switches",
            Self::ScanRepeatsRow => "scan-repeats-row",
            Self::OtherProposalAccepted => "other-proposal-accepted",
            Self::RestoringNotAwaited => "restoring-not-awaited",
            Self::OtherShardsNotAwaited => "other-shards-not-awaited",
            Self::TagIgnored => "tag-ignored",
            Self::AnswerTagIgnored => "answer-tag-ignored",
            Self::SinceNotInTag => "since-not-in-tag",
            Self::OneKeyBothWays => "one-key-both-ways",
            Self::PaddingNotHashed => "padding-not-hashed",
            Self::PassIgnored => "pass-ignored",
            Self::StaleAnsweredBeforeTag => "stale-answered-before-tag",
            Self::DrainedBeforeSaved => "drained-before-saved",
            Self::CheckpointRemovedAlone => "checkpoint-removed-alone",
            Self::OldAddressCalled => "old-address-called",
            Self::ShareGivenTwice => "share-given-twice",
            Self::PathTakenForWide => "path-taken-for-wide",
            Self::HeldChunkDealt => "held-chunk-dealt",
            Self::RecordOfLeaverLost => "record-of-leaver-lost",
            Self::ChunkDoneBeforeVisible => "chunk-done-before-visible",
            Self::AddedPhasesLost => "added-phases-lost",
            Self::VacancyNotAwaited => "vacancy-not-awaited",
            Self::WorkDoneNotLearned => "work-done-not-learned",
        }
    }

    #[cfg(feature = "mutants")]
    const fn bit(self) -> u64 {
        1_u64.wrapping_shl(self as u32)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(feature = "mutants")]
/// Turns a bug on, beside those that are.
pub fn enable(bug: Mutant) {
    ENABLED.fetch_or(bug.bit(), Ordering::Relaxed);
}

#[cfg(feature = "mutants")]
/// Turns all bugs off.
pub fn clear() {
    ENABLED.store(0, Ordering::Relaxed);
}

/// Returns true if a mutant is enabled: none ever is.
#[cfg(not(feature = "mutants"))]
#[inline]
#[must_use]
pub const fn is_enabled(_: Mutant) -> bool {
    false
}

/// Returns true if a mutant is enabled.
#[cfg(feature = "mutants")]
#[inline]
#[must_use]
pub fn is_enabled(bug: Mutant) -> bool {
    ENABLED.load(Ordering::Relaxed) & bug.bit() != 0
}

#[cfg(test)]
#[cfg(feature = "mutants")]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::format;
    use std::string::String;

    use super::*;

    // No mutant is enabled here: the other tests of this process would run into it. See tests/mutants.rs.

    #[test]
    fn every_bug_has_a_bit_and_a_name_of_its_own() {
        let bits: BTreeSet<u64> = Mutant::ALL.iter().map(|bug| bug.bit()).collect();
        assert!(bits.into_iter().eq((0..Mutant::ALL.len()).map(|place| 1 << place)));
        for bug in Mutant::ALL {
            let mut kebab = String::new();
            for letter in format!("{bug:?}").chars() {
                if letter.is_uppercase() && !kebab.is_empty() {
                    kebab.push('-');
                }
                kebab.push(letter.to_ascii_lowercase());
            }
            assert_eq!(format!("{bug}"), kebab);
        }
    }
}
