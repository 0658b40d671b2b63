//! The faults, and how each is planted. What lies outside of the namespaces is put back when a [`Planted`] is dropped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::site::{HERE, ROUTER, Site, unmount};
use crate::process::Running;
use crate::shell;

pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The check, and its interface, that must name it.
    pub(super) check: &'static str,
    /// An error is a machine that cannot have it.
    pub(super) plant: fn(&Site) -> Result<Planted>,
}

/// A planted fault.
#[derive(Default)]
pub(super) struct Planted {
    /// Words in front of the doctor's.
    pub(super) wrapper: Vec<String>,
    /// Options of the doctor.
    pub(super) options: Vec<String>,
    _undo: Vec<Undo>,
}

/// Put back, or ended, when it is dropped.
enum Undo {
    /// A file of `/proc`, and what was in it.
    Setting(PathBuf, String),
    Group(PathBuf),
    Mount(PathBuf),
    Loop(String),
    Process {
        _running: Running,
    },
}

impl Drop for Undo {
    fn drop(&mut self) {
        let undone = match self {
            Self::Setting(path, text) => fs::write(&*path, text.as_bytes()).map_err(Into::into),
            Self::Group(path) => fs::remove_dir(&*path).map_err(Into::into),
            Self::Loop(device) => shell::output(shell::program("losetup", &["-d", device])).map(drop),
            Self::Mount(path) => {
                unmount(path);
                Ok(())
            }
            Self::Process { .. } => Ok(()),
        };
        if let Err(error) = undone {
            eprintln!("xtask: a planted fault is left over: {error:#}");
        }
    }
}

pub(super) const FAULTS: [Fault; 14] = [
    Fault { name: "rmem-max", check: "receive-buffer", plant: rmem_max },
    Fault {
        name: "router-mtu",
        check: "path-mtu",
        plant: |site| on_router(site, "ip link set there0 mtu 1400"),
    },
    Fault { name: "nat", check: "address", plant: |site| on_router(site, NAT) },
    Fault { name: "loss", check: "loss", plant: |site| on_router(site, LOSS) },
    Fault { name: "gro-off", check: "gro eth0", plant: |site| on_host(site, "ethtool -K eth0 gro off") },
    Fault { name: "one-queue", check: "queues eth0", plant: |site| on_host(site, "ethtool -L eth0 rx 1") },
    Fault { name: "quota", check: "quota", plant: quota },
    Fault { name: "slow-disk", check: "disk-sync", plant: slow_disk },
    Fault { name: "nofile", check: "descriptors", plant: nofile },
    Fault { name: "blocked-port", check: "reach", plant: |site| on_router(site, BLOCKED) },
    Fault { name: "wrong-controller", check: "reach", plant: wrong_controller },
    Fault { name: "version-skew", check: "version", plant: version_skew },
    Fault { name: "full-disk", check: "disk-room", plant: full_disk },
    Fault { name: "no-btf", check: "btf", plant: no_btf },
];

/// What is no fault: nothing turns bad, though less is seen.
pub(super) const HARMLESS: [Fault; 3] = [
    Fault { name: "not root", check: "", plant: not_root },
    Fault {
        name: "no ethtool",
        check: "udp-hash eth0",
        plant: |_| Ok(Planted { wrapper: words(["env", "PATH=/nowhere"]), ..Planted::default() }),
    },
    Fault {
        name: "another namespace of users",
        check: "",
        plant: |_| {
            Ok(Planted { wrapper: words(["unshare", "--user", "--map-root-user"]), ..Planted::default() })
        },
    },
];

const NAT: &str = "nft add table ip nat
nft 'add chain ip nat post { type nat hook postrouting priority 100; }'
nft 'add rule ip nat post oifname \"there0\" masquerade'";
/// 3% each way.
const LOSS: &str = "nft add table ip loss
nft 'add chain ip loss way { type filter hook forward priority 0; }'
nft 'add rule ip loss way meta l4proto udp numgen random mod 1000 < 30 drop'";
/// Answers do not come back.
const BLOCKED: &str = "nft add table ip wall
nft 'add chain ip wall way { type filter hook forward priority 0; }'
nft 'add rule ip wall way udp sport 7799 drop'";

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn on_router(site: &Site, line: &str) -> Result<Planted> {
    site.sh(ROUTER, line)?;
    Ok(Planted::default())
}

fn on_host(site: &Site, line: &str) -> Result<Planted> {
    site.sh(HERE, line)?;
    Ok(Planted::default())
}

