"""The paper's simplex figure: what tau and beta do to the distribution of a Gumbel-softmax sample.

z = softmax((theta + beta G) / tau) follows the Concrete distribution with temperature tau / beta
and locations exp(theta / beta). Annealing tau and growing beta both drive z into the corners of the
simplex, but the share of each corner is softmax(theta / beta): tau leaves it as it is, beta evens
it out.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from ..._checks import check_dial
from ...functional import argmax, gumbel_softmax, one_hot
from .style import heat, page

WEIGHTS = (2.0, 0.5, 1.0)
# From the second panel on, the two of a column have the same tau / beta: equally discrete samples.
TAUS = (2.0, 1.0, 0.5, 0.25)  # at beta = 1
BETAS = (0.0, 1.0, 2.0, 4.0)  # at tau = 1

_SAMPLES = 150
_UNIFORM = 2.0  # density of the uniform distribution: in (z_1, z_2) the simplex has the area 1/2
_SHOWN = 16.0  # colours end at 1/16 and 16 times that, for the density diverges at the corners
_ROW_TITLES = {"tau": r"annealing $\tau$ at $\beta$ = 1", "beta": r"growing $\beta$ at $\tau$ = 1"}
_CORNERS = torch.tensor([[0.5, math.sqrt(0.75)], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)


def log_density(
    z: Float[Tensor, "*batch k"],
    logits: Float[Tensor, "*#batch k"],
    tau: int | float,
    beta: int | float,
) -> Float[Tensor, "*batch"]:
    r"""Log-density of ``gumbel_softmax(logits, tau, beta=beta)`` at points z inside the simplex.

    With :math:`\lambda = \tau / \beta` and :math:`a = e^{\theta / \beta}` it is

    .. math::
        (k-1)!\; \lambda^{k-1} \prod_i \frac{a_i z_i^{-\lambda-1}}{\sum_j a_j z_j^{-\lambda}}

    with respect to :math:`dz_1 \cdots dz_{k-1}`. It grows without bound towards a corner where
    :math:`\lambda < k - 1`, and towards a side z_i = 0 where :math:`\lambda < 1 / (k - 1)`.
    """
    check_dial("tau", tau)
    check_dial("beta", beta)
    if beta == 0:
        raise ValueError("beta=0 has no density, for z is always softmax(logits / tau).")
    k = z.shape[-1]
    ratio = tau / beta
    log_z = z.log()
    log_terms = logits / beta - ratio * log_z
    log_product = (log_terms - log_z).sum(-1) - k * log_terms.logsumexp(-1)
    return math.lgamma(k) + (k - 1) * math.log(ratio) + log_product


def compute(seed: int = 0, *, resolution: int = 60) -> dict[str, Any]:
    """Density, some samples and the share of each corner for every panel, ready for JSON."""
    generator = torch.Generator().manual_seed(seed)
    grid = _grid(resolution)
    return {
        "figure": "simplex",
        "seed": seed,
        "weights": list(WEIGHTS),
        "resolution": resolution,
        "samples_per_panel": _SAMPLES,
        "rows": [
            {"varied": "tau", "panels": [_panel(tau, 1.0, grid, generator) for tau in TAUS]},
            {"varied": "beta", "panels": [_panel(1.0, beta, grid, generator) for beta in BETAS]},
        ],
    }


def _panel(
    tau: float, beta: float, grid: Float[Tensor, "points 3"], generator: torch.Generator
) -> dict[str, Any]:
    logits = torch.tensor(WEIGHTS, dtype=torch.float64).log()
    rows = logits.expand(_SAMPLES if beta else 1, -1)
    samples = gumbel_softmax(rows, tau, beta=beta, generator=generator)
    shares = (logits / beta).softmax(-1) if beta else one_hot(argmax(logits), len(logits))
    density = log_density(grid, logits, tau, beta).exp() if beta else None
    return {
        "tau": tau,
        "beta": beta,
        "shares": [round(share, 4) for share in shares.tolist()],
        "density": None if density is None else [float(f"{p:.3g}") for p in density.tolist()],
        "samples": [[round(share, 3) for share in z] for z in samples.tolist()],
    }


def _grid(resolution: int) -> Float[Tensor, "points 3"]:
    """Points evenly spread inside the simplex, none of them on its border."""
    points = [
        (i, j, resolution - i - j) for i in range(resolution + 1) for j in range(resolution + 1 - i)
    ]
    return (torch.tensor(points, dtype=torch.float64) + 1 / 3) / (resolution + 1)


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    rows, grid = numbers["rows"], _grid(numbers["resolution"])
    scale = LogNorm(1 / _SHOWN, _SHOWN, clip=True)
    with page(path, width=7.2, height=4.2) as figure:
        panels = figure.subplots(len(rows), len(rows[0]["panels"]))
        for row, axes_of_row in zip(rows, panels, strict=True):
            varied = row["varied"]
            _write(axes_of_row[0], -0.15, 0.43, _ROW_TITLES[varied], rotation=90, ha="right")
            for panel, axes in zip(row["panels"], axes_of_row, strict=True):
                _draw_density(axes, panel["density"], grid, scale)
                _draw_samples(axes, panel["samples"])
                _write_shares(axes, panel["shares"])
                _write(axes, -0.05, 0.8, f"$\\{varied}$ = {panel[varied]:g}", ha="left", size=9)
                axes.set_aspect("equal")
                axes.set_axis_off()
        _draw_key(figure, panels, scale, numbers["samples_per_panel"])


def _draw_key(figure: Figure, panels: Any, scale: LogNorm, samples: int) -> None:
    bar = figure.colorbar(
        ScalarMappable(scale, heat()),
        ax=panels,
        location="bottom",
        extend="both",
        aspect=40,
        shrink=0.6,
        pad=0.04,
    )
    bar.set_ticks([1 / 16, 1 / 4, 1, 4, 16], labels=["1/16", "1/4", "1", "4", "16"])
    bar.minorticks_off()
    bar.set_label(
        "colour: density, uniform = 1, clipped at both ends;  "
        f"dots: {samples} samples;  percentages: samples whose largest entry this is"
    )


def _draw_density(
    axes: Axes,
    density: list[float] | None,
    grid: Float[Tensor, "points 3"],
    scale: LogNorm,
) -> None:
    axes.fill(*_CORNERS.T.tolist(), fill=False, linewidth=0.6)
    if density is not None:
        x, y = (grid @ _CORNERS).T.tolist()
        relative = [value / _UNIFORM for value in density]
        axes.tripcolor(x, y, relative, norm=scale, cmap=heat(), shading="gouraud")


def _draw_samples(axes: Axes, samples: list[list[float]]) -> None:
    x, y = (torch.tensor(samples, dtype=torch.float64) @ _CORNERS).T.tolist()
    single = len(samples) == 1
    axes.plot(x, y, "o", color="black", markersize=4.0 if single else 1.3, markeredgewidth=0)
    if single:
        _write(axes, 0.5, 0.2, "all samples are\n" r"softmax$(\theta)$")


def _write_shares(axes: Axes, shares: list[float]) -> None:
    # The lower labels end where the triangle does, so that those of neighbours stay apart.
    places = [(0.5, 0.93, "center"), (-0.05, -0.08, "left"), (1.05, -0.08, "right")]
    for i, (share, (x, y, side)) in enumerate(zip(shares, places, strict=True), start=1):
        _write(axes, x, y, f"$z_{i}$: {share:.0%}", ha=side)


def _write(axes: Axes, x: float, y: float, text: str, ha: str = "center", **style: Any) -> None:
    axes.text(x, y, text, ha=ha, va="center", multialignment="center", **style)
