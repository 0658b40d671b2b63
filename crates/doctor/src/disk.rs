//! The disk of a state directory: how long it takes until bytes are durable, and how much room it has.

use core::time::Duration;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{OFlags, statvfs};

use crate::finding::{Finding, Unseen, bytes};
use crate::needs::Needs;

/// Facts of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    /// Its path.
    pub(crate) directory: PathBuf,
    /// Times until a record was durable.
    pub(crate) sync: Result<SyncTimes, Unseen>,
    /// Blocks can be written past the cache of the kernel.
    pub(crate) direct: Result<bool, Unseen>,
    /// Bytes that a user who is not root may write.
    pub(crate) room: Result<u64, Unseen>,
}

/// Times until a record of a log was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncTimes {
    /// Half of them took less.
    pub(crate) median: Duration,
    /// All but one of a hundred took less.
    pub(crate) p99: Duration,
    /// Number of records.
    pub(crate) count: usize,
}

const BLOCK: usize = 4096;
/// Records that are written, unless the time is over before.
const RECORDS: usize = 200;
const TIME_MAX: Duration = Duration::from_millis(1500);
/// Medians above which a log holds pushes up, or pulls and clocks with them.
const SLOW: Duration = Duration::from_millis(5);
const SLOWEST: Duration = Duration::from_millis(20);
/// Room for a log, however small the tables are.
const ROOM_MIN: u64 = 64 << 20;

/// Measures a directory; it leaves nothing there.
pub(crate) fn read(directory: &Path) -> Disk {
    let attempted = |what| move |error: io::Error| Unseen::because(what, error);
    Disk {
        directory: directory.to_owned(),
        sync: sync_times(directory).map_err(attempted("a record of a log")),
        direct: writes_directly(directory).map_err(attempted("a block past the cache")),
        room: free_room(directory),
    }
}

fn free_room(directory: &Path) -> Result<u64, Unseen> {
    let found = statvfs(directory).map_err(|error| Unseen::because("the file system", error))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn sync_times(directory: &Path) -> io::Result<SyncTimes> {
    let mut file = tempfile::tempfile_in(directory)?;
    let (record, start) = ([0x5a; BLOCK], Instant::now());
    let mut times = Vec::with_capacity(RECORDS);
    while times.len() < RECORDS && start.elapsed() < TIME_MAX {
        let begin = Instant::now();
        file.write_all(&record)?;
        file.sync_data()?;
        times.push(begin.elapsed());
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    Ok(SyncTimes { median: at(50), p99: at(99), count: times.len() })
}

fn writes_directly(directory: &Path) -> io::Result<bool> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open(2) are an int");
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path);
    let opened = tempfile::Builder::new().prefix(".libra-doctor-").make_in(directory, open);
    let written = opened.and_then(|mut file| {
        // The kernel wants a buffer that begins at a block.
        let buffer = vec![0; 2 * BLOCK];
        let start = buffer.as_ptr().align_offset(BLOCK);
        file.as_file_mut().write_all(&buffer[start..start + BLOCK])
    });
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(error) => Err(error),
    }
}

/// Findings about a directory, from facts alone.
pub(crate) fn judge(disk: &Disk, needs: &Needs) -> Vec<Finding> {
    vec![sync(disk), direct(disk), room(&disk.directory, &disk.room, needs)]
}

/// The finding about the room of a directory, for which nothing is written.
pub(crate) fn judge_room(directory: &Path, needs: &Needs) -> Finding {
    room(directory, &free_room(directory), needs)
}

