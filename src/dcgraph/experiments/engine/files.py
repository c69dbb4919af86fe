"""Writing files so that a reader, or a run that was killed, never meets half of one; and reading
what somebody else may have put there."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn

if sys.platform != "win32":
    import fcntl

_DRAFTS = ".dcgraph-draft-"
_STALE = 24 * 3600.0  # seconds after which a draft is nobody's

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "it would be larger than files may be here",
}


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """``write`` a draft near ``path``, then put it in its place in one step.

    The draft is in a new folder with a name that nobody can guess and that only this user can
    enter: no link planted there is followed, and other processes and hosts have drafts of their
    own. Drafts that a killed process left are removed after a day.

    Raises:
        OSError: with a plain reason, such as that the disk is full.
    """
    folder = path.parent
    private = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        private = Path(tempfile.mkdtemp(prefix=_DRAFTS, dir=folder))
        draft = private / "draft"
        write(draft)
        with draft.open("rb") as written:  # on the disk before the name changes hands
            os.fsync(written.fileno())
        draft.replace(path)
        _sync(folder)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
        named = str(error.filename or path)  # of a draft nobody wants to know
        raise OSError(error.errno, reason, str(path) if _DRAFTS in named else named) from error
    finally:
        if private is not None:
            shutil.rmtree(private, ignore_errors=True)


def _sync(folder: Path) -> None:
    """The new name on the disk, too; some systems cannot."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError:
        pass
    finally:
        os.close(opened)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed while writing have left."""
    for draft in folder.glob(f"{_DRAFTS}*"):
        try:
            stale = time.time() - draft.lstat().st_mtime > _STALE
        except OSError:  # its owner was faster
            continue
        if stale and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)


_RATIO, _SPARE = 200, 1 << 20


def inflated(packed: bytes) -> bytes:
    """What gzip has packed, as ``gzip.decompress``, but never more than 200 times as much (+ 1 MB).

    Text is packed to a twentieth at best; a file made to fill the memory, to a thousandth.

    Raises:
        OSError, EOFError, zlib.error: where it is not in gzip, cut, or more.
    """
    room = _RATIO * len(packed) + _SPARE
    parts = []
    while packed:
        reader = zlib.decompressobj(wbits=31)  # with the header and the checksum of gzip
        parts.append(reader.decompress(packed, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise OSError(f"it inflates to more than {_RATIO} times its size")
        if not reader.eof:
            raise EOFError("it ends too early")
        packed = reader.unused_data.lstrip(b"\0")
    return b"".join(parts)


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """JSON as everyone can read it: no NaN, a newline at the end."""
    text = json.dumps(content, allow_nan=False, indent=indent) + "\n"
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


LARGEST = 1 << 28
"""Bytes of JSON; no file of ours is close to it."""


def read_bytes(path: Path, largest: int | None = None) -> bytes:
    """A whole file.

    Raises:
        OSError: also for what is no file, such as a pipe that would be waited for, and for more
            than ``largest`` bytes.
    """
    with open(path, "rb", opener=_opened) as file:
        found = os.fstat(file.fileno())
        if not S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
        if largest is not None and found.st_size > largest:
            raise OSError(errno.EFBIG, f"it is larger than {largest >> 20} MiB", str(path))
        return file.read()


def _opened(path: str, flags: int) -> int:
    """A pipe is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote; an OSError or a ValueError for anything else."""
    return parsed(read_bytes(path, LARGEST).decode())


def parsed(text: str) -> Any:
    """JSON by its standard: no NaN, no number out of range, no name twice, not too deep."""
    try:
        return json.loads(
            text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_distinct
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _finite(word: str) -> float:
    if not math.isfinite(number := float(word)):
        raise ValueError(f"{word[:20]} is too large")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for twice, _ in pairs:
            if twice in seen:
                break
            seen.add(twice)
        raise ValueError(f"{twice[:40]!r} is there twice")
    return found


def check_inside(folder: Path, *paths: Path) -> None:
    """That these do not lead out of the folder, by a link that somebody put there.

    Raises:
        OSError: for the first one that does.
    """
    root = folder.resolve()
    for path in paths:
        try:
            inside = path.resolve().is_relative_to(root)
        except RuntimeError:  # a link to itself
            inside = False
        if not inside:
            reason = f"it is a link that leads out of {str(folder)!r}; put a folder in its place"
            raise OSError(errno.EINVAL, reason, str(path))


@contextmanager
def only_process_in(folder: Path) -> Iterator[None]:
    """The folder, made if need be, for no other process meanwhile; of this host at least.

    Raises:
        OSError: where there is another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":  # it has no such locks
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = "another process is at work there; wait for it, or choose another folder"
            raise OSError(errno.EBUSY, reason, str(folder)) from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(opened)
