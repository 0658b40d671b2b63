//! Control groups of this process, of version 1 and 2: the processor time and the memory that they allow.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfos, Process};
use procfs::{ProcError, ProcessCGroups};

use crate::finding::Unseen;

/// Limits of all control groups that a process is in, and of those above them.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Processor time, if it is limited.
    pub(crate) quota: Result<Option<Quota>, Unseen>,
    /// Bytes of memory that are left, if they are limited.
    pub(crate) memory: Result<Option<u64>, Unseen>,
}

/// Processor time of a control group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quota {
    /// Cores.
    pub(crate) cores: f64,
    /// Periods that have passed while it had work.
    pub(crate) periods: u64,
    /// Periods in which it was stopped.
    pub(crate) throttled: u64,
}

/// Version 1 has a hierarchy for each controller, version 2 one for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Reads the limits of this process.
pub(super) fn read() -> Limits {
    let groups = || {
        let process = Process::myself()?;
        Ok::<_, ProcError>((process.cgroups()?, process.mountinfo()?))
    };
    let found = groups().map_err(|error| Unseen::because("control groups", error));
    let directories = |controller: &str| -> Result<Vec<(Version, PathBuf)>, Unseen> {
        let (groups, mounts) = found.as_ref().map_err(Clone::clone)?;
        let directories = directories(groups, mounts, controller);
        if directories.is_empty() {
            return Err(Unseen(format!("control groups: those of {controller} are not mounted here")));
        }
        Ok(directories)
    };
    let quotas = directories("cpu").map(|all| {
        let quotas = all.iter().filter_map(|(version, directory)| quota(*version, directory));
        quotas.min_by(|one, other| one.cores.total_cmp(&other.cores))
    });
    let memory = directories("memory")
        .map(|all| all.iter().filter_map(|(version, directory)| memory_left(*version, directory)).min());
    Limits { quota: quotas, memory }
}

/// Returns the directories of the groups of a controller, the innermost first.
fn directories(groups: &ProcessCGroups, mounts: &MountInfos, controller: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for group in groups {
        let version = if group.hierarchy == 0 { Version::Two } else { Version::One };
        if version == Version::One && !group.controllers.iter().any(|name| name == controller) {
            continue;
        }
        let mount = mounts.0.iter().find(|mount| match version {
            Version::One => mount.fs_type == "cgroup" && mount.super_options.contains_key(controller),
            Version::Two => mount.fs_type == "cgroup2",
        });
        let Some(mount) = mount else { continue };
        // In a container the mount shows a part of the tree.
        let path = Path::new(&group.pathname);
        let below = path.strip_prefix(&mount.root).unwrap_or_else(|_| path.strip_prefix("/").unwrap_or(path));
        let innermost = mount.mount_point.join(below);
        let inside = innermost.ancestors().take_while(|path| path.starts_with(&mount.mount_point));
        found.extend(inside.map(|path| (version, path.to_owned())));
    }
    found
}

fn text(directory: &Path, name: &str) -> Option<String> {
    fs::read_to_string(directory.join(name)).ok()
}

fn quota(version: Version, directory: &Path) -> Option<Quota> {
    let cores = match version {
        Version::One => {
            cfs_cores(&text(directory, "cpu.cfs_quota_us")?, &text(directory, "cpu.cfs_period_us")?)
        }
        Version::Two => max_cores(&text(directory, "cpu.max")?),
    }?;
    let (periods, throttled) = throttling(&text(directory, "cpu.stat").unwrap_or_default());
    Some(Quota { cores, periods, throttled })
}

fn memory_left(version: Version, directory: &Path) -> Option<u64> {
    let (limit, used) = match version {
        Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        Version::Two => ("memory.max", "memory.current"),
    };
    let limit = limit_bytes(&text(directory, limit)?)?;
    let used = text(directory, used).and_then(|used| used.trim().parse().ok()).unwrap_or(0);
    // The cache of files counts as used, and goes when memory is wanted.
    let cache = file_cache(&text(directory, "memory.stat").unwrap_or_default());
    Some(limit.saturating_sub(u64::saturating_sub(used, cache)))
}

