"""Arguments that are names or numbers: what they may be, and the error for anything else.

Every error says the argument, its value and the remedy. Nothing here needs torch, so that settings,
tables and the command line can be checked without it; tensors are checked in :mod:`._checks`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection
from numbers import Real
from typing import Literal

Decode = Literal["argmax", "sample"]
"""How a node chooses in eval mode."""

EstimatorName = Literal[
    "gumbel_softmax",
    "straight_through_gumbel_softmax",
    "straight_through",
    "gumbel_rao",
    "gapped_straight_through",
    "zgr",
    "reinmax",
    "reinmax_rao",
    "reinmax_cv",
    "imle",
    "adaptive_imle",
    "sparsemax",
    "entmax15",
    "reinforce",
    "rebar",
    "relax",
    "topk_sparsemax",
    "enumeration",
    "rotation",
]
"""The gradient estimators that come with the library, see :mod:`dcgraph.estimators`."""

Residual = Literal["drop", "replace", "weighted", "always", "none"]
"""What a Discrete node does with its input beside its output in training mode."""

Codebook = Literal["tied", "separate", "given"]
"""Where a Discrete node has its codebook from."""

Similarity = Literal["product", "distance"]
"""What makes the logits of a Discrete node from its input and the rows of its codebook."""

Gate = Literal["call", "example", "vector", "element"]
"""How much shares one draw of the DropRes gate."""

Mode = Literal["drop", "replace", "weighted", "always"]
"""What DropRes does with the residual in training mode."""

Distribution = Literal["gumbel", "reversed"]
"""What noise is drawn: Gumbel(0, 1), or its negative, which the paper's released code drew."""


def closest(name: object, known: Collection[str]) -> str:
    """The end of a sentence about an unknown name: what was probably meant, and what there is."""
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    there_are = f"here are: {', '.join(known)}."
    return f"did you mean {near[0]!r}? T{there_are}" if near else f"t{there_are}"


def shown(value: object) -> str:
    """A value for a line of text: as Python writes it, cut if it is long.

    >>> shown("adam"), shown("x" * 1000)[-8:]
    ("'adam'", 'xxxxx...')
    """
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_SHOWN = 60


def check_choice(argument: str, value: object, known: Collection[str]) -> None:
    if not isinstance(value, str):
        kind = type(value).__name__
        raise TypeError(f"{argument} is a {kind}, but a name is needed; {closest(kind, known)}")
    if value not in known:
        raise ValueError(f"{argument}={shown(value)} is unknown; {closest(value, known)}")


def check_number(argument: str, value: object, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{argument}={shown(value)} is a {type(value).__name__}; {remedy}")


_DIAL_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "tau": (
        lambda tau: 0 < tau < math.inf,
        "a temperature is > 0 and finite; for hard choices use hard=True or dcgraph.argmax.",
    ),
    "beta": (
        lambda beta: 0 <= beta < math.inf,
        "a noise scale is >= 0 and finite; 0 means no noise.",
    ),
    "alpha": (lambda alpha: 0 <= alpha <= 1, "the share of dropped residuals lies in [0, 1]."),
}


def check_range(dial: str, value: int | float) -> None:
    """tau > 0, beta >= 0, 0 <= alpha <= 1."""
    allowed, remedy = _DIAL_RANGES[dial]
    if not allowed(value):
        raise ValueError(f"{dial}={value:.6g}, but {remedy}")
