"""The command line. A command is one function, listed in COMMANDS; its docstring is its help.

A command says what it is about to do, does it, and says where the result is. What it cannot do it
raises as an error, which :func:`main` turns into one line on stderr and an exit code.

Modules of this package import torch, and what needs it, inside functions: help and mistakes are
answered at once.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ... import __version__
from ..._arguments import closest, shown
from ..engine.errors import (
    CheckpointError,
    DataError,
    Ended,
    Interrupted,
    ModelError,
    OtherRankError,
    RanksError,
    RecordError,
    StudyError,
)
from ..figures import FIGURES, Figure
from ..tasks import TABLES, TASKS, Entry
from .compare import COMPARISONS, Compared, compare
from .demo import demo
from .figures import figure
from .parsing import CommandError, call, summary, visible
from .playground import playground
from .progress import close_bars
from .search import search
from .tables import reproduce, table
from .tasks import data, evaluate, predict
from .train import train

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "search": search,
    "evaluate": evaluate,
    "predict": predict,
    "reproduce": reproduce,
    "table": table,
    "compare": compare,
    "figure": figure,
    "data": data,
    "playground": playground,
}
_NAMES: dict[str, Mapping[str, Entry] | Mapping[str, Figure] | Mapping[str, Compared]] = {
    "train": TASKS,
    "search": TASKS,
    "evaluate": TASKS,
    "predict": TASKS,
    "reproduce": TABLES,
    "table": TABLES,
    "compare": COMPARISONS,
    "figure": FIGURES,
    "data": TASKS,
}
"""What the first argument of a command can be."""
_EXTRAS = {
    "matplotlib": "viz",
    "tqdm": "cli",
    "safetensors": "cli",
    "jinja2": "cli",
    "numpy": "cli",
    "PIL": "cli",
    "tensorboard": "tensorboard",
    "optuna": "search",
    "sqlalchemy": "search",
    "psycopg": "search",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name (those of the process, if None); its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        _show_anything(stream)
    summaries = {name: summary(command) for name, command in COMMANDS.items()}
    try:
        with _library_speaks(), _every_signal_to_stop_is_heard():
            call(dcgraph, "dcgraph", words, summaries)
    except CommandError as error:
        if _is_main():  # all ranks find the same mistake
            _complain(str(error))
        return error.exit_code
    except OtherRankError:  # which says why
        return 1
    except (CheckpointError, DataError, ModelError, RanksError, RecordError, StudyError) as error:
        _complain(str(error))
        return 1
    except (Interrupted, KeyboardInterrupt) as stop:
        if _is_main():  # all ranks are
            _complain("interrupted; the same command goes on where it stopped.")
        return getattr(stop, "exit_code", 130)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _complain("there is not enough memory; use a smaller model, batch or --at-once.")
        return 1
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        return 1
    except OSError as error:
        where = f"{error.filename!r}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}.")
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra = _EXTRAS[package]
        _complain(
            f"{package} is not installed; run: pip install 'dcgraph[{extra}]' "
            f"(in a checkout: pip install '.[{extra}]')"
        )
        return 1
    return 0


def dcgraph(command: str = "", /, *words: str, version: bool = False) -> None:
    """Networks with discrete steps in a row, made to train.

    Args:
        command: what to do; `dcgraph COMMAND --help` shows its options.
        version: show the version and exit.
    """
    if version:
        print(f"dcgraph {__version__}")
        return
    if command not in COMMANDS:
        said = (
            f"unknown command {shown(command)}" if command else "which command? See dcgraph --help"
        )
        raise CommandError(f"{said}; {closest(command, COMMANDS)}", 2)
    listed = {name: one.summary for name, one in _NAMES.get(command, {}).items()}
    call(COMMANDS[command], f"dcgraph {command}", words, listed)


def _is_main() -> bool:
    """Whether this is rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def _is_out_of_memory(error: Exception) -> bool:
    """Of Python, or of torch, whose errors have names and texts of their own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return "can't allocate memory" in str(error)


_STOPS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def _every_signal_to_stop_is_heard() -> Iterator[None]:
    """What a job scheduler and a closed terminal send is as Ctrl-C, also where nothing is trained.

    So drafts of files are removed, and a line says how to go on. A second one ends at once; one
    that was ignored stays so, as under nohup.
    """

    def stop(number: int, frame: object) -> None:
        for one in _STOPS:
            if signal.getsignal(one) is stop:
                signal.signal(one, signal.SIG_DFL)
        raise Ended(number)

    before: dict[int, Any] = {}
    try:
        for one in _STOPS:
            if signal.getsignal(one) is signal.SIG_DFL:
                before[one] = signal.signal(one, stop)
    except ValueError:  # only the main thread may handle signals
        pass
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _library_speaks() -> Iterator[None]:
    """What the library logs goes to stderr, a line each."""
    log, handler = logging.getLogger("dcgraph"), logging.StreamHandler()
    handler.setFormatter(_Visible())
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def _show_anything(stream: object) -> None:
    """A terminal that lacks a character shows another; it is no reason to stop."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def _complain(line: str) -> None:
    close_bars()
    one_line = " ".join(line.splitlines())
    print(f"dcgraph: {visible(one_line)}", file=sys.stderr)