/// Parses `cpu.cfs_quota_us` and `cpu.cfs_period_us`; no limit is -1.
fn cfs_cores(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.trim().parse::<i64>().ok()?, period.trim().parse::<i64>().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Parses `cpu.max`: `20000 100000`; no limit is `max 100000`.
fn max_cores(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    cfs_cores(quota, period)
}

/// Parses `cpu.stat`: periods, and those in which the group was stopped.
fn throttling(text: &str) -> (u64, u64) {
    let value = |name: &str| number_of(text, name).unwrap_or(0);
    (value("nr_periods"), value("nr_throttled"))
}

/// Parses `memory.max` or `memory.limit_in_bytes`. No limit is `max` there, and almost 2^63 here.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < 1 << 60)
}

/// Parses `memory.stat`: what a kernel takes back when it wants memory.
fn file_cache(text: &str) -> u64 {
    number_of(text, "inactive_file").or_else(|| number_of(text, "total_inactive_file")).unwrap_or(0)
}

/// The number behind a name on a line of its own.
fn number_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use procfs::FromBufRead;

    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
31 24 0:27 /docker/7 /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn directories_of(groups: &str, controller: &str) -> Vec<(Version, PathBuf)> {
        let groups = ProcessCGroups::from_buf_read(groups.as_bytes()).unwrap();
        let mounts = MountInfos::from_buf_read(MOUNTS.as_bytes()).unwrap();
        directories(&groups, &mounts, controller)
    }

    #[test]
    fn groups_are_found_below_their_mounts() {
        let groups = "4:memory:/docker/7/job\n1:cpu:/job\n0::/\n";
        let at = |path: &str| PathBuf::from(path);
        let cpu = directories_of(groups, "cpu");
        assert_eq!(cpu[0], (Version::One, at("/sys/fs/cgroup/cpu/job")));
        assert_eq!(cpu[1], (Version::One, at("/sys/fs/cgroup/cpu")));
        assert_eq!(cpu[2], (Version::Two, at("/sys/fs/cgroup/unified")));
        let memory = directories_of(groups, "memory");
        assert_eq!(memory[0], (Version::One, at("/sys/fs/cgroup/memory/job")));
        assert_eq!(memory[1], (Version::One, at("/sys/fs/cgroup/memory")));
    }

    #[test]
    fn a_group_of_version_2_has_all_controllers() {
        let found = directories_of("0::/a/b\n", "memory");
        let paths: Vec<_> = found.iter().map(|(_, path)| path.to_str().unwrap()).collect();
        assert_eq!(
            paths,
            ["/sys/fs/cgroup/unified/a/b", "/sys/fs/cgroup/unified/a", "/sys/fs/cgroup/unified"]
        );
    }

    #[test]
    fn quotas_of_both_versions_are_parsed() {
        assert_eq!(cfs_cores("20000\n", "100000\n"), Some(0.2));
        assert_eq!(cfs_cores("-1\n", "100000\n"), None);
        assert_eq!(max_cores("150000 100000\n"), Some(1.5));
        assert_eq!(max_cores("max 100000\n"), None);
        assert_eq!(max_cores(""), None);
        assert_eq!(throttling("nr_periods 90\nnr_throttled 7\nthrottled_time 5\n"), (90, 7));
        assert_eq!(throttling("usage_usec 12\n"), (0, 0));
    }

    #[test]
    fn limits_of_memory_are_parsed() {
        assert_eq!(limit_bytes("1073741824\n"), Some(1 << 30));
        assert_eq!(limit_bytes("max\n"), None);
        assert_eq!(limit_bytes("9223372036854771712\n"), None);
        assert_eq!(file_cache("anon 5\ninactive_file 700\n"), 700);
        assert_eq!(file_cache("inactive_file_other 1\ntotal_inactive_file 9\n"), 9);
    }

    #[test]
    fn limits_of_this_process_are_read() {
        // A container may not show them.
        if let Ok(Some(quota)) = read().quota {
            assert!(quota.cores > 0.0, "{quota:?}");
        }
    }
}
