//! `libra-lab bench`.

use tempfile::TempDir;

use crate::process::{assert_refused, json, run};

#[test]
fn push_pull_reports_figures_of_servers_and_of_the_machine() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    let sizes =
        ["--workers", "2", "--servers", "2", "--keys", "20000", "--batch", "500", "--embedding-dim", "3"];
    // A key of a byte or two, or of nearly eight where they are far apart, and values of four bytes or two; push-pull has those both
    // ways.
    for (operation, wire, bytes, rows) in [
        ("push", "f32", 13.0..16.0, &["--optimizer", "adagrad", "--shards-per-server", "2"][..]),
        ("pull", "f32", 18.0..22.0, &["--sparse", "--optimizer", "row-adagrad"]),
        ("push", "bf16", 7.0..10.0, &[]),
        ("push-pull", "f16", 13.0..16.0, &["--fill", "7000"]),
    ] {
        let mut arguments =
            vec!["bench", "push-pull", "--seconds", "0.5", "--op", operation, "--wire-dtype", wire];
        arguments.extend(rows);
        arguments.extend(sizes);
        arguments.extend(["--quiet", "--json", file.to_str().unwrap()]);
        let output = run(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json = json(&file);
        assert_eq!(json["load"]["wire_dtype"], wire);
        assert_eq!(json["shards_per_server"], 1 + u64::from(rows.contains(&"--shards-per-server")));
        assert!(bytes.contains(&json["bytes_per_row"].as_f64().unwrap()), "{json:#}");
        let figures = [
            &json["rows_per_second"],
            &json["server"]["cpu_ns_per_row"],
            &json["server"]["resident_bytes"],
            &json["bytes_per_row"],
            &json["latency_us"]["p50"],
            &json["latency_us"]["p99"],
            &json["limits"]["random_accesses_per_second"],
            &json["limits"]["memcpy_bytes_per_second"],
            &json["limits"]["tcp_bytes_per_second"],
        ];
        assert!(figures.iter().all(|figure| figure.as_f64().is_some_and(|figure| figure > 0.0)), "{json:#}");
        let all = !rows.contains(&"--fill");
        assert_eq!(json["server"]["resident_bytes_per_row"].as_f64().is_some(), all, "{json:#}");
    }
}

#[test]
fn hot_path_reports_processor_time_of_each_member_for_a_pair() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    for (operation, workers, size, entries) in [
        ("push", "2", ["--profile", "mtu1500"], 240.0),
        ("pull", "1", ["--profile", "tofino"], 27.0),
        ("push-pull", "1", ["--profile", "mtu1500"], 240.0),
        ("push-pull", "1", ["--lanes", "16"], 16.0),
    ] {
        let arguments =
            ["bench", "hot-path", "--seconds", "0.5", "--slots", "3000", "--quiet", "--op", operation];
        let files = ["--workers", workers, "--json", file.to_str().unwrap()];
        let output = run(&[&arguments[..], &size, &files].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json = json(&file);
        let profile = (size[0] == "--profile").then_some(size[1]);
        assert_eq!((json["plane"].as_str(), json["profile"].as_str()), (Some("udp"), profile));
        let figures = [
            &json["goodput"]["values_per_second"],
            &json["goodput"]["packets_per_second"],
            &json["goodput"]["min_fair_share"],
            &json["switch"]["cpu_ns_per_value"],
            &json["switch"]["share_of_limit"],
            &json["workers"]["cpu_ns_per_value"],
            &json["cold"]["values_per_second"],
            &json["cold"]["server"]["cpu_ns_per_value"],
            &json["latency_us"]["p50"],
            &json["latency_us"]["p99"],
            &json["limits"]["additions_per_second"],
            &json["limits"]["memcpy_bytes_per_second"],
        ];
        assert!(json["retransmits"].is_u64() && json["switch"]["program_ns_per_value"].is_null());
        let figures = figures.map(|figure| figure.as_f64().unwrap());
        assert!(figures.iter().all(|figure| *figure > 0.0), "{json:#}");
        assert!(figures[0] / figures[1] <= entries, "packets hold more than they can: {json:#}");
    }
}

