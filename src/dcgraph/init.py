"""Where the choices of a model start."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._arguments import check_number

__all__ = ["favour_"]


def favour_(
    logits: Float[Tensor, "*shape categories"] | nn.Linear,
    category: int,
    probability: int | float = 0.9,
) -> Float[Tensor, "*shape categories"] | nn.Linear:
    r"""Start choices in favour of one category: p(category) = probability, the others alike.

    The logits become 0, and that of the category :math:`\log \frac{p (K - 1)}{1 - p}`. For a gate
    whose category is "let the input through", this starts a deep network as a shallow one.

    Args:
        logits: in place, a parameter [..., K]; or the linear layer that computes the logits, whose
            bias they become. Its weights stay, so that there the favour holds on the average.
        category: which one.
        probability: of it, in (0, 1). 1/K favours nothing; near 1 hardly any gradient is left.

    >>> import torch, dcgraph as dc
    >>> gates = torch.nn.Parameter(torch.randn(100, 16))
    >>> dc.init.favour_(gates, category=3).softmax(-1)[0, 2:5]
    tensor([0.0067, 0.9000, 0.0067], grad_fn=<SliceBackward0>)
    """
    if isinstance(logits, nn.Linear):
        if logits.bias is None:
            raise ValueError("the layer has no bias to favour a category with; use bias=True.")
        favour_(logits.bias, category, probability)
        return logits
    if not (isinstance(logits, Tensor) and logits.is_floating_point()):
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(
            f"logits are a {kind}; pass the parameter, or the torch.nn.Linear that makes them."
        )
    if not logits.ndim:
        raise ValueError("logits are a single number; pass one for each category, [..., K].")
    categories = logits.shape[-1]
    if isinstance(category, bool) or not isinstance(category, int):
        raise TypeError(f"category={category!r} is a {type(category).__name__}; pass its number.")
    if not 0 <= category < categories:
        raise ValueError(f"category={category}, but there are categories 0 to {categories - 1}.")
    check_number("probability", probability, "pass a number between 0 and 1.")
    if not 0 < probability < 1:
        raise ValueError(
            f"probability={probability}, but no finite logits give 0 or 1; use a number between."
        )
    with torch.no_grad():
        logits.zero_()
        if categories > 1:
            odds = probability / (1 - probability)
            logits[..., category] = math.log(odds * (categories - 1))
    return logits
