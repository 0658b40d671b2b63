//! Faults that a person schedules for a cluster: `switch@10s`.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// Members that can be killed, or asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A switch.
    Switch,
    /// A worker.
    Worker,
    /// A server.
    Server,
    /// The controller.
    Controller,
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Switch => "switch",
            Self::Worker => "worker",
            Self::Server => "server",
            Self::Controller => "controller",
        })
    }
}

/// A member to which something is done at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetAt {
    /// The member.
    pub target: Target,
    /// Counted from when the cluster is complete.
    pub at: Duration,
}

impl FromStr for TargetAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, at) = text.split_once('@').ok_or("expected a target and a time, as in switch@10s")?;
        let target = match target {
            "switch" => Target::Switch,
            "worker" => Target::Worker,
            "server" => Target::Server,
            "controller" => Target::Controller,
            other => {
                let possible = "switch, worker, server or controller";
                return Err(format!("{other:?} is no kind of member: expected {possible}"));
            }
        };
        Ok(Self { target, at: at.parse::<Moment>()?.0 })
    }
}

impl fmt::Display for TargetAt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}s", self.target, self.at.as_secs_f64())
    }
}

/// A time since the cluster is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Duration);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.strip_suffix("ms") {
            Some(number) => (number, 1e-3),
            None => (text.strip_suffix('s').unwrap_or(text), 1.0),
        };
        let seconds = number.parse::<f64>().ok().map(|number| number * unit);
        let at = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        at.map(Self).ok_or_else(|| format!("{text:?} is no time: expected seconds, as in 10s, 2.5s or 500ms"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_has_a_target_and_a_time() {
        let kill: TargetAt = "switch@10s".parse().unwrap();
        assert_eq!(kill, TargetAt { target: Target::Switch, at: Duration::from_secs(10) });
        assert_eq!(kill.to_string(), "switch@10s");
        let times =
            ["worker@500ms", "worker@0.5s", "worker@0.5"].map(|text| text.parse::<TargetAt>().unwrap().at);
        assert_eq!(times, [Duration::from_millis(500); 3]);
        for text in ["switch", "servant@3s", "switch@soon", "switch@-1s", "switch@1m", "@1s"] {
            assert!(text.parse::<TargetAt>().is_err(), "{text}");
        }
    }
}
