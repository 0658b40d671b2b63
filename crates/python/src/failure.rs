//! Failures of operations, and the exceptions that they become.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libra_client::{ClientError, NodeError, SpecError, StartError, TableError};
use libra_lookup::{BagsError, CommitError, IdError, NotFinite, OPEN_IDS, Outdated};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// A failure of an operation.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An exception that is raised already, such as that of an interrupt.
    Raised(PyErr),
    /// An `IndexError`, as torch has it for ids.
    Index(String),
    /// A `ValueError`.
    Value(String),
    /// A `RuntimeError`.
    Runtime(String),
    /// An exception of `libra_ps.errors`, by name.
    Libra(&'static str, String),
    /// A `ClusterEnded`: the cluster was lost, or not found, and the same process may do better when it is started again.
    Lost(String),
}

impl Failure {
    pub(crate) fn ended(reason: impl Into<String>) -> Self {
        Self::Libra("ClusterEnded", reason.into())
    }

    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Index(text) => PyIndexError::new_err(text),
            Self::Value(text) => PyValueError::new_err(text),
            Self::Runtime(text) => PyRuntimeError::new_err(text),
            Self::Libra(name, text) => exception(py, name, (text,)),
            Self::Lost(text) => exception(py, "ClusterEnded", (text, true)),
        }
    }
}

fn exception<'py>(py: Python<'py>, name: &'static str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let class = py.import("libra_ps.errors").and_then(|errors| errors.getattr(name));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Names the table in what is wrong with an id.
pub(crate) fn bad_id(table: &str, error: &IdError) -> Failure {
    let hint = if error.end == OPEN_IDS { "; a table with hash=True takes any of 64 bits" } else { "" };
    Failure::Index(format!("table \"{table}\": {error}{hint}"))
}

/// Names the table in what is wrong with its gradients.
pub(crate) fn not_finite(table: &str, error: &NotFinite) -> Failure {
    Failure::Libra("NotFinite", format!("table \"{table}\": {error}; nothing was pushed"))
}

impl From<BagsError> for Failure {
    fn from(error: BagsError) -> Self {
        Self::Value(error.to_string())
    }
}

impl From<Outdated> for Failure {
    fn from(error: Outdated) -> Self {
        Self::Runtime(error.to_string())
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        Self::Runtime(format!("{error}; their gradients are dropped: run them one after the other"))
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Self::Value(error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotFinite { .. } | ClientError::Refused { .. } => {
                Self::Libra("NotFinite", error.to_string())
            }
            ClientError::Drained => Self::Libra("Drained", error.to_string()),
            other if other.is_transient() => Self::Lost(other.to_string()),
            other => Self::ended(other.to_string()),
        }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Done => Self::Libra("JobDone", error.to_string()),
            other if other.is_transient() => Self::Lost(other.to_string()),
            other => Self::ended(other.to_string()),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Spec(SpecError::Table(error)) => error.into(),
            StartError::Spec(error) => Self::Value(error.to_string()),
            other => Self::ended(other.to_string()),
        }
    }
}

/// Runs an operation without the lock of the interpreter. A panic becomes an exception, too: it is a defect of Libra, and no reason to end the
/// process of a notebook.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    operation: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(operation)));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = format!("internal error, please report it: {}", message(panic.as_ref()));
        Err(Failure::Libra("Error", text))
    });
    outcome.map_err(|failure| failure.into_exception(py))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
