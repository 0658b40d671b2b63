//! Training time over rates of packet loss (the paper's figure on the overhead of retransmission).

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::{Options, train};

/// The paper's rates, as shares of packets.
const RATES: [&str; 5] = ["0", "0.0001", "0.0002", "0.0005", "0.001"];

/// Duration of one run, and the number of packets that were sent again.
struct Run {
    seconds: f64,
    retransmits: f64,
    packets: f64,
}

/// Raw figures and a table of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    let mut runs: Vec<Vec<Run>> = RATES.iter().map(|_| Vec::new()).collect();
    let mut raw = "repeat,loss,seconds,packets,retransmits\n".to_owned();
    for repeat in 0..options.repeats {
        for (rate, runs) in RATES.iter().zip(&mut runs) {
            let report = train(options, folder, &["--servers", "1", "--loss", rate])?;
            let run = Run {
                seconds: report.number("seconds.train"),
                retransmits: report.number("transport.retransmits"),
                packets: report.number("transport.packets"),
            };
            println!("loss {rate}: {:.2} s", run.seconds);
            writeln!(raw, "{repeat},{rate},{:.3},{},{}", run.seconds, run.packets, run.retransmits)?;
            runs.push(run);
        }
    }
    Ok((raw, summary(&mut runs)))
}

fn summary(runs: &mut [Vec<Run>]) -> String {
    let mut table = "| loss | min | median | max (s) | median against no loss | sent again |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let mut base = None;
    for (rate, runs) in RATES.iter().zip(runs) {
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let (Some(first), Some(last), Some(middle)) = (runs.first(), runs.last(), runs.get(runs.len() / 2))
        else {
            continue;
        };
        let base = *base.get_or_insert(middle.seconds);
        table += &format!(
            "| {rate} | {:.2} | {:.2} | {:.2} | {:+.1}% | {:.3}% |\n",
            first.seconds,
            middle.seconds,
            last.seconds,
            100.0 * (middle.seconds / base - 1.0),
            100.0 * middle.retransmits / middle.packets.max(1.0)
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared_with_that_of_no_loss() {
        let run = |seconds| Run { seconds, retransmits: 1.0, packets: 1000.0 };
        let mut runs: Vec<Vec<Run>> = RATES.iter().map(|_| vec![run(3.0), run(1.0), run(2.0)]).collect();
        runs[1] = vec![run(2.2), run(9.0), run(0.1)];
        let table = summary(&mut runs);
        assert!(table.contains("| 0 | 1.00 | 2.00 | 3.00 | +0.0% | 0.100% |"), "{table}");
        assert!(table.contains("| 0.0001 | 0.10 | 2.20 | 9.00 | +10.0% | 0.100% |"), "{table}");
    }
}
