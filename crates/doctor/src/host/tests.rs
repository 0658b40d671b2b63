use super::*;
use crate::finding::{Finding, Verdict};
use crate::needs::{KernelPlane, Needs, Tables};

/// A machine with which nothing is wrong.
fn sound() -> Host {
    Host {
        is_root: true,
        capabilities: Ok(Capabilities { net_admin: true, bpf: true, perfmon: true }),
        kernel: "6.18.0".to_owned(),
        receive_buffer: Ok(ReceiveBuffer { bytes: 64 << 20, is_forced: true }),
        rmem_max: Ok(212_992),
        backlog: Ok(1000),
        cores: Ok(vec![0, 1, 2, 3]),
        limits: Limits { quota: Ok(None), memory: Ok(None) },
        nodes: Ok(vec![vec![0, 1, 2, 3]]),
        is_smt: Ok(false),
        governor: Ok("performance".to_owned()),
        clocksource: Ok("tsc".to_owned()),
        vectors: Vectors::Avx512,
        memory: Ok(16 << 30),
        huge_pages: Ok("madvise".to_owned()),
        descriptors: 1 << 20,
        has_btf: true,
    }
}

fn needs() -> Needs {
    let tables = Tables { rows: 10_000_000, width: 16, state: 33, servers: 1 };
    Needs {
        tables: Some(tables),
        kernel_plane: Some(KernelPlane { left_out: None }),
        members: 4,
        ..Needs::default()
    }
}

/// The findings that are not ok, after a change of the facts.
fn wrong(change: impl FnOnce(&mut Host)) -> Vec<Finding> {
    let mut host = sound();
    change(&mut host);
    judge(&host, &needs()).into_iter().filter(|finding| finding.verdict != Verdict::Ok).collect()
}

/// The one finding that is not ok.
fn only(change: impl FnOnce(&mut Host)) -> (&'static str, Verdict, String) {
    let wrong = wrong(change);
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
    let Finding { check, verdict, found, costs, mend, .. } = &wrong[0];
    assert!(*verdict == Verdict::Unseen || (costs.is_some() && mend.is_some()), "{wrong:#?}");
    (check, *verdict, found.clone())
}

#[test]
fn a_sound_machine_has_nothing_to_mend() {
    assert_eq!(wrong(|_| ()), []);
}

#[test]
fn a_small_receive_buffer_names_the_packets_of_a_worker() {
    let stock = ReceiveBuffer { bytes: 2 * 212_992, is_forced: false };
    let (check, verdict, found) = only(|host| host.receive_buffer = Ok(stock));
    assert_eq!((check, verdict), ("receive-buffer", Verdict::Bad));
    assert!(found.contains("32 workers: 5 of 512 packets each") && found.contains("212,992"), "{found}");
    let four = ReceiveBuffer { bytes: 4 << 20, is_forced: false };
    assert_eq!(only(|host| host.receive_buffer = Ok(four)).1, Verdict::Warn);
}

#[test]
fn a_quota_and_its_stopped_periods_are_named() {
    let quota = |cores, periods, throttled| {
        move |host: &mut Host| {
            host.limits.quota = Ok(Some(Quota { cores, periods, throttled }));
        }
    };
    let (check, verdict, found) = only(quota(0.2, 100, 90));
    assert_eq!((check, verdict), ("quota", Verdict::Bad));
    assert_eq!(found, "0.20 cores; stopped in 90 of 100 periods");
    assert_eq!(only(quota(2.0, 100, 6)).1, Verdict::Warn);
    assert_eq!(wrong(quota(2.0, 100, 5)), []);
    assert_eq!(wrong(quota(2.0, 10, 10)), [], "too few periods to tell");
}

#[test]
fn memory_is_compared_with_rows_and_the_smaller_limit() {
    let (check, verdict, found) = only(|host| host.memory = Ok(1 << 30));
    assert_eq!((check, verdict), ("memory", Verdict::Bad));
    assert!(found.contains("1.0 GiB available; a server needs 2.2 GiB"), "{found}");
    assert!(only(|host| host.limits.memory = Ok(Some(1 << 29))).2.contains("512.0 MiB in its control group"));
    assert_eq!(wrong(|host| host.limits.memory = Ok(Some(1 << 50))), []);
}

#[test]
fn each_fault_of_a_machine_is_one_finding() {
    type Plant = fn(&mut Host);
    let faults: [(&str, Verdict, Plant); 11] = [
        ("backlog", Verdict::Warn, |host| host.backlog = Ok(100)),
        ("cores", Verdict::Warn, |host| host.cores = Ok(vec![0, 1])),
        ("governor", Verdict::Warn, |host| host.governor = Ok("powersave".to_owned())),
        ("clocksource", Verdict::Warn, |host| host.clocksource = Ok("hpet".to_owned())),
        ("huge-pages", Verdict::Warn, |host| host.huge_pages = Ok("never".to_owned())),
        ("descriptors", Verdict::Bad, |host| host.descriptors = 64),
        ("btf", Verdict::Warn, |host| host.has_btf = false),
        ("capabilities", Verdict::Bad, |host| {
            host.capabilities = Ok(Capabilities { net_admin: true, bpf: false, perfmon: true });
        }),
        ("smt", Verdict::Unseen, |host| host.is_smt = Err(Unseen("no file".to_owned()))),
        ("numa", Verdict::Unseen, |host| host.nodes = Err(Unseen("no file".to_owned()))),
        ("receive-buffer", Verdict::Unseen, |host| {
            host.receive_buffer = Err(Unseen("no socket".to_owned()));
        }),
    ];
    for (check, verdict, plant) in faults {
        let found = only(plant);
        assert_eq!((found.0, found.1), (check, verdict));
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(only(|host| host.vectors = Vectors::Common).0, "vectors");
    }
}

#[test]
fn a_core_that_is_not_there_is_bad() {
    let needs = Needs { cpu: Some(7), ..needs() };
    let findings = judge(&sound(), &needs);
    let cores = findings.iter().find(|finding| finding.check == "cores").unwrap();
    assert_eq!(cores.verdict, Verdict::Bad);
    assert!(cores.found.contains("core 7 is none of them"), "{}", cores.found);
}

#[test]
fn the_kernel_plane_is_judged_only_where_it_is_wanted() {
    let without = judge(&sound(), &Needs { kernel_plane: None, ..needs() });
    assert!(without.iter().all(|finding| !["btf", "xdp-build", "capabilities"].contains(&finding.check)));
    let left_out = KernelPlane { left_out: Some("there is no clang") };
    let findings = judge(&sound(), &Needs { kernel_plane: Some(left_out), ..needs() });
    let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).collect();
    assert_eq!(bad.len(), 1);
    assert!(bad[0].check == "xdp-build" && bad[0].found.contains("no clang"), "{bad:?}");
}
