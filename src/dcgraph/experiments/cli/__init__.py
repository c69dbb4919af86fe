"""The command line. A command is one function, listed in COMMANDS; its docstring is its help.

A command says what it is about to do, does it, and says where the result is. What it cannot do it
raises as an error, which :func:`main` turns into one line on stderr and an exit code.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..engine import Interrupted
from ..engine.checkpoint import CheckpointError
from ..engine.datasets import DataError
from ..engine.models import ModelError
from ..engine.records import RecordError
from .demo import demo
from .evidence import figure, reproduce, table
from .parsing import CommandError, first_word, parse_command
from .progress import close_bars
from .tasks import data, evaluate, of_task, predict, train

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "reproduce": reproduce,
    "table": table,
    "figure": figure,
    "data": data,
}
_TASK_COMMANDS = ("train", "evaluate", "predict", "data")
_EXTRAS = {
    "matplotlib": "viz",
    "tyro": "cli",
    "tqdm": "cli",
    "safetensors": "cli",
    "jinja2": "cli",
    "tensorboard": "tensorboard",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name (those of the process, if None); its exit code."""
    try:
        with _library_speaks():
            _run(list(sys.argv[1:] if arguments is None else arguments))
    except CommandError as error:
        _complain(str(error))
        return error.exit_code
    except (CheckpointError, DataError, ModelError, RecordError) as error:
        _complain(str(error))
        return 1
    except (Interrupted, KeyboardInterrupt):
        _complain("interrupted; the same command goes on where it stopped.")
        return 130
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
        _complain(f"{package} is not installed; run: pip install 'dcgraph[{_EXTRAS[package]}]'")
        return 1
    return 0


@contextmanager
def _library_speaks() -> Iterator[None]:
    """What the library logs goes to stderr, a line each."""
    log, handler = logging.getLogger("dcgraph"), logging.StreamHandler()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _run(arguments: list[str]) -> None:
    """A command on a task has the options of that task, so the task is looked up first."""
    command = first_word(arguments)
    if command in _TASK_COMMANDS:
        rest = arguments[arguments.index(command) + 1 :]
        if rest and not rest[0].startswith("-"):
            of_task(command, rest[0], rest[1:])
            return
    parse_command(COMMANDS, arguments)()


def _complain(line: str) -> None:
    close_bars()
    print(f"dcgraph: {line}", file=sys.stderr)
