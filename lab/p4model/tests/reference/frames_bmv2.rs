//! The frames of `frames.rs` in bmv2, which reads them from files and writes what leaves into others; and the program with each fault
//! written into it, so that it is the program whose faults are found.
//!
//! That needs `p4c-bm2-ss`, `simple_switch` and `simple_switch_CLI` on the PATH; without them the test reports that it was skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use libra_p4::{Bmv2Tables, Sizes, bfrt};
use libra_p4model::FrameFault;

use crate::bmv2::in_bmv2_of;
use crate::console::Console;
use crate::frames::{Cases, STATION, Sent, changes, setup};

const THRIFT: &str = "9391";
const PORTS: [u16; 3] = [0, 1, 2];
/// For how many seconds bmv2 waits until it reads frames: its tables must be filled by then, or it is tried with more.
const WAITS: [u64; 3] = [4, 15, 45];
const TIMEOUT: Duration = Duration::from_secs(60);
/// The frame after which none comes.
const END: &[u8] = b"the end";

/// The lines that a fault changes, file by file.
fn lines_of(fault: FrameFault) -> Vec<(&'static str, &'static str, &'static str)> {
    const TOP: &str = "libra_v1model.p4";
    match fault {
        FrameFault::FragmentsTaken => vec![(
            "parser.p4",
            "(PLAIN_IPV4, 0 &&& 0x3fff, PROTOCOL_UDP): udp;",
            "(PLAIN_IPV4, _, PROTOCOL_UDP): udp;",
        )],
        FrameFault::IpLengthIgnored => vec![
            ("parser.p4", "(IP_BYTES_BARE, UDP_BYTES_BARE)", "(_, UDP_BYTES_BARE)"),
            ("parser.p4", "(IP_BYTES_FULL, UDP_BYTES_FULL)", "(_, UDP_BYTES_FULL)"),
        ],
        FrameFault::FloodedBack => {
            vec![(TOP, "standard.mcast_grp == FLOOD_GROUP &&", "standard.mcast_grp == 0xffff &&")]
        }
        FrameFault::PingChecksumKept => vec![
            ("forward.p4", "hdr.icmp.checksum + 0x0800", "hdr.icmp.checksum"),
            ("forward.p4", "hdr.icmp.checksum + 0x0801", "hdr.icmp.checksum"),
        ],
        FrameFault::PingUnanswered => vec![(
            "forward.p4",
            "hdr.icmp.kind = ICMP_ECHO_REPLY;\n        is_answer = 1;",
            "hdr.icmp.kind = ICMP_ECHO_REPLY;",
        )],
        FrameFault::StationsIgnored => {
            vec![(
                "forward.p4",
                "            stations.apply();",
                // The table stays, as it gets stations all the same.
                "            if (hdr.arp.isValid()) { stations.apply(); } else { port = FLOOD; }",
            )]
        }
        FrameFault::ReservedFlooded => vec![("forward.p4", "port = NOWHERE;", "port = FLOOD;")],
        FrameFault::HeaderChecksumIgnored => {
            vec![(TOP, "hdr.ipv4.version_and_length == PLAIN_IPV4", "hdr.ipv4.version_and_length == 0")]
        }
        FrameFault::UdpChecksumIgnored => {
            vec![(TOP, "&& hdr.udp.checksum != 0", "&& hdr.udp.bytes == 0")]
        }
        FrameFault::UdpChecksumRequired => vec![(TOP, " && hdr.udp.checksum != 0", "")],
        FrameFault::AnswersWithoutChecksum => vec![
            (TOP, "update_checksum(hdr.libra.isValid()", "update_checksum(hdr.arp.isValid()"),
            (TOP, "update_checksum(hdr.entries[0].isValid()", "update_checksum(hdr.arp.isValid()"),
        ],
        FrameFault::CutTaken => {
            vec![(TOP, "standard.parser_error != error.NoError", "standard.packet_length == 0")]
        }
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/backends/p4/program")
}

/// Every fault is in lines that the program has: without bmv2, too.
#[test]
fn faults_are_in_lines_of_the_program() {
    for fault in FrameFault::ALL {
        for (file, line, _) in lines_of(fault) {
            let text = fs::read_to_string(source().join(file)).unwrap();
            assert!(text.contains(line), "{fault:?}: {file} has no `{line}`");
        }
    }
}

/// A folder that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("libra-p4-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// The program with a fault, compiled.
fn compile(fault: FrameFault, folder: &Path) -> PathBuf {
    copy(&source(), folder);
    for (file, line, wrong) in lines_of(fault) {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace(line, wrong)).unwrap();
    }
    let program = folder.join("program.json");
    let mut compiler = Command::new("p4c-bm2-ss");
    compiler.args(["--std", "p4-16", "-o"]).arg(&program).arg(folder.join("libra_v1model.p4"));
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{fault:?}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the frames that leave by each port when these frames come.
fn leaving(program: &Path, frames: &[Sent]) -> BTreeMap<u16, Vec<Vec<u8>>> {
    let found = WAITS.iter().find_map(|&wait| try_leaving(program, frames, wait));
    found.expect("the tables of bmv2 are filled in time")
}

fn try_leaving(program: &Path, frames: &[Sent], wait: u64) -> Option<BTreeMap<u16, Vec<Vec<u8>>>> {
    let folder = Folder::new("frames");
    let file = |port: u16, way: &str| folder.0.join(format!("port{port}_{way}.pcap"));
    for port in PORTS {
        fs::write(file(port, "in"), pcap(frames, port)).unwrap();
    }
    let begun = Instant::now();
    let mut command = Command::new("simple_switch");
    command.current_dir(&folder.0).args(["--use-files", &wait.to_string(), "--thrift-port", THRIFT]);
    for port in PORTS {
        command.args(["-i", &format!("{port}@port{port}")]);
    }
    command.arg(program).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Running(command.spawn().unwrap());
    let mut console = loop {
        let mut command = Command::new("simple_switch_CLI");
        command.args(["--thrift-port", THRIFT]);
        if let Some(console) = Console::start(command) {
            break console;
        }
        assert!(begun.elapsed() < TIMEOUT, "bmv2 does not listen");
    };
    let sizes = Sizes::default();
    let tables = Bmv2Tables::new(sizes).lines(&changes(sizes));
    let station = vec![bfrt::bmv2_station(STATION.0, STATION.1)];
    let said =
        console.tell(&[setup().lines(&sizes), setup().flood_lines(), tables, station].concat()).unwrap();
    assert!(!said.contains("Invalid") && !said.contains("Error"), "{said}");
    if begun.elapsed() + Duration::from_secs(1) > Duration::from_secs(wait) {
        return None;
    }
    loop {
        let read = |port| (port, packets(&fs::read(file(port, "out")).unwrap_or_default()));
        let left: BTreeMap<_, _> = PORTS.into_iter().map(read).collect();
        // Two frames are the last: each of these ports gets the one, and port 2 both.
        let has_ended = |(port, frames): (&u16, &Vec<Vec<u8>>)| {
            let ends = frames.iter().filter(|frame| frame.ends_with(END)).count();
            ends >= if *port == 2 { 2 } else { 1 }
        };
        if left.iter().all(has_ended) {
            return Some(left);
        }
        assert!(begun.elapsed() < TIMEOUT + Duration::from_secs(wait), "bmv2 has not read all frames");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A file of frames: those of all ports are read in the order of their times.
fn pcap(frames: &[Sent], port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let number = |bytes: &mut Vec<u8>, number: u32| bytes.extend(number.to_le_bytes());
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 0xffff, 1] {
        number(&mut bytes, word);
    }
    for (time, (_, frame)) in (1..).zip(frames).filter(|(_, (of, _))| *of == port) {
        let length = u32::try_from(frame.len()).unwrap();
        for word in [time, 0, length, length] {
            number(&mut bytes, word);
        }
        bytes.extend(frame);
    }
    bytes
}

/// The frames of a file; of one that is written now, those that are whole.
fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let Some(frame) = rest.get(16..16 + length) else { break };
        frames.push(frame.to_vec());
        rest = &rest[16 + length..];
    }
    frames
}

