"""Writing files so that a reader, or a run that was killed, never meets half of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """``write`` a temporary file beside ``path``, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(draft)
        with draft.open("rb") as written:  # on the disk before the name changes hands
            os.fsync(written.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """JSON as everyone can read it: no NaN, a newline at the end."""
    text = json.dumps(content, allow_nan=False, indent=indent) + "\n"
    write_atomically(path, lambda draft: draft.write_text(text))
