//! Options from a TOML file: `key = value` stands for `--key value`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Command;
use toml::Value;

/// Puts the options of the file that `--config` names right behind the subcommand. Without `--config` nothing changes.
pub(crate) fn expand(cli: &Command, mut typed: Vec<OsString>) -> Result<Vec<OsString>> {
    let Some(path) = config_path(&typed) else { return Ok(typed) };
    let subcommand = typed.get(1).and_then(|name| name.to_str()).and_then(|name| cli.find_subcommand(name));
    let Some(subcommand) = subcommand else { return Ok(typed) };
    let file = path.display();
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("cannot read the configuration {file}"))?;
    let given: BTreeMap<String, Value> =
        toml::from_str(&text).with_context(|| format!("{file} is not a configuration"))?;
    let options = || subcommand.get_arguments().filter(|argument| !argument.is_hide_set());
    let known: Vec<&str> = options().filter_map(|argument| argument.get_long()).collect();
    // Names that options had before.
    let aliases: Vec<&str> = options().filter_map(|argument| argument.get_all_aliases()).flatten().collect();
    let mut expanded = Vec::new();
    for (key, value) in &given {
        let is_known = known.contains(&key.as_str()) || aliases.contains(&key.as_str());
        if !is_known || key == "config" {
            bail!("{file}: `{}` has no option `{key}`; it has {}", subcommand.get_name(), known.join(", "));
        }
        expanded.extend(option(key, value).with_context(|| format!("{file}: {key} = {value}"))?);
    }
    typed.splice(2..2, expanded);
    Ok(typed)
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

fn option(key: &str, value: &Value) -> Result<Option<OsString>> {
    let value = match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(true) => return Ok(Some(format!("--{key}").into())),
        Value::Boolean(false) => return Ok(None),
        _ => bail!("expected a text, a number, true or false"),
    };
    Ok(Some(format!("--{key}={value}").into()))
}
