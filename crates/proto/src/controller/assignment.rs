//! Assignment of regions to switches.

use crate::cluster::Ownership;

/// A switch that may hold regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) switch: u16,
    /// It came beyond the number that the job asked for: it gets nothing before another is lost.
    pub(super) standby: bool,
    /// It has asked to go: it keeps what it has until its turn, and gets nothing.
    pub(super) leaves: bool,
}

/// Gives every region whose owner is no candidate to the candidate that holds the fewest; to none if there is no candidate. A region
/// that has a good owner stays, for moving costs a replay (rule V7). Returns how many have moved.
pub(super) fn assign(ownerships: &mut [Ownership], number: u64, candidates: &[Candidate]) -> usize {
    let begins = ownerships.iter().all(|ownership| ownership.view_id == 0);
    let mut loads: Vec<(usize, Candidate)> = candidates
        .iter()
        .filter(|candidate| !candidate.leaves && (!begins || !candidate.standby))
        .map(|candidate| {
            (
                ownerships.iter().filter(|ownership| ownership.owner == Some(candidate.switch)).count(),
                *candidate,
            )
        })
        .collect();
    let mut moved = 0;
    for ownership in ownerships.iter_mut() {
        if ownership.owner.is_some_and(|owner| candidates.iter().any(|candidate| candidate.switch == owner)) {
            continue;
        }
        let least = loads.iter_mut().min_by_key(|(load, candidate)| (*load, candidate.switch));
        let owner = least.map(|(load, candidate)| {
            *load += 1;
            candidate.switch
        });
        if begins || owner != ownership.owner {
            *ownership = Ownership { owner, view_id: number };
            moved += 1;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(switch: u16) -> Candidate {
        Candidate { switch, standby: false, leaves: false }
    }

    fn standby(switch: u16) -> Candidate {
        Candidate { switch, standby: true, leaves: false }
    }

    fn owners(ownerships: &[Ownership]) -> Vec<Option<u16>> {
        ownerships.iter().map(|ownership| ownership.owner).collect()
    }

    #[test]
    fn regions_are_dealt_out_and_standbys_get_none() {
        let mut ownerships = vec![Ownership::default(); 5];
        assert_eq!(assign(&mut ownerships, 1, &[active(0), active(1), standby(2)]), 5);
        assert_eq!(owners(&ownerships), [Some(0), Some(1), Some(0), Some(1), Some(0)]);
        assert!(ownerships.iter().all(|ownership| ownership.view_id == 1));
    }

    // rule V12
    #[test]
    fn one_that_leaves_keeps_what_it_has_and_gets_no_more() {
        let mut ownerships = vec![Ownership::default(); 3];
        assign(&mut ownerships, 1, &[active(0), active(1)]);
        let leaving = Candidate { leaves: true, ..active(1) };
        assert_eq!(assign(&mut ownerships, 2, &[leaving]), 2);
        assert_eq!(owners(&ownerships), [None, Some(1), None]);
        assert_eq!(assign(&mut ownerships, 3, &[leaving, active(2)]), 2);
        assert_eq!(owners(&ownerships), [Some(2), Some(1), Some(2)]);
    }

    // rule V7
    #[test]
    fn lost_regions_go_to_the_owner_of_the_fewest_others_stay() {
        let mut ownerships = vec![Ownership::default(); 5];
        assign(&mut ownerships, 1, &[active(0), active(1), standby(2)]);
        assert_eq!(assign(&mut ownerships, 2, &[active(1), standby(2)]), 3);
        assert_eq!(owners(&ownerships), [Some(2), Some(1), Some(2), Some(1), Some(1)]);
        assert_eq!(ownerships[1].view_id, 1);
        assert_eq!(assign(&mut ownerships, 3, &[]), 5);
        assert_eq!(
            assign(&mut ownerships, 4, &[]),
            0,
            "without candidates no region has an owner, as before"
        );
        assert_eq!(assign(&mut ownerships, 5, &[standby(7)]), 5);
        assert_eq!(owners(&ownerships), [Some(7); 5]);
    }
}
