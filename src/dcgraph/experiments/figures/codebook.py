"""How mix goes over a codebook: block by block, with nothing kept but three things per query.

For one query, the rows of a codebook come in four blocks. Each block makes perturbed logits a; what
is known of the query afterwards is the largest a so far, the sum of exp(a - top), and the mixture
of rows so far. Where top grows, what was known before is scaled down. After the last block the
mixture is the one that the whole matrix gives. Bars, shades and numbers are those of a real run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ...functional import gumbel_softmax
from ...noise import gumbel
from .diagram import BAR, CHOSEN, G_COLOUR, H_COLOUR, INK, arrow, box, canvas, strip, write
from .style import page

DIM = 6
BLOCK = 6
BLOCKS = 4
TAU = 1.0
BETA = 1.0

# All places and sizes are in inches.
_WIDTH, _HEIGHT = 7.2, 4.3
_STEP = 0.13  # from one row of the codebook to the next, downwards
_FIRST, _APART = 1.3, 1.4  # the middle of the first block, and from one to the next
_CODES, _LOGITS, _STATE = 3.2, 2.08, 0.98  # heights of the three rows of the picture
_TALL = 0.62  # of the bars, from the smallest to the largest a


def compute(seed: int = 0) -> dict[str, Any]:
    """A random query and codebook, what every block adds, and what the whole matrix gives."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        query, codebook = torch.randn(DIM) / 2, torch.randn(BLOCKS * BLOCK, DIM)
        noise = gumbel([BLOCKS * BLOCK])
    theta = codebook @ query
    a = (theta + BETA * noise) / TAU
    top, total, mixture = torch.tensor(-torch.inf), torch.tensor(0.0), torch.zeros(DIM)
    blocks = []
    for logits, codes in zip(a.split(BLOCK), codebook.split(BLOCK), strict=True):
        before, top = top, torch.maximum(top, logits.max())
        factor, weights = (before - top).exp(), (logits - top).exp()
        total = factor * total + weights.sum()
        mixture = factor * mixture + weights @ codes
        blocks.append(
            {
                "codes": codes.tolist(),
                "a": logits.tolist(),
                "factor": factor.item(),
                "top": top.item(),
                "sum": total.item(),
                "mixture": (mixture / total).tolist(),
            }
        )
    whole = gumbel_softmax(theta, TAU, beta=BETA, noise=noise) @ codebook
    return {
        "figure": "codebook", "seed": seed, "query": query.tolist(), "blocks": blocks,
        "whole": whole.tolist(),
    }  # fmt: skip


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    with page(path, _WIDTH, _HEIGHT) as figure:
        axes = canvas(figure)
        write(axes, 0.15, 4.12, "over the codebook, block by block", ha="left", size=8.5)
        _draw_left(axes, numbers)
        for i, block in enumerate(numbers["blocks"]):
            x = _FIRST + i * _APART
            _draw_block(axes, x, block, numbers)
            if i:
                _draw_scaling(axes, x - _APART / 2, block["factor"])
        end = _FIRST + (BLOCKS - 1) * _APART
        arrow(axes, (end + 0.51, _STATE), (end + 0.83, _STATE))
        strip(axes, end + 1.2, _STATE, numbers["whole"], _scale(numbers))
        write(axes, end + 1.2, _STATE + 0.17, "$v=z^{T}C$")
        write(axes, 0.15, 0.13, _key(numbers), ha="left", size=7)


def _draw_left(axes: Axes, numbers: dict[str, Any]) -> None:
    """The names of the rows of the picture, and the query, which all blocks meet."""
    for y, name in ((_CODES, "codebook\nrows $C_j$"), (_LOGITS, "logits and\nnoise $a_j$")):
        write(axes, 0.15, y, name, ha="left")
    write(axes, 0.15, _STATE, "what is\nkept", ha="left")
    strip(axes, 0.5, _CODES + 0.56, numbers["query"], _scale(numbers))
    write(axes, 0.5, _CODES + 0.73, "query $q$")


def _draw_block(axes: Axes, x: float, block: dict[str, Any], numbers: dict[str, Any]) -> None:
    scale = _scale(numbers)
    box(axes, x, _CODES, 0.74, BLOCK * _STEP + 0.08, "", H_COLOUR)
    for i, row in enumerate(block["codes"]):
        strip(axes, x, _CODES + _STEP * ((BLOCK - 1) / 2 - i), row, scale)
    arrow(axes, (x, _CODES - 0.45), (x, _LOGITS + 0.42))
    _bars(axes, x, block, numbers)
    arrow(axes, (x, _LOGITS - 0.4), (x, _STATE + 0.46))
    box(axes, x, _STATE, 0.98, 0.88, "", G_COLOUR)
    write(axes, x, _STATE + 0.27, f"top = {block['top']:.2f}")
    write(axes, x, _STATE + 0.07, f"sum = {block['sum']:.2f}")
    write(axes, x, _STATE - 0.11, "mixture")
    strip(axes, x, _STATE - 0.28, block["mixture"], scale)


def _bars(axes: Axes, x: float, block: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Standing bars of a, the largest of the block dark, and a line at the top so far."""
    every = [value for other in numbers["blocks"] for value in other["a"]]
    low, high = min(0.0, *every), max(0.0, *every)
    unit = _TALL / (high - low)
    base = _LOGITS - _TALL / 2 - low * unit
    width = 0.74 / BLOCK
    for i, value in enumerate(block["a"]):
        colour = CHOSEN if value == max(block["a"]) else BAR
        corner = (x - 0.37 + i * width + 0.1 * width, base)
        axes.add_patch(Rectangle(corner, 0.8 * width, unit * value, facecolor=colour))
    axes.plot([x - 0.4, x + 0.4], [base, base], color=INK, linewidth=0.7)
    line = base + unit * block["top"]
    axes.plot([x - 0.45, x + 0.45], [line, line], color=INK, linewidth=0.8, linestyle="--")


def _draw_scaling(axes: Axes, x: float, factor: float) -> None:
    arrow(axes, (x - 0.2, _STATE), (x + 0.2, _STATE))
    write(axes, x, _STATE + 0.12, rf"$\times{factor:.2f}$", size=7)


def _scale(numbers: dict[str, Any]) -> tuple[float, float]:
    """The same shades for all vectors: white is the smallest number, dark the largest."""
    vectors = [numbers["query"]]
    for block in numbers["blocks"]:
        vectors += [*block["codes"], block["mixture"]]
    values = [value for vector in vectors for value in vector]
    return min(values), max(values)


def _key(numbers: dict[str, Any]) -> str:
    low, high = _scale(numbers)
    return (
        rf"cells: the numbers of a vector, from ${low:.1f}$ (white) to ${high:.1f}$ (dark);   "
        "dashed: the largest $a$ so far;   on the arrows: what the sums are multiplied by"
    )
