//! Reads all UDP of a network namespace by a raw socket, and answers workers in place of their switch.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};

use crate::process;

// The hot packet, as in docs/reference/protocol.md.
const HEADER_BYTES: usize = 30;
const MAGIC: u8 = 0x4c;
const VERSION: u8 = 3;
const PULL: u8 = 2;
const ACK: u8 = 5;
const NACK: u8 = 6;
const KINDS: std::ops::RangeInclusive<u8> = 1..=8;
const VALUES: u8 = 2;
/// Codes of reasons, and two that are none.
const REASONS: std::ops::RangeInclusive<u16> = 0..=8;
/// `PULL`s are numbered from here on.
const PULLS_BEGIN: u32 = 1 << 30;
/// Distance by which `durable` is ahead in forged answers.
const AHEAD: u16 = 1000;

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// An answer of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    switch: SocketAddrV4,
    worker: SocketAddrV4,
    header: [u8; HEADER_BYTES],
}

impl Answer {
    /// The answer in an IPv4 packet, if it is one. Of a run of datagrams it is the first.
    fn parse(packet: &[u8]) -> Option<Self> {
        let ip_bytes = usize::from(packet.first()? & 0xf) * 4;
        let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let port = |at: usize| Some(u16::from_be_bytes(*packet.get(ip_bytes + at..)?.first_chunk::<2>()?));
        let header = *packet.get(ip_bytes + UDP_BYTES..)?.first_chunk::<HEADER_BYTES>()?;
        let (kind, flags) = (header[1], header[2]);
        let is_answer = matches!(kind, ACK | NACK) || kind == PULL && flags & VALUES != 0;
        (header[0] == MAGIC && header[13] == VERSION && is_answer).then_some(())?;
        Some(Self {
            switch: SocketAddrV4::new(address(12)?, port(0)?),
            worker: SocketAddrV4::new(address(16)?, port(2)?),
            header,
        })
    }

    fn kind(&self) -> u8 {
        self.header[1]
    }

    fn seq(&self) -> u32 {
        u32::from_be_bytes(*self.header[18..].first_chunk().expect("a header has 30 bytes"))
    }

    /// The same header with another kind, other flags, and the given `round`; `durable` is ahead.
    fn forged(&self, kind: u8, flags: u8, round: Option<u16>) -> [u8; HEADER_BYTES] {
        let mut header = self.header;
        (header[1], header[2], header[3]) = (kind, flags, 0);
        if let Some(round) = round {
            header[14..16].copy_from_slice(&round.to_be_bytes());
        }
        let durable = u16::from_be_bytes([header[16], header[17]]).wrapping_add(AHEAD);
        header[16..18].copy_from_slice(&durable.to_be_bytes());
        header
    }

    /// One of every kind, with and without values, and a refusal for every reason. An acceptance of what was refused would be one that
    /// only a MAC distinguishes from a true one: that is left out.
    fn forgeries(&self) -> Vec<[u8; HEADER_BYTES]> {
        let accepts = self.kind() == ACK || self.seq() >= PULLS_BEGIN;
        let kinds = KINDS.filter(|kind| *kind != NACK && (*kind != ACK || accepts));
        let answers = kinds.flat_map(|kind| [0, VALUES].map(|flags| self.forged(kind, flags, None)));
        answers.chain(REASONS.map(|reason| self.forged(NACK, 0, Some(reason)))).collect()
    }

    /// The datagram, with the addresses of the true one. The kernel fills in the sums of its IP header; that of UDP is left out.
    fn datagram(&self, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(IP_BYTES + UDP_BYTES + payload.len()).expect("a header is short");
        let mut packet = Vec::with_capacity(length.into());
        packet.extend([0x45, 0]);
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(self.switch.ip().octets());
        packet.extend(self.worker.ip().octets());
        packet.extend(self.switch.port().to_be_bytes());
        packet.extend(self.worker.port().to_be_bytes());
        packet.extend((length - 20).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        packet
    }
}

/// Totals of the forger.
#[derive(Debug, Default)]
pub(super) struct Account {
    heard: u64,
    sent: u64,
    volleys: u64,
    workers: usize,
}

impl fmt::Display for Account {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { heard, sent, volleys, workers } = self;
        write!(
            formatter,
            "forged {sent} answers to {workers} workers in {volleys} volleys, from {heard} that were read"
        )
    }
}