fn sync(disk: &Disk) -> Finding {
    const CHECK: &str = "disk-sync";
    let SyncTimes { median, p99, count } = match &disk.sync {
        Ok(times) => *times,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let found = format!(
        "durable after {:.2} ms, the slowest of a hundred after {:.2} ms ({count} records)",
        milliseconds(median),
        milliseconds(p99)
    );
    let costs = "with --log each push waits for the disk, and so does each barrier";
    let mend = "--state-dir on a disk of this machine (NVMe, or with a battery), or no --log";
    if median >= SLOWEST {
        Finding::bad(CHECK, found, costs).mend(mend)
    } else if median >= SLOW {
        Finding::warn(CHECK, found, costs).mend(mend)
    } else {
        Finding::ok(CHECK, found)
    }
}

fn direct(disk: &Disk) -> Finding {
    const CHECK: &str = "disk-direct";
    match &disk.direct {
        Err(unseen) => Finding::unseen(CHECK, unseen),
        Ok(true) => Finding::ok(CHECK, "blocks are written past the cache of the kernel"),
        Ok(false) => Finding::warn(
            CHECK,
            "the file system writes nothing past the cache of the kernel",
            "with --memory-limit rows on disk take memory all the same",
        )
        .mend("--state-dir on ext4 or XFS"),
    }
}

fn room(directory: &Path, room: &Result<u64, Unseen>, needs: &Needs) -> Finding {
    const CHECK: &str = "disk-room";
    let room = match room {
        Ok(room) => *room,
        Err(unseen) => return Finding::unseen(CHECK, unseen),
    };
    let rows = needs.tables.map_or(0, |tables| tables.server_bytes());
    // The newest that all servers have is kept, too, and one more is written before the oldest goes.
    let checkpoints = u64::from(needs.checkpoints_kept).max(2) + 1;
    let wanted = rows.saturating_mul(checkpoints).max(ROOM_MIN);
    let found = format!(
        "{} in {}; {checkpoints} checkpoints and a log need {}",
        bytes(room),
        directory.display(),
        bytes(wanted)
    );
    if room < wanted {
        return Finding::bad(
            CHECK,
            found,
            "checkpoints fail, and the log is suspended: a crash loses updates",
        )
        .mend("a larger disk, fewer --keep-checkpoints, or libra checkpoint prune");
    }
    Finding::ok(CHECK, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;
    use crate::needs::Tables;

    fn sound() -> Disk {
        let (median, p99) = (Duration::from_micros(400), Duration::from_millis(90));
        Disk {
            directory: "/state".into(),
            sync: Ok(SyncTimes { median, p99, count: 200 }),
            direct: Ok(true),
            room: Ok(8 << 30),
        }
    }

    fn wrong(change: impl FnOnce(&mut Disk)) -> Vec<(&'static str, Verdict)> {
        let tables = Tables { rows: 10_000_000, width: 16, state: 33, servers: 1 };
        let needs = Needs { tables: Some(tables), ..Needs::default() };
        let mut disk = sound();
        change(&mut disk);
        let findings = judge(&disk, &needs).into_iter().filter(|finding| finding.verdict != Verdict::Ok);
        findings.map(|finding| (finding.check, finding.verdict)).collect()
    }

    #[test]
    fn each_fault_of_a_disk_is_one_finding() {
        assert_eq!(wrong(|_| ()), []);
        let slow = |milliseconds| SyncTimes {
            median: Duration::from_millis(milliseconds),
            p99: Duration::from_millis(99),
            count: 30,
        };
        assert_eq!(wrong(|disk| disk.sync = Ok(slow(50))), [("disk-sync", Verdict::Bad)]);
        assert_eq!(wrong(|disk| disk.sync = Ok(slow(6))), [("disk-sync", Verdict::Warn)]);
        assert_eq!(wrong(|disk| disk.direct = Ok(false)), [("disk-direct", Verdict::Warn)]);
        assert_eq!(wrong(|disk| disk.room = Ok(1 << 30)), [("disk-room", Verdict::Bad)]);
    }

    #[test]
    fn a_directory_of_this_machine_is_measured_and_left_empty() {
        let directory = tempfile::tempdir().unwrap();
        let disk = read(directory.path());
        let times = disk.sync.unwrap();
        assert!(times.count > 0 && times.median <= times.p99, "{times:?}");
        assert!(disk.room.unwrap() > 0);
        assert!(disk.direct.is_ok(), "{:?}", disk.direct);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_unseen() {
        let disk = read(Path::new("/nowhere/at/all"));
        let findings = judge(&disk, &Needs::default());
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Unseen), "{findings:#?}");
    }
}
