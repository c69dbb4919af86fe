"""Expressions as tensors."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from ...engine.task import Batch
from .expressions import Expression, tree_of


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


def rows_by_length(lengths: Int64[Tensor, " examples"]) -> dict[int, Int64[Tensor, " rows"]]:
    """The rows of each length that occurs, so that a batch can have one shape and no padding.

    >>> rows_by_length(torch.tensor([7, 4, 7]))
    {4: tensor([1]), 7: tensor([0, 2])}
    """
    order = lengths.argsort(stable=True)
    found, counts = lengths.unique(return_counts=True)
    rows = order.split(counts.tolist())
    return dict(zip(found.tolist(), rows, strict=True))
