"""Exceptions of Libra. Each but `Drained` and `JobDone` is a RuntimeError; bad arguments are ValueError, TypeError and IndexError, as in torch."""

import builtins


class Error(RuntimeError):
    """An operation that failed."""


class ClusterEnded(Error):
    """The cluster has ended, or could not be reached.

    `is_lost`: this process has lost the cluster, or not found it, and may do better when it is started again. If it does not catch
    that, it ends with code 75, which asks an engine to do so.
    """

    def __init__(self, text: str, is_lost: bool = False) -> None:
        super().__init__(text)
        self.is_lost = is_lost


class Drained(SystemExit):
    """This worker was asked to end, by SIGTERM or by the user of the controller, and its step is done.

    A process that does not catch it ends with code 75, which asks an engine to start it again.
    """

    def __init__(self, text: str) -> None:
        super().__init__(75)
        self.text = text

    def __str__(self) -> str:
        return self.text


class JobDone(SystemExit):
    """The job was done before this worker came.

    A process that does not catch it ends with code 0, which tells an engine that nothing is left to do.
    """

    def __init__(self, text: str) -> None:
        super().__init__(0)
        self.text = text

    def __str__(self) -> str:
        return self.text


class JobFailed(Error):
    """A job of several processes that could not be started, or that has failed."""


class NotFinite(Error):
    """A gradient is infinite or not a number. Nothing was pushed."""


class NotPushed(Error):
    """Gradients of rows that no optimizer would push."""


class Forked(Error):
    """An operation in a fork of the process that called init()."""


class TooLarge(Error):
    """Tables that do not fit into a state_dict."""


class Mismatch(Error, ValueError):
    """Definitions of the same table that differ."""


class TimeoutError(Error, builtins.TimeoutError):
    """A member of the cluster did not come in time."""


class NotSupported(Error, NotImplementedError):
    """A feature of torch that rows of a parameter server do not have, or not yet."""


class AttributeNotSupported(NotSupported, AttributeError):
    """An attribute of this package that is not there yet."""
