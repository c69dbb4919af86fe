"""Which rows of a codebook a rank has, and whether all ranks mean the same codebook."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from .._checks import may_read

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

_WORDS = 64
"""Of 8 bytes each: what a rank says of its part of a call."""


@dataclass(frozen=True)
class Shard:
    """The rows of one rank of a group that has the whole codebook."""

    group: dist.ProcessGroup
    first: int  # of the own rows, counted in the whole codebook
    rows: int  # of the whole codebook

    def __deepcopy__(self, memo: object) -> Shard:
        """A group of processes cannot be copied."""
        return self


def eager(function: Function) -> Function:
    """Compiled code leaves this call to Python: ranks meet in it."""

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            # Not before: it imports the compiler.
            return torch.compiler.disable(function)(*given, **named)
        return function(*given, **named)

    return cast(Function, call)


def shard_rows(n: int, group: dist.ProcessGroup | None = None) -> range:
    """The rows of a codebook of n rows that this rank has.

    All ranks have equally many, rounded up; the last ones have fewer, or none. DTensor divides a
    dimension in the same way.

    Args:
        n: rows of the whole codebook.
        group: the ranks that share them, None for all. Without torch.distributed all rows are here.

    >>> import dcgraph as dc
    >>> dc.distributed.shard_rows(1000)
    range(0, 1000)
    """
    if n < 1:
        raise ValueError(f"n={n}, but a codebook has at least one row.")
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return range(n)
    rank, ranks = rank_in(group), dist.get_world_size(group)
    each = -(-n // ranks)
    return range(min(rank * each, n), min((rank + 1) * each, n))


def rank_in(group: dist.ProcessGroup | None) -> int:
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            f"rank {dist.get_rank()} is not in the group; make the call on the ranks of the group "
            "only."
        )
    return rank


_agreed: WeakKeyDictionary[dist.ProcessGroup, dict[str, Shard]] = WeakKeyDictionary()
"""What was agreed on before, for devices on which to ask each time would take too long."""


@eager
def agree(
    group: dist.ProcessGroup,
    device: torch.device,
    check: Callable[[], Result],
    facts: Callable[[Result], tuple[int, Mapping[str, object]]],
) -> tuple[Result, Shard]:
    """What a call was given, checked on every rank, and the place of the own rows.

    An error on one rank is an error on all of them, and so is a difference: without this, the
    others would wait for ever. On a GPU ranks ask each other only at the first call of its kind,
    or inside of :func:`dcgraph.debug`, for an answer has to come to the CPU.

    Args:
        check: raises what is wrong on this rank, or returns what was given.
        facts: makes of that the number of own rows and what must be the same on all ranks.
    """
    rank_in(group)
    error: Exception | None = None
    try:
        given = check()
        own, alike = facts(given)
        said = f"{own} {json.dumps(alike, separators=(',', ':'))}"
    except (TypeError, ValueError) as wrong:
        error, said = wrong, f"! {wrong}"
    known = _agreed.setdefault(group, {})
    if error is None and said in known and not may_read(torch.empty((), device=device)):
        return given, known[said]
    heard = _exchanged(said, group, device)
    if error is not None:
        raise error
    counts = _compared(heard, group)
    shard = Shard(group, sum(counts[: dist.get_rank(group)]), sum(counts))
    if not shard.rows:
        raise ValueError("the codebook has no row on any rank; at least one is needed.")
    known[said] = shard
    return given, shard


def _exchanged(said: str, group: dist.ProcessGroup, device: torch.device) -> list[str]:
    """What each rank of the group says; a sum of what is zero elsewhere, as all backends can."""
    size = 8 * _WORDS
    text = said.encode()[:size].ljust(size)
    table = torch.zeros(dist.get_world_size(group), _WORDS, dtype=torch.int64)
    table[dist.get_rank(group)] = torch.frombuffer(bytearray(text), dtype=torch.int64)
    table = table.to(device)
    dist.all_reduce(table, group=group)
    rows = table.cpu().view(torch.uint8).tolist()
    return [bytes(row).decode(errors="ignore").rstrip() for row in rows]


def _compared(heard: list[str], group: dist.ProcessGroup) -> list[int]:
    """The rows of each rank, if all ranks mean the same call."""
    names = [f"rank {rank}" for rank in dist.get_process_group_ranks(group)]
    for name, text in zip(names, heard, strict=True):
        if text.startswith("!"):
            raise ValueError(f"{name} could not take part in this call: {text[2:]}")
    counts, facts = zip(*(text.split(" ", 1) for text in heard), strict=True)
    first = json.loads(facts[0])
    for name, text in zip(names, facts, strict=True):
        other = json.loads(text)
        for what, value in first.items():
            if other.get(what) != value:
                raise ValueError(
                    f"{what}: {value} on {names[0]}, but {other.get(what)} on {name}; a codebook "
                    "is divided by its rows only, and every rank makes the same call."
                )
    return [int(count) for count in counts]


def own_rows(codebook: Tensor) -> Tensor:
    """Of a DTensor what is here; any other tensor as it is."""
    local: Tensor = codebook.to_local() if hasattr(codebook, "to_local") else codebook
    return local


def reduce(value: Tensor, group: dist.ProcessGroup, op: dist.ReduceOp.RedOpType) -> Tensor:
    """In place, over the ranks of the group."""
    dist.all_reduce(value, op=op, group=group)
    return value
