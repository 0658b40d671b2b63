//! Tags of packets, which all switches of a job must be able to do.

use super::harness::ControllerHarness;
use crate::authentication::{Secret, TagKind};
use crate::cluster::Peer;
use crate::controller::ControllerEvent;
use crate::message::Message;

use Peer::{Server, Switch, Worker};

// rule A5
#[test]
fn a_job_has_the_tags_that_all_its_switches_can_do() {
    let secret = Secret::new([5; 32]);
    let start = |offers: &[TagKind], requires_macs: bool| {
        let mut harness = ControllerHarness::new(1, 2, 1);
        harness.controller.cluster = harness.controller.cluster.clone().with_secret(secret.clone());
        harness.controller.requires_macs = requires_macs;
        let mut refusals = Vec::new();
        for (number, tags) in (0..).zip(offers) {
            let link = harness.join_with(Switch(number), |join| join.tags = *tags);
            refusals.extend(harness.received_on(link));
        }
        (harness, refusals)
    };
    let (mut harness, _) = start(&[TagKind::Mac, TagKind::Cookie], false);
    let reduced = ControllerEvent::TagsReduced { peer: Switch(1), tags: TagKind::Cookie };
    assert!(harness.events().contains(&reduced));
    harness.join(Worker(0));
    harness.join(Server(0));
    harness.settle();
    assert_eq!(harness.cluster().hot_path.tags, TagKind::Cookie);
    // One that comes late must do what packets have.
    let late = harness.join_with(Switch(2), |join| join.tags = TagKind::Off);
    let [Message::Abort { reason }] = &harness.received_on(late)[..] else { panic!("it was taken in") };
    assert_eq!(reason, "packets of this job have tags cookie, and this switch can do off at best");

    let (_, refusals) = start(&[TagKind::Cookie], true);
    let [Message::Abort { reason }] = &refusals[..] else { panic!("{refusals:?}") };
    assert!(reason.contains("no MACs") && reason.contains("--packet-tags"), "{reason}");
}
