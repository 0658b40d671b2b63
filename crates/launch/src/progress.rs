//! Progress bars, or silence.

use core::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Makes bars for long work; with `--quiet` they draw nothing.
#[derive(Debug, Clone, Copy)]
pub struct Bars {
    quiet: bool,
}

impl Bars {
    /// Progress bars, or none if `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// A bar that counts samples.
    pub fn bar(self, name: &str) -> ProgressBar {
        self.counting(name, "{human_pos}/{human_len} {per_sec:>14}")
    }

    /// A bar that counts bytes.
    pub fn bytes_bar(self, name: &str, bytes: u64) -> ProgressBar {
        let bar = self.counting(name, "{binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec:>12}");
        bar.set_length(bytes);
        bar
    }

    fn counting(self, name: &str, counts: &str) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
        let template = format!("{{prefix:>10}} {{wide_bar}} {counts} {{eta:>4}} {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("the template is right");
        bar.set_style(style.progress_chars("━╸─"));
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    }

    /// Returns a line for progress that has no end in samples.
    pub fn spinner(self, name: &str) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{prefix:>10} {spinner} {wide_msg}");
        bar.set_style(style.expect("the template is right"));
        bar.set_prefix(name.to_owned());
        bar
    }

    /// One line for a person.
    pub fn line(self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}
