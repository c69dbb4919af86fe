"""What ``dcgraph evaluate``, ``predict`` and ``data`` do for ListOps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from importlib.resources import as_file, files
from pathlib import Path

from torch import nn

from ...._arguments import closest, shown
from ....nodes import Decode
from ...engine.errors import DataError, ModelError
from ...engine.models import load_model
from ...engine.step import set_decode
from ...engine.task import Batch, Data, Task
from .data import sets
from .data.expressions import TOKENS, Expression, parse, text_of, tree_of
from .data.expressions import read as read_file
from .decoding import DEEPEST, TreeDecoder, check_length, count, groups
from .model.latent_tree import LatentTree
from .reading import answers, read, write_page
from .settings import ListOpsSettings

SHIPPED = "best.safetensors"

_AT_ONCE = 1000  # lines of a stream that are answered together
_COUNTED = {
    "task accuracy": "expressions",
    "edge precision": "edges",
    "intermediate accuracy": "intermediate values",
}
"""What each share is a share of."""


class Commands:
    """The commands of the task; what they read is a model of it."""

    def __init__(self, task: Task[ListOpsSettings]) -> None:
        self._task = task

    def by_name(self) -> dict[str, Callable[..., str | Iterator[str]]]:
        return {"evaluate": self.evaluate, "predict": self.predict, "data": self.data}

    def load(self, model: Path | None) -> tuple[nn.Module, ListOpsSettings]:
        """A trained model: a file, the best one of a run's folder, or the one in the package."""
        shipped = files(__package__) / SHIPPED
        if model is None and not shipped.is_file():
            raise ModelError(
                "no trained model comes with this version; train one with `dcgraph train listops`, "
                "and name its folder with --model."
            )
        with as_file(shipped) if model is None else nullcontext(model) as path:
            return load_model(path, self._task)

    def evaluate(
        self,
        *,
        model: Path | None = None,
        set: str | None = None,
        data: Path | None = None,
        rounds: int | None = None,
        decode: Decode = "argmax",
    ) -> str:
        """Measure a model on one of our sets or on your own file; prints JSON.

        Counted are edges of all tokens but ], and values of all inner operators.

        Args:
            model: file or folder of a run; the model in the package, if not given.
            set: test (the default), d8, d10, d8-long, d10-long, critical-d1 to -d8.
            data: instead, a file: an expression, a tab and its value per line.
            rounds: rounds of messages (default: 5, or the depth in the name of the set or file).
            decode: how the nodes choose.
        """
        if set is not None and data is not None:
            raise DataError(f"--set {set} and --data {data} exclude each other; leave one out.")
        _check(rounds)
        network, settings = self.load(model)
        set_decode(network, decode)
        name = data.stem if data is not None else set or "test"
        used = sets.rounds_for(name) if rounds is None else rounds
        tables = (
            _tables_of(read_file(data))
            if data is not None
            else _own(name, self._task.data(settings))
        )
        counted = count(network, tables, used)
        answer: dict[str, str | int | float] = {
            "task": self._task.name,
            "model": str(model) if model else "shipped",
            "data": str(data) if data else name,
            "rounds": used,
            "decode": decode,
        }
        for share, (right, out_of) in counted.items():
            answer |= {share: round(right / out_of, 6)} if out_of else {}
            answer |= {_COUNTED[share]: out_of}
        return json.dumps(answer, indent=1)

    def predict(
        self,
        expressions: tuple[str, ...] = (),
        /,
        *,
        file: Path | None = None,
        html: Path | None = None,
        model: Path | None = None,
        rounds: int | None = None,
        decode: Decode = "argmax",
    ) -> Iterator[str]:
        """Show the tree and the values that a model sees in expressions.

        An expression is one argument: "[MAX 2 9 [MIN 4 7 ] 0 ]". Errors are marked.

        With --file or -, prints one line per expression: expression, tab, answer.

        Where the answer is wrong, a tab and the right one follow.

        Args:
            expressions: what to show; - for lines from stdin.
            file: lines to answer; what follows a tab is ignored.
            html: page to write, which draws trees, rounds and values.
            model: file or folder of a run; the model in the package, if not given.
            rounds: rounds of messages (default: 5, or the depth of the chosen tree).
            decode: how the nodes choose.
        """
        if expressions == ("-",) and file is None:
            expressions, file = (), Path("-")
        if bool(expressions) == (file is not None):
            raise DataError("pass expressions, each in quotes; or --file FILE; or - for stdin.")
        if html is not None and file is not None:
            raise DataError("--html draws expressions that are arguments; leave out --file or -.")
        _check(rounds)
        parsed = _parsed(expressions)  # mistakes come before the work
        network, _ = self.load(model)
        if not isinstance(network, LatentTree):
            raise ModelError(
                "this model has no tree to show; predict needs one trained as `--model tree`."
            )
        set_decode(network, decode)
        decoder = TreeDecoder(network)
        if file is not None:
            yield from _compact(decoder, file, rounds)
            return
        readings = read(decoder, parsed, rounds)
        yield "\n\n".join(reading.text() for reading in readings)
        if html is not None:
            write_page(html, readings, "the model in the package" if model is None else str(model))
            yield f"\nPage: {html}."

    def data(self, *, out: Path, seed: int = 0) -> str:
        """Write all sets as text: an expression, a tab and its value per line.

        Args:
            out: folder for the files.
            seed: of the generator; with 0 they are the sets that `train` uses.
        """
        try:
            paths = sets.write_all(out, seed)
        except ValueError as error:
            raise DataError(str(error)) from None
        sizes = {path.name: path.read_bytes().count(b"\n") for path in paths}
        lines = [f"{name}: {size:,} expressions" for name, size in sizes.items()]
        return "\n".join([*lines, f"{sum(sizes.values()):,} in all, in {out}."])


