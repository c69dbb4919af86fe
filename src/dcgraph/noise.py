"""Gumbel noise with a fine tail, and how all random numbers of the library are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._arguments import Distribution, check_choice
from ._checks import Dial, broadcasts_into, check_dial, may_read, read

__all__ = ["Distribution", "Noise", "gumbel"]

Noise = Float[Tensor, "..."] | Distribution
"""Noise of scale 1: a tensor to replay, or the distribution to draw it from."""

_BITS = 62


def gumbel(
    shape: Sequence[int],
    *,
    beta: Dial = 1.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    r"""Gumbel(0, beta) noise: :math:`\epsilon = -\beta \log E` with :math:`E \sim` Exp(1).

    Always finite, between -2.9 beta and 44 beta in float32. The upper tail, which decides an
    argmax, is fine because E = -log(1 - u) is formed from 62 random bits that keep their relative
    precision near u = 0. (torch's own samplers on CUDA and in compiled code stop at E = 6e-8, that
    is at 16.6: among 10 million equal categories the winner is then often a tie.)

    >>> import torch, dcgraph as dc
    >>> dc.gumbel([2, 3], beta=0.0)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    check_dial("beta", beta)
    if isinstance(beta, Tensor) and not broadcasts_into(beta.shape, shape):
        raise ValueError(
            f"beta has shape {tuple(beta.shape)}, which does not broadcast to the shape "
            f"{tuple(shape)} of the noise; give it that shape, with 1 where it is shared."
        )
    if is_zero(beta):
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    compute_dtype = torch.promote_types(dtype, torch.float32)
    return (draw_gumbel(shape, generator, compute_dtype, device) * beta).to(dtype)


def is_zero(beta: Dial) -> bool:
    """Whether it is the number 0, not a tensor: only that is known without reading values."""
    return isinstance(beta, int | float) and beta == 0


def random_keys(
    count: int, device: torch.device, generator: torch.Generator | None = None
) -> Int[Tensor, " {count}"]:
    """Random int64 from that generator, or torch's global one of that device."""
    return torch.randint(1 << _BITS, (count,), device=device, **_from(generator))


def draw_uniform(
    shape: Sequence[int], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Float32 in [0, 1)."""
    return torch.rand(tuple(shape), dtype=torch.float32, device=device, **_from(generator))


def draw_gumbel(
    shape: Sequence[int],
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Tensor:
    """Gumbel(0, 1) in float32 or float64."""
    bits = torch.randint(1 << _BITS, tuple(shape), device=device, **_from(generator))
    # The largest float below 1 as a factor keeps u < 1, the half step keeps u > 0.
    scale = (1 - torch.finfo(dtype).eps / 2) * 2.0**-_BITS
    minus_exponential = bits.to(dtype).add_(0.5).mul_(-scale).log1p_()
    return minus_exponential.neg_().log_().neg_()


def _from(generator: torch.Generator | None) -> dict[str, Any]:
    # torch.compile cannot pass generator=None on to a draw whose shape varies.
    return {} if generator is None else {"generator": generator}


def check_noise(noise: Noise | None, logits: Tensor) -> None:
    """None, the name of a distribution, or finite noise of the shape of the logits."""
    if isinstance(noise, Tensor):
        if noise.shape != logits.shape:
            raise ValueError(
                f"noise has shape {tuple(noise.shape)}, but the logits {tuple(logits.shape)}; "
                "noise to replay has the shape of the logits."
            )
        if may_read(noise) and read(noise.detach().isfinite().all()) == 0:
            raise ValueError("noise has infinite or NaN entries; replay what dcgraph.gumbel drew.")
    elif noise is not None:
        check_choice("noise", noise, get_args(Distribution))


def standard_noise(noise: Noise | None, theta: Tensor, generator: torch.Generator | None) -> Tensor:
    """Noise of scale 1 for theta: replayed or drawn."""
    if isinstance(noise, Tensor):
        return noise.to(theta.dtype)
    drawn = draw_gumbel(theta.shape, generator, theta.dtype, theta.device)
    return drawn.neg_() if noise == "reversed" else drawn
