"""What estimators with a hard forward pass share: the choice, and the noise that explains it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .._checks import Dial, check_dial, check_logits, check_mask, check_one_per_row
from ..functional import gumbel_softmax, one_hot, sample, straight_through
from ..noise import Noise, check_noise, draw_uniform, is_zero, standard_noise


@dataclass(frozen=True)
class Draw:
    r"""A choice :math:`D \sim \mathrm{softmax}(\theta / \beta)`, in at least float32."""

    theta: Float[Tensor, "*batch categories"]  # -inf where masked
    hard: Float[Tensor, "*batch categories"]  # D
    noise: Float[Tensor, "*batch categories"] | None  # G that chose it, None where beta is 0
    tau: Dial
    beta: Dial

    def softmax(self, scale: Dial, theta: Tensor | None = None) -> Tensor:
        """softmax(theta / scale), with its gradient; a masked category has exactly 0."""
        return gumbel_softmax(self.theta if theta is None else theta, scale, beta=0.0)

    @property
    def scale(self) -> Dial:
        """beta, but never 0: the choice is then as good as certain."""
        return positive(self.beta)

    def log_p(self) -> Float[Tensor, "*batch categories"]:
        """log softmax(theta / beta), without gradient.

        Not as the log of the softmax: that is 0 from a lead of about 100 beta on, which is any lead
        at a small beta, and then says no more by how much one is behind.
        """
        theta = self.theta.detach()
        lead = theta - theta.amax(-1, keepdim=True)
        excluded = theta == -math.inf  # NaN in a row that has no category
        return (lead / self.scale).log_softmax(-1).masked_fill(excluded, -math.inf)

    def moved(self, target: Tensor) -> Tensor:
        """The value of ``target`` with the gradient of theta; -inf stays where theta has it."""
        shift = (target - self.theta).detach()
        return self.theta + shift.masked_fill(~shift.isfinite(), 0.0)

    def rao(
        self, log_p: Tensor, samples: int, generator: torch.Generator | None
    ) -> Float[Tensor, "*batch categories"]:
        """The mean of Gumbel-softmax rows at these log-probabilities, in units of beta, over noise
        that chooses D again; its gradient is the mean of theirs."""
        shape = samples, *self.theta.shape
        # 24 bits will do: the choice is made, and its noise need not be fine in the tail. What is
        # added keeps u > 0 and, in float32 too, u < 1, so that the noise is finite.
        uniform = draw_uniform(shape, generator, self.theta.device).to(self.theta.dtype)
        minus = uniform.add_(2.0**-26).neg_().log1p_().neg_().log_()
        perturbed = conditional(log_p, self.hard, minus) * self.scale
        z = (perturbed / self.tau).softmax(-1).nan_to_num(0.0)  # of a row with no category
        tau = as_tensor(self.tau, z)
        mean: Tensor = _MeanOfSoftmax.apply(self.theta, z, tau)  # type: ignore[no-untyped-call]
        return mean

    def darn(self, probabilities: Tensor) -> Tensor:
        r"""Something linear in theta whose gradient is :math:`(D - p) \langle D - p, g \rangle`.

        It is that of the score function with a linear guess of the loss, as in DARN.
        """
        away = (self.hard - probabilities).detach()
        finite = self.theta.masked_fill(self.theta == -math.inf, 0.0)
        return away * (away * finite).sum(-1, keepdim=True)

    def with_gradient_of(self, soft: Tensor, dtype: torch.dtype) -> Tensor:
        """D, with the gradient of ``soft``."""
        return straight_through(self.hard, soft).to(dtype)


def draw(
    logits: Tensor,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
    *,
    keeps_noise: bool = False,
) -> Draw:
    """Choose, and check all arguments."""
    theta = masked(logits, tau, beta, mask, noise)
    kept = None
    if keeps_noise and not is_zero(beta):
        noise = kept = standard_noise(noise, theta, generator)
    index = sample(theta, beta=beta, noise=noise, generator=generator)
    hard = one_hot(index, theta.shape[-1], theta.dtype)
    return Draw(theta, hard, kept, tau, beta)


def masked(
    logits: Tensor, tau: Dial, beta: Dial, mask: Tensor | None, noise: Noise | None
) -> Tensor:
    """theta in at least float32 and -inf where masked, after a look at all arguments.

    Not at its values yet, see :func:`dcgraph._checks.check_rows`.
    """
    check_logits(logits, -1)
    for name, dial in (("tau", tau), ("beta", beta)):
        check_dial(name, dial)
        check_one_per_row(name, dial, "logits", logits, -1)
    check_noise(noise, logits)
    theta = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if mask is None:
        return theta
    check_mask(mask, theta)
    return theta.masked_fill(~mask, -math.inf)


def positive(beta: Dial) -> Dial:
    """beta, or next to nothing in the place of 0, where something is divided by it."""
    return beta.clamp(min=_SMALLEST) if isinstance(beta, Tensor) else max(beta, _SMALLEST)


_SMALLEST = 1e-6


def as_tensor(dial: Dial, like: Tensor) -> Tensor:
    """The value of a dial as a tensor of that dtype and device, without gradient."""
    if isinstance(dial, Tensor):
        return dial.detach().to(like)
    # Filled on the device: a copy from the host would break a capture.
    return torch.full((), dial, dtype=like.dtype, device=like.device)


SAMPLES = 10
"""Of Gumbel-Rao and its kin: rows of noise that make the same choice."""

NEEDS_GUMBEL = (
    *("gumbel_rao", "zgr", "reinmax", "reinmax_rao", "reinmax_cv"),
    *("reinforce", "rebar", "relax", "topk_sparsemax", "enumeration"),
)
"""Estimators whose formula says with which probability something is chosen."""


def check_gumbel(estimator: str, noise: Noise | None) -> None:
    """Reversed noise chooses by another distribution than softmax(theta / beta)."""
    if estimator in NEEDS_GUMBEL and isinstance(noise, str) and noise == "reversed":
        raise ValueError(
            f"estimator={estimator!r} needs choices from softmax(theta / beta), which "
            'noise="reversed" does not draw; use noise="gumbel", or a relaxed or straight-through '
            "estimator."
        )


def check_samples(samples: int) -> None:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples={samples}, but a mean is of 1 or more; pass a whole number.")


def conditional(
    log_p: Float[Tensor, "*batch categories"],
    hard: Float[Tensor, "*batch categories"],
    minus: Float[Tensor, "*more categories"],
) -> Float[Tensor, "*more categories"]:
    r"""Perturbed log-probabilities, given that D has the largest: from log E of fresh noise.

    With E ~ Exp(1) (Maddison and Tarlow, 2017; Paulus et al., 2021),

    .. math::
        a_D = -\log E_D, \qquad a_j = -\log(E_j / p_j + E_D) .
    """
    top = (minus * hard).sum(-1, keepdim=True)  # log E_D, for noise is finite
    return torch.where(hard > 0, top, torch.logaddexp(minus - log_p, top)).neg()


class _MeanOfSoftmax(torch.autograd.Function):
    """The mean of rows z, with the mean of their Jacobians, over tau."""

    generate_vmap_rule = True

    @staticmethod
    def forward(theta: Tensor, z: Tensor, tau: Tensor) -> Tensor:
        return z.mean(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        z, tau = ctx.saved_tensors
        along = torch.linalg.vecdot(z, g.expand_as(z)).unsqueeze(-1)
        return (z.mean(0) * g - (z * along).mean(0)) / tau, None, None
