//! The machine of a member, examined at its start with those checks of `libra doctor` that take no time.

use std::path::{Path, PathBuf};

use libra_doctor::{Finding, Needs, Verdict, examine_at_start};
use libra_monitor::{Event, EventSender, Kind};

use crate::progress::Bars;

/// Examines the machine for a member of a job of unknown size. What costs speed or a job becomes events, and what is bad a line.
pub(crate) fn examine(kind: Kind, needs: &Needs, bars: Bars, events: Option<&EventSender>) {
    for finding in examine_at_start(needs).into_iter().filter(|finding| concerns(kind, finding)) {
        if finding.verdict == Verdict::Bad {
            bars.line(&format!("{kind}: {}", line(&finding)));
        }
        if let Some(events) = events {
            events.send(None, event(finding));
        }
    }
}

/// The least that a server with this directory needs, or another member.
pub(crate) fn needs(state_directory: Option<&Path>, memory_limit: Option<u64>) -> Needs {
    // It may not be there yet.
    let existing = |directory: &Path| {
        let place = directory.ancestors().find(|place| place.exists());
        place.map_or_else(|| PathBuf::from("."), Path::to_owned)
    };
    Needs { workers: 1, memory_limit, state_directory: state_directory.map(existing), ..Needs::default() }
}

/// Returns true if a member of this kind is the worse for a finding.
fn concerns(kind: Kind, finding: &Finding) -> bool {
    let is_concerned = match finding.check {
        "receive-buffer" | "backlog" => kind == Kind::Switch,
        "memory" => kind == Kind::Server,
        _ => true,
    };
    is_concerned && finding.verdict >= Verdict::Warn
}

fn line(finding: &Finding) -> String {
    let Finding { check, found, costs, mend, .. } = finding;
    let part = |name, text: &Option<String>| text.iter().map(|text| format!("; {name}: {text}")).collect();
    let [costs, mend]: [String; 2] = [part("cost", costs), part("mend", mend)];
    format!("{check} is bad: {found}{costs}{mend}")
}

fn event(Finding { check, verdict, found, costs, mend, .. }: Finding) -> Event {
    let verdict = if verdict == Verdict::Bad { "bad" } else { "warn" };
    Event::MachineFinding { check, verdict, found, costs, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: &'static str, verdict: Verdict) -> Finding {
        let (costs, mend) = (Some("speed".to_owned()), Some("another".to_owned()));
        Finding { check, interface: None, verdict, found: "little".to_owned(), costs, mend }
    }

    #[test]
    fn a_finding_concerns_members_that_are_the_worse_for_it() {
        let kinds = [Kind::Server, Kind::Switch, Kind::Worker];
        let of = |check, verdict| kinds.map(|kind| concerns(kind, &finding(check, verdict)));
        assert_eq!(of("memory", Verdict::Bad), [true, false, false]);
        assert_eq!(of("receive-buffer", Verdict::Warn), [false, true, false]);
        assert_eq!(of("quota", Verdict::Warn), [true; 3]);
        assert_eq!([of("quota", Verdict::Ok), of("quota", Verdict::Unseen)], [[false; 3]; 2]);
    }

    #[test]
    fn a_line_and_an_event_have_cost_and_cure() {
        let quota = finding("quota", Verdict::Bad);
        assert_eq!(line(&quota), "quota is bad: little; cost: speed; mend: another");
        let Event::MachineFinding { check, verdict, .. } = event(quota) else { panic!() };
        assert_eq!((check, verdict), ("quota", "bad"));
    }

    #[test]
    fn a_state_directory_that_is_to_be_made_is_where_its_parent_is() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("a/b");
        assert_eq!(needs(Some(&below), None).state_directory.as_deref(), Some(directory.path()));
        let relative = needs(Some(Path::new("no-such-directory")), None).state_directory;
        assert_eq!(relative.as_deref(), Some(Path::new(".")));
    }
}
