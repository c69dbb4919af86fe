"""A PostgreSQL server for the tests, where it is installed; it lives as long as the context."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_PATIENCE = 60  # seconds for it to start or to stop


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl; Debian has it in no PATH."""
    found = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return Path(found).parent if found else installed[-1] if installed else None


@dataclass(frozen=True)
class Server:
    """A server that runs, and can be stopped and started."""

    url: str
    start: Callable[[], None]
    stop: Callable[[], None]


@contextmanager
def server() -> Iterator[Server]:
    """A fresh server; skips the test where there can be none."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user = "dcgraph"
    how: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        try:
            other = pwd.getpwnam("postgres")
        except KeyError:
            other = pwd.getpwnam("nobody")
        how = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    # Its socket is in this folder, whose name has to be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if how:
        os.chown(folder, how["user"], how["group"])

    def call(name: str, *words: str) -> None:
        subprocess.run(
            [str(programs / name), "-D", str(folder / "data"), *words],
            check=True, timeout=_PATIENCE, cwd=folder, env={"PATH": os.defpath, "LC_ALL": "C"},
            stdout=subprocess.DEVNULL, **how,
        )  # fmt: skip

    try:
        call("initdb", "-U", user, "-A", "trust", "-E", "UTF8", "--no-sync")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"

        def start() -> None:
            call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")

        def stop() -> None:
            call("pg_ctl", "-w", "-m", "fast", "stop")

        start()
        try:
            yield Server(f"postgresql://{user}:secret@127.0.0.1:{port}/postgres", start, stop)
        finally:
            stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
