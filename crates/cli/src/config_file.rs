//! Options from a TOML file: `key = value` stands for `--key value`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};
use serde::Deserialize;
use toml::Value;
use toml::de::DeTable;

/// The options of a command line that are from the file of `--config`.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    /// By the name of the option.
    options: BTreeMap<String, Setting>,
}

#[derive(Debug)]
struct Setting {
    /// The file, the line, and the key there.
    place: String,
    /// None for a flag.
    value: Option<String>,
}

impl ConfigFile {
    /// Reads the file that `--config` names. Without `--config` there are no options.
    pub(crate) fn read(cli: &Command, typed: &[OsString]) -> Result<Self> {
        let Some(path) = config_path(typed) else { return Ok(Self::default()) };
        let subcommand =
            typed.get(1).and_then(|name| name.to_str()).and_then(|name| cli.find_subcommand(name));
        let Some(subcommand) = subcommand else { return Ok(Self::default()) };
        let file = path.display();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the configuration {file}"))?;
        let given = DeTable::parse(&text).with_context(|| format!("{file} is not a configuration"))?;
        let options = || subcommand.get_arguments().filter(|argument| !argument.is_hide_set());
        let known: Vec<&str> = options().filter_map(|argument| argument.get_long()).collect();
        // Names that options had before.
        let aliases: Vec<&str> =
            options().filter_map(|argument| argument.get_all_aliases()).flatten().collect();
        let mut found = BTreeMap::new();
        for (key, value) in given.into_inner() {
            let line = text[..key.span().start].bytes().filter(|byte| *byte == b'\n').count() + 1;
            let (key, place) = (key.into_inner().into_owned(), format!("{file}, line {line}"));
            if !(known.contains(&key.as_str()) || aliases.contains(&key.as_str())) || key == "config" {
                bail!(
                    "{place}: `{}` has no option `{key}`; it has {}",
                    subcommand.get_name(),
                    known.join(", ")
                );
            }
            let value = Value::deserialize(toml::de::ValueDeserializer::from(value))?;
            let place = format!("{place}: {key}");
            let value = match value {
                Value::String(text) => Some(text),
                Value::Integer(number) => Some(number.to_string()),
                Value::Float(number) => Some(number.to_string()),
                Value::Boolean(true) => None,
                Value::Boolean(false) => continue,
                other => bail!("{place} = {other} must be a text, a number, true or false"),
            };
            found.insert(key, Setting { place, value });
        }
        Ok(Self { options: found })
    }

    /// Puts the options right behind the subcommand, before those that are typed, which win.
    pub(crate) fn expand(&self, mut typed: Vec<OsString>) -> Vec<OsString> {
        let options = self.options.iter().map(|(name, Setting { value, .. })| match value {
            Some(value) => OsString::from(format!("--{name}={value}")),
            None => OsString::from(format!("--{name}")),
        });
        let place = 2.min(typed.len());
        typed.splice(place..place, options.collect::<Vec<_>>());
        typed
    }

    /// The same error; it names the line of the file if the value is from there.
    pub(crate) fn explain(&self, mut error: Error) -> Error {
        if let Some((name, value)) = invalid(&error)
            && let Some(setting) = self.options.get(name)
            && setting.value.as_deref() == Some(value)
        {
            let place = setting.place.clone();
            error.insert(ContextKind::InvalidArg, ContextValue::String(place));
        }
        error
    }
}

/// The name of the option whose value is wrong, and the value.
pub(crate) fn invalid(error: &Error) -> Option<(&str, &str)> {
    let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    Some((option.trim_start_matches("--").split([' ', '=']).next().unwrap_or_default(), value))
}

fn config_path(typed: &[OsString]) -> Option<PathBuf> {
    let mut arguments = typed.iter().skip(2);
    while let Some(argument) = arguments.next() {
        if argument == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = argument.to_str().and_then(|argument| argument.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    None
}