/// Forges answers until this process is interrupted, or for so long at most.
pub(super) fn run(every: Duration, longest: Duration) -> Result<Account> {
    let mut reader =
        Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).context("no raw socket to read by")?;
    reader.set_read_timeout(Some(Duration::from_millis(1)))?;
    // What is read late is of no use.
    reader.set_recv_buffer_size(256 << 10)?;
    let writer = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255)))
        .context("no raw socket to write by")?;
    writer.set_header_included_v4(true)?;
    let (begin, mut next) = (Instant::now(), Instant::now());
    let mut account = Account::default();
    // The newest of each kind: a volley copies them all.
    let mut newest: BTreeMap<(SocketAddrV4, u8), Answer> = BTreeMap::new();
    let mut buffer = vec![0; 1 << 16];
    while process::check_interrupt().is_ok() {
        if begin.elapsed() > longest {
            bail!("it was not interrupted within {longest:?}");
        }
        match reader.read(&mut buffer) {
            Ok(bytes) => {
                if let Some(answer) = Answer::parse(&buffer[..bytes]) {
                    account.heard += 1;
                    newest.insert((answer.worker, answer.kind()), answer);
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error).context("the raw socket cannot be read"),
        }
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + every;
        for answer in newest.values() {
            for forgery in answer.forgeries() {
                let to = std::net::SocketAddr::V4(answer.worker);
                // A worker that was killed has no socket any more.
                if writer.send_to(&answer.datagram(&forgery), &to.into()).is_ok() {
                    account.sent += 1;
                }
            }
        }
        account.volleys += u64::from(!newest.is_empty());
        account.workers = account
            .workers
            .max(newest.keys().map(|(worker, _)| worker).collect::<std::collections::BTreeSet<_>>().len());
    }
    if account.sent == 0 {
        bail!(
            "it has read no answer of a switch, so it has forged none: is {VERSION} the version of packets?"
        );
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u8, flags: u8, seq: u32) -> Answer {
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1], header[2], header[13]) = (MAGIC, kind, flags, VERSION);
        header[16..18].copy_from_slice(&65_000_u16.to_be_bytes());
        header[18..22].copy_from_slice(&seq.to_be_bytes());
        let address = |host, port| SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), port);
        Answer { switch: address(1, 4000), worker: address(2, 5000), header }
    }

    #[test]
    fn datagram_is_read_as_it_was_written() {
        let ack = answer(ACK, 0, 7);
        assert_eq!(Answer::parse(&ack.datagram(&ack.header)), Some(ack));
        let push = answer(1, 0, 7);
        assert_eq!(Answer::parse(&push.datagram(&push.header)), None, "it is no answer");
        assert_eq!(Answer::parse(&ack.datagram(&ack.header)[..57]), None, "it was cut");
    }

    #[test]
    fn forgeries_are_of_every_kind_and_reason() {
        let forgeries = answer(ACK, 0, 7).forgeries();
        assert_eq!(forgeries.len(), 2 * 7 + 9);
        let durable = |header: &[u8; HEADER_BYTES]| u16::from_be_bytes([header[16], header[17]]);
        assert!(forgeries.iter().all(|header| durable(header) == 65_000_u16.wrapping_add(AHEAD)));
        let kinds: std::collections::BTreeSet<u8> = forgeries.iter().map(|header| header[1]).collect();
        assert!(kinds.into_iter().eq(KINDS));
        let accepts = |answer: Answer| answer.forgeries().iter().any(|header| header[1] == ACK);
        assert!(accepts(answer(PULL, VALUES, PULLS_BEGIN)));
        assert!(!accepts(answer(NACK, 0, 7)), "it was refused, so that would be the first answer");
    }
}
