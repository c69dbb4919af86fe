"""Errors that the command line turns into one line; each names the remedy."""

from __future__ import annotations


class CheckpointError(Exception):
    """Why a checkpoint cannot be used."""


class DataError(Exception):
    """Why data cannot be had or read."""


class ModelError(Exception):
    """Why a model file cannot be used."""


class RecordError(ValueError):
    """Why a record cannot be used."""


class RanksError(Exception):
    """Why ranks cannot train together, or no longer."""


class OtherRankError(Exception):
    """Another rank has failed, and says why; this one has nothing to add."""

    def __init__(self, rank: int, said: str) -> None:
        super().__init__(f"rank {rank} has failed: {said}")


class StudyError(Exception):
    """Why a study of a search cannot be used."""


class Interrupted(Exception):  # noqa: N818 (not an error: somebody asked for it)
    """Ctrl-C or another signal to stop came; the work so far is in the checkpoint."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.exit_code = 128 + signal  # as shells and job schedulers have it


class Ended(KeyboardInterrupt):
    """A signal to stop came where there is nothing to save; like Ctrl-C, it is no Exception."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.exit_code = 128 + signal


def shortened(error: object) -> str:
    """What somebody else's error says, in one line that is not too long."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 200