#[test]
fn store_compares_several_threads_with_one() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    let arguments =
        ["bench", "store", "--seconds", "0.2", "--keys", "20000", "--batch", "500", "--threads", "2"];
    let output = run(&[&arguments[..], &["--json", file.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    for word in ["reads, 1 thread", "reads, 2 threads", "updates, 2 threads", "by wall time"] {
        assert!(table.contains(word), "{word:?} is not in\n{table}");
    }
    let json = json(&file);
    assert_eq!(json["threads"], 2);
    for operation in ["reads", "updates"] {
        let rate = |of: &str| json[of][operation]["per_second"].as_f64().unwrap();
        let ratio = json["ratio"][operation].as_f64().unwrap();
        assert!((ratio - rate("all") / rate("one")).abs() < 1e-9 && ratio > 0.0, "{json:#}");
    }
}

#[test]
fn store_reports_figures_of_the_store_and_of_memory() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    for rows in [
        &["--embedding-dim", "3", "--optimizer", "adagrad"][..],
        &["--sparse", "--optimizer", "adam"],
        &["--ordered", "--fill", "5000", "--optimizer", "ftrl", "--zipf", "0"],
    ] {
        let mut arguments = vec!["bench", "store", "--seconds", "0.2", "--keys", "20000", "--batch", "500"];
        arguments.extend(rows);
        arguments.extend(["--quiet", "--json", file.to_str().unwrap()]);
        let output = run(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "--quiet is quiet");
        let json = json(&file);
        let figures = [
            &json["reads_per_second"],
            &json["updates_per_second"],
            &json["fill"]["rows_per_second"],
            &json["fill"]["latency_us"]["max"],
            &json["latency_us"]["read"]["p99"],
            &json["latency_us"]["update"]["p50"],
            &json["limits"]["random_accesses_per_second"],
            &json["limits"]["memcpy_bytes_per_second"],
        ];
        assert!(figures.iter().all(|figure| figure.as_f64().is_some_and(|figure| figure > 0.0)), "{json:#}");
        let bytes = |of: &str| json["memory"][of].as_f64().unwrap_or_else(|| panic!("memory.{of}"));
        assert!(bytes("store_bytes_per_row") >= bytes("payload_bytes_per_row"), "{json:#}");
    }
    let output =
        run(&["bench", "store", "--seconds", "0.1", "--keys", "20000", "--batch", "500", "--fill", "0"]);
    let table = String::from_utf8(output.stdout).unwrap();
    for word in ["reads", "updates", "of the random accesses", "beyond values and state", "memcpy"] {
        assert!(table.contains(word), "{word:?} is not in\n{table}");
    }
}

#[test]
fn a_store_with_a_memory_limit_is_compared_with_one_without() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    let rows = ["--keys", "40000", "--embedding-dim", "16", "--optimizer", "adagrad", "--batch", "500"];
    let limit = ["--memory-limit", "2MiB", "--cold", "0.02", "--quiet", "--json", file.to_str().unwrap()];
    let output = run(&[&["bench", "store", "--seconds", "0.4"], &rows[..], &limit].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = json(&file);
    for kind in ["reads", "updates"] {
        let share = json[kind]["from_disk_share"].as_f64().unwrap();
        assert!((0.01..0.06).contains(&share), "{kind}: {json:#}");
        assert!(json[kind]["ratio"].as_f64().unwrap() > 0.0, "{json:#}");
    }
    assert!(json["disk_reads_per_second"].as_f64().unwrap() > 0.0, "{json:#}");
    assert!(json["store_bytes"].as_u64().unwrap() < 3 << 20, "{json:#}");
    assert_refused(
        &["bench", "store", "--memory-limit", "1GiB", "--keys", "20000", "--batch", "500"],
        1,
        &["--memory-limit"],
    );
}

#[test]
fn a_worker_joins_and_leaves_a_job_of_several_servers() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("out.json");
    for security in ["off", "tls"] {
        let job = ["bench", "join", "--servers", "2", "--security", security];
        let output = run(&[&job[..], &["--times", "20", "--json", file.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("joins and leaves 20 times"), "{table}");
        let json = json(&file);
        assert_eq!(json["security"], security);
        for times in [&json["join_us"], &json["leave_us"]] {
            assert!(
                times["p50"].as_u64().unwrap() > 0 && times["max"].as_u64() >= times["p50"].as_u64(),
                "{json:#}"
            );
        }
    }
    assert_refused(&["bench", "join", "--times", "0"], 2, &["--times"]);
}
