"""Checkpoints: all of a run in one file, written in one step, read without running code."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from .errors import CheckpointError, shortened
from .files import write_atomically

_FORMAT = "dcgraph checkpoint"
_VERSION = 5


def save(path: Path, content: dict[str, Any]) -> None:
    """Tensors, numbers, strings, lists and dicts; a reader sees the old file or the new one."""
    try:
        save_tensors(path, {"format": _FORMAT, "version": _VERSION, **content})
    except OSError as error:
        raise CheckpointError(
            f"cannot write the checkpoint {str(path)!r}: {error.strerror}; "
            "mend that, and go on with --resume."
        ) from error


def save_tensors(path: Path, content: Any) -> None:
    """What torch.load reads, all of it or nothing; an OSError says what is wrong with the disk."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            try:
                torch.save(content, file)
            except RuntimeError as error:  # torch's words for what the file had said
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    write_atomically(path, write)


def load(path: Path) -> dict[str, Any]:
    """What :func:`save` was given. Only tensors and plain values are read, never code."""
    try:
        if path.exists() and not path.is_file():  # such as a pipe that would be waited for
            raise OSError("no ordinary file")
        with zipfile.ZipFile(path) as archive:  # as torch.save makes them: nothing is compressed
            packed = any(member.compress_type for member in archive.infolist())
        content = None if packed else torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(
            f"there is no checkpoint {str(path)!r}; leave out --resume."
        ) from None
    except Exception as error:  # a damaged file fails anywhere in the reader
        raise damaged(path, str(error) or type(error).__name__) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CheckpointError(f"{str(path)!r} is not a dcgraph checkpoint; {_REMEDY}")
    if type(version := content.get("version")) is not int or version != _VERSION:
        found = (
            version if type(version) is int and abs(version) < 1 << 63 else type(version).__name__
        )
        raise CheckpointError(
            f"{str(path)!r} has format version {found}, but this dcgraph reads "
            f"version {_VERSION}; finish that run with the dcgraph that began it, or {_REMEDY}"
        )
    return content


_REMEDY = "delete it to start anew, or choose another --out."


def damaged(path: Path, reason: object) -> CheckpointError:
    said = shortened(reason)
    return CheckpointError(f"{str(path)!r} is not a whole dcgraph checkpoint ({said}); {_REMEDY}")
