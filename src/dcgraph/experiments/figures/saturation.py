"""Figure 2 of the paper: a larger noise scale keeps gradients alive once probabilities saturate.

The model is z = softmax(theta + eps) with eps ~ Gumbel(0, beta) and two parameters, trained by
plain SGD on the cross-entropy against (1, 0). As theta settles in favour of the first category,
the gradient 1 - z_1 dies without noise; with noise it is carried by the rare samples in which the
second category still wins, and these are the more frequent the larger beta is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from torch import Tensor

from ...functional import gumbel_softmax
from .style import page, shades

THETA = (-0.9442, 0.3893)
LEARNING_RATE = 0.01
TAU = 1.0
BETAS = (0.0, 1.0, 2.0, 4.0, 8.0)

_FIRST_SHOWN = 10  # the axis of steps is logarithmic, and nothing happens before
_POINTS = 100
_WINDOW = 100
_QUANTILES = {"low": 0.1, "median": 0.5, "high": 0.9}


def compute(
    seed: int = 0, *, betas: Sequence[float] = BETAS, steps: int = 5000, seeds: int = 64
) -> dict[str, Any]:
    """Train ``seeds`` independent models for every beta; quantiles over them, ready for JSON.

    The gradient is |dL/dtheta_1|, averaged over the last 100 steps (that of theta_2 is the same
    with the other sign); the probability is that of the first category without noise.
    """
    thetas, gradients = _train(seed, betas, steps, seeds)
    shown = _log_spaced(_FIRST_SHOWN, steps, _POINTS)
    last = torch.tensor(shown) - 1
    series = {
        "theta_1": thetas[last, ..., 0],
        "theta_2": thetas[last, ..., 1],
        "gradient": _trailing_mean(gradients.abs(), _WINDOW)[last],
        "probability": thetas[last].softmax(-1)[..., 0],
    }
    return {
        "figure": "saturation",
        "seed": seed,
        "models_per_beta": seeds,
        "theta_start": list(THETA),
        "tau": TAU,
        "learning_rate": LEARNING_RATE,
        "gradient_window": _WINDOW,
        "quantiles": _QUANTILES,
        "steps": shown,
        "curves": [
            {"beta": beta, **{name: _quantiles(runs[:, i]) for name, runs in series.items()}}
            for i, beta in enumerate(betas)
        ],
    }


def _train(
    seed: int, betas: Sequence[float], steps: int, seeds: int
) -> tuple[Float[Tensor, "steps betas seeds 2"], Float[Tensor, "steps betas seeds"]]:
    """theta after every step, and dL/dtheta_1 at every step."""
    # Noise of scale 8 can make z_1 as small as 1e-160: nothing for float32, but fine in float64.
    theta = torch.tensor(THETA, dtype=torch.float64).repeat(len(betas), seeds, 1)
    beta = torch.tensor(betas, dtype=torch.float64).view(-1, 1, 1)
    generator = torch.Generator().manual_seed(seed)
    thetas, gradients = [], []
    with _one_thread():
        for _ in range(steps):
            theta.requires_grad_()
            z = gumbel_softmax(theta, TAU, beta=beta, generator=generator)
            loss = -z[..., 0].log()
            (gradient,) = torch.autograd.grad(loss.sum(), theta)
            theta = theta.detach() - LEARNING_RATE * gradient
            thetas.append(theta)
            gradients.append(gradient[..., 0])
    return torch.stack(thetas), torch.stack(gradients)


@contextmanager
def _one_thread() -> Iterator[None]:
    """With a few hundred numbers per operation, threads cost many times more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trailing_mean(
    values: Float[Tensor, "steps betas seeds"], window: int
) -> Float[Tensor, "steps betas seeds"]:
    """The mean over the last ``window`` steps, at the beginning over all so far."""
    totals = values.cumsum(0)
    before_window = torch.zeros_like(totals)
    before_window[window:] = totals[:-window]
    counts = torch.arange(1, len(values) + 1).clamp(max=window).view(-1, 1, 1)
    return (totals - before_window) / counts


def _log_spaced(first: int, last: int, count: int) -> list[int]:
    """Whole numbers evenly spread on a logarithmic axis, without repetitions."""
    ratio = last / first
    return sorted({round(first * ratio ** (i / (count - 1))) for i in range(count)})


def _quantiles(runs: Float[Tensor, "points seeds"]) -> dict[str, list[float]]:
    return {
        name: [float(f"{value:.4g}") for value in runs.quantile(share, -1).tolist()]
        for name, share in _QUANTILES.items()
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    steps, curves = numbers["steps"], numbers["curves"]
    with page(path, width=7.2, height=2.5) as figure:
        parameters, gradients, probabilities = panels = figure.subplots(1, 3)
        for curve, colour in zip(curves, shades(len(curves)), strict=True):
            label = f"{curve['beta']:g}"
            _plot(parameters, steps, curve["theta_1"], colour, label)
            _plot(parameters, steps, curve["theta_2"], colour, label, linestyle=(0, (3, 1.5)))
            _plot(gradients, steps, curve["gradient"], colour, label)
            _plot(probabilities, steps, curve["probability"], colour, label)
        for axes in panels:
            axes.set_xscale("log")
            axes.set_xlim(steps[0], steps[-1])
            axes.set_xlabel("SGD step")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.xaxis.set_minor_formatter(NullFormatter())

        parameters.set_title("(a) parameters")
        parameters.set_ylabel(r"$\theta_1$ (solid), $\theta_2$ (dashed)", labelpad=-1)

        gradients.set_title(f"(b) gradient, mean of {numbers['gradient_window']} steps")
        gradients.set_ylabel(r"$|\partial L / \partial \theta_1|$")
        gradients.set_yscale("log")
        gradients.set_ylim(top=1)
        gradients.yaxis.set_major_formatter("{x:g}")
        gradients.text(0.04, 0.04, _legend_of_bands(numbers), transform=gradients.transAxes)

        probabilities.set_title("(c) probability of the target")
        probabilities.set_ylabel(r"softmax$(\theta)_1$")
        probabilities.set_ylim(0, 1.02)
        probabilities.legend(title=r"noise scale $\beta$", loc="lower right")


def _plot(
    axes: Axes,
    steps: list[int],
    quantiles: dict[str, list[float]],
    colour: str,
    label: str,
    linestyle: Any = "-",
) -> None:
    axes.fill_between(
        steps, quantiles["low"], quantiles["high"], color=colour, alpha=0.2, linewidth=0
    )
    axes.plot(steps, quantiles["median"], color=colour, label=label, linestyle=linestyle)


def _legend_of_bands(numbers: dict[str, Any]) -> str:
    low, high = (100 * numbers["quantiles"][end] for end in ("low", "high"))
    return f"line: median of {numbers['models_per_beta']} runs\nband: {low:g}% to {high:g}%"
