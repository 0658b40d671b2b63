//! The events of all processes of a job, by their schema.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Directory, fed};
use crate::findings::Finding;
use crate::shell;

const SCHEMA: &str = "docs/reference/events.schema.json";
/// Prints the number of lines, and fails with the first that is not as the schema says.
const VALIDATE: &str = "import json, sys, jsonschema\n\
                        schema = json.load(open(sys.argv[1]))\n\
                        validator = jsonschema.validators.validator_for(schema)(schema)\n\
                        lines = sys.stdin.read().splitlines()\n\
                        for line in lines:\n    \
                            for error in validator.iter_errors(json.loads(line)):\n        \
                                sys.exit(line[:200] + ': ' + error.message)\n\
                        print(len(lines))";

/// Validates each line of each file of events that the job has left.
pub(super) fn follow_schema(directory: &Directory) -> Result<Finding> {
    if fed("python3", &["-c", "import jsonschema"], "", Some(&directory.packages())).is_err() {
        let what = format!("jsonschema is not in {}", directory.packages().display());
        return Ok(Finding::Skipped(format!("{what}: .ci/run installs it")));
    }
    let schema = shell::root().join(SCHEMA);
    let (mut files, mut lines) = (0, 0);
    for entry in fs::read_dir(&directory.made).context("cannot list the files of events")? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let arguments = ["-c", VALIDATE, &schema.to_string_lossy()];
        let printed = fed("python3", &arguments, &text, Some(&directory.packages()))
            .with_context(|| path.display().to_string())?;
        lines += printed.trim().parse::<usize>().context("no number of lines was printed")?;
        files += 1;
    }
    ensure!(lines > 0, "there are no events");
    Ok(Finding::Passed(format!("{lines} lines of {files} processes are of the schema")))
}
