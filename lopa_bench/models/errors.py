"""Errors of checkpoints, importable without torch."""


class CheckpointError(ValueError):
    """A checkpoint folder that cannot be used; the message names the file or the tensors."""
