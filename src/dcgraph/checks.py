"""Checks of arguments. Every error says the argument, its value and the remedy.

Python values and shapes are always checked. Checks that must read the values of a tensor run where
that is cheap and possible: in eager mode on the CPU, and on CUDA inside :func:`debug`. A compiled,
captured or vmapped call skips them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

Dial = int | float | Float[Tensor, "..."]
"""A setting of a node: a number, or a tensor that broadcasts against the logits."""

_reads_cuda = False


@contextmanager
def debug() -> Iterator[None]:
    """Also check tensor values on CUDA, at the price of a synchronisation in every call.

    >>> import dcgraph as dc
    >>> with dc.debug():
    ...     z = dc.gumbel_softmax(torch.zeros(2, 3))
    """
    global _reads_cuda
    before, _reads_cuda = _reads_cuda, True
    try:
        yield
    finally:
        _reads_cuda = before


def _may_read(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling() or tensor.is_meta:
        return False
    return not tensor.is_cuda or (_reads_cuda and not torch.cuda.is_current_stream_capturing())


def read(value: Tensor) -> float | None:
    """The value of a one-element tensor, or None where it cannot or should not be read."""
    if not _may_read(value):
        return None
    try:
        return float(value)
    except RuntimeError:  # vmap and fake tensors have no values; torch offers no public way to ask
        return None


def closest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: what was probably meant, and what there is."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    there_are = f"here are: {', '.join(known)}."
    return f"did you mean {near[0]!r}? T{there_are}" if near else f"t{there_are}"


def check_choice(argument: str, value: str, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        raise ValueError(f"{argument}={value!r} is unknown; {closest(value, known)}")


_DIAL_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "tau": (
        lambda tau: 0 < tau < math.inf,
        "a temperature is > 0; for hard choices use hard=True or dcgraph.argmax.",
    ),
    "beta": (lambda beta: 0 <= beta < math.inf, "a noise scale is >= 0; 0 means no noise."),
    "alpha": (lambda alpha: 0 <= alpha <= 1, "the share of dropped residuals lies in [0, 1]."),
}


def check_dial(argument: str, value: Dial) -> None:
    """tau > 0, beta >= 0, 0 <= alpha <= 1, for a number or for every entry of a tensor."""
    allowed, remedy = _DIAL_RANGES[argument]
    extremes: list[float | None]
    if not isinstance(value, Tensor):
        extremes = [value]
    elif value.numel() == 1:
        extremes = [read(value.detach())]
    elif _may_read(value) and value.numel():  # a NaN entry shows in both extremes
        extremes = [read(extreme) for extreme in value.detach().aminmax()]
    else:
        extremes = []
    for extreme in extremes:
        if extreme is not None and not allowed(extreme):
            raise ValueError(f"{argument}={extreme:.6g}, but {remedy}")


def check_logits(logits: Tensor, dim: int) -> None:
    if not logits.is_floating_point():
        raise TypeError(f"logits have dtype {logits.dtype}; pass floating point logits.")
    if logits.ndim == 0:
        raise ValueError("logits have no dimension; pass at least one dimension of categories.")
    if not -logits.ndim <= dim < logits.ndim:
        raise ValueError(f"dim={dim} is not a dimension of logits of shape {tuple(logits.shape)}.")
    if logits.shape[dim] == 0:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} have no categories in dimension {dim}; "
            "at least one is needed."
        )


def check_broadcasts(argument: str, value: Dial, logits: Tensor, dim: int) -> None:
    """A dial tensor has one value per row: size 1 along ``dim``, and it never enlarges the logits.

    Without this rule a [B] tensor against [B, K] logits would silently mean one value per
    *category* whenever B == K.
    """
    if not isinstance(value, Tensor) or value.ndim == 0:
        return
    shape = (1,) * (logits.ndim - value.ndim) + tuple(value.shape)
    fits = len(shape) == logits.ndim and all(
        have in (1, want) for have, want in zip(shape, logits.shape, strict=True)
    )
    if not fits or shape[dim] != 1:
        want = list(logits.shape)
        want[dim] = 1
        raise ValueError(
            f"{argument} has shape {tuple(value.shape)}, which is not one value per row of logits "
            f"of shape {tuple(logits.shape)}; give it shape {tuple(want)}, for example with "
            f"{argument}.unsqueeze({dim})."
        )


def check_rows(logits: Tensor, dim: int, tau: Dial = 1.0) -> bool:
    """Raise for NaN, +inf and rows without any category left; False where nothing could be read.

    One pass over the logits: the largest entry of a row shows all of these at once.
    """
    if not _may_read(logits):
        return False
    top = logits.detach().amax(dim, keepdim=True)
    fine = read(torch.isfinite(top / tau).all())
    if fine is not None and not fine:
        _explain_rows(top, dim, tau)
    return fine is not None


def _explain_rows(top: Tensor, dim: int, tau: Dial) -> None:
    def first(bad: Tensor) -> str:
        row = bad.squeeze(dim).nonzero()[0].tolist()
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
    bad = ~torch.isfinite(top / tau)
    raise ValueError(
        f"logits / tau overflows in {first(bad)}; use a larger tau, or hard=True with tau=1."
    )
