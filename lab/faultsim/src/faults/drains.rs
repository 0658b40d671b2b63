//! Members that are asked to end in order, and servers that come back at another address.

use core::time::Duration;

use libra_proto::{Role, ServerCommand, SwitchCommand};

use super::inject::SHORT;
use crate::network::Host;
use crate::process::AnyRole;
use crate::runner::{Kind, ScenarioRunner, Scheduled};

/// A server may take this long to save what it has answered: its disk may be full, or slow.
const SAVING_MAX: Duration = Duration::from_secs(15);

/// What becomes of a member once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drain {
    /// After how long another process starts in its place, if one does.
    returns: Option<Duration>,
    /// True if that has another address.
    moves: bool,
    /// True if its machine fails then, and forgets what is not synced.
    machine: bool,
}

impl ScenarioRunner {
    pub(super) fn drain_switch(&mut self, returns: Option<Duration>) {
        let Some(host) = self.pick(Kind::Switch, true) else { return };
        self.count_fault("switch drains");
        self.draining.insert(host, Drain { returns, moves: false, machine: false });
        self.world.act(host, |role, now| match role {
            AnyRole::Switch(switch) => switch.handle_command(now, SwitchCommand::Drain),
            AnyRole::DelayedSwitch(switch) => switch.handle_command(now, SwitchCommand::Drain),
            AnyRole::P4Switch(switch) => switch.handle_command(now, SwitchCommand::Drain),
            _ => {}
        });
    }

    /// With a log or without, nothing that a server has answered is lost when it is asked to end.
    pub(super) fn drain_server(&mut self, returns: Duration, moves: bool, machine: bool) {
        let now = self.now();
        if !self.scenario.durability.needs_disk() || now < self.servers_busy_until {
            return;
        }
        let Some(host) = self.pick(Kind::Server, false) else { return };
        self.count_fault("server drains");
        self.servers_busy_until = now + SAVING_MAX;
        self.miss_server(SAVING_MAX);
        let drain = Drain { returns: Some(returns), moves, machine };
        for shard in self.world.shards_of(host) {
            self.draining.insert(shard, drain);
            if let Some(actor) = self.world.actor(shard) {
                self.world.observer.server_drains(actor);
            }
            self.world.act(shard, |role, now| {
                if let AnyRole::Server(server) = role {
                    server.handle_command(now, ServerCommand::Drain);
                }
            });
        }
    }

    /// Switches that cannot bring their rounds to a server give up; and a member that is about to be missed is missed for longer.
    pub(super) fn miss_server(&mut self, away: Duration) {
        let others: Vec<Host> = [Kind::Switch, Kind::Worker].map(|kind| self.hosts_of(kind)).concat();
        others.into_iter().for_each(|other| self.exempt(other, away));
    }

    /// A member that was asked to end has done so.
    pub(crate) fn drained(&mut self, host: Host, unsaved: Option<&str>) {
        let Some(drain) = self.draining.remove(&host) else {
            return self.violate("liveness", format!("host {host} ends, and was not asked to"));
        };
        if let Some(reason) = unsaved {
            return self.violate("durability", format!("host {host} ends without saving: {reason}"));
        }
        self.drained.insert(host);
        let shards = if self.kinds[host] == Kind::Server { self.world.shards_of(host) } else { vec![host] };
        if !shards.iter().all(|shard| self.drained.contains(shard)) {
            return;
        }
        let (kind, now) = (self.kinds[host], self.now());
        let is_calm = self.quiesced_at.is_some();
        let returns = drain.returns.map(|returns| if is_calm { Duration::ZERO } else { returns });
        if kind == Kind::Server {
            let away = returns.unwrap_or_default();
            self.servers_busy_until = now + away + SHORT;
            self.miss_server(away);
        }
        for shard in shards.iter().rev() {
            self.drained.remove(shard);
            self.down.insert(*shard);
            if drain.machine {
                self.world.fail_machine(*shard);
            } else {
                self.world.exit(*shard);
            }
            if let Some(returns) = returns {
                self.schedule(now + returns, Scheduled::Start(*shard, kind));
            }
        }
        if drain.moves {
            self.move_server(host);
        }
    }

    /// What starts next on the host of a server has another address.
    pub(super) fn move_server(&mut self, host: Host) {
        self.count_fault("server moves");
        self.world.change_address(host);
    }
}
