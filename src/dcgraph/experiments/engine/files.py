"""Writing files so that a reader, or a run that was killed, never meets half of one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    private = Path(tempfile.mkdtemp(prefix=_DRAFTS, dir=folder))
    try:
        draft = private / "draft"
        write(draft)
        with draft.open("rb") as written:  # on the disk before the name changes hands
            os.fsync(written.fileno())
        draft.replace(path)
        _sync(folder)
    except OSError as error:
        if error.errno in _REASONS:
            raise OSError(error.errno, _REASONS[error.errno], str(path)) from error
        raise
    finally:
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
