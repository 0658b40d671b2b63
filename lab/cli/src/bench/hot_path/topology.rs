//! Network of the benchmark: all members on loopback, or the switch behind a veth pair.
//!
//! A process cannot move all its threads into a namespace, so the benchmark starts itself again inside.

use std::env;
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use super::{Arguments, PathKind};
use libra_launch::network::{INTERFACE, Network, Seat};
use libra_launch::plane::PlaneKind;
use libra_launch::{interrupt, parent_guard};

/// A network for the benchmark, and the place of the switch in it.
pub(super) struct Topology {
    network: Network,
    seat: Seat,
    guard: Guard,
}

/// The process inside ends when this is dropped.
type Guard = Arc<Mutex<Option<ChildStdin>>>;

fn let_go(guard: &Guard) {
    drop(guard.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Makes the network if one is wanted, and this process is not in it yet.
pub(super) fn needed(arguments: &Arguments) -> Result<Option<Topology>> {
    let path = match (arguments.path, arguments.plane) {
        (Some(PathKind::Loopback), PlaneKind::Xdp) => {
            bail!(
                "--plane xdp --path loopback: the program of the switch needs an interface of its own, take --path veth"
            )
        }
        (None, PlaneKind::Xdp) => PathKind::Veth,
        (path, _) => path.unwrap_or(PathKind::Loopback),
    };
    if path == PathKind::Loopback || arguments.switch_namespace.is_some() {
        return Ok(None);
    }
    let guard = Guard::default();
    let held = Arc::clone(&guard);
    // An interrupt ends the process inside, and this one when it has taken the network down.
    interrupt::on_first(move || let_go(&held));
    let mut network = Network::new()?;
    let seat = network.xdp_seat(0, &parent_guard::this_program()?)?;
    Ok(Some(Topology { network, seat, guard }))
}

/// Runs the same command in the network.
pub(super) fn run_again_inside(topology: &Topology) -> Result<()> {
    let program = parent_guard::this_program()?;
    let mut command = topology.network.command(&program);
    command
        .args(env::args_os().skip(1))
        .args(["--switch-namespace", &topology.seat.namespace])
        .stdin(Stdio::piped());
    let mut inside = command.spawn().context("cannot start the benchmark in its namespace")?;
    *topology.guard.lock().unwrap_or_else(PoisonError::into_inner) = inside.stdin.take();
    if interrupt::happened() {
        let_go(&topology.guard);
    }
    let status = inside.wait().context("cannot wait for the benchmark in its namespace")?;
    if !status.success() {
        bail!("the benchmark in its namespace ended with {status}");
    }
    Ok(())
}

/// Options of the switch.
pub(super) fn switch_options(arguments: &Arguments) -> Vec<String> {
    match arguments.plane {
        PlaneKind::Udp => Vec::new(),
        PlaneKind::Xdp => ["--plane", "xdp", "--interface", INTERFACE].map(str::to_owned).to_vec(),
    }
}
