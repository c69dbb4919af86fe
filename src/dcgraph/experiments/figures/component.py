"""Figure 3 of the paper: the discrete-continuous component f, in training and at test.

g maps the vector u to logits theta, a choice z is made among the categories, h maps z to the vector
v = z^T w', and DropRes leads u around all this. In training z is relaxed and random, so that v
mixes the rows of w', and u is added with probability 1 - alpha. At test z is one-hot and v exactly
a row of w': which one is all that is left of u. Bars and shades are numbers of a real node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from torch import Tensor, nn

from ...dials import Dials
from ...nodes import Discrete
from ...noise import gumbel
from .diagram import BAR, CELL, CHOSEN, G_COLOUR, H_COLOUR, INK, arrow, box, canvas, strip, write
from .style import page

DIM = 6
CATEGORIES = 6
TAU = 2.0
BETA = 1.0

# All places and sizes are in inches. A row of the picture is drawn around its middle line.
_WIDTH, _HEIGHT = 7.2, 4.2
_MIDDLES = (2.88, 0.93)
_ONE = 0.5  # length of a bar of 1 in z
_THETA_WIDTH = 0.72
_STEP = 0.13  # from one category to the next, downwards
_BYPASS = 0.78  # of the residual, above the middle line
_NAMES = 0.53  # of the names of what is drawn, above the middle line
_U, _G, _THETA, _CHOICE, _Z, _H, _PLUS, _V = 0.5, 1.32, 2.2, 3.38, 4.46, 5.31, 5.89, 6.47


def compute(seed: int = 0) -> dict[str, Any]:
    """What a node makes of one vector, both random by ``seed``, ready for JSON."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        node, u = _node(), torch.randn(DIM)
        noise = gumbel([CATEGORIES])
        return {"figure": "component", "seed": seed, **describe(node, u, noise)}


def _node() -> Discrete:
    g = nn.Linear(DIM, CATEGORIES)
    nn.init.normal_(g.weight)  # of torch's own, smaller weights theta is too flat to show anything
    return Discrete(DIM, CATEGORIES, g=g)


@torch.no_grad()
def describe(
    node: Discrete, u: Float[Tensor, " dim"], noise: Float[Tensor, " categories"]
) -> dict[str, Any]:
    """The same for any node without batch, input and noise G of scale 1."""
    theta = node.logits(u)
    return {
        "tau": TAU,
        "beta": BETA,
        "u": u.tolist(),
        "theta": theta.tolist(),
        "noise": noise.tolist(),
        "codebook": node.codebook.tolist(),
        "training": _in_training(node.train(), u, theta, noise),
        "test": _at_test(node.eval(), u, theta),
    }


def _in_training(
    node: Discrete,
    u: Float[Tensor, " dim"],
    theta: Float[Tensor, " categories"],
    noise: Float[Tensor, " categories"],
) -> dict[str, Any]:
    """z, and v for both outcomes of the gate: alpha = 0 keeps the residual, alpha = 1 drops it."""
    vectors = {}
    for name, alpha in (("kept", 0.0), ("dropped", 1.0)):
        Dials(tau=TAU, beta=BETA, alpha=alpha).attach(node)
        vectors[name] = node(u, noise=noise).tolist()
    return {"z": node.categorical(theta, noise=noise).tolist(), **vectors}


def _at_test(
    node: Discrete, u: Float[Tensor, " dim"], theta: Float[Tensor, " categories"]
) -> dict[str, Any]:
    z = node.categorical(theta)
    return {"z": z.tolist(), "chosen": int(z.argmax()), "v": node(u).tolist()}


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    with page(path, _WIDTH, _HEIGHT) as figure:
        axes = canvas(figure)
        _draw_training(axes, _MIDDLES[0], numbers)
        _draw_test(axes, _MIDDLES[1], numbers)
        write(axes, 0.15, 0.15, _key(numbers), ha="left", size=7)


def _key(numbers: dict[str, Any]) -> str:
    low, high = _scale(numbers)
    return (
        rf"cells: the numbers of a vector, from ${low:.1f}$ (white) to ${high:.1f}$ (dark);   "
        rf"bars: the categories, the largest dark;   $\tau={numbers['tau']:g}$, "
        rf"$\beta={numbers['beta']:g}$ in (a)"
    )


