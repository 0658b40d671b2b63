//! `libra-lab bench paper`.

use std::fs;

use tempfile::TempDir;

use crate::process::{assert_refused, run};

#[test]
fn every_number_of_the_page_is_in_a_file_beside_it() {
    let directory = TempDir::new().unwrap();
    let report = directory.path().join("report");
    let out = report.to_str().unwrap();
    let output = run(&["bench", "paper", "resources", "--out", out]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("656.5 KB") && told.contains("index.html"), "{told}");
    let text = fs::read_to_string(report.join("resources.json")).unwrap();
    let finding: serde_json::Value = serde_json::from_str(&text).unwrap();
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    for claim in finding["claims"].as_array().unwrap() {
        assert!(page.contains(claim["paper"].as_str().unwrap()), "{claim:#}");
    }
    let kilobytes = finding["claims"][0]["ours"].as_f64().unwrap();
    assert!(page.contains(&format!("{kilobytes:.1} KB")), "{kilobytes} is not on the page");
    for cell in finding["tables"][1]["rows"][2].as_array().unwrap() {
        assert!(page.contains(cell.as_str().unwrap()), "{cell} is not on the page");
    }
    assert!(!report.join("skew.json").exists());
}

#[test]
fn a_report_that_cannot_be_written_is_refused_at_once() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let out = file.to_str().unwrap();
    assert_refused(&["bench", "paper", "--out", out], 1, &["--out: cannot make"]);
    let here = directory.path().to_str().unwrap();
    assert_refused(&["bench", "paper", "--out", here, "--data", here], 1, &["--data", here, "ml-1m"]);
    assert_refused(&["bench", "paper", "beauty", "--out", out], 2, &["beauty", "ITEM"]);
}
