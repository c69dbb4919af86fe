"""The four functions: mix, choose, logsumexp and cross_entropy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._checks import (
    Dial,
    check_dial,
    check_mask,
    check_one_per_row,
    check_rows,
    may_read,
    read,
)
from ..distributed._shards import agree, eager, own_rows
from ..noise import Noise, check_noise, drawn_alike, is_zero, random_keys
from . import _operators as operators
from . import _sharded as sharded
from ._problem import (
    STREAMING_DIM,
    Found,
    Implementation,
    Problem,
    can_stream,
    fastest,
    index_for_export,
    scan_dense,
)

_DTYPES = torch.float32, torch.bfloat16, torch.float16, torch.float64


def mix(
    query: Float[Tensor, "*batch dim"],
    codebook: Float[Tensor, "*groups categories dim"],
    tau: Dial = 1.0,
    *,
    beta: Dial = 1.0,
    hard: bool = False,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "*batch dim"]:
    r"""A mixture of codebook rows: :math:`v = z^\top C`, z = softmax((C q + beta G) / tau).

    It is ``gumbel_softmax(query @ codebook.T, tau, beta=beta) @ codebook``, for codebooks of
    millions of rows: beyond some size no matrix of all logits is ever made, neither in the forward
    nor in the backward pass, which draws the same noise again.

    Args:
        query: q, [..., dim].
        codebook: C, [categories, dim]. With further dimensions in front, which are also the first
            ones of the query, every group of queries has a codebook of its own.
        tau: temperature > 0, a number or a tensor with one value per query, [..., 1].
        beta: scale of the noise >= 0, likewise.
        hard: return the row with the largest logit after noise, to the bit, with the gradient of
            the mixture (straight-through).
        mask: True where a category may be chosen, broadcast against the logits [..., categories].
        noise: a tensor G of scale 1 to replay, or the distribution to draw it from: "gumbel", or
            "reversed" for -G.
        generator: where the seed of the noise is drawn from; None is torch's global generator.
        group: the ranks of torch.distributed over which the rows of the codebook are divided: the
            codebook has only the own rows then, and mask and noise have their columns. See
            :func:`dcgraph.distributed.shard_rows`.

    >>> import torch, dcgraph as dc
    >>> codebook = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> dc.mix(torch.tensor([3.0, 0.0]), codebook, beta=0.0)
    tensor([0.9480, 0.0473])
    """
    call = "mix, hard" if hard else "mix"
    p, batch = make_problem(query, codebook, tau, beta, mask, noise, generator, group, call=call)
    value, *_ = solve(p, mixes=True, chooses=hard)
    return value.reshape(*batch, codebook.shape[-1])


def choose(
    query: Float[Tensor, "*batch dim"],
    codebook: Float[Tensor, "*groups categories dim"],
    *,
    beta: Dial = 1.0,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    group: dist.ProcessGroup | None = None,
) -> tuple[Int[Tensor, "*batch"], Float[Tensor, "*batch dim"]]:
    r"""Index and codebook row of a draw from softmax(query . codebook / beta), by Gumbel-max.

    ``beta=0.0`` is the argmax. A query for which all is masked has the index -1 and a row of zeros.
    The row has a gradient in the codebook, none in the query: for that see ``mix(..., hard=True)``.
    Arguments as in :func:`mix`.

    >>> import torch, dcgraph as dc
    >>> codebook = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> dc.codebook.choose(torch.tensor([[0.0, 3.0]]), codebook, beta=0.0)
    (tensor([1]), tensor([[0., 1.]]))
    """
    p, batch = make_problem(
        query, codebook, 1.0, beta, mask, noise, generator, group, call="choose"
    )
    with torch.no_grad():
        if torch.compiler.is_exporting():
            index = index_for_export(p)
        else:
            _, _, index, _ = solve(p, mixes=False, chooses=True)
    row = rows_at(p, index)
    return index.reshape(batch), row.reshape(*batch, codebook.shape[-1])


def logsumexp(
    query: Float[Tensor, "*batch dim"],
    codebook: Float[Tensor, "*groups categories dim"],
    tau: Dial = 1.0,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "*batch"]:
    r"""The log-partition :math:`\log \sum_j \exp(\langle q, C_j \rangle / \tau)`, in float32.

    Arguments as in :func:`mix`.

    >>> import torch, dcgraph as dc
    >>> dc.codebook.logsumexp(torch.zeros(1, 4), torch.randn(1000, 4))
    tensor([6.9078])
    """
    p, batch = make_problem(query, codebook, tau, 0.0, mask, None, None, group, call="logsumexp")
    _, lse, _, _ = solve(p, mixes=False, chooses=False)
    return lse.reshape(batch)


def cross_entropy(
    query: Float[Tensor, "*batch dim"],
    codebook: Float[Tensor, "*groups categories dim"],
    target: Int[Tensor, "*batch"],
    tau: Dial = 1.0,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "*batch"]:
    r"""The loss of every query against all rows: -log softmax(query . codebook / tau)[target].

    One number per query in float32; take the mean yourself. A target that is masked costs infinity.
    Other arguments as in :func:`mix`.

    >>> import torch, dcgraph as dc
    >>> codebook = torch.tensor([[5.0, 0.0], [0.0, 5.0]])
    >>> dc.codebook.cross_entropy(torch.tensor([[1.0, 0.0]]), codebook, torch.tensor([0]))
    tensor([0.0067])
    """
    p, batch = make_problem(
        query, codebook, tau, 0.0, mask, None, None, group, call="cross_entropy", target=target
    )
    _, loss, _, _ = solve(p, mixes=False, chooses=False)
    return loss.reshape(batch)


def by_distance(
    query: Float[Tensor, "*batch dim"], codebook: Float[Tensor, "*groups categories dim"]
) -> tuple[Float[Tensor, "*batch dim+1"], Float[Tensor, "*groups categories dim+1"]]:
    r"""Query and codebook one entry longer, so that their products choose by distance.

    :math:`\langle (q, 1), (C_j, -|C_j|^2 / 2) \rangle = (|q|^2 - |q - C_j|^2) / 2`. So the argmax
    is the row nearest to the query, as vector quantisation has it, and the softmax is that of
    :math:`-|q - C_j|^2 / 2`. All functions here take the two, and so does a node with
    ``codebook="given"``. Leave out the last entry of the vectors that come back.

    Half precision has too few digits for squared lengths: it comes back as float32. Under autocast,
    which would round them again, switch it off for the call that follows.

    >>> import torch, dcgraph as dc
    >>> query, codebook = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.5], [9.0, 0.0]])
    >>> index, row = dc.codebook.choose(*dc.codebook.by_distance(query, codebook), beta=0.0)
    >>> index, row[:, :-1]
    (tensor([0]), tensor([[1.0000, 0.5000]]))
    """
    _check_pair(query, codebook)
    dtype = torch.promote_types(torch.promote_types(query.dtype, codebook.dtype), torch.float32)
    query, codebook = query.to(dtype), codebook.to(dtype)
    below = codebook.square().sum(-1, keepdim=True) / -2
    longer = torch.cat([query, torch.ones_like(query[..., :1])], -1)
    return longer, torch.cat([codebook, below], -1)


def solve(p: Problem, *, mixes: bool, chooses: bool) -> Found:
    """Value, log-sum-exp, argmax and maximum by the right implementation, and checked.

    Arguments and result as in :func:`._operators.scan`.
    """
    if p.shard is not None:
        with torch.autocast(p.query.device.type, enabled=False):
            found = sharded.solve(p, mixes=mixes, chooses=chooses)
        check_rows(found[3].unsqueeze(-1), -1)
        return found
    implementation = fastest(p) if _forced is None else _forced
    if implementation == "streaming" and not can_stream(p):
        raise ValueError(
            "the streaming implementation is for CUDA with Triton, float32 or bfloat16, and a "
            f"width of at most {STREAMING_DIM}; take another one."
        )
    with torch.autocast(p.query.device.type, enabled=False):
        if implementation == "dense":
            found = scan_dense(p, mixes=mixes, chooses=chooses)
        else:
            found = operators.scan(p, implementation, mixes=mixes, chooses=chooses)
    check_rows(found[3].unsqueeze(-1), -1)
    return found


def rows_at(p: Problem, index: Tensor) -> Tensor:
    """Rows [groups, rows, dim] of the whole codebook, zeros for -1."""
    if p.shard is not None:
        return sharded.rows_at(p.codebook, index, p.shard)
    return p.codes(index.clamp(min=0)).masked_fill(index.unsqueeze(-1) < 0, 0.0)


_forced: Implementation | None = None


@contextmanager
def using(implementation: Implementation | None) -> Iterator[None]:
    """Take that implementation of all four functions, None for the fastest: tests compare them."""
    global _forced
    before, _forced = _forced, implementation
    try:
        yield
    finally:
        _forced = before


def make_problem(
    query: Tensor,
    codebook: Tensor,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    group: dist.ProcessGroup | None = None,
    *,
    call: str = "mix",
    target: Tensor | None = None,
) -> tuple[Problem, tuple[int, ...]]:
    """The problem, and the shape of the batch, which it has as [groups, rows].

    ``call`` says which one it is, to ranks that might make another one.
    """

    codebook = codebook if group is None else own_rows(codebook)

    def checked() -> Tensor:
        value = _checked(query, codebook, empty=group is not None)
        batch = tuple(value.shape[:-1])
        logits = value[..., :1].expand(*batch, codebook.shape[-2])  # as far as shapes go
        check_dial("tau", tau)
        check_dial("beta", beta)
        check_one_per_row("tau", tau, "logits", logits, -1)
        check_one_per_row("beta", beta, "logits", logits, -1)
        check_noise(noise, logits)
        if mask is not None:
            check_mask(mask, logits)
        if target is not None:
            _check_target(target, batch)
        return value

    def facts(query: Tensor) -> tuple[int, dict[str, object]]:
        draws = not isinstance(noise, Tensor) and not is_zero(beta)
        learned = (query, *(dial for dial in (tau, beta) if isinstance(dial, Tensor)))
        learned = learned if torch.is_grad_enabled() else ()
        return codebook.shape[-2], {
            "call": call,
            "width": codebook.shape[-1],
            "codebooks": list(codebook.shape[:-2]),
            "queries": list(query.shape),
            "types": [str(query.dtype), str(codebook.dtype)],
            "draws noise": draws,
            "learned": [value.requires_grad for value in learned],
        }

    shard = None
    if group is None:
        query = checked()
    else:
        if torch.compiler.is_exporting():
            raise ValueError("a codebook divided over ranks cannot be exported; gather it first.")
        query, shard = agree(group, query.device, checked, facts)
    batch, (n, dim) = tuple(query.shape[:-1]), codebook.shape[-2:]
    if target is not None:
        _check_range(target, n if shard is None else shard.rows)
    groups = math.prod(codebook.shape[:-2])
    rows = math.prod(batch[codebook.ndim - 2 :])
    compute_dtype = torch.promote_types(query.dtype, torch.float32)

    def per_row(dial: Dial) -> Tensor:
        if isinstance(dial, Tensor):
            return dial.to(query.device, compute_dtype).expand(*batch, 1).reshape(groups, rows)
        # Filled on the device: a copy from the host would break a capture.
        return torch.full((groups, rows), dial, dtype=compute_dtype, device=query.device)

    def per_logit(value: Tensor) -> Tensor:
        return value.expand(*batch, n).reshape(groups, rows, n)

    noisy = not is_zero(beta)
    if noisy and not isinstance(noise, Tensor):
        keys = _keys(groups * rows, query.device, generator, group)
    else:
        keys = torch.zeros(groups * rows, dtype=torch.int64, device=query.device)
    p = Problem(
        query.reshape(groups, rows, dim),
        codebook.reshape(groups, n, dim),
        per_row(tau),
        -per_row(beta) if isinstance(noise, str) and noise == "reversed" else per_row(beta),
        keys.view(groups, rows),
        per_logit(noise).to(compute_dtype) if noisy and isinstance(noise, Tensor) else None,
        None if mask is None else per_logit(mask),
        None if target is None else target.reshape(groups, rows),
        None,
        noisy,
        shard,
    )
    return p, batch


def _keys(
    count: int,
    device: torch.device,
    generator: torch.Generator | None,
    group: dist.ProcessGroup | None,
) -> Tensor:
    return (
        random_keys(count, device, generator)
        if group is None
        else _shared_keys(count, device, generator, group)
    )


@eager
def _shared_keys(
    count: int,
    device: torch.device,
    generator: torch.Generator | None,
    group: dist.ProcessGroup,
) -> Tensor:
    """Those of the first rank: all ranks of the group perturb the same queries alike."""
    with drawn_alike(group):
        return random_keys(count, device, generator)


def _check_pair(query: Tensor, codebook: Tensor, empty: bool = False) -> None:
    """Types, shapes and devices of a query and a codebook, which may be ``empty`` or not."""
    for name, value in (("query", query), ("codebook", codebook)):
        if not isinstance(value, Tensor) or value.dtype not in _DTYPES:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
            raise TypeError(f"the {name} is of type {kind}; pass a tensor of {known}.")
    if hasattr(codebook, "to_local"):
        raise ValueError("the codebook is a DTensor, divided over ranks; pass these as group=.")
    if query.ndim < 1 or codebook.ndim < 2:
        raise ValueError(
            f"query and codebook have shapes {tuple(query.shape)} and {tuple(codebook.shape)}; "
            "pass vectors [..., dim] and a matrix [categories, dim]."
        )
    if query.device != codebook.device:
        raise ValueError(
            f"the query is on {query.device}, the codebook on {codebook.device}; "
            "move one to the device of the other."
        )
    if query.shape[-1] != codebook.shape[-1]:
        raise ValueError(
            f"the query has width {query.shape[-1]}, but the rows of the codebook have "
            f"{codebook.shape[-1]}; logits are products of the two, so make the widths equal."
        )
    if (codebook.shape[-2] == 0 and not empty) or codebook.shape[-1] == 0:
        raise ValueError(
            f"the codebook of shape {tuple(codebook.shape)} is empty; "
            "at least one row of at least one entry is needed."
        )
    lead = codebook.shape[:-2]
    if query.shape[: len(lead)] != lead:
        raise ValueError(
            f"the codebook has the dimensions {tuple(lead)} in front of its rows, which must also "
            f"be the first ones of the query, of shape {tuple(query.shape)}; expand one of them."
        )


def _checked(query: Tensor, codebook: Tensor, empty: bool) -> Tensor:
    """The query, in the dtype of autocast if that is on."""
    _check_pair(query, codebook, empty)
    device = query.device.type
    if torch.is_autocast_enabled(device) and query.dtype == torch.float32:
        return query.to(torch.get_autocast_dtype(device))
    if query.dtype != codebook.dtype and not torch.is_autocast_enabled(device):
        raise TypeError(
            f"the query is {query.dtype}, the codebook {codebook.dtype}; "
            "convert one of them, or use torch.autocast."
        )
    return query


def _check_target(target: Any, batch: tuple[int, ...]) -> None:
    if not isinstance(target, Tensor) or target.is_floating_point() or target.dtype == torch.bool:
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise TypeError(f"target is of type {kind}; pass the indices of rows as integers.")
    if tuple(target.shape) != batch:
        raise ValueError(
            f"target has shape {tuple(target.shape)}, but there is one for each query: {batch}."
        )


def _check_range(target: Tensor, n: int) -> None:
    if target.numel() and may_read(target):
        low, high = map(read, target.aminmax())
        if low is not None and high is not None and not 0 <= low <= high < n:
            wrong = low if low < 0 else high
            raise ValueError(f"target={wrong:.0f} is no row of a codebook of {n} rows.")
