//! Optional abilities of data planes, and how the lines of a vector show that they need one.

use std::collections::BTreeMap;
use std::fmt;

use libra_dataplane::{Arithmetic, Header, Kind, RegionConfig};

use crate::key::Key;
use crate::vector::{Exchange, RegionName, Sender, Step};

/// An ability that not every target has. The runner skips the vector for a target without it, and reports that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Regions of more than one lane.
    Lanes,
    /// Regions that add single precision numbers.
    F32,
    /// Regions that add them by looking tables up.
    Table,
    /// Regions of more than [`Need::CELLS_OF_ALL`] cells or [`Need::FLOWS_OF_ALL`] flows.
    Large,
    /// `INSTALL` and `DRAIN` packets of the agent.
    AgentPackets,
    /// Whole IPv4 packets.
    Ip,
    /// Regions of one lane.
    OneLane,
    /// With more than one lane, packets that do not have an entry for each, and are answered all the same: a probe needs none.
    AnyEntries,
    /// The acked set at any time, not only where it stands still: from the drain of a round that had just been closed to the next packet.
    LiveAcked,
    /// Counters of what became of packets.
    Counters,
    /// Packets with MACs.
    Mac,
    /// Packets with cookies.
    Cookie,
    /// Checks of what no worker does that keeps the rules, and room for packets that duplicates do not use up (rule D4). The lines do not
    /// show that they ask for it.
    Strict,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Lanes,
        Self::F32,
        Self::Table,
        Self::Large,
        Self::AgentPackets,
        Self::Ip,
        Self::OneLane,
        Self::AnyEntries,
        Self::LiveAcked,
        Self::Counters,
        Self::Mac,
        Self::Cookie,
        Self::Strict,
    ];

    /// Cells that every target has room for.
    pub const CELLS_OF_ALL: u16 = 1024;
    /// Flows that every target has room for.
    pub const FLOWS_OF_ALL: u16 = 16;

    /// Returns true if the lines of a vector show it. If not, the author of the vector declares it.
    #[must_use]
    pub fn is_shown(self) -> bool {
        self != Self::Strict
    }

    /// Returns the abilities that a target needs for these steps, as far as they show it; ascending.
    pub fn shown_by<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<Self> {
        let mut regions = Regions::default();
        let mut needs: Vec<_> = steps.into_iter().flat_map(|step| regions.needs_of(step)).collect();
        needs.sort();
        needs.dedup();
        needs
    }
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Lanes => "lanes",
            Self::F32 => "f32",
            Self::Table => "table",
            Self::Large => "large",
            Self::AgentPackets => "agent-packets",
            Self::Ip => "ip",
            Self::OneLane => "one-lane",
            Self::AnyEntries => "any-entries",
            Self::LiveAcked => "live-acked",
            Self::Counters => "counters",
            Self::Mac => "mac",
            Self::Cookie => "cookie",
            Self::Strict => "strict",
        })
    }
}

/// State of the acked set of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acked {
    Still,
    /// It will when the bank is drained that was closed.
    Closed,
    Moving,
}

/// Regions that a vector has opened.
#[derive(Default)]
struct Regions(BTreeMap<RegionName, (u8, Acked)>);

impl Regions {
    fn needs_of(&mut self, step: &Step) -> Vec<Need> {
        match step {
            Step::Open { config, .. } => {
                self.0.insert(RegionName::of(config), (config.lanes, Acked::Still));
                needs_of_region(config)
            }
            Step::Key(_, Key::Mac { .. }) => vec![Need::Mac],
            Step::Key(_, Key::Cookie(_)) => vec![Need::Cookie],
            Step::Exchange(exchange) => {
                self.0.values_mut().for_each(|(_, acked)| *acked = Acked::Moving);
                let agent = (exchange.from == Sender::Agent).then_some(Need::AgentPackets);
                let entries = self.is_of_any_entries(exchange).then_some(Need::AnyEntries);
                agent.into_iter().chain(entries).collect()
            }
            Step::Ip { .. } => {
                self.0.values_mut().for_each(|(_, acked)| *acked = Acked::Moving);
                vec![Need::Ip]
            }
            Step::Flip(region, Some(_)) => {
                self.set_acked(*region, |_| Acked::Closed);
                vec![]
            }
            Step::Drain(region, _) => {
                self.set_acked(*region, |acked| if acked == Acked::Closed { Acked::Still } else { acked });
                vec![]
            }
            Step::Acked(region, ..) => {
                let is_still = self.0.get(region).is_none_or(|(_, acked)| *acked == Acked::Still);
                if is_still { vec![] } else { vec![Need::LiveAcked] }
            }
            Step::Counters(_) => vec![Need::Counters],
            _ => vec![],
        }
    }

