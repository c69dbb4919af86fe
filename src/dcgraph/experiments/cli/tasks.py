"""``dcgraph evaluate``, ``predict`` and ``data``: the commands that a task brings with it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tasks import get_task
from .parsing import CommandError, call, visible

if TYPE_CHECKING:
    from ..engine.task import Task


def evaluate(task: str, /, *words: str) -> None:
    """Measure a trained model; prints JSON.

    Args:
        task: the task, as for train; `dcgraph evaluate TASK --help` shows the options.
    """
    _run("evaluate", task, words)


def predict(task: str, /, *words: str) -> None:
    """Show what a trained model reads and computes.

    Args:
        task: the task, as for train; `dcgraph predict TASK --help` shows the options.
    """
    _run("predict", task, words)


def data(task: str, /, *words: str) -> None:
    """Find, fetch or make the data of a task.

    Args:
        task: the task, as for train; `dcgraph data TASK --help` shows the options.
    """
    _run("data", task, words)


def task_named(name: str) -> Task[Any]:
    """A task of the package, or ``module:Class`` with the module in the current folder too."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return get_task(name)
    except ValueError as error:
        raise CommandError(str(error), 2) from None


def _run(command: str, name: str, words: Sequence[str]) -> None:
    commands = task_named(name).commands()
    if command not in commands:
        has = ", ".join(["train", *commands])
        raise CommandError(f"task {name!r} has no command {command!r}; it has: {has}.", 2)
    said = call(commands[command], f"dcgraph {command} {name}", words)
    for text in [said] if isinstance(said, str) else said:
        print(visible(text), flush=True)
