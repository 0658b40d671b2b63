//! Progress bars, or silence.

use core::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use libra_models::TrainConfig;

/// Epochs of a training, as a bar shows them.
#[derive(Debug, Clone)]
pub struct EpochPlan {
    /// None: files come as long as it runs.
    epochs: Option<u32>,
    /// Samples of the epochs before the present one, of files.
    before: u64,
    /// The present one, and its samples.
    present: (u32, u64),
}

impl EpochPlan {
    /// The epochs of these settings.
    pub fn new(config: &TrainConfig) -> Self {
        Self { epochs: (!config.follow).then_some(config.epochs), before: 0, present: (0, 0) }
    }

    /// Returns the samples of all epochs that are known of, in one that has so many.
    pub fn samples(&mut self, epoch: u32, samples: u64) -> u64 {
        if let Some(epochs) = self.epochs {
            return samples * u64::from(epochs);
        }
        if epoch != self.present.0 {
            self.before += self.present.1;
        }
        self.present = (epoch, samples);
        self.before + samples
    }

    /// Returns the samples of epochs before one, if each has so many.
    pub fn samples_before(&self, epoch: u32, samples: u64) -> u64 {
        if self.epochs.is_some() { u64::from(epoch) * samples } else { self.before }
    }

    /// Names an epoch.
    pub fn epoch(&self, epoch: u32) -> String {
        match self.epochs {
            Some(epochs) => format!("epoch {}/{epochs}", epoch + 1),
            None => format!("file {}", epoch + 1),
        }
    }
}

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
