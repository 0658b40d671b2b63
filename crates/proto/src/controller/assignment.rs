//! Assignment of regions to switches.

use crate::cluster::Tenure;

/// A switch that may hold regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) switch: u16,
    /// It came beyond the number that the job asked for: it gets nothing before another is lost.
    pub(super) standby: bool,
}

/// Gives every region whose holder is no candidate to the candidate that holds the fewest; to none if there is no candidate. A region
/// that has a good holder stays, for moving costs a replay (rule V7). Returns how many have moved.
pub(super) fn assign(tenures: &mut [Tenure], number: u64, candidates: &[Candidate]) -> usize {
    let begins = tenures.iter().all(|tenure| tenure.since == 0);
    let mut loads: Vec<(usize, Candidate)> = candidates
        .iter()
        .filter(|candidate| !begins || !candidate.standby)
        .map(|candidate| {
            (tenures.iter().filter(|tenure| tenure.holder == Some(candidate.switch)).count(), *candidate)
        })
        .collect();
    let mut moved = 0;
    for tenure in tenures.iter_mut() {
        if tenure.holder.is_some_and(|holder| candidates.iter().any(|candidate| candidate.switch == holder)) {
            continue;
        }
        let least = loads.iter_mut().min_by_key(|(load, candidate)| (*load, candidate.switch));
        let holder = least.map(|(load, candidate)| {
            *load += 1;
            candidate.switch
        });
        if begins || holder != tenure.holder {
            *tenure = Tenure { holder, since: number };
            moved += 1;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(switch: u16) -> Candidate {
        Candidate { switch, standby: false }
    }

    fn standby(switch: u16) -> Candidate {
        Candidate { switch, standby: true }
    }

    fn holders(tenures: &[Tenure]) -> Vec<Option<u16>> {
        tenures.iter().map(|tenure| tenure.holder).collect()
    }

    #[test]
    fn regions_are_dealt_out_and_standbys_get_none() {
        let mut tenures = vec![Tenure::default(); 5];
        assert_eq!(assign(&mut tenures, 1, &[active(0), active(1), standby(2)]), 5);
        assert_eq!(holders(&tenures), [Some(0), Some(1), Some(0), Some(1), Some(0)]);
        assert!(tenures.iter().all(|tenure| tenure.since == 1));
    }

    // rule V7
    #[test]
    fn lost_regions_go_to_the_holder_of_the_fewest_others_stay() {
        let mut tenures = vec![Tenure::default(); 5];
        assign(&mut tenures, 1, &[active(0), active(1), standby(2)]);
        assert_eq!(assign(&mut tenures, 2, &[active(1), standby(2)]), 3);
        assert_eq!(holders(&tenures), [Some(2), Some(1), Some(2), Some(1), Some(1)]);
        assert_eq!(tenures[1].since, 1);
        assert_eq!(assign(&mut tenures, 3, &[]), 5);
        assert_eq!(assign(&mut tenures, 4, &[]), 0, "without candidates no region has a holder, as before");
        assert_eq!(assign(&mut tenures, 5, &[standby(7)]), 5);
        assert_eq!(holders(&tenures), [Some(7); 5]);
    }
}
