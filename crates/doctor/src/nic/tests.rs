use super::*;
use crate::finding::{Finding, Verdict};
use crate::host;
use crate::needs::{KernelPlane, Needs};

/// An interface with which nothing is wrong.
fn sound() -> Nic {
    Nic {
        name: "eth0".to_owned(),
        driver: Some("mlx5_core".to_owned()),
        speed: Ok(100_000),
        mtu: Ok(1500),
        node: Some(0),
        queues: Ok(Queues { count: 4, are_spread: false }),
        features: Ok(["rx-gro", "tx-udp-segmentation"].map(str::to_owned).to_vec()),
        rings: Ok(Rings { now: 1024, most: 8192 }),
        coalescing: Ok(8),
        hashes_ports: Ok(true),
        native_xdp: Ok(true),
    }
}

fn wrong(change: impl FnOnce(&mut Nic)) -> Vec<Finding> {
    let mut host = host::read();
    host.cores = Ok(vec![0, 1, 2, 3]);
    host.nodes = Ok(vec![vec![0, 1], vec![2, 3]]);
    let plane = Some(KernelPlane { left_out: None });
    let interfaces = vec!["eth0".to_owned()];
    let needs = Needs { kernel_plane: plane, cpu: Some(1), interfaces, ..Needs::default() };
    let mut nic = sound();
    change(&mut nic);
    judge(&nic, &host, &needs).into_iter().filter(|finding| finding.verdict != Verdict::Ok).collect()
}

#[test]
fn each_fault_of_an_interface_is_one_finding() {
    assert_eq!(wrong(|_| ()), []);
    type Plant = fn(&mut Nic);
    let faults: [(&str, Verdict, &str, Plant); 9] = [
        ("link", Verdict::Bad, "--mtu 1400", |nic| nic.mtu = Ok(1400)),
        ("gro", Verdict::Warn, "ethtool -K eth0 gro on", |nic| nic.features = Ok(Vec::new())),
        ("queues", Verdict::Warn, "echo f >", |nic| {
            nic.queues = Ok(Queues { count: 1, are_spread: false });
        }),
        ("udp-hash", Verdict::Warn, "sdfn", |nic| nic.hashes_ports = Ok(false)),
        ("nic-node", Verdict::Warn, "node1/cpulist", |nic| nic.node = Some(1)),
        ("rings", Verdict::Warn, "rx 4096", |nic| nic.rings = Ok(Rings { now: 256, most: 8192 })),
        ("coalescing", Verdict::Warn, "rx-usecs 20", |nic| nic.coalescing = Ok(250)),
        ("native-xdp", Verdict::Warn, "virtio_net", |nic| nic.native_xdp = Ok(false)),
        ("gro", Verdict::Unseen, "", |nic| nic.features = Err(Unseen("refused".to_owned()))),
    ];
    for (check, verdict, mend, plant) in faults {
        let found = wrong(plant);
        assert_eq!(found.len(), 1, "{check}: {found:#?}");
        assert_eq!((found[0].check, found[0].verdict), (check, verdict));
        assert_eq!(found[0].interface.as_deref(), Some("eth0"));
        assert!(found[0].mend.as_deref().unwrap_or_default().contains(mend), "{found:#?}");
    }
}

#[test]
fn what_a_device_has_not_is_no_finding() {
    let nothing = || Err(Unseen("Operation not supported".to_owned()));
    let found = wrong(|nic| {
        nic.rings = nothing().map(|()| Rings { now: 0, most: 0 });
        nic.coalescing = nothing().map(|()| 0);
        nic.queues = Ok(Queues { count: 1, are_spread: true });
        nic.hashes_ports = nothing().map(|()| true);
    });
    assert_eq!(found, []);
}

#[test]
fn runs_that_come_one_by_one_are_a_warning() {
    let run = |sent, merged| Run { sent, merged: Ok(merged) };
    let refused = |sent| Run { sent, merged: Err(Unseen("refused".to_owned())) };
    let verdict = |runs: &[Run]| judge_runs(runs)[0].verdict;
    assert_eq!(verdict(&[run(64, 64), run(128, 128)]), Verdict::Ok);
    assert_eq!(verdict(&[run(64, 64), refused(128)]), Verdict::Ok);
    assert_eq!(verdict(&[run(64, 1), run(128, 1)]), Verdict::Warn);
    assert_eq!(verdict(&[run(64, 1), refused(128)]), Verdict::Warn);
    assert_eq!(verdict(&[refused(64), refused(128)]), Verdict::Unseen);
}