def _draw_training(axes: Axes, y: float, numbers: dict[str, Any]) -> None:
    training = numbers["training"]
    title = r"(a) in training: $z$ is relaxed, and $u$ is added with probability $1-\alpha$"
    _write_title(axes, y + 1.18, title)
    _frame(axes, y - 0.72, y + 0.98)
    _draw_common(axes, y, numbers, training["z"])
    _draw_noisy(axes, y, numbers)
    box(axes, _CHOICE, y, 0.95, 0.5, "softmax\n" r"$(\theta+\beta G)\,/\,\tau$")
    write(axes, _CHOICE, y - 0.52, r"$G\sim$Gumbel(0, 1)")
    arrow(axes, (_CHOICE, y - 0.44), (_CHOICE, y - 0.27))
    _draw_bypass(axes, y)
    for name, up, gate in (("kept", 0.13, 1), ("dropped", -0.13, 0)):
        strip(axes, _V, y + up, training[name], _scale(numbers))
        write(axes, _V + 0.35, y + up, f"$b={gate}$", ha="left", size=7)
    arrow(axes, (_H + 0.35, y), (_PLUS - 0.09, y))
    arrow(axes, (_PLUS + 0.09, y), (_V - 0.34, y))
    _sum_sign(axes, _PLUS, y)


def _draw_test(axes: Axes, y: float, numbers: dict[str, Any]) -> None:
    test = numbers["test"]
    title = r"(b) at test: $z$ is one-hot and $v$ a row of $w'$; nothing continuous is left of $u$"
    _write_title(axes, y + 0.93, title)
    _frame(axes, y - 0.58, y + 0.73)
    _draw_common(axes, y, numbers, test["z"])
    box(axes, _CHOICE, y, 0.95, 0.5, "one-hot\n" r"argmax $\theta$")
    strip(axes, _V, y, test["v"], _scale(numbers))
    arrow(axes, (_H + 0.35, y), (_V - 0.34, y))
    _outline_row(axes, y, test["chosen"])


def _draw_common(axes: Axes, y: float, numbers: dict[str, Any], z: list[float]) -> None:
    """What both rows have: u, g, theta, z, the rows of w', and the arrows between them."""
    scale = _scale(numbers)
    names = ((_U, "$u$"), (_THETA, r"$\theta$"), (_Z, "$z$"), (_H, "$h$:  $z^{T}w'$"), (_V, "$v$"))
    for x, name in names:
        write(axes, x, y + _NAMES, name, size=9)
    strip(axes, _U, y, numbers["u"], scale)
    box(axes, _G, y, 0.4, 0.5, "$g$", G_COLOUR, size=10)
    zero, unit = _theta_axis(numbers)
    _bars(axes, zero, y, numbers["theta"], unit)
    _tracks(axes, y)
    _bars(axes, _Z - _ONE / 2, y, z, _ONE)
    _matrix(axes, y, numbers["codebook"], scale)
    stops = ((_U + 0.33, _G - 0.22), (_G + 0.22, _THETA - 0.42), (_THETA + 0.42, _CHOICE - 0.5))
    for start, end in (*stops, (_CHOICE + 0.5, _Z - 0.3), (_Z + 0.3, _H - 0.39)):
        arrow(axes, (start, y), (end, y))


def _scale(numbers: dict[str, Any]) -> tuple[float, float]:
    """The same shades for all vectors: white is the smallest number, dark the largest."""
    training, test = numbers["training"], numbers["test"]
    vectors = [numbers["u"], *numbers["codebook"], training["kept"], training["dropped"], test["v"]]
    values = [value for vector in vectors for value in vector]
    return min(values), max(values)


def _noisy(numbers: dict[str, Any]) -> list[float]:
    """theta + beta G."""
    pairs = zip(numbers["theta"], numbers["noise"], strict=True)
    return [theta + numbers["beta"] * noise for theta, noise in pairs]


def _theta_axis(numbers: dict[str, Any]) -> tuple[float, float]:
    """Where 0 is, and inches per 1, so that theta with and without noise fits."""
    values = [0.0, *numbers["theta"], *_noisy(numbers)]
    unit = _THETA_WIDTH / (max(values) - min(values))
    return _THETA - _THETA_WIDTH / 2 - unit * min(values), unit


