"""Checks of tensors and of arguments that may be tensors.

Every error says the argument, its value and the remedy.

Python values and shapes are always checked. Checks that must read the values of a tensor run where
that is cheap and possible: in eager mode on the CPU, and on a GPU inside :func:`debug`. A compiled,
captured or vmapped call skips them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor

from ._arguments import check_range

Dial = int | float | Float[Tensor, "..."]
"""A setting of a node: a number, or a tensor that broadcasts against the logits."""

_reads_devices: ContextVar[bool] = ContextVar("dcgraph reads values on devices", default=False)
_reads_anything: ContextVar[bool] = ContextVar("dcgraph reads values", default=True)


@contextmanager
def debug() -> Iterator[None]:
    """Also check tensor values on a GPU, at the price of a synchronisation in every call.

    Only in this thread.

    >>> import torch, dcgraph as dc
    >>> with dc.debug():
    ...     z = dc.gumbel_softmax(torch.zeros(2, 3))
    """
    before = _reads_devices.set(True)
    try:
        yield
    finally:
        _reads_devices.reset(before)


@contextmanager
def unchecked() -> Iterator[None]:
    """Check no tensor values: for a loop that looks at its results itself.

    Without it a diverging model stops the loop with an error instead of a loss that is not finite.
    """
    before = _reads_anything.set(False)
    try:
        yield
    finally:
        _reads_anything.reset(before)


def may_read(tensor: Tensor) -> bool:
    """Whether reading values is cheap here; vmap can still refuse, see :func:`read`."""
    if torch.compiler.is_compiling() or tensor.is_meta:
        return False
    if not _reads_anything.get():
        return False
    if tensor.is_cpu:
        return True
    capturing = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    return _reads_devices.get() and not capturing


def may_read_cpu() -> bool:
    """:func:`may_read`, of any tensor on the CPU."""
    return not torch.compiler.is_compiling() and _reads_anything.get()


def read(value: Tensor) -> float | None:
    """The value of a one-element tensor, or None where it cannot or should not be read."""
    return try_to_read(value) if may_read(value) else None


def try_to_read(value: Tensor) -> float | None:
    """The same, where :func:`may_read` has said yes."""
    try:
        return float(value)
    except RuntimeError:  # vmap and fake tensors have no values; torch offers no public way to ask
        return None


def may_have_nan(few: Tensor) -> bool:
    """False if :func:`may_read_cpu` has said yes and none of a few numbers is NaN.

    A tensor with a NaN does not equal itself; this is the fastest way to ask.
    """
    try:
        return not torch.equal(few, few)
    except RuntimeError:  # as in try_to_read
        return True


def check_dial(argument: str, value: Dial) -> tuple[float, float]:
    """tau > 0, beta >= 0, 0 <= alpha <= 1, for a number or for every entry of a tensor.

    Returns the smallest and the largest value; where they cannot be read, 1 stands in for both.
    """
    low: float | None
    high: float | None
    if isinstance(value, int | float):
        low = high = value
    elif not isinstance(value, Tensor):
        raise TypeError(f"{argument} is a {type(value).__name__}; pass a number or a tensor.")
    elif value.numel() == 1:
        low = high = read(value.detach())
    elif may_read(value) and value.numel():  # a NaN entry shows in both
        low, high = map(read, value.detach().aminmax())
    else:
        low = high = None
    if low is None or high is None:
        return 1.0, 1.0
    check_range(argument, low)
    check_range(argument, high)
    return float(low), float(high)


def check_logits(logits: Tensor, dim: int) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"logits are of type {kind}; pass a floating point tensor.")
    if logits.ndim == 0:
        raise ValueError("logits have no dimension; pass at least one dimension of categories.")
    if not -logits.ndim <= dim < logits.ndim:
        raise ValueError(f"dim={dim} is not a dimension of logits of shape {tuple(logits.shape)}.")
    if logits.shape[dim] == 0:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} have no categories in dimension {dim}; "
            "at least one is needed."
        )


def broadcasts_into(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a tensor of ``shape`` broadcasts against ``target`` without enlarging it."""
    return len(shape) <= len(target) and all(
        have in (1, want) for have, want in zip(reversed(shape), reversed(target), strict=False)
    )


def check_one_per_row(argument: str, value: Dial, of: str, tensor: Tensor, dim: int) -> None:
    """A dial tensor has one value per row: size 1 along ``dim``, and it enlarges nothing.

    Without this rule a [B] tensor against [B, K] logits would silently mean one value per
    *category* whenever B == K.
    """
    if not isinstance(value, Tensor) or value.ndim == 0:
        return
    rows = list(tensor.shape)
    rows[dim] = 1
    if not broadcasts_into(value.shape, rows):
        raise ValueError(
            f"{argument} has shape {tuple(value.shape)}, but one value per row of {of} of shape "
            f"{tuple(tensor.shape)} has shape {tuple(rows)}; reshape it, or pass a single number."
        )


def check_mask(mask: Tensor, logits: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask is of type {kind}; pass a bool tensor, True where a category may be chosen."
        )
    if not broadcasts_into(mask.shape, logits.shape):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, which does not broadcast to the shape "
            f"{tuple(logits.shape)} of the logits; give it that shape, with 1 where it is shared."
        )


def check_padding(rows: Tensor, batch: Sequence[int]) -> None:
    """Which rows are no padding: a bool for each."""
    if not isinstance(rows, Tensor) or rows.dtype != torch.bool or rows.shape != tuple(batch):
        kind = f"{rows.dtype} of shape {tuple(rows.shape)}" if isinstance(rows, Tensor) else rows
        raise ValueError(
            f"rows are {kind}; pass a bool tensor of shape {tuple(batch)}, one entry for each "
            "vector, False where it is padding."
        )


_LARGEST_NOISE = 44.0


def check_scale(scale: float, dtype: torch.dtype) -> None:
    """Noise of that scale, beta / tau, must not overflow by itself."""
    if not scale * _LARGEST_NOISE <= torch.finfo(dtype).max:
        say_overflow()


def check_rows(logits: Tensor, dim: int) -> bool:
    """Raise for NaN, +inf and rows without any category left.

    One pass over the logits: the largest entry of a row shows all of these, and their sum shows
    whether any row has one. The answer is False where no values could be read.
    """
    if not may_read(logits):
        return False
    total = try_to_read(logits.detach().amax(dim).sum())
    if total is None:
        return False
    if not math.isfinite(total):
        explain_rows(logits, dim)
    return True


def explain_rows(logits: Tensor, dim: int) -> None:
    """Raise for what is wrong with logits whose weights are not finite."""
    top = logits.detach().amax(dim)

    def first(bad: Tensor) -> str:
        row = bad.nonzero()[0].tolist()
        return "the only row" if not row else f"row {row[0] if len(row) == 1 else tuple(row)}"

    if (bad := top.isnan()).any():
        raise ValueError(
            f"logits are NaN in {first(bad)}; look for a diverged loss or a 0/0 before this node."
        )
    if (bad := top == math.inf).any():
        raise ValueError(
            f"logits are +inf in {first(bad)}; use finite logits, and -inf or mask= for categories "
            "that must not be chosen."
        )
    if (bad := top == -math.inf).any():
        raise ValueError(
            f"{first(bad)} has no category left: all are masked or -inf; "
            "leave at least one category in every row."
        )


def say_overflow() -> None:
    raise ValueError(
        "(logits + noise) / tau overflows; use a larger tau, a smaller beta or smaller logits."
    )
