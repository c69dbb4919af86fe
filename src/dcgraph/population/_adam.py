"""Adam over the rows of matrices, one learning rate per row; and as an optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.optim import Optimizer

from .. import kernels
from .._arguments import check_number

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass
class Block:
    """Weights that move together, a row for each replica: views, written in place."""

    weights: Float[Tensor, "replicas columns"]
    gradient: Float[Tensor, "replicas columns"]
    first: Float[Tensor, "replicas columns"]  # running mean of the gradient
    second: Float[Tensor, "replicas columns"]  # and of its square
    step: Shaped[Tensor, ""]  # this one, counted from 1


def adam_(
    blocks: Sequence[Block],
    lr: Float[Tensor, " replicas"],
    betas: tuple[float, float] = BETAS,
    epsilon: float = EPSILON,
    *,
    alike: bool = False,
) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place.

    A row whose learning rate is 0 keeps its weights, whatever its gradient. torch's own takes one
    learning rate for a whole tensor. ``alike`` promises that all rows have the same, which on the
    CPU makes one operation of many; it rounds differently.
    """
    if not blocks:
        return
    if torch.compiler.is_compiling():
        _all_rows(blocks, lr, betas, epsilon)
    elif lr.is_cpu:
        _row_by_row(blocks, lr, betas, epsilon, alike)
    elif kernels.available():
        _by_kernels(blocks, lr, betas, epsilon)
    else:
        _all_rows(blocks, lr, betas, epsilon)


def _row_by_row(
    blocks: Sequence[Block],
    lr: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    alike: bool,
) -> None:
    """By what torch.optim.Adam(fused=True) calls: one pass over memory, a fifth of the time."""
    steps = [block.step.to(block.weights.dtype) for block in blocks]
    if alike:
        _fused(blocks, slice(None), steps, lr[0], betas, epsilon)
        return
    for row, own_lr in enumerate(lr):
        if own_lr != 0:
            _fused(blocks, row, steps, own_lr, betas, epsilon)


def _fused(
    blocks: Sequence[Block],
    rows: int | slice,
    steps: list[Tensor],
    lr: Tensor,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    torch._fused_adam_(
        [block.weights[rows] for block in blocks],
        [block.gradient[rows] for block in blocks],
        [block.first[rows] for block in blocks],
        [block.second[rows] for block in blocks],
        [],
        steps,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def _by_kernels(
    blocks: Sequence[Block], lr: Tensor, betas: tuple[float, float], epsilon: float
) -> None:
    from ..kernels import _population as kernel  # imports Triton

    shares, step, sizes = (1 - betas[0], 1 - betas[1]), None, None
    for block in blocks:
        if sizes is None or block.step is not step:
            step = block.step
            sizes = kernel.corrected(lr, step, betas, epsilon)
        kernel.adam_(block.weights, block.gradient, block.first, block.second, *sizes, shares)


def _all_rows(
    blocks: Sequence[Block], lr: Tensor, betas: tuple[float, float], epsilon: float
) -> None:
    for block in blocks:
        size, smallest = _corrected(lr, block.step, betas, epsilon)
        own = torch.where(lr.unsqueeze(-1) == 0, 0.0, block.gradient)
        block.first.lerp_(own, 1 - betas[0])
        block.second.mul_(betas[1]).addcmul_(own, own, value=1 - betas[1])
        root = block.second.sqrt().add_(smallest)
        block.weights.sub_(block.first.div(root).mul_(size.unsqueeze(-1)))


def _corrected(
    lr: Tensor, step: Tensor, betas: tuple[float, float], epsilon: float
) -> tuple[Tensor, Tensor]:
    r"""The learning rate and epsilon, with both bias corrections folded into them:
    :math:`\eta \sqrt{1 - \beta_2^t} / (1 - \beta_1^t)` and :math:`\epsilon \sqrt{1 - \beta_2^t}`.
    """
    t = step.to(lr.dtype)
    of_first, of_second = (-torch.expm1(t * math.log(beta)) for beta in betas)
    correction = of_second.sqrt()
    return lr * correction / of_first, epsilon * correction


PerReplica = int | float | Sequence[int | float]
"""A number, or one for each replica."""


class Adam(Optimizer):
    r"""Adam (Kingma and Ba, 2015) for a :class:`dcgraph.Population`, with rates per replica.

    It is :class:`torch.optim.AdamW` of each replica: weight decay is decoupled. On CUDA it is one
    kernel for each parameter, and can be captured.

    Args:
        params: ``population.parameters()``, or groups of them.
        lr: the learning rate, or one for each replica. A scheduler of torch sees the number in
            ``param_groups[0]["lr"]``; where there are several it sees a factor, 1.0 at the start,
            by which all of them are multiplied.
        betas, eps: as in torch.
        weight_decay: likewise a number or one for each replica.

    >>> import torch, dcgraph as dc
    >>> population = dc.Population(lambda: torch.nn.Linear(4, 3), seeds=range(3))
    >>> optimizer = dc.population.Adam(population.parameters(), lr=[1e-3, 3e-3, 1e-2])
    >>> half = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: PerReplica = 1e-3,
        *,
        betas: tuple[float, float] = BETAS,
        eps: float = EPSILON,
        weight_decay: PerReplica = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "capturable": True,  # so that torch loads the counters of steps to where they belong
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A group of parameters with rates of its own."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        first = group["params"][0]
        if any(p.ndim == 0 or len(p) != len(first) for p in group["params"]):
            raise ValueError(
                "the parameters are not those of a population: their first dimension must count "
                "the replicas; pass population.parameters()."
            )
        several = isinstance(group["lr"], Sequence)
        rates = _rates("lr", group["lr"], first)
        group["alike"] = not several
        group["rates"] = rates if several else torch.ones_like(rates)
        group["lr"] = torch.ones_like(rates[0]) if several else rates[0].clone()
        group["weight_decay"] = _rates("weight_decay", group["weight_decay"], first)
        group["decays"] = bool((group["weight_decay"] != 0).any())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            device = group["params"][0].device
            for name in ("lr", "rates", "weight_decay"):
                group[name] = torch.as_tensor(group[name]).to(device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr = group["rates"] * group["lr"]
            blocks = [self._block(p, p.grad) for p in group["params"] if p.grad is not None]
            if not blocks:
                continue
            torch._foreach_add_([block.step for block in blocks], 1.0)
            if group["decays"]:
                kept = (1 - lr * group["weight_decay"]).unsqueeze(-1)
                for block in blocks:
                    block.weights.mul_(kept)
            adam_(blocks, lr, group["betas"], group["eps"], alike=group["alike"])
        return loss

    def _block(self, parameter: Tensor, gradient: Tensor) -> Block:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        rows = len(parameter)
        return Block(
            parameter.detach().view(rows, -1),
            gradient.reshape(rows, -1),
            state["exp_avg"].view(rows, -1),
            state["exp_avg_sq"].view(rows, -1),
            state["step"],
        )


def _rates(name: str, value: PerReplica, parameter: Tensor) -> Float[Tensor, " replicas"]:
    values = list(value) if isinstance(value, Sequence) else [value] * len(parameter)
    if len(values) != len(parameter):
        raise ValueError(
            f"{name} has {len(values)} values, but the population has {len(parameter)} replicas; "
            "give one for each, or one for all."
        )
    for one in values:
        check_number(name, one, "pass a number, or a list with one for each replica.")
        if not 0 <= one < math.inf:
            raise ValueError(f"{name}={one}, but a rate is >= 0 and finite.")
    return torch.tensor(values, dtype=torch.float32, device=parameter.device)