    fn set_acked(&mut self, region: RegionName, change: impl FnOnce(Acked) -> Acked) {
        if let Some((_, acked)) = self.0.get_mut(&region) {
            *acked = change(*acked);
        }
    }

    /// Packets for a region that is not here have as many entries as those for the others.
    fn is_of_any_entries(&self, exchange: &Exchange) -> bool {
        let Ok(Header { kind, entries, job, region, .. }) = Header::parse_without_entries(&exchange.datagram)
        else {
            return false;
        };
        let region = self.0.get(&RegionName { job, region }).or_else(|| self.0.values().next());
        let lanes = region.map_or(1, |&(lanes, _)| lanes);
        let is_wired = entries == lanes || entries == 0 && kind == Kind::Pull;
        exchange.answer.is_some() && lanes > 1 && !is_wired
    }
}

fn needs_of_region(config: &RegionConfig) -> Vec<Need> {
    let lanes = if config.lanes > 1 { Need::Lanes } else { Need::OneLane };
    let arithmetic = match config.arithmetic {
        Arithmetic::Fixed { .. } => None,
        Arithmetic::F32 => Some(Need::F32),
        Arithmetic::Table => Some(Need::Table),
    };
    let large = config.cells > Need::CELLS_OF_ALL || config.flows > Need::FLOWS_OF_ALL;
    [lanes].into_iter().chain(arithmetic).chain(large.then_some(Need::Large)).collect()
}

#[cfg(test)]
mod tests {
    use crate::Vector;

    const HEADER: &str = "4c 02 00 00 0007 0000 0003 0009 00 03 0000 0000 00000005 0000000000000000";

    fn needs(lines: &str) -> String {
        let open = "region r7.0 plan 3 view 9 lanes 2 cells 10 flows 2 bank 4096 fixed 524287 after 0\n";
        let text = format!("conformance 1\n{open}{lines}");
        // The reader returns the needs that lines show where none is declared.
        let error = Vector::read("a.txt", &text).unwrap_err().to_string();
        error.split_once("needs [").unwrap().1.split_once(']').unwrap().0.to_owned()
    }

    #[test]
    fn a_cut_stands_still_from_a_drain_to_the_next_packet() {
        let packet = format!("< w7.0 {HEADER}\n> none\n");
        for (lines, expected) in [
            ("acked r7.0 flow 0 = none\n".to_owned(), "Lanes"),
            (format!("{packet}acked r7.0 flow 0 = none\n"), "Lanes, LiveAcked"),
            (format!("{packet}flip r7.0 = 1\nacked r7.0 flow 0 = none\n"), "Lanes, LiveAcked"),
            (format!("{packet}flip r7.0 = 1\ndrain r7.0 = none\nacked r7.0 flow 0 = none\n"), "Lanes"),
            (
                format!("{packet}flip r7.0 = 1\n{packet}drain r7.0 = none\nacked r7.0 flow 0 = none\n"),
                "Lanes, LiveAcked",
            ),
            (format!("{packet}drain r7.0 = none\nacked r7.0 flow 0 = none\n"), "Lanes, LiveAcked"),
        ] {
            assert_eq!(needs(&lines), expected, "{lines}");
        }
    }

    #[test]
    fn answered_packets_show_how_many_entries_a_target_must_take() {
        let answered = |packet: &str| format!("< w7.0 {packet}\n> {HEADER}\n");
        let entries = |kind: &str, entries: usize| {
            let header = HEADER.replacen("02 00 00", &format!("{kind} 00 {entries:02x}"), 1);
            header + &"0001 00000000".repeat(entries)
        };
        for (kind, count, expected) in [
            ("02", 0, "Lanes"),
            ("02", 1, "Lanes, AnyEntries"),
            ("02", 2, "Lanes"),
            ("02", 4, "Lanes, AnyEntries"),
            ("01", 0, "Lanes, AnyEntries"),
            ("01", 2, "Lanes"),
        ] {
            let packet = entries(kind, count);
            assert_eq!(needs(&answered(&packet)), expected, "{count} entries of kind {kind}");
            assert_eq!(needs(&format!("< w7.0 {packet}\n> none\n")), "Lanes", "dropped");
        }
    }
}
