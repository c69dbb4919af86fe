"""From words on the command line to the arguments of a function; every mistake is one line.

The function says all that is needed. A positional-only parameter is a positional argument, any
other one an option; types and defaults are the function's, and its docstring is the help.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from ..._arguments import shown

REQUIRED = inspect.Parameter.empty
_METAVARS = {int: "N", float: "X", Path: "PATH"}


class CommandError(Exception):
    """Why a command cannot do what was asked: one line that names the remedy."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Argument:
    """One argument of a command."""

    name: str
    type: Any  # a type or a Literal, also with | None, or a tuple of them
    default: Any = REQUIRED
    help: str = ""
    positional: bool = False
    can_be_negated: bool = False  # whether a bool has --no-NAME too

    @property
    def word(self) -> str:
        """As it stands in the usage."""
        if not self.positional:
            return "--" + self.name.strip("_").replace("_", "-")
        kind, many = _taken_apart(self.type)
        word = self.name.upper().removesuffix("S") + " ..." if many else self.name.upper()
        if get_origin(kind) is Literal:
            word = "{" + ",".join(map(str, get_args(kind))) + "}"
        return word if self.default is REQUIRED else f"[{word}]"

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        kind, many = _taken_apart(self.type)
        required = self.default is REQUIRED
        default = None if required or many else self.default
        options: dict[str, Any] = {"dest": self.name, "default": default}
        options["help"] = self.help.replace("%", "%%")
        if kind is bool and not self.can_be_negated:
            parser.add_argument(self.word, action="store_true", **options)
            return
        if default is not None and not self.positional:
            options["help"] += " (default: %(default)s)"
        elif required and not self.positional:
            options["help"] += " (required)"
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif get_origin(kind) is Literal:
            names = get_args(kind)
            options |= {"choices": names, "type": type(names[0])}
            if len(", ".join(map(str, names))) > _LONGEST_CHOICES:  # argparse does not break them
                options["metavar"] = "NAME"
                options["help"] += "; there are: " + ", ".join(names)
        else:
            options |= {"type": kind, "metavar": _METAVARS.get(kind, "TEXT")}
        if self.positional:
            nargs = ("+" if required else "*") if many else None if required else "?"
            parser.add_argument(**options | {"nargs": nargs, "metavar": self.word.strip("[]")})
            return
        if many:  # --rows a b is the same as --rows a --rows b
            options |= {"nargs": "+", "action": "extend"}
        parser.add_argument(self.word, required=required, **options)


def _taken_apart(kind: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be many.

    >>> _taken_apart(int | None), _taken_apart(tuple[str, ...])
    ((<class 'int'>, False), (<class 'str'>, True))
    """
    if get_origin(kind) in (Union, UnionType):
        return _taken_apart(next(part for part in get_args(kind) if part is not NoneType))
    return (get_args(kind)[0], True) if get_origin(kind) is tuple else (kind, False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        said = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        raise CommandError(f"{said}; see: {self.prog} --help", 2)


_LONGEST_CHOICES = 80  # characters of names that a line can hold
_LONGEST = 300  # characters of a complaint, which repeats what was typed


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)


def parse(
    arguments: Sequence[Argument], prog: str, words: Sequence[str], about: str
) -> dict[str, Any]:
    """The values of the arguments by their names; ``--help`` shows them and exits."""
    positional = [argument.word for argument in arguments if argument.positional]
    usage = " ".join([prog, *positional, "[options]"])
    parser = _Parser(prog, usage, about, formatter_class=_Help, allow_abbrev=False)
    for argument in arguments:
        argument.add_to(parser)
    found, unknown = parser.parse_known_intermixed_args(list(words))
    if unknown:
        options = [argument.word for argument in arguments if not argument.positional]
        meant = difflib.get_close_matches(unknown[0].partition("=")[0], options, 1)
        guess = f"did you mean {meant[0]}? See: " if meant else "see: "
        raise CommandError(f"unknown argument {shown(unknown[0])}; {guess}{prog} --help", 2)
    values = vars(found)
    many = [argument for argument in arguments if _taken_apart(argument.type)[1]]
    return values | {one.name: tuple(values[one.name] or one.default) for one in many}


def call(
    function: Callable[..., Any],
    prog: str,
    words: Sequence[str],
    listed: Mapping[str, str] | None = None,
) -> Any:
    """Call a function with the arguments that the words give.

    Args:
        function: a command.
        prog: its name in help and errors.
        words: the command line after that name. Of a function with ``*words`` all words after the
            first are passed on as they are.
        listed: what the first argument can be, with a summary of each, for the help.
    """
    about, helps = _documented(function)
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    passes_on = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if passes_on and words and not words[0].startswith("-"):
        return function(*words)
    arguments = [
        Argument(
            parameter.name,
            type(parameter.default) if parameter.annotation is REQUIRED else parameter.annotation,
            parameter.default,
            helps.get(parameter.name, ""),
            positional=parameter.kind is parameter.POSITIONAL_ONLY,
        )
        for parameter in parameters
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    if listed:
        name = arguments[0].name.upper().removesuffix("S")
        about += f"\n\n{name} is one of\n{in_columns(listed)}"
    values = parse(arguments, prog, words, about)
    positional = [values.pop(argument.name) for argument in arguments if argument.positional]
    return function(*positional, **values)


def visible(text: str) -> str:
    """Text for a terminal: control characters, which names in somebody's data may have, are shown.

    >>> print(visible("a name\\x1b[2J\\n"), end="")
    a name\\x1b[2J
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Except for a tab and a new line; those that turn the direction of writing too."""


def summary(function: Callable[..., Any]) -> str:
    """The first line of its docstring."""
    return _documented(function)[0].partition("\n")[0]


def in_columns(listed: Mapping[str, str]) -> str:
    """Names, and beside each its summary."""
    width = max(map(len, listed))
    return "\n".join(f"  {name:<{width}}  {summary}" for name, summary in listed.items())


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What a docstring says of a function, and of its arguments under "Args:"."""
    about, _, rest = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    helps: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if not line.startswith(" "):  # another section
            break
        if line.startswith(" " * 8):
            helps[name] += " " + line.strip()
        else:
            name, _, text = line.strip().partition(": ")
            helps[name] = text
    return about, {name: text.rstrip(".") for name, text in helps.items()}
