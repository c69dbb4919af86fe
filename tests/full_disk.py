"""A folder on a disk that is full: a small one in memory where root may mount it, else a limit."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = 8192  # bytes


@contextmanager
def full_disk(folder: Path) -> Iterator[tuple[Path, str]]:
    """Where hardly anything fits, and what an error there says."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        try:
            yield place, "the disk is full"
        finally:
            subprocess.run(["umount", str(place)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield place, "larger than files may be"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
