//! Programs: into the kernel, onto an interface, and the errors of the kernel if it rejects them.

use std::io;

use aya::maps::{MapData, ProgramArray};
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfError, EbpfLoader};
use rustix::io::Errno;

use crate::error::{Attached, Mode, XdpError};
use crate::layout::PARTS;

pub(crate) static SWITCH: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/switch.o"));
pub(crate) static MEASURE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/measure.o"));
static PASS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pass.o"));

/// Only the end of the log of the verifier has the fault.
const LOG_LINES: usize = 12;
const LOADING: &str = "loading a program";

/// Loads the maps and the programs of an object.
pub(crate) fn load(loader: &mut EbpfLoader<'_>, object: &[u8]) -> Result<Ebpf, XdpError> {
    let mut loaded = loader.load(object).map_err(|error| cause(LOADING, &error))?;
    for (_, program) in loaded.programs_mut() {
        let program: &mut Xdp = program.try_into().expect("all are for XDP");
        program.load().map_err(|error| match error {
            ProgramError::LoadError { verifier_log, io_error } if !is_refusal(&io_error) => {
                let log = verifier_log.to_string();
                let lines: Vec<_> = log.lines().collect();
                XdpError::Rejected { log: lines[lines.len().saturating_sub(LOG_LINES)..].join("\n") }
            }
            error => cause(LOADING, &error),
        })?;
    }
    Ok(loaded)
}

/// Makes the programs of a switch go on with each other, for as long as the map is open.
pub(crate) fn connect(loaded: &mut Ebpf) -> Result<ProgramArray<MapData>, XdpError> {
    let mut parts: ProgramArray<_> = loaded.take_map("parts").expect("the object has this map").try_into()?;
    for (index, part) in (0..).zip(PARTS) {
        parts.set(index, program(loaded, &format!("libra_{part}")).fd()?, 0)?;
    }
    Ok(parts)
}

/// The program of an object that was made with it.
pub(crate) fn program<'a>(loaded: &'a mut Ebpf, name: &str) -> &'a mut Xdp {
    let program = loaded.program_mut(name).expect("the object has this program");
    program.try_into().expect("it is one for XDP")
}

/// Puts a loaded program onto an interface. It goes when the object goes, at the latest with the process.
pub(crate) fn attach(
    loaded: &mut Ebpf,
    name: &str,
    interface: &str,
    mode: Mode,
) -> Result<Attached, XdpError> {
    let mut attempt = |mode: Mode| {
        let flag = if mode == Mode::Native { XdpMode::Driver } else { XdpMode::Skb };
        let attached = program(loaded, name).attach(interface, flag);
        attached.map(drop).map_err(|error| refused(interface, mode, &error))
    };
    match mode {
        Mode::Native => attempt(Mode::Native).map(|()| Attached::Native),
        Mode::Generic => attempt(Mode::Generic).map(|()| Attached::Generic),
        Mode::Auto => match attempt(Mode::Native) {
            Ok(()) => Ok(Attached::Native),
            Err(XdpError::Attach { reason, .. }) => {
                attempt(Mode::Generic).map(|()| Attached::Instead { reason })
            }
            Err(error) => Err(error),
        },
    }
}

fn refused(interface: &str, mode: Mode, error: &ProgramError) -> XdpError {
    if matches!(error, ProgramError::UnknownInterface { .. }) {
        return XdpError::NoInterface { name: interface.to_owned() };
    }
    let Some(code) = system_error(error).and_then(io::Error::raw_os_error) else {
        return cause("attaching a program", error);
    };
    let code = Errno::from_raw_os_error(code);
    let hint = match code {
        Errno::PERM | Errno::ACCESS => {
            return XdpError::NotPermitted { attempted: "putting a program onto an interface" };
        }
        Errno::RANGE => "its MTU is too large for a program in the driver (veth takes up to about 3,400)",
        Errno::OPNOTSUPP => "its driver runs no programs",
        Errno::BUSY | Errno::EXIST => "another program is there already (`ip link show` names it)",
        Errno::INVAL => "its driver will not have it as it is set up now (MTU, queues, offloads)",
        _ => "the kernel refuses it",
    };
    let reason = format!("{hint} ({})", io::Error::from(code));
    XdpError::Attach { interface: interface.to_owned(), mode, reason }
}

/// An error of the library in our words.
pub(crate) fn cause(attempted: &'static str, error: &(dyn std::error::Error + 'static)) -> XdpError {
    match system_error(error) {
        Some(system) => XdpError::system(attempted, system),
        None => {
            let mut reason = error.to_string();
            let mut next = error.source();
            while let Some(error) = next {
                reason = format!("{reason}: {error}");
                next = error.source();
            }
            XdpError::Kernel { attempted, reason }
        }
    }
}

/// Finds the error of the system, somewhere below.
fn system_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(system) = error.downcast_ref::<io::Error>() {
            return Some(system);
        }
        next = error.source();
    }
    None
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A program on an interface that lets everything pass, for as long as this lives. The end of a veth pair that belongs to a
/// worker needs it, or any other program: without one the kernel drops what a program sends from the other end.
#[derive(Debug)]
pub struct PassProgram {
    /// Detaches it when it goes.
    _loaded: Ebpf,
}

impl PassProgram {
    /// Puts it onto an interface of this network namespace.
    pub fn attach(interface: &str) -> Result<Self, XdpError> {
        const NAME: &str = "libra_pass";
        let mut loaded = load(&mut EbpfLoader::new(), PASS)?;
        attach(&mut loaded, NAME, interface, Mode::Native)?;
        Ok(Self { _loaded: loaded })
    }
}

impl From<ProgramError> for XdpError {
    fn from(error: ProgramError) -> Self {
        cause("running the program", &error)
    }
}

impl From<EbpfError> for XdpError {
    fn from(error: EbpfError) -> Self {
        cause(LOADING, &error)
    }
}
