//! Options from the environment: `LIBRA_KEY_NAME=value` stands for `--key-name value`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command, Error};

use crate::config_file::invalid;

/// Options that no variable stands for: `LIBRA_PLAN` and `LIBRA_SWITCH` are for programs of the front ends, beside which `libra` runs.
const NOT_IN_ENVIRONMENT: [&str; 3] = ["config", "plan", "switch"];
/// Commands that ask a controller, and options of theirs for which a variable of the same name is set for the processes that they ask.
const ASKING: [&str; 2] = ["job", "top"];
const NOT_FOR_ASKING: [&str; 2] = ["http", "json"];

/// The options of a command line that are from the environment.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// By the name of the option.
    variables: BTreeMap<String, Variable>,
    /// Place of the first argument of the subcommand that is called.
    place: usize,
}

#[derive(Debug)]
struct Variable {
    key: String,
    /// None for a flag.
    value: Option<OsString>,
}

impl Environment {
    /// Reads the variables of the options of the subcommand that is called. Others, and empty ones, are ignored.
    ///
    /// # Errors
    /// The variable of a flag is neither true nor false.
    pub(crate) fn read(
        cli: &Command,
        typed: &[OsString],
        value_of: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Error> {
        let mut variables = BTreeMap::new();
        let (command, place) = called(cli, typed);
        let asks = typed.get(1).is_some_and(|name| ASKING.iter().any(|asking| name == asking));
        let is_left_out =
            |name: &str| NOT_IN_ENVIRONMENT.contains(&name) || (asks && NOT_FOR_ASKING.contains(&name));
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            let Some(name) = option.get_long().filter(|name| !is_left_out(name)) else {
                continue;
            };
            let key = format!("LIBRA_{}", name.to_uppercase().replace('-', "_"));
            let Some(value) = value_of(&key).filter(|value| !value.is_empty()) else { continue };
            let value = match option.get_action() {
                ArgAction::Set | ArgAction::Append => Some(value),
                _ if is_true(&value, &key, command)? => None,
                _ => continue,
            };
            variables.insert(name.to_owned(), Variable { key, value });
        }
        Ok(Self { variables, place })
    }

    /// Puts the options before those that are typed, which win.
    pub(crate) fn expand(&self, mut typed: Vec<OsString>) -> Vec<OsString> {
        let options = self.variables.iter().map(|(name, Variable { value, .. })| {
            let mut option = OsString::from(format!("--{name}"));
            if let Some(value) = value {
                option.push("=");
                option.push(value);
            }
            option
        });
        typed.splice(self.place..self.place, options.collect::<Vec<_>>());
        typed
    }

    /// The same error; it names the variable if the value is from one.
    pub(crate) fn explain(&self, mut error: Error) -> Error {
        if let Some((name, value)) = invalid(&error)
            && let Some(variable) = self.variables.get(name)
            && variable.value.as_deref() == Some(OsStr::new(value))
        {
            error.insert(ContextKind::InvalidArg, ContextValue::String(variable.key.clone()));
        }
        error
    }
}

/// The subcommand that is called, and the place of its first argument.
fn called<'a>(cli: &'a Command, typed: &[OsString]) -> (&'a Command, usize) {
    let (mut command, mut place) = (cli, 1.min(typed.len()));
    while let Some(next) = typed.get(place).and_then(|name| command.find_subcommand(name)) {
        (command, place) = (next, place + 1);
    }
    (command, place)
}

