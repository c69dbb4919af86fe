r"""ReinMax and its kin: hard choices with a second-order gradient.

With D ~ p the choice, g the gradient that arrives at it and J(q) = diag(q) - q q^T,

.. math::
    2 J(\tfrac{p_\tau + D}{2}) g - \tfrac12 J(p) g
    = J(p_\tau) g + \tfrac12 (D - p_\tau) \langle D - p_\tau, g \rangle - \tfrac12 J(p) g

is ReinMax (Liu et al., 2023). Where the two temperatures are one, it is half straight-through and
half DARN, which is ZGR (Shekhovtsov, 2023), and unbiased for quadratic functions of D.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._checks import Dial
from ..noise import Noise
from ._draws import SAMPLES, Draw, check_gumbel, check_samples, draw

__all__ = ["reinmax", "reinmax_cv", "reinmax_rao", "zgr"]


def zgr(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""The limit of Gumbel-Rao at temperature 0 (Shekhovtsov, 2023), in closed form.

    Forward D ~ p = softmax(theta / beta), backward
    :math:`\frac{1}{2\tau} [J(p) g + (D - p) \langle D - p, g \rangle]`. tau is no temperature here,
    only the unit of the gradient. At beta = 0 the choice is certain and nothing comes back, so
    with TempMatch it learns only once there is some noise.
    """
    check_gumbel("zgr", noise)
    drawn = draw(logits, tau, beta, mask, noise, generator)
    p = drawn.softmax(drawn.scale)
    soft = (p * drawn.scale + drawn.darn(p)) / (2 * tau)
    return drawn.with_gradient_of(soft, logits.dtype)


def reinmax(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""ReinMax: second-order accurate, at the price of a straight-through estimator.

    Forward D ~ p = softmax(theta / beta), backward, with p_tau = softmax(theta / tau),
    :math:`\frac{1}{\tau} [2 J(\frac{p_\tau + D}{2}) g - \frac{1}{2} J(p) g]`. The paper has
    beta = 1, tau >= 1 and no factor 1 / tau.
    """
    check_gumbel("reinmax", noise)
    drawn = draw(logits, tau, beta, mask, noise, generator)
    p_tau = drawn.softmax(tau)
    soft = p_tau + drawn.darn(p_tau) / (2 * tau) - _half_of_straight_through(drawn)
    return drawn.with_gradient_of(soft, logits.dtype)


def reinmax_rao(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    samples: int = SAMPLES,
) -> Float[Tensor, "*batch categories"]:
    r"""ReinMax whose first Jacobian is that of Gumbel-Rao (Wang and Bui, 2026).

    In the place of :math:`J((p + D) / 2)` stands the mean Jacobian of Gumbel-softmax at the
    log-probabilities :math:`\log((p + D) / 2)` and temperature tau / beta, over noise that chooses
    D again.
    """
    check_gumbel("reinmax_rao", noise)
    check_samples(samples)
    drawn = draw(logits, tau, beta, mask, noise, generator)
    soft = 2 * drawn.rao(_midway(drawn), samples, generator) - _half_of_straight_through(drawn)
    return drawn.with_gradient_of(soft, logits.dtype)


def reinmax_cv(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    samples: int = SAMPLES,
    eta: int | float = 1.0,
) -> Float[Tensor, "*batch categories"]:
    r"""ReinMax with a control variate (Wang and Bui, 2026).

    To ReinMax with both temperatures beta it adds eta times the difference of two Jacobians at the
    log-probabilities :math:`\log((p + D) / 2)` and temperature tau / beta: that of Gumbel-Rao, less
    that of Gumbel-softmax with the noise that made the choice. That noise was drawn for other
    log-probabilities, so the difference is not quite 0 in the mean, and ``eta`` trades bias for
    variance.
    """
    check_gumbel("reinmax_cv", noise)
    check_samples(samples)
    drawn = draw(logits, tau, beta, mask, noise, generator, keeps_noise=True)
    p = drawn.softmax(drawn.scale)
    second_order = (p * drawn.scale + drawn.darn(p)) / (2 * tau)
    shifted = _midway(drawn)
    if drawn.noise is not None:
        shifted = shifted + drawn.noise
    once = drawn.softmax(tau, drawn.moved(shifted * drawn.scale))
    variate = drawn.rao(_midway(drawn), samples, generator) - once
    return drawn.with_gradient_of(second_order + eta * variate, logits.dtype)


def _half_of_straight_through(drawn: Draw) -> Tensor:
    r"""Its gradient is :math:`\frac{1}{2 \tau} J(p) g`."""
    return drawn.softmax(drawn.scale) * drawn.scale / (2 * drawn.tau)


def _midway(drawn: Draw) -> Tensor:
    """log((p + D) / 2), without gradient."""
    log_p = drawn.log_p()
    return torch.where(drawn.hard > 0, log_p.exp().log1p(), log_p) - math.log(2)