/// The setting is of the whole machine: for the second that it takes, others have it, too.
fn rmem_max(_site: &Site) -> Result<Planted> {
    const SETTING: &str = "/proc/sys/net/core/rmem_max";
    let before = fs::read_to_string(SETTING).context(SETTING)?;
    fs::write(SETTING, "212992").context(SETTING)?;
    Ok(Planted {
        wrapper: words(["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]),
        _undo: vec![Undo::Setting(SETTING.into(), before)],
        ..Planted::default()
    })
}

fn not_root(site: &Site) -> Result<Planted> {
    let wrapper = words(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    // Where such a user may write.
    site.sh(HERE, &format!("chmod 1777 {}", site.disk()))?;
    Ok(Planted { wrapper, ..Planted::default() })
}

/// A control group of version 1 or 2 with these settings, and the wrapper that goes into it. Each is a controller of version 1, a
/// file, and what is written to it.
fn group(site: &str, v1: (&str, &[(&str, &str)]), v2: &[(&str, &str)]) -> Result<(Undo, Vec<String>)> {
    let name = format!("libra-doctor-{}-{site}", std::process::id());
    let (controller, settings) = v1;
    let old = Path::new("/sys/fs/cgroup").join(controller);
    let (folder, settings) = if old.is_dir() {
        (old.join(&name), settings)
    } else if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        (Path::new("/sys/fs/cgroup").join(&name), v2)
    } else {
        bail!("there is no control group for {controller}");
    };
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let undo = Undo::Group(folder.clone());
    for (file, text) in settings {
        fs::write(folder.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", folder.display());
    Ok((undo, words(["sh", "-ec", &enter, "sh"])))
}

fn quota(_site: &Site) -> Result<Planted> {
    let old = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")];
    let (undo, wrapper) = group("quota", ("cpu", &old), &[("cpu.max", "20000 100000")])?;
    Ok(Planted { wrapper, _undo: vec![undo], ..Planted::default() })
}

/// A file system on a device that takes 15 writes a second of the doctor.
fn slow_disk(site: &Site) -> Result<Planted> {
    let (folder, mount) = (site.folder("slow")?, site.folder("slow-disk")?);
    let (image, mounted) = (folder.join("image"), mount.to_string_lossy().into_owned());
    // It lies in memory, lest the disk of this machine is the slow one.
    let name = folder.to_string_lossy().into_owned();
    shell::output(shell::program("mount", &["-t", "tmpfs", "-o", "size=200m", "libra-doctor", &name]))?;
    // Dropped in this order.
    let mut undo = vec![Undo::Mount(folder)];
    let image = image.to_string_lossy().into_owned();
    shell::output(shell::program("truncate", &["-s", "160m", &image]))?;
    let device = shell::output(shell::program("losetup", &["-f", "--show", &image]))?.trim().to_owned();
    undo.insert(0, Undo::Loop(device.clone()));
    shell::output(shell::program("mkfs.ext4", &["-q", "-F", &device]))?;
    shell::output(shell::program("mount", &[&device, &mounted]))?;
    undo.insert(0, Undo::Mount(mount));
    let kernel_name = device.trim_start_matches("/dev/");
    let number = fs::read_to_string(format!("/sys/block/{kernel_name}/dev")).context("the loop device")?;
    let (old, new) = (format!("{} 15", number.trim()), format!("{} wiops=15", number.trim()));
    let old = [("blkio.throttle.write_iops_device", old.as_str())];
    let (limit, wrapper) = group("disk", ("blkio", &old), &[("io.max", &new)])?;
    undo.insert(0, limit);
    Ok(Planted { wrapper, options: words(["--state-dir", &mounted]), _undo: undo })
}

fn nofile(_site: &Site) -> Result<Planted> {
    Ok(Planted { wrapper: words(["sh", "-ec", "ulimit -n 64; exec \"$@\"", "sh"]), ..Planted::default() })
}

/// A controller listens where a doctor is expected, and its token is another.
fn wrong_controller(site: &Site) -> Result<Planted> {
    const PORT: u16 = 7700;
    let to = site.to(PORT);
    let words_there =
        ["controller", "--listen", &to, "--tables=workers", "--workers=1", "--servers=1", "--switches=1"];
    let running = site.listen("controller", &words_there, PORT)?;
    let token = site.token()?;
    Ok(Planted {
        options: words(["--to", &to, "--token-file", &token]),
        _undo: vec![Undo::Process { _running: running }],
        ..Planted::default()
    })
}

fn version_skew(site: &Site) -> Result<Planted> {
    const PORT: u16 = 7801;
    let to = site.to(PORT);
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let own = own.to_string_lossy();
    let running = site.listen("other-doctor", &[&own, "other-doctor", "--listen", &to], PORT)?;
    Ok(Planted {
        options: words(["--to", &to]),
        _undo: vec![Undo::Process { _running: running }],
        ..Planted::default()
    })
}

fn full_disk(site: &Site) -> Result<Planted> {
    let folder = site.folder("full-disk")?;
    let name = folder.to_string_lossy().into_owned();
    shell::output(shell::program("mount", &["-t", "tmpfs", "-o", "size=1m", "libra-doctor", &name]))?;
    let undo = vec![Undo::Mount(folder.clone())];
    // As much as there is room for.
    let filled = fs::write(folder.join("filling"), vec![1; 2 << 20]);
    if filled.is_ok() {
        bail!("a file system of 1 MiB takes 2 MiB");
    }
    Ok(Planted { options: words(["--state-dir", &name]), _undo: undo, ..Planted::default() })
}

/// In a mount namespace, which `ip netns exec` makes anyway.
fn no_btf(_site: &Site) -> Result<Planted> {
    let hide = "mount -t tmpfs libra-doctor /sys/kernel/btf; exec \"$@\"";
    Ok(Planted {
        wrapper: words(["sh", "-ec", hide, "sh"]),
        options: words(["--plane", "xdp"]),
        ..Planted::default()
    })
}