fn is_true(value: &OsStr, key: &str, command: &Command) -> Result<bool, Error> {
    match value.to_str().map(str::to_ascii_lowercase).as_deref() {
        Some("true" | "yes" | "on" | "1") => Ok(true),
        Some("false" | "no" | "off" | "0") => Ok(false),
        _ => {
            let text = format!("{key} = {} must be true or false", value.to_string_lossy());
            Err(command.clone().error(ErrorKind::InvalidValue, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgMatches};

    use super::*;

    fn cli() -> Command {
        let options = [
            Arg::new("workers").long("workers").value_parser(clap::value_parser!(u16)),
            Arg::new("state-dir").long("state-dir"),
            Arg::new("plan").long("plan"),
            Arg::new("quiet").long("quiet").action(ArgAction::SetTrue),
            Arg::new("http").long("http"),
            Arg::new("leash").long("leash").hide(true),
        ];
        let deep = Command::new("deep").arg(Arg::new("path")).args(options.clone());
        let job = Command::new("job").args(options).subcommand(deep);
        let switch = Command::new("switch").arg(Arg::new("http").long("http"));
        Command::new("libra").args_override_self(true).subcommands([job, switch])
    }

    fn parse(typed: &str, variables: &[(&str, &str)]) -> Result<ArgMatches, Error> {
        let (cli, typed) = (cli(), typed.split(' ').map(OsString::from).collect::<Vec<_>>());
        let value = |key: &str| {
            let found = variables.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| OsString::from(value))
        };
        let environment = Environment::read(&cli, &typed, value)?;
        let parsed = cli.try_get_matches_from(environment.expand(typed));
        parsed.map_err(|error| environment.explain(error))
    }

    #[test]
    fn what_is_typed_goes_before_what_is_in_the_environment() {
        let variables = [("LIBRA_WORKERS", "4"), ("LIBRA_STATE_DIR", "-x=y"), ("LIBRA_QUIET", "on")];
        let matches = parse("libra job --workers 8", &variables).unwrap();
        let (_, job) = matches.subcommand().unwrap();
        assert_eq!(job.get_one::<u16>("workers"), Some(&8));
        assert_eq!(job.get_one::<String>("state-dir").map(String::as_str), Some("-x=y"));
        assert!(job.get_flag("quiet"));
        let matches = parse("libra job deep file", &variables).unwrap();
        let deep = matches.subcommand().unwrap().1.subcommand().unwrap().1;
        assert_eq!(deep.get_one::<u16>("workers"), Some(&4));
        assert_eq!(deep.get_one::<String>("path").map(String::as_str), Some("file"));
    }

    #[test]
    fn variables_that_are_no_options_are_ignored() {
        let others = [("LIBRA_PLAN", "of a worker"), ("LIBRA_LEASH", "1"), ("LIBRA_WORKERS", "")];
        let matches = parse("libra job", &[&others[..], &[("LIBRA_QUIET", "no")]].concat()).unwrap();
        let (_, job) = matches.subcommand().unwrap();
        assert!(job.get_one::<String>("plan").is_none() && job.get_one::<String>("leash").is_none());
        assert!(job.get_one::<u16>("workers").is_none() && !job.get_flag("quiet"));
        assert!(parse("libra", &[("LIBRA_WORKERS", "many")]).is_ok());
    }

    #[test]
    fn a_variable_of_members_is_none_of_those_who_ask_them() {
        let variables = [("LIBRA_HTTP", "off")];
        let http = |typed: &str| {
            let matches = parse(typed, &variables).unwrap();
            let (_, command) = matches.subcommand().unwrap();
            command.get_one::<String>("http").cloned()
        };
        assert_eq!(http("libra job"), None);
        assert_eq!(http("libra switch"), Some("off".to_owned()));
        assert_eq!(http("libra job --http here:1"), Some("here:1".to_owned()));
    }

    #[test]
    fn an_error_names_the_variable_that_caused_it() {
        let bad = [("LIBRA_WORKERS", "many")];
        let text = parse("libra job", &bad).unwrap_err().to_string();
        assert!(text.contains("'many' for 'LIBRA_WORKERS'"), "{text}");
        let text = parse("libra job --workers few", &[("LIBRA_WORKERS", "2")]).unwrap_err().to_string();
        assert!(text.contains("'few' for '--workers"), "{text}");
        let text = parse("libra job", &[("LIBRA_QUIET", "maybe")]).unwrap_err().to_string();
        assert!(text.contains("LIBRA_QUIET = maybe must be true or false"), "{text}");
    }
}
