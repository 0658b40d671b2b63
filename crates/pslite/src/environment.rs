//! The variables with which programs of ps-lite are configured, and ours.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use libra_client::{Security, TOKEN_VARIABLE, Token};
use libra_net::is_local;
use parking_lot::Mutex;

use crate::mesh::{NodeRole, NodeSettings};

use crate::error::CallError;
use crate::hot::JobSettings;
use crate::interface;
use crate::token;

/// Set by the program itself; they go before those of the process.
static OVERRIDES: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

/// Sets a variable for this library alone.
pub(crate) fn set(name: &str, value: &str) {
    let mut overrides = OVERRIDES.lock();
    overrides.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

fn find(name: &str) -> Option<String> {
    let overrides = OVERRIDES.lock();
    let set = overrides.as_ref().and_then(|all| all.get(name).cloned());
    set.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

/// Settings with which a process of the cluster is started.
#[derive(Debug, Clone)]
pub(crate) struct Configuration {
    pub(crate) node: NodeSettings,
    pub(crate) verbose: u8,
    /// True if a person has asked for no protection.
    pub(crate) is_insecure: bool,
    /// Of the scheduler, if hot keys are to go through a switch.
    pub(crate) switch: Option<SwitchSettings>,
    pub(crate) job: JobSettings,
    /// File for a plan of the pushes of the first worker.
    pub(crate) profile: Option<PathBuf>,
}

/// Plan and switch of the hot keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwitchSettings {
    /// The file of the plan.
    pub(crate) plan: PathBuf,
    /// Address at which the scheduler awaits a switch.
    pub(crate) switch: SocketAddr,
}

/// Reads all variables. Others cannot see the token in the environment of this process from then on.
pub(crate) fn read() -> Result<Configuration, CallError> {
    token::hide();
    read_with(&find)
}

fn read_with(find: &dyn Fn(&'static str) -> Option<String>) -> Result<Configuration, CallError> {
    let required = |name| {
        let problem = || CallError::Environment { name, problem: "is not set".to_owned() };
        find(name).ok_or_else(problem)
    };
    let role = required("DMLC_ROLE")?;
    let role = match role.as_str() {
        "scheduler" => NodeRole::Scheduler,
        "server" => NodeRole::Server,
        "worker" => NodeRole::Worker,
        _ => {
            let problem = format!("is {role:?}, and must be scheduler, server or worker");
            return Err(CallError::Environment { name: "DMLC_ROLE", problem });
        }
    };
    let workers = number("DMLC_NUM_WORKER", &required("DMLC_NUM_WORKER")?, 0, 10_000)?;
    let servers = number("DMLC_NUM_SERVER", &required("DMLC_NUM_SERVER")?, 0, 10_000)?;
    let scheduler_host = required("DMLC_PS_ROOT_URI")?;
    let scheduler_port =
        number("DMLC_PS_ROOT_PORT", &required("DMLC_PS_ROOT_PORT")?, 1, u64::from(u16::MAX))?;
    let optional = |name, least, most, usual: u64| match find(name) {
        Some(value) => number(name, &value, least, most),
        None => Ok(usual),
    };
    let seconds = u64::from(u32::MAX);
    let heartbeat = optional("PS_HEARTBEAT_INTERVAL", 0, seconds, 0)?;
    let silence = optional("PS_HEARTBEAT_TIMEOUT", 0, seconds, 0)?;
    let host = match (find("DMLC_NODE_HOST"), find("DMLC_INTERFACE")) {
        (Some(host), _) => Some(host),
        (None, Some(name)) => {
            let problem = || format!("is {name:?}, and no interface of that name has an IPv4 address");
            let address = interface::address_of(&name);
            Some(
                address
                    .ok_or_else(|| CallError::Environment { name: "DMLC_INTERFACE", problem: problem() })?,
            )
        }
        (None, None) => None,
    };
    let (plan, switch) = (find("LIBRA_PLAN"), find("LIBRA_SWITCH"));
    let expects_plan = plan.is_some();
    let switch = if role == NodeRole::Scheduler { switch_settings(plan, switch)? } else { None };
    let is_insecure = optional("LIBRA_INSECURE", 0, 1, 0)? == 1;
    let security = if is_insecure { Security::NONE } else { security(find(TOKEN_VARIABLE))? };
    let of_switch = switch.as_ref().map(|settings| settings.switch.ip().to_string());
    let hosts = [Some(&scheduler_host), host.as_ref(), of_switch.as_ref()];
    let elsewhere = hosts.into_iter().flatten().find(|host| !is_on_this_machine(host));
    if let Some(host) = elsewhere.filter(|_| security == Security::NONE && !is_insecure) {
        let problem = format!(
            "is not set, and {host} is reached over a network: give all processes the token that `libra token` makes (or LIBRA_INSECURE=1, for \
             no protection)"
        );
        return Err(CallError::Environment { name: TOKEN_VARIABLE, problem });
    }
    let node = NodeSettings {
        role,
        workers: small(workers),
        servers: small(servers),
        scheduler: (scheduler_host, small(scheduler_port)),
        host,
        port: small(optional("PORT", 0, u64::from(u16::MAX), 0)?),
        drop_percent: u8::try_from(optional("PS_DROP_MSG", 0, 90, 0)?).expect("it is at most 90"),
        drop_seed: optional("LIBRA_DROP_SEED", 0, u64::MAX, u64::from(std::process::id()))?,
        heartbeat: Duration::from_secs(if heartbeat == 0 { 1 } else { heartbeat }),
        silence_max: (silence > 0).then(|| Duration::from_secs(silence)),
        connect_timeout: Duration::from_secs(optional("LIBRA_PATIENCE", 0, seconds, 300)?),
        notice: String::new(),
        security: security.clone(),
    };
    let NodeSettings { drop_percent, drop_seed, connect_timeout, .. } = node;
    let job = JobSettings { expects_plan, drop_percent, drop_seed, connect_timeout, security };
    if switch.is_some() && (node.servers == 0 || node.workers == 0) {
        let problem = "is set, and hot keys need a server and a worker".to_owned();
        return Err(CallError::Environment { name: "LIBRA_PLAN", problem });
    }
    Ok(Configuration {
        node,
        is_insecure,
        switch,
        job,
        profile: find("LIBRA_PROFILE").map(PathBuf::from),
        verbose: u8::try_from(optional("PS_VERBOSE", 0, 255, 0)?).expect("it is at most 255"),
    })
}

fn security(token: Option<String>) -> Result<Security, CallError> {
    let problem = |error| format!("is wrong: {error}");
    let token = Token::of_variable(&token.unwrap_or_default())
        .map_err(|error| CallError::Environment { name: TOKEN_VARIABLE, problem: problem(error) })?;
    Ok(token.map_or(Security::NONE, |token| Security::with_token(&token)))
}

/// Returns true if a host is reached from this machine alone. A name without an address is none of this machine.
fn is_on_this_machine(host: &str) -> bool {
    let known = (host, 0).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    known.is_some_and(is_local)
}

/// A plan and the address of a switch go together.
fn switch_settings(
    plan: Option<String>,
    switch: Option<String>,
) -> Result<Option<SwitchSettings>, CallError> {
    match (plan, switch) {
        (None, None) => Ok(None),
        (Some(plan), Some(switch)) => {
            let problem =
                || format!("is {switch:?}, and must be an address and a port, such as 10.0.0.1:7700");
            let address = switch
                .parse()
                .map_err(|_| CallError::Environment { name: "LIBRA_SWITCH", problem: problem() })?;
            Ok(Some(SwitchSettings { plan: plan.into(), switch: address }))
        }
        (None, Some(_)) => {
            let problem =
                "is not set, and LIBRA_SWITCH is: a switch needs to know which keys are hot".to_owned();
            Err(CallError::Environment { name: "LIBRA_PLAN", problem })
        }
        (Some(_), None) => {
            let problem = "is not set, and LIBRA_PLAN is: hot keys need a switch".to_owned();
            Err(CallError::Environment { name: "LIBRA_SWITCH", problem })
        }
    }
}

fn small(number: u64) -> u16 {
    u16::try_from(number).expect("it was checked")
}

fn number(name: &'static str, value: &str, least: u64, most: u64) -> Result<u64, CallError> {
    let problem = || format!("is {value:?}, and must be a number from {least} to {most}");
    let number = value.trim().parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| CallError::Environment { name, problem: problem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &[(&str, &str)] = &[
        ("DMLC_ROLE", "worker"),
        ("DMLC_NUM_WORKER", "2"),
        ("DMLC_NUM_SERVER", "3"),
        ("DMLC_PS_ROOT_URI", "127.0.0.1"),
        ("DMLC_PS_ROOT_PORT", "8000"),
    ];

    fn with(name: &str, value: Option<&str>) -> Result<Configuration, CallError> {
        let usual =
            |wanted| USUAL.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned());
        read_with(&|wanted| if wanted == name { value.map(str::to_owned) } else { usual(wanted) })
    }

    #[test]
    fn variables_of_ps_lite_are_enough() {
        let found = with("", None).unwrap().node;
        assert_eq!((found.role, found.workers, found.servers), (NodeRole::Worker, 2, 3));
        assert_eq!((found.scheduler, found.drop_percent), (("127.0.0.1".to_owned(), 8000), 0));
        assert_eq!((found.heartbeat, found.silence_max), (Duration::from_secs(1), None));
        assert_eq!(with("PS_DROP_MSG", Some("10")).unwrap().node.drop_percent, 10);
        let silence_max = with("PS_HEARTBEAT_TIMEOUT", Some("60")).unwrap().node.silence_max;
        assert_eq!(silence_max, Some(Duration::from_secs(60)));
    }

    #[test]
    fn only_the_scheduler_reads_a_plan_and_a_switch_address() {
        let with_both = |role: &'static str, switch: &'static str| {
            let usual = [("DMLC_ROLE", role), ("LIBRA_PLAN", "plan.toml"), ("LIBRA_SWITCH", switch)];
            let known: HashMap<_, _> = USUAL.iter().copied().chain(usual).collect();
            read_with(&|wanted| known.get(wanted).map(|value| (*value).to_owned()))
        };
        let scheduler = with_both("scheduler", "127.0.0.1:7700").unwrap();
        let switch = "127.0.0.1:7700".parse().unwrap();
        assert_eq!(scheduler.switch, Some(SwitchSettings { plan: "plan.toml".into(), switch }));
        let worker = with_both("worker", "10.0.0.1:7700").unwrap();
        assert!(worker.switch.is_none() && worker.job.expects_plan);
        let error = with_both("scheduler", "10.0.0.1").unwrap_err().to_string();
        assert!(error.contains("LIBRA_SWITCH is \"10.0.0.1\", and must be an address and a port"), "{error}");
        let of_scheduler =
            [("DMLC_ROLE", "scheduler"), ("LIBRA_PLAN", "plan.toml"), ("LIBRA_SWITCH", "127.0.0.1:7700")];
        let known: HashMap<_, _> =
            USUAL.iter().copied().chain(of_scheduler).chain([("DMLC_NUM_SERVER", "0")]).collect();
        let error = read_with(&|wanted| known.get(wanted).map(|value| (*value).to_owned())).unwrap_err();
        assert!(error.to_string().contains("LIBRA_PLAN is set, and hot keys need a server"), "{error}");
        assert!(with("LIBRA_PROFILE", Some("plan.toml")).unwrap().profile.is_some());
    }

    #[test]
    fn a_program_on_several_machines_needs_a_token() {
        let read = |more: &[(&'static str, &str)]| {
            let known: HashMap<_, _> = USUAL.iter().chain(more).copied().collect();
            read_with(&|wanted| known.get(wanted).map(|value| (*value).to_owned()))
        };
        let elsewhere = ("DMLC_PS_ROOT_URI", "192.0.2.1");
        for host in [elsewhere, ("DMLC_NODE_HOST", "192.0.2.1"), ("DMLC_PS_ROOT_URI", "name.invalid")] {
            let error = read(&[host]).unwrap_err().to_string();
            assert!(error.starts_with("the environment variable LIBRA_TOKEN is not set"), "{error}");
            assert!(error.contains(host.1) && error.contains("LIBRA_INSECURE=1"), "{error}");
        }
        let token = Token::random().unwrap().reveal();
        let with_token = read(&[elsewhere, (TOKEN_VARIABLE, &token)]).unwrap();
        assert!(with_token.node.security != Security::NONE && !with_token.is_insecure);
        assert_eq!(with_token.node.security, with_token.job.security);
        let insecure = read(&[elsewhere, (TOKEN_VARIABLE, &token), ("LIBRA_INSECURE", "1")]).unwrap();
        assert!(insecure.node.security == Security::NONE && insecure.is_insecure);
        let error = read(&[(TOKEN_VARIABLE, "libra1_secret")]).unwrap_err().to_string();
        assert!(error.contains("LIBRA_TOKEN is wrong") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn missing_or_invalid_variables_are_named() {
        for (name, _) in USUAL {
            let error = with(name, None).unwrap_err().to_string();
            assert_eq!(error, format!("the environment variable {name} is not set"));
        }
        for (name, value) in [
            ("DMLC_ROLE", "master"),
            ("DMLC_PS_ROOT_PORT", "0"),
            ("PS_DROP_MSG", "100"),
            ("DMLC_INTERFACE", "none0"),
        ] {
            let error = with(name, Some(value)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
