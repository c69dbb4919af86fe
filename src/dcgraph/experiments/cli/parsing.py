"""From words on the command line to a function call; every mistake is one line."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_args

from ..._arguments import closest

_PLAIN: tuple[Any, ...] = (str, int, float, Path)


class CommandError(Exception):
    """Why a command cannot do what was asked: one line that names the remedy."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def parse_command(
    commands: Mapping[str, Callable[..., None]], arguments: Sequence[str]
) -> Callable[[], None]:
    """The command with its arguments, ready to be called."""
    import tyro

    name = first_word(arguments)
    if name is not None and name not in commands:
        raise CommandError(f"unknown command {name!r}; {closest(name, commands)}", 2)
    brief = name is None  # the list of commands: a line for each
    command: Callable[[], None] = in_one_line(
        lambda: tyro.extras.subcommand_cli_from_dict(
            {name: _deferred(function, brief) for name, function in commands.items()},
            prog="dcgraph",
            description="Networks with discrete steps in a row, made to train.",
            args=arguments,
        )
    )
    return command


def parse_options(kind: Any, prog: str, arguments: Sequence[str]) -> Any:
    """An object of ``kind``, a dataclass or a function, from its options."""
    import tyro

    return in_one_line(lambda: tyro.cli(kind, prog=prog, args=arguments))


def with_metavars(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose help names its arguments: tyro would write STR and {None}|INT."""

    @wraps(command)
    def named(*values: Any, **options: Any) -> Any:
        return command(*values, **options)

    signature = inspect.signature(command, eval_str=True)
    parameters = [p.replace(annotation=_named_type(p)) for p in signature.parameters.values()]
    del named.__wrapped__  # tyro would look there
    named.__annotations__ = {
        p.name: p.annotation for p in parameters if p.annotation is not p.empty
    }
    named.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return named


def _named_type(parameter: inspect.Parameter) -> Any:
    """Only where tyro has nothing to say but the name of a type."""
    import tyro

    kind: Any = parameter.annotation
    optional = [plain | None for plain in _PLAIN]
    if parameter.kind is parameter.POSITIONAL_ONLY:
        if kind in [*_PLAIN, *optional, tuple[str, ...]]:
            return Annotated[kind, tyro.conf.arg(metavar=parameter.name.upper())]
    elif kind in optional:
        return Annotated[kind, tyro.conf.arg(metavar=get_args(kind)[0].__name__.upper())]
    return kind


def first_word(arguments: Sequence[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


def in_one_line(parse: Callable[[], Any]) -> Any:
    """tyro explains a mistake in a box and exits; here it becomes a CommandError."""
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return parse()
    except SystemExit as stop:
        if not stop.code:
            raise
        raise CommandError(_unboxed(complaint.getvalue()), 2) from None


def _deferred(command: Callable[..., None], brief: bool) -> Callable[..., Callable[[], None]]:
    @wraps(command)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return partial(command, *args, **kwargs)

    if brief:
        bind.__doc__ = (command.__doc__ or "").partition("\n")[0]
    return bind


def _unboxed(box: str) -> str:
    """The box has a title, then parts between rules: the reason, advice, where the help is."""
    parts: list[list[str]] = [[]]
    for line in box.splitlines()[1:]:
        text = line.strip(" │╭╮╰╯")
        if text.strip("-─"):
            parts[-1].append(text)
        elif parts[-1]:
            parts.append([])
    return "; ".join(" ".join(part).rstrip(".") for part in parts if part)