def _height(y: float, category: int) -> float:
    return y + _STEP * ((CATEGORIES - 1) / 2 - category)


def _bars(axes: Axes, x: float, y: float, values: Sequence[float], unit: float) -> None:
    """Lying bars from x on, one for each category, the largest one dark."""
    largest = max(values)
    for category, value in enumerate(values):
        colour = CHOSEN if value == largest else BAR
        corner = (x, _height(y, category) - 0.4 * _STEP)
        axes.add_patch(Rectangle(corner, unit * value, 0.8 * _STEP, facecolor=colour))
    reach = CATEGORIES / 2 * _STEP
    axes.plot([x, x], [y - reach, y + reach], color=INK, linewidth=0.7)


def _tracks(axes: Axes, y: float) -> None:
    """The length of 1 behind the bars of z."""
    for category in range(CATEGORIES):
        corner = (_Z - _ONE / 2, _height(y, category) - 0.4 * _STEP)
        axes.add_patch(Rectangle(corner, _ONE, 0.8 * _STEP, facecolor="white"))


def _draw_noisy(axes: Axes, y: float, numbers: dict[str, Any]) -> None:
    zero, unit = _theta_axis(numbers)
    x = [zero + unit * value for value in _noisy(numbers)]
    heights = [_height(y, category) for category in range(CATEGORIES)]
    axes.plot(x, heights, "o", color="white", markersize=3.2, markeredgecolor="black", zorder=3)
    write(axes, _THETA, y - 0.52, r"dots: $\theta+\beta G$")


def _matrix(axes: Axes, y: float, rows: list[list[float]], scale: tuple[float, float]) -> None:
    """The rows of w', each at the height of its category in z, on the green of h."""
    box(axes, _H, y, 0.7, CATEGORIES * _STEP + 0.06, "", H_COLOUR)
    for category, row in enumerate(rows):
        strip(axes, _H, _height(y, category), row, scale)


def _outline_row(axes: Axes, y: float, category: int) -> None:
    width, height = DIM * CELL + 0.02, CELL + 0.02
    corner = (_H - width / 2, _height(y, category) - height / 2)
    axes.add_patch(Rectangle(corner, width, height, fill=False, linewidth=1.3, zorder=4))


def _draw_bypass(axes: Axes, y: float) -> None:
    """DropRes: from u up, through the gate, and down into the sum."""
    top, start, width = y + _BYPASS, _U + 0.44, 2.0
    axes.plot([start, start], [y, top], color=INK, linewidth=1.0)
    axes.plot([start], [y], "o", color=INK, markersize=3)
    arrow(axes, (start, top), (_CHOICE - width / 2 - 0.02, top))
    axes.plot([_CHOICE + width / 2, _PLUS], [top, top], color=INK, linewidth=1.0)
    arrow(axes, (_PLUS, top), (_PLUS, y + 0.09))
    box(axes, _CHOICE, top, width, 0.24, r"DropRes: $b\,u$,  $b\sim$Bernoulli($1-\alpha$)")


def _sum_sign(axes: Axes, x: float, y: float) -> None:
    circle = Circle((x, y), 0.08, facecolor="white", edgecolor=INK, linewidth=1.0, zorder=3)
    axes.add_patch(circle)
    for dx, dy in ((0.045, 0), (0, 0.045)):
        axes.plot([x - dx, x + dx], [y - dy, y + dy], color=INK, linewidth=1.0, zorder=4)


def _frame(axes: Axes, bottom: float, top: float) -> None:
    """The component f, a grey ground between u and v."""
    left, right = 0.89, 6.03
    ground = FancyBboxPatch(
        (left, bottom), right - left, top - bottom,
        boxstyle="round,pad=0,rounding_size=0.06", facecolor="0.955", linewidth=0, zorder=0,
    )  # fmt: skip
    axes.add_patch(ground)
    write(axes, right - 0.12, bottom + 0.13, "$f$", size=10)


def _write_title(axes: Axes, y: float, text: str) -> None:
    write(axes, 0.15, y, text, ha="left", size=8.5)
