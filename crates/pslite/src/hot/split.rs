//! A request with hot and with cold keys becomes two, and their answers become one.

use crate::mesh::{Bytes, OutgoingMessage};
use libra_plan::Placement;

use crate::arrays::{Floats, Keys, is_for_sums, keys_of, values_of};

/// The hot part of a request, and the rest for the server.
#[derive(Debug)]
pub(super) struct Split {
    /// The hot keys, in ascending order.
    pub(super) keys: Vec<u64>,
    /// For a push the numbers that are subtracted from each: the negative of those to add.
    pub(super) gradients: Vec<f32>,
    /// Places of the hot keys in the request.
    pub(super) places: Vec<usize>,
    /// Number of keys of the request.
    pub(super) key_count: usize,
    /// The same request with all other keys, if there are any.
    pub(super) cold: Option<OutgoingMessage>,
}

/// The parts of a request.
pub(super) enum Parts {
    /// It goes as it is: it has no hot keys, or the server is to refuse it.
    Whole,
    Split(Split),
    /// No server can serve it, and why.
    Refused(&'static str),
}

/// Takes the hot keys out of a request.
pub(super) fn split(placement: &Placement, outgoing: &OutgoingMessage) -> Parts {
    if !is_for_sums(outgoing) {
        return Parts::Whole;
    }
    let keys = keys_of(outgoing);
    let key_count = keys.len();
    let mut search = placement.search();
    let (mut hot, mut cold, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (place, key) in keys.enumerate() {
        if search.find(key).is_some() {
            hot.push(key);
            places.push(place);
        } else {
            cold.push(key);
        }
    }
    if hot.is_empty() {
        return Parts::Whole;
    }
    if !hot.is_sorted_by(|one, next| one < next) {
        return Parts::Refused("keys of a request must ascend, each once, if some of them are in the plan");
    }
    let (mut gradients, mut cold_values) = (Vec::new(), Vec::new());
    let mut next_hot = places.iter().peekable();
    for (place, value) in values_of(outgoing).enumerate() {
        if next_hot.next_if_eq(&&place).is_some() {
            gradients.push(-value);
        } else {
            cold_values.push(value);
        }
    }
    let cold = (!cold.is_empty()).then(|| {
        let (keys, values) = (Bytes::new(Keys(cold)), Bytes::new(Floats(cold_values)));
        OutgoingMessage { meta: outgoing.meta, keys, values, ..OutgoingMessage::default() }
    });
    Parts::Split(Split { keys: hot, gradients, places, key_count, cold })
}

/// Values in the order of the keys of a request. `None` if there are not as many cold ones as cold keys.
pub(super) fn merge(key_count: usize, places: &[usize], hot: &[f32], cold: &[f32]) -> Option<Vec<f32>> {
    if places.len() + cold.len() != key_count {
        return None;
    }
    let mut merged = Vec::with_capacity(key_count);
    let mut cold = cold.iter().copied();
    for (place, value) in places.iter().zip(hot) {
        merged.extend(cold.by_ref().take(place - merged.len()));
        merged.push(*value);
    }
    merged.extend(cold);
    Some(merged)
}

#[cfg(test)]
pub(super) mod tests {
    use crate::mesh::Meta;
    use libra_plan::{
        Budget, DEFAULT_HEADROOM_BITS, Frequencies, Plan, Provenance, RegionSlots, SLOTS_PER_REGION,
        TableShape,
    };

    use super::*;
    use crate::arrays::FLOAT;

    /// A plan with these hot keys, all of one count and with values up to 1.
    pub(in crate::hot) fn plan(keys: &[u64]) -> Plan {
        let table = TableShape { name: "keys".into(), keys: 0..u64::MAX, width: 1, hot: true };
        let mut frequencies = Frequencies::new(vec![table]).unwrap();
        frequencies.record_push(keys.iter().copied());
        let budget = Budget { p: 1.0, ..Budget::default() };
        Plan::new(1, Provenance::default(), &frequencies, budget, DEFAULT_HEADROOM_BITS).unwrap()
    }

    fn placement() -> Placement {
        Placement::new(&plan(&[3, 5, 1 << 63]), 2, RegionSlots::by_key(SLOTS_PER_REGION)).unwrap()
    }

    fn request(push: bool, keys: &[u64], values: &[f32]) -> OutgoingMessage {
        let meta = Meta { push, pull: !push, request: true, value_type: FLOAT, ..Meta::default() };
        let (keys, values) = (Bytes::new(Keys(keys.to_vec())), Bytes::new(Floats(values.to_vec())));
        OutgoingMessage { meta, keys, values, ..OutgoingMessage::default() }
    }

    #[test]
    fn a_push_is_parted_and_values_stay_with_their_keys() {
        let outgoing = request(true, &[1, 3, 4, 1 << 63], &[1.0, 2.0, 3.0, 4.0]);
        let Parts::Split(split) = split(&placement(), &outgoing) else { panic!("it has hot keys") };
        assert_eq!((split.keys, split.gradients), (vec![3, 1 << 63], vec![-2.0, -4.0]));
        let cold = split.cold.unwrap();
        assert_eq!(
            (keys_of(&cold).collect::<Vec<_>>(), values_of(&cold).collect::<Vec<_>>()),
            (vec![1, 4], vec![1.0, 3.0])
        );
        assert!(cold.meta.push && cold.meta.request);
    }

    #[test]
    fn answers_of_a_pull_come_together_in_the_order_of_its_keys() {
        let Parts::Split(split) = split(&placement(), &request(false, &[0, 3, 4, 5, 6, 7], &[])) else {
            panic!("it has hot keys")
        };
        assert_eq!((&split.places[..], split.key_count, split.gradients.len()), (&[1, 3][..], 6, 0));
        let merged = merge(6, &split.places, &[1.0, 3.0], &[0.0, 2.0, 4.0, 5.0]).unwrap();
        assert_eq!(merged, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(merge(6, &split.places, &[1.0, 3.0], &[0.0, 2.0, 4.0]), None);
        assert_eq!(merge(2, &[0, 1], &[1.0, 3.0], &[]), Some(vec![1.0, 3.0]));
    }

    #[test]
    fn messages_without_hot_keys_or_not_for_sums_are_unchanged() {
        let whole = |outgoing| matches!(split(&placement(), &outgoing), Parts::Whole);
        assert!(whole(request(true, &[1, 2], &[1.0, 2.0])));
        assert!(whole(request(true, &[3], &[1.0, 2.0])), "the server refuses it");
        let mut of_others = request(true, &[3], &[1.0]);
        of_others.meta.value_type = FLOAT + 1;
        assert!(whole(of_others));
        assert!(matches!(split(&placement(), &request(true, &[3, 3], &[1.0, 2.0])), Parts::Refused(_)));
        let all_hot = split(&placement(), &request(false, &[3, 5], &[]));
        assert!(matches!(all_hot, Parts::Split(Split { cold: None, .. })));
    }
}