def _tables_of(expressions: list[Expression]) -> Iterator[Batch]:
    for number, expression in enumerate(expressions, 1):
        try:
            check_length(expression)
        except ValueError as error:
            raise DataError(f"expression {number}: {error}") from None
    for group in groups(expressions):
        yield sets.tensors_of([expressions[k] for k in group])


def _own(name: str, data: Data) -> Iterable[Batch]:
    if name not in data.splits:
        raise DataError(f"unknown set {shown(name)}; {closest(name, data.splits)}")
    return data.tables(name)


def _check(rounds: int | None) -> None:
    if rounds is not None and not 1 <= rounds <= DEEPEST:
        raise DataError(f"rounds={rounds}, but 1 to {DEEPEST:,} are possible.")


def _parsed(texts: Iterable[str]) -> list[Expression]:
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(check_length(parse(text)))
        except ValueError as error:
            cut = text in TOKENS  # by the shell
            reason = f"{text!r} is not a whole one; put all of it in quotes." if cut else error
            raise DataError(f"expression {number}: {reason}") from None
    return found


def _compact(decoder: TreeDecoder, file: Path, rounds: int | None) -> Iterator[str]:
    """A line for each expression; many at once, so that it goes fast."""
    if file == Path("-"):
        yield from _answered(decoder, sys.stdin.buffer, "stdin", rounds)
        return
    try:
        with file.open("rb") as stream:
            yield from _answered(decoder, stream, str(file), rounds)
    except OSError as error:
        raise DataError(
            f"cannot read {file}: {error.strerror}; name a file of expressions."
        ) from error


def _answered(
    decoder: TreeDecoder, stream: Iterable[bytes], name: str, rounds: int | None
) -> Iterator[str]:
    nothing = True
    for some in _chunks(stream, name):
        nothing = False
        lines = []
        for expression, answer in zip(some, answers(decoder, some, rounds), strict=True):
            truth = tree_of(expression).values[0]
            mark = "" if answer == truth else f"\t{truth}"
            lines.append(f"{text_of(expression)}\t{answer}{mark}")
        yield "\n".join(lines)
    if nothing:
        raise DataError(f"{name} has no expressions; write one per line.")


def _chunks(stream: Iterable[bytes], name: str) -> Iterator[list[Expression]]:
    """The expressions of a stream; those before a malformed one come before the complaint."""
    some: list[Expression] = []
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig").partition("\t")[0]
            if text.strip():
                some.append(check_length(parse(text)))
        except ValueError as error:
            if some:
                yield some
            binary = isinstance(error, UnicodeDecodeError)
            reason = "not text; name a file of expressions." if binary else error
            raise DataError(f"{name}, line {number}: {reason}") from None
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some
