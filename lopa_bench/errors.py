"""What a user is told and can mend: one class for each kind of cause. Importable without any library."""

from __future__ import annotations


class ConfigError(ValueError):
    """A wrong setting; the message names the value and the allowed ones."""


class BackendError(ValueError):
    """A wrong setting of a backend, or a server that cannot be used; the message names what was found and what is
    allowed.
    """


class CheckpointError(ValueError):
    """A checkpoint folder that cannot be used; the message names the file or the tensors."""


class StorageError(RuntimeError):
    """A path that cannot be written or read; the message names it, the reason and what is allowed."""


class Locked(RuntimeError):
    """Another process holds the lock; the message names the file and the holder."""


class WorkerError(RuntimeError):
    """No worker is left to go on with a run; the message names each and how it ended."""

    exit_code = 1  # the run failed, its settings were not wrong


class RunError(ValueError):
    """A run that is not there, is damaged, or cannot answer; the message says what can be done."""


class RecordError(ValueError):
    """A row that does not fit the schema; the message names the columns."""
