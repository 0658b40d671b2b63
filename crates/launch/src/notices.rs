//! Lines for a person about what happens in a cluster.

use libra_proto::{ControllerEvent, PathChange, Peer, Refusal, Restoring, Sizes, Strangers, TagKind};

use crate::event_log::milliseconds;

/// Returns a line for a person about an event; the end of the job is told by its result.
pub fn news(event: &ControllerEvent) -> Option<String> {
    Some(match event {
        ControllerEvent::Joined { peer, remote, missing: Sizes { servers: 0, switches: 0, workers: 0 } } => {
            format!("{peer} joined from {remote}")
        }
        ControllerEvent::Joined { peer, remote, missing } => format!(
            "{peer} joined from {remote}; still to come: {} servers, {} switches, {} workers",
            missing.servers, missing.switches, missing.workers
        ),
        ControllerEvent::TagsReduced { peer, tags } => tags_reduced(*peer, *tags),
        ControllerEvent::Started => "the cluster is complete, training begins".to_owned(),
        ControllerEvent::TakesOver => {
            "members call that have lost their controller: their job goes on".to_owned()
        }
        ControllerEvent::Recovered => "took over the cluster of a controller that is gone".to_owned(),
        ControllerEvent::Lost { peer, reason } => format!("{peer} {reason}; the job goes on"),
        ControllerEvent::Settled { moved: 0, .. } => return None,
        ControllerEvent::Settled { moved, took, .. } => {
            format!("{moved} regions have moved, {:.1} ms after that was noticed", milliseconds(*took))
        }
        ControllerEvent::Away { peer, reason } => {
            format!("{peer} is away ({reason}); it can be started again with what it keeps")
        }
        ControllerEvent::Restoring(progress) => format!("{}; the others wait", restoring(progress)),
        ControllerEvent::Returned { peer, took } => {
            format!("{peer} is back after {:.1} s", took.as_secs_f64())
        }
        ControllerEvent::Checkpointed { number, took } => {
            format!("checkpoint {number} is there, after {:.1} s", took.as_secs_f64())
        }
        ControllerEvent::CheckpointFailed { number, reason } => {
            format!("nothing came of checkpoint {number}: {reason}")
        }
        ControllerEvent::ScaleAsked { workers } => {
            format!(
                "{workers} workers are wanted: those that are too many end, those that are too few are to be started"
            )
        }
        ControllerEvent::Refused(refusal) => refused(refusal),
        ControllerEvent::Strangers(strangers) => turned_away(strangers),
        ControllerEvent::PhasesAdded(_) | ControllerEvent::Finished(_) | ControllerEvent::Failed { .. } => {
            return None;
        }
    })
}

/// Returns a line for a person about a switch that can do less than MACs.
pub fn tags_reduced(switch: Peer, tags: TagKind) -> String {
    match tags {
        TagKind::Off => {
            format!(
                "warning: the data plane of {switch} has no tags: packets of this job have none, and can be forged"
            )
        }
        TagKind::Cookie | TagKind::Mac => format!(
            "the data plane of {switch} can compute no MACs: packets have cookies, and who reads them can forge them"
        ),
    }
}

/// Returns a line for a person about a server that reads its disk.
pub fn restoring(progress: &Restoring) -> String {
    format!("{} reads its checkpoint and its log: {progress}", Peer::Server(progress.server))
}

/// Returns a line for a person about the first gradient that a server refused of a worker and table.
pub fn refused(Refusal { server, worker, table, key, .. }: &Refusal) -> String {
    match worker {
        Some(worker) => format!(
            "worker {worker} pushed a gradient that is not finite for row {key} of table \"{table}\": refused by server \
             {server}"
        ),
        None => format!(
            "finite gradients of row {key} of table \"{table}\" have a sum that is not: refused by server {server}"
        ),
    }
}

/// Returns a line for a person about a path that lets no longer packets through, or does so again.
pub fn path_changed(PathChange { address, before, after, .. }: &PathChange) -> String {
    let to = address.ip();
    if after < before {
        format!(
            "packets to {to} have {after} bytes from now on, not {before}: longer ones do not come through"
        )
    } else {
        format!("packets to {to} have {after} bytes again, not {before}: they come through")
    }
}

/// Returns a line for a person about streams that were closed.
pub fn turned_away(Strangers { count, remote, reason }: &Strangers) -> String {
    format!("{count} streams were closed that are of no member so far; the last one, from {remote}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_changes_has_both_lengths_in_its_line() {
        let address = "10.0.0.7:4700".parse().unwrap();
        let narrow = PathChange { switch: 3, address, before: 1498, after: 1396 };
        assert_eq!(
            path_changed(&narrow),
            "packets to 10.0.0.7 have 1396 bytes from now on, not 1498: longer ones do not come through"
        );
        let wide = PathChange { before: 1396, after: 1498, ..narrow };
        assert_eq!(
            path_changed(&wide),
            "packets to 10.0.0.7 have 1498 bytes again, not 1396: they come through"
        );
    }

    #[test]
    fn a_person_hears_whose_gradient_was_refused_and_of_which_row() {
        let refusal = Refusal { server: 1, worker: Some(3), table: "item".into(), key: 17, count: 1 };
        assert_eq!(
            news(&ControllerEvent::Refused(refusal.clone())).unwrap(),
            "worker 3 pushed a gradient that is not finite for row 17 of table \"item\": refused by server 1"
        );
        let of_sum = Refusal { worker: None, ..refusal };
        assert_eq!(
            refused(&of_sum),
            "finite gradients of row 17 of table \"item\" have a sum that is not: refused by server 1"
        );
    }
}
