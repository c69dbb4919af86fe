"""Implicit maximum likelihood (Niepert et al., 2021) and its adaptive form, for one choice."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._checks import Dial
from ..functional import one_hot
from ..noise import Noise
from ._draws import as_tensor, draw

__all__ = ["adaptive_imle", "imle"]


def imle(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""The difference to what would be chosen after a step against the gradient.

    Forward :math:`D = \arg\max(\theta + \beta G)`, backward with the same noise

    .. math::
        \frac{1}{\tau} [\arg\max(\theta + \beta G) - \arg\max(\theta - \tau g + \beta G)] .

    tau is the length of the step, lambda in the paper. A row whose choice does not change has no
    gradient. So a loss that is a mean over many rows, with a small g, wants a large tau;
    :func:`adaptive_imle` finds one.
    """
    return _perturb_and_map(logits, tau, beta, mask, noise, generator, adapts=False)


def adaptive_imle(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""The central difference, with a step just so long that half of the rows have a gradient.

    .. math::
        \frac{1}{2 \lambda} [\arg\max(\theta + \lambda g + \beta G)
        - \arg\max(\theta - \lambda g + \beta G)]

    A change has two entries, so half of the rows have one entry each in the mean, which Minervini
    et al. (2023) aim at. Their lambda follows from step to step; here it is solved for in every
    call: a row changes at a step that can be computed, and lambda is the median of them. So there
    is no state, and tau matters only in that a step moves no logit by less than tau / 100.
    """
    return _perturb_and_map(logits, tau, beta, mask, noise, generator, adapts=True)


def _perturb_and_map(
    logits: Tensor,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    *,
    adapts: bool,
) -> Tensor:
    drawn = draw(logits, tau, beta, mask, noise, generator, keeps_noise=True)
    perturbed = drawn.theta.detach()
    if drawn.noise is not None:
        perturbed = perturbed + drawn.noise * beta
    step = as_tensor(tau, perturbed)
    hard: Tensor = _Map.apply(drawn.theta, perturbed, drawn.hard, step, adapts)  # type: ignore[no-untyped-call]
    return hard.to(logits.dtype)


class _Map(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        theta: Tensor, perturbed: Tensor, hard: Tensor, step: Tensor, adapts: bool
    ) -> Tensor:
        return hard.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, perturbed, hard, step, ctx.adapts = inputs
        ctx.save_for_backward(perturbed, hard, step)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        perturbed, hard, step = ctx.saved_tensors
        if not g.numel():
            return g, None, None, None, None
        if not ctx.adapts:
            return (hard - _map(perturbed - step * g, hard)) / step, None, None, None, None
        length = balanced_step(critical_steps(perturbed, hard, g), g.abs().amax(), step)
        up, down = (_map(perturbed + sign * length * g, hard) for sign in (1, -1))
        return (up - down) / (2 * length), None, None, None, None


def _map(perturbed: Tensor, hard: Tensor) -> Tensor:
    """One-hot rows of the largest; zeros where there was none to choose."""
    largest = one_hot(perturbed.argmax(-1), perturbed.shape[-1], perturbed.dtype)
    return largest * hard.sum(-1, keepdim=True)


def critical_steps(
    perturbed: Float[Tensor, "*batch categories"],
    hard: Float[Tensor, "*batch categories"],
    g: Float[Tensor, "*batch categories"],
) -> Float[Tensor, "*batch"]:
    """The step along g or against it after which the choice changes; infinite where it never does.

    Category j overtakes the choice i where the lead a_i - a_j is used up by the step times the
    difference of g.
    """
    lead = (perturbed * hard).nan_to_num(0.0, neginf=0.0).sum(-1, keepdim=True) - perturbed
    speed = (g - (g * hard).sum(-1, keepdim=True)).abs()
    steps = torch.where(speed > 0, lead / speed.clamp(min=1e-30), torch.inf)
    return steps.masked_fill(hard > 0, torch.inf).amin(-1)


def balanced_step(
    critical: Float[Tensor, "*batch"], largest: Float[Tensor, ""], tau: Float[Tensor, "..."]
) -> Float[Tensor, ""]:
    """A step at which half of the rows change that ever do, and not a shorter one than makes sense.

    Args:
        critical: the step of each row, see :func:`critical_steps`.
        largest: the largest entry of g.
        tau: a step moves some logit by a hundredth of it at least.
    """
    in_order, _ = critical.flatten().sort()
    count = in_order.isfinite().sum()
    middle = in_order.gather(0, ((count - 1).clamp(min=0) // 2).unsqueeze(0)).squeeze(0)
    shortest = tau.amin() / 100 / largest.clamp(min=1e-30)
    return torch.where(count > 0, middle * 1.001, shortest).maximum(shortest)