// rule W2
#[test]
fn bmv2_treats_frames_as_the_program_here_does() {
    in_bmv2_of("libra_v1model.p4", |program| {
        let cases = Cases::all(Sizes::default());
        let frames: Vec<Sent> = cases.iter().map(|case| (case.port, case.frame.clone())).collect();
        let mut expected: BTreeMap<u16, Vec<Vec<u8>>> = PORTS.map(|port| (port, Vec::new())).into();
        for (port, frame) in cases.iter().flat_map(|case| case.leaves.clone()) {
            expected.get_mut(&port).unwrap().push(frame);
        }
        let found = leaving(program, &frames);
        for port in PORTS {
            for (place, expected) in expected[&port].iter().enumerate() {
                let about = cases.iter().find(|case| case.leaves.contains(&(port, expected.clone())));
                let about = about.map(crate::frames::Case::about).unwrap_or_default();
                assert_eq!(found[&port].get(place), Some(expected), "port {port}, {about}");
            }
        }
        assert_eq!(found, expected, "nothing else leaves");
        let mut missed = Vec::new();
        for fault in FrameFault::ALL {
            let folder = Folder::new("fault");
            let is_found = leaving(&compile(fault, &folder.0), &frames) != expected;
            println!("{fault:?} is {}", if is_found { "found" } else { "NOT found" });
            if !is_found {
                missed.push(fault);
            }
        }
        assert!(missed.is_empty(), "not found in bmv2: {missed:?}");
    });
}
