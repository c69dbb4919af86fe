"""The command line. A command is one function, listed in COMMANDS; its docstring is its help.

A command says what it is about to do, does it, and says where the result is. What it cannot do it
raises as a CommandError, which :func:`main` turns into one line on stderr and an exit code.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

from .checks import closest

with suppress(ModuleNotFoundError):  # an extra; main() says so where it is missing
    import tyro

_EXTRAS = ("matplotlib", "tyro")


class CommandError(Exception):
    """Why a command cannot do what was asked: one line that names the remedy."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def figure(
    name: Annotated[str, tyro.conf.arg(metavar="NAME")],
    /,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("figures"),
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0,
) -> None:
    """Draw a figure of the paper, with the numbers behind it as JSON.

    NAME is one of
      saturation  larger noise keeps gradients alive (Figure 2)
      simplex     what annealing tau and growing beta do

    Args:
        name: the figure.
        out: folder for NAME.png and NAME.json.
        seed: seed of all random numbers.
    """
    from . import figures

    if name not in figures.FIGURES:
        raise CommandError(f"unknown figure {name!r}; {closest(name, figures.FIGURES)}", 2)
    recipe = figures.FIGURES[name]
    _say(recipe.plan)
    start = time.perf_counter()
    try:
        picture, numbers = figures.make(name, out, seed)
    except OSError as error:
        blocked = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "a file is in the way" if blocked else error.strerror or error
        raise CommandError(
            f"cannot write into {str(out)!r}: {reason}; choose another folder with --out."
        ) from error
    _say(f"Wrote {picture} and {numbers} in {time.perf_counter() - start:.1f} seconds.")
    _say(f"Look: {recipe.look}")


COMMANDS: dict[str, Callable[..., None]] = {"figure": figure}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name (those of the process, if None); its exit code."""
    try:
        _parse(sys.argv[1:] if arguments is None else arguments)()
    except CommandError as error:
        _complain(str(error))
        return error.exit_code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _complain(f"{package} is not installed; run: pip install 'dcgraph[cli,viz]'")
        return 1
    return 0


def _parse(arguments: Sequence[str]) -> Callable[[], None]:
    """The command with its arguments, ready to be called; a mistake in them is a CommandError."""
    import tyro

    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        raise CommandError(f"unknown command {name!r}; {closest(name, COMMANDS)}", 2)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            command: Callable[[], None] = tyro.extras.subcommand_cli_from_dict(
                {name: _deferred(function) for name, function in COMMANDS.items()},
                prog="dcgraph",
                description="Networks with discrete steps in a row, made to train.",
                args=arguments,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise CommandError(_in_one_line(complaint.getvalue()), 2) from None
    return command


def _deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    @wraps(command)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return partial(command, *args, **kwargs)

    return bind


def _in_one_line(box: str) -> str:
    """tyro explains a mistake in a box: a title and parts between rules, the last on --help."""
    parts: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip(" │╭╮╰╯")
        if text.strip("-─"):
            parts[-1].append(text)
        elif parts[-1]:
            parts.append([])
    return "; ".join(" ".join(part) for part in parts[1:] if part)


def _say(line: str) -> None:
    print(line, flush=True)


def _complain(line: str) -> None:
    print(f"dcgraph: {line}", file=sys.stderr)
