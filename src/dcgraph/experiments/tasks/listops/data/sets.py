"""All sets of the task: training, validation and test for depths 1 to 5, deeper tests, and more."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from ....engine.task import Batch, Data, fingerprint_of
from .depth_critical import critical
from .expressions import Expression, tree_of, write
from .generator import Distribution, distinct

DEPTHS = range(1, 6)
SPLITS = {"train": 20_000, "validation": 2_000, "test": 2_000}
"""The splits of each depth, and their sizes."""

DEEPER = {"d8": (8, 50), "d10": (10, 50), "d8-long": (8, 100), "d10-long": (10, 100)}
"""Tests of 2,000 expressions beyond the training data: depth and largest number of tokens."""

CRITICAL = {f"critical-d{depth}": depth for depth in range(1, 9)}
"""Depth-critical tests, and their depths."""

TESTS = ("test", *DEEPER, *CRITICAL)
"""All sets that a trained model is measured on."""

SHORT = range(1, 4)
"""The depths of the short expressions."""

SHORT_SPLITS = {"train": 4_000, "validation": 300, "test": 500}
"""Their splits of each depth, and their sizes."""

_LONGEST_SHORT = 19  # tokens

ROUNDS = 5
"""Rounds of messages with which a model is measured, unless a set is deeper."""

_DEEPER_SIZE = 2_000
_CRITICAL_SIZE = 250  # of each depth
_WIDTHS = (7, 12, 15, 19, 22, 25, 28, 32, 36, 40, 45, 50, 60, 70, 80, 90, 100)
"""Expressions are padded to one of these lengths, so that a population has few shapes."""


def distribution_of(depth: int, longest: int = 50) -> Distribution:
    """The distribution of the data of a depth.

    Up to depth 5 operators stand at levels 1 to 5, and from depth 2 on there are at least 10
    tokens: with these settings the statistics are those of the paper's validation and test data.
    Deeper expressions may have operators at any level down to their depth.
    """
    return Distribution(
        depth, levels=max(depth, 5), shortest=10 if depth > 1 else 4, longest=longest
    )


def rounds_for(name: str) -> int:
    """The rounds that a set asks for: 5, or the depth that its name states, if it is deeper.

    >>> [rounds_for(name) for name in ("test", "d10-long", "critical-d2", "critical-d8", "other")]
    [5, 10, 5, 8, 5]
    """
    stated = CRITICAL | {deeper: depth for deeper, (depth, _) in DEEPER.items()}
    return max(ROUNDS, stated.get(name, 0))


# As expressions


def generate(seed: int) -> dict[str, list[Expression]]:
    """The 128,000 expressions, all different, by the names ``train-d1`` to ``test-d5`` and d8 etc.

    The same seed gives the same expressions everywhere.
    """
    sets: dict[str, list[Expression]] = {}
    for depth in DEPTHS:
        sets |= _split(distribution_of(depth), SPLITS, _source(seed, depth))
    for number, (name, (depth, longest)) in enumerate(DEEPER.items(), 10):
        known = {each for other in DEEPER if other in sets for each in sets[other]}
        deep = distribution_of(depth, longest)
        sets[name] = distinct(deep, _DEEPER_SIZE, _source(seed, number), known)
    return sets


def generate_short(seed: int) -> dict[str, list[Expression]]:
    """14,400 different expressions for a CPU: depths 1 to 3, at most 19 tokens, no other tests.

    Operators stand at any level down to the depth.
    """
    sets: dict[str, list[Expression]] = {}
    for depth in SHORT:
        short = Distribution(depth, levels=depth, shortest=4, longest=_LONGEST_SHORT)
        sets |= _split(short, SHORT_SPLITS, _source(seed, 30 + depth))
    return sets


def _split(
    distribution: Distribution, sizes: Mapping[str, int], source: Random
) -> dict[str, list[Expression]]:
    """The splits of a depth, by names such as ``train-d1``."""
    drawn = iter(distinct(distribution, sum(sizes.values()), source))
    return {
        f"{split}-d{distribution.depth}": list(islice(drawn, size)) for split, size in sizes.items()
    }


def generate_critical(
    seed: int, known: set[Expression], size: int = _CRITICAL_SIZE
) -> dict[str, list[Expression]]:
    """The depth-critical expressions, ``critical-d1`` to ``critical-d8``; none of them is known."""
    return {
        name: critical(distribution_of(depth), size, _source(seed, 20 + depth), known)
        for name, depth in CRITICAL.items()
    }


def write_all(folder: Path, seed: int) -> list[Path]:
    """Write every set into a file of its own; gives the files."""
    sets = generate(seed)
    sets |= generate_critical(seed, {each for drawn in sets.values() for each in drawn})
    paths = {folder / f"{name}.txt": drawn for name, drawn in sets.items()}
    for path, drawn in paths.items():
        write(path, drawn)
    return list(paths)


def _source(seed: int, number: int) -> Random:
    """Each set has numbers of its own, so that one can change without the others."""
    if seed < 0:  # Python takes -1 for 1
        raise ValueError(f"seed={seed}, but a seed is at least 0.")
    return Random(100 * seed + number)


# As tensors


@lru_cache(maxsize=1)
def as_data(seed: int) -> Data:
    """All sets as the engine takes them; the depths of a split are together."""
    sets = generate(seed)
    known = {expression for drawn in sets.values() for expression in drawn}
    sets |= generate_critical(seed, known)
    return _as_data(_joined(sets, DEPTHS) | {name: sets[name] for name in (*DEEPER, *CRITICAL)})


@lru_cache(maxsize=1)
def short_data(seed: int) -> Data:
    """The short expressions as the engine takes them."""
    return _as_data(_joined(generate_short(seed), SHORT))


def _joined(
    sets: Mapping[str, list[Expression]], depths: Iterable[int]
) -> dict[str, list[Expression]]:
    """The splits with all depths together."""
    return {
        split: [each for depth in depths for each in sets[f"{split}-d{depth}"]] for split in SPLITS
    }


def _as_data(sets: Mapping[str, list[Expression]]) -> Data:
    tables = {name: tables_of(drawn) for name, drawn in sets.items()}
    fingerprint = fingerprint_of(*(table["tokens"] for some in tables.values() for table in some))
    return Data(tables, fingerprint, to_batch=to_batch)


def to_batch(constants: Batch, rows: Batch, training: bool) -> Batch:
    """What loss and metrics see of some rows; the tree is for models that are given it."""
    return {
        "tokens": rows["tokens"].long(),
        "lengths": rows["length"],
        "parents": rows["parents"].long(),
        "label": rows["label"],
    }


def tables_of(expressions: list[Expression]) -> list[Batch]:
    """Expressions of about the same length in a table each."""
    tables, left = [], sorted(expressions, key=len)
    for width in _WIDTHS:
        fitting = [e for e in left if len(e) <= width]
        left = left[len(fitting) :]
        if fitting:
            tables.append(_padded(tensors_of(fitting), width))
    return tables


def _padded(table: Batch, width: int) -> Batch:
    missing = width - table["tokens"].shape[1]
    padding = {"tokens": 0, "parents": -1, "values": -1}
    return {
        name: F.pad(tensor, (0, missing), value=padding[name]) if name in padding else tensor
        for name, tensor in table.items()
    }


def tensors_of(expressions: Sequence[Expression]) -> Batch:
    """A table of the expressions, padded on the right to the longest one.

    ======= ======= ============================================================================
    name    type    content
    ======= ======= ============================================================================
    tokens  int8    [examples, tokens], padded with 0
    parents int32   [examples, tokens], position of the operator a token belongs to; -1 for the
                    root and for padding
    values  int8    [examples, tokens], value of the expression that starts at a token; -1 for ]
                    and for padding
    label   int64   [examples], value of the whole expression
    length  int64   [examples], number of tokens
    depth   int64   [examples], levels of operators
    ======= ======= ============================================================================

    >>> from .expressions import parse
    >>> table = tensors_of([parse("[MAX 2 [MIN 4 7 ] ]"), parse("[MED 3 1 ]")])
    >>> table["parents"]
    tensor([[-1,  0,  0,  2,  2,  2,  0],
            [-1,  0,  0,  0, -1, -1, -1]], dtype=torch.int32)
    >>> table["label"]
    tensor([4, 2])
    """
    if not expressions:
        raise ValueError("there are no expressions; pass at least one.")
    tokens, values, parents = bytearray(), array("b"), array("i")
    labels, depths = [], []
    for expression in expressions:
        tree = tree_of(expression)
        tokens += expression
        values.extend(tree.values)
        parents.extend(tree.parents)
        labels.append(tree.values[0])
        depths.append(tree.depth)
    lengths = torch.tensor([len(expression) for expression in expressions])
    used = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)

    def padded(flat: bytearray | array[int], dtype: torch.dtype, padding: int) -> Tensor:
        table = torch.full(used.shape, padding, dtype=dtype)
        table[used] = torch.frombuffer(flat, dtype=dtype)
        return table

    return {
        "tokens": padded(tokens, torch.int8, 0),
        "parents": padded(parents, torch.int32, -1),
        "values": padded(values, torch.int8, -1),
        "label": torch.tensor(labels),
        "length": lengths,
        "depth": torch.tensor(depths),
    }
