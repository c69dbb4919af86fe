"""What the page of a run shows of a ListOps model: expressions it read, operators it learned."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import nn

from ...engine.panels import Examples, Grid, Panel, Shown
from ...engine.task import Data
from .data.expressions import CLOSE, OPERATORS, TOKENS, ZERO, Expression, text_of, tree_of
from .data.sets import ROUNDS, tensors_of
from .decoding import TreeDecoder
from .model.edges import Counters
from .model.latent_tree import LatentTree
from .reading import Reading, read

_FIRST = 4  # examples from the test set
_WRONG = 4  # and errors among those looked at
_LOOKED_AT = 1000


def of_model(model: nn.Module, data: Data) -> tuple[Panel, ...]:
    """Examples for every model; the operators of those that pass messages."""
    expressions = _expressions(data)
    if isinstance(model, LatentTree):
        decoder = TreeDecoder(model)
        counters = _counters(model.edges.encode) if isinstance(model.edges.encode, Counters) else ()
        return (
            _readings(read(decoder, expressions, ROUNDS)),
            *counters,
            *_operators(model, decoder),
        )
    return (_answers(model, expressions),)


def _expressions(data: Data) -> list[Expression]:
    """Some of the test set, of all lengths: its tables go from short to long."""
    every = max(1, data.size("test") // _LOOKED_AT)
    rows = (
        (tokens, length)
        for table in data.tables("test")
        for tokens, length in zip(table["tokens"].tolist(), table["length"].tolist(), strict=True)
    )
    return [bytes(tokens[:length]) for tokens, length in islice(rows, 0, None, every)]


def _chosen(right: list[bool]) -> list[int]:
    """A few examples from short to long, then the first errors that are not among them."""
    some = [len(right) * k // _FIRST for k in range(min(_FIRST, len(right)))]
    wrong = [k for k, is_right in enumerate(right) if not is_right and k not in some]
    return [*some, *wrong[:_WRONG]]


def _note(right: list[bool]) -> str:
    return (
        f"From short to long, then the first errors: {right.count(False)} of {len(right)} "
        f"test expressions are wrong."
    )


def _readings(readings: list[Reading]) -> Examples:
    right = [reading.right for reading in readings]
    note = (
        f"{_note(right)} After an expression stands every operator with the values it got from its "
        "children in the tree that the model chose, innermost first; wrong ones are marked."
    )
    rows = tuple(
        (Shown("", text_of(readings[k].expression)), *_steps(readings[k])) for k in _chosen(right)
    )
    return Examples("Expressions it read", note, rows)


def _steps(reading: Reading) -> Iterable[Shown]:
    """What each operator computed from what; in the order in which they are closed."""
    below = reading.children()
    for position in _by_closing(reading):
        got = [k for k in below.get(position, []) if reading.expression[k] != CLOSE]
        due = [
            k
            for k, parent in enumerate(reading.truth.parents)
            if parent == position and reading.expression[k] != CLOSE
        ]
        complaints = []
        if got != due:
            complaints.append("other children")
        if reading.miscomputed(position):
            complaints.append(f"it is {reading.truth.values[position]}")
        given = " ".join(str(reading.value(k)) for k in got) or "nothing"
        text = f"{reading.name(position)} {given} = {reading.value(position)}"
        yield Shown("; ".join(complaints), text, right=not complaints)


def _by_closing(reading: Reading) -> list[int]:
    brackets = (k for k, token in enumerate(reading.expression) if token == CLOSE)
    return [reading.truth.parents[k] for k in brackets]


@torch.no_grad()
def _answers(model: nn.Module, expressions: list[Expression]) -> Examples:
    table = tensors_of(expressions)
    found = model(table["tokens"].long(), table["length"], table["parents"].long()).argmax(-1)
    right = (found == table["label"]).tolist()
    rows = []
    for k in _chosen(right):
        caption = "answer" if right[k] else f"answer; it is {int(table['label'][k])}"
        answer = Shown(caption, f"= {int(found[k])}", right=right[k])
        rows.append((Shown("", text_of(expressions[k])), answer))
    return Examples("Expressions it read", f"{_note(right)} This model has no tree.", tuple(rows))


@torch.no_grad()
def _counters(encoder: Counters) -> tuple[Grid]:
    """By how much each token moves each counter, and how far apart child and parent should be."""
    rows = [
        [f"{number:+.1f}" for number in (*increments, distance)]
        for increments, distance in zip(
            encoder.table().T.tolist(), encoder.distance.tolist(), strict=True
        )
    ]
    return (
        Grid(
            "The counters it learned",
            "By how much each token moves each counter, and by how much the counter of a token "
            "should be ahead of its parent's. Where operators and ] move it by opposite amounts "
            "and digits do not, a counter is the depth of brackets.",
            "counter",
            (*(token.removeprefix("[") for token in TOKENS), "ahead"),
            tuple(str(k + 1) for k in range(len(rows))),
            tuple(tuple((text, None) for text in row) for row in rows),
        ),
    )


def _operators(model: LatentTree, decoder: TreeDecoder) -> Iterable[Grid]:
    """What the model computes along the right edges, for every operator and pair of digits."""
    silent = model.edges.senders == "values"  # closing brackets, which then send nothing
    digits = range(10)
    for operator in OPERATORS:
        cells = [bytes([operator, ZERO + a, ZERO + b, CLOSE]) for a in digits for b in digits]
        table = tensors_of(cells)
        tokens, parents = table["tokens"].long(), table["parents"].long()
        if silent:
            parents = parents.masked_fill(tokens == CLOSE, -1)
        decoded = decoder.follow(tokens, parents, ROUNDS)
        values = [
            (str(answer), answer == tree_of(cell).values[0])
            for answer, cell in zip(decoded.answers.tolist(), cells, strict=True)
        ]
        name = TOKENS[operator].removeprefix("[")
        yield Grid(
            f"The {name} it learned",
            f"Its value of [{name} a b ] with the right tree, a in front and b above. Wrong ones "
            "are marked.",
            f"{name} a b",
            tuple(map(str, digits)),
            tuple(map(str, digits)),
            tuple(tuple(values[10 * a : 10 * a + 10]) for a in digits),
        )
