"""Gradient estimators on chains whose gradient is known, from the record of the benchmark.

A row of panels for each family of estimators: its members in colours, all others in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from ..compare.chains_record import BATCH, current_rows, read_chains, select, settings_of
from ..engine.errors import RecordError
from .style import page, shades

FAMILIES = {  # by what an estimator does in the forward pass, and with the gradient
    "relaxed": ("gumbel_softmax", "sparsemax", "entmax15"),
    "straight-through": (
        "straight_through", "straight_through_gumbel_softmax", "gapped_straight_through",
        "gumbel_rao",
    ),
    "second order": ("reinmax", "zgr", "reinmax_rao", "reinmax_cv"),
    "perturbed": ("imle", "adaptive_imle"),
    "with the loss": ("reinforce", "rebar", "relax", "topk_sparsemax", "enumeration"),
}  # fmt: skip
_SHORT = {"straight_through": "ST", "gumbel_softmax": "GS"}
_METRICS = ("cosine_50", "bias", "bias_error", "std")
_MARKERS = "osD^v"
_GREY = "#d9d9d9"
_DASHED = (0, (2, 1.2))


def compute(results: Path) -> dict[str, Any]:
    """What is drawn of each estimator at tau = beta = 1 by the depth of the chains."""
    path = results / "compare" / "chains.json"
    if not path.exists():
        raise RecordError(
            f"{str(results)!r} has no compare/chains.json; choose --results, or run: "
            "dcgraph compare chains"
        )
    record = read_chains(path)
    settings, rows = settings_of(record), select(current_rows(record), tau=1.0, beta=1.0)
    found = dict.fromkeys(row["estimator"] for row in rows)
    known = [name for names in FAMILIES.values() for name in names]
    families = {
        **{family: [name for name in names if name in found] for family, names in FAMILIES.items()},
        "others": [name for name in found if name not in known],
    }
    lines = []
    for name in found:
        for steps in settings.steps:
            for categories in settings.categories:
                for alpha in settings.alphas:
                    # At depth 1 there is no residual, and one chain for both.
                    own = select(rows, estimator=name, steps=steps, categories=categories)
                    own = [row for row in own if row["alpha"] == alpha or row["depth"] == 1]
                    own.sort(key=lambda row: int(row["depth"]))
                    what = {"estimator": name, "steps": steps, "categories": categories}
                    values = {of: [row[of] for row in own] for of in ("depth", *_METRICS)}
                    lines.append({**what, "alpha": alpha, **values})
    return {
        "figure": "chains",
        "families": {family: names for family, names in families.items() if names},
        "steps": list(settings.steps),
        "categories": list(settings.categories),
        "depths": sorted(settings.depths),
        "alphas": list(settings.alphas),
        "chains": settings.chains,
        "lines": lines,
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """The cosine where every step permutes the symbols."""
    _draw_cosines(numbers, path, numbers["steps"][0])


def draw_keeping(numbers: dict[str, Any], path: Path) -> None:
    """The cosine where steps mostly keep the state, so that a residual says the same."""
    _draw_cosines(numbers, path, numbers["steps"][-1])


def _draw_cosines(numbers: dict[str, Any], path: Path, steps: str) -> None:
    families, sizes = numbers["families"], numbers["categories"]
    with page(path, width=7.2, height=_height(families)) as figure:
        panels = figure.subplots(len(families), len(sizes), sharex=True, sharey=True, squeeze=False)
        for (family, names), row in zip(families.items(), panels, strict=True):
            for categories, axes in zip(sizes, row, strict=True):
                own = [one for one in numbers["lines"] if one["steps"] == steps]
                own = [one for one in own if one["categories"] == categories]
                _draw_lines(axes, own, names, "cosine_50")
                _depths(axes, numbers["depths"])
                axes.axhline(0, color="grey", linewidth=0.6, zorder=0)
                axes.set_ylim(-0.25, 1.05)
                axes.set_yticks([0, 0.5, 1])
            row[0].set_ylabel(family)
            _name_lines(row[-1], names)
        for categories, axes in zip(sizes, panels[0], strict=True):
            axes.set_title(f"{categories} categories")
        _below(figure, f"cosine of the mean of {BATCH} estimates to the exact gradient")


def draw_errors(numbers: dict[str, Any], path: Path) -> None:
    """Bias and standard deviation of one estimate where steps permute, without DropRes."""
    families = numbers["families"]
    sizes = [size for size in numbers["categories"] if 2 < size < 1000][:2]
    sizes = sizes or numbers["categories"][:2]
    kinds = [(size, metric) for size in sizes for metric in ("bias", "std")]
    shown = [one for one in numbers["lines"] if one["steps"] == numbers["steps"][0]]
    shown = [one for one in shown if one["alpha"] == 1]
    with page(path, width=7.2, height=_height(families)) as figure:
        panels = figure.subplots(len(families), len(kinds), sharex=True, sharey=True, squeeze=False)
        for (family, names), row in zip(families.items(), panels, strict=True):
            for (size, metric), axes in zip(kinds, row, strict=True):
                own = [one for one in shown if one["categories"] == size]
                _draw_lines(axes, own, names, metric)
                _depths(axes, numbers["depths"])
                axes.axhline(1, color="grey", linewidth=0.6, zorder=0)
                axes.set_yscale("log")
                axes.set_ylim(1e-3, 1e4)
                axes.set_yticks([1e-2, 1, 1e2, 1e4], labels=["0.01", "1", "100", "10,000"])
                axes.yaxis.set_minor_locator(NullLocator())
            row[0].set_ylabel(family)
            _name_lines(row[-1], names)
        for (size, metric), axes in zip(kinds, panels[0], strict=True):
            said = "bias" if metric == "bias" else "standard deviation"
            axes.set_title(f"{size} categories\n{said}")
        text = (
            "share of the exact gradient's norm, of one estimate (one of 0 has bias 1); "
            "no bias is drawn below its Monte-Carlo error, and no 0"
        )
        _below(figure, text, residuals=False)


def _height(families: dict[str, Any]) -> float:
    return 0.95 + 0.98 * max(3, len(families))


def _draw_lines(
    axes: Axes, lines: Sequence[dict[str, Any]], names: Sequence[str], metric: str
) -> None:
    """The family above all others, with residuals dashed; the others only without."""
    looks = _looks(names)
    for one in lines:
        residual, member = one["alpha"] < 1, one["estimator"] in names
        if residual and not member:
            continue
        colour, marker, width = looks.get(one["estimator"], (_GREY, "", 0.7))
        depths, values = one["depth"], one[metric]
        if metric == "bias":
            values = [_seen(*pair) for pair in zip(values, one["bias_error"], strict=True)]
        if metric != "cosine_50":  # a logarithmic axis has no 0
            values = [value or None for value in values]
        axes.plot(
            depths, [float("nan") if value is None else value for value in values],
            color=colour, linestyle=_DASHED if residual else "-", linewidth=width,
            marker="" if residual else marker, markersize=2 * width, zorder=3 if member else 1,
        )  # fmt: skip


def _seen(bias: float | None, error: float | None) -> float | None:
    """Below its Monte-Carlo error a bias is not seen."""
    return None if bias is None or error is None or bias < error else bias


def _looks(names: Sequence[str]) -> dict[str, tuple[str, str, float]]:
    """Colour, marker and width: the first are wider, to be seen below those that coincide."""
    colours = reversed(shades(max(3, len(names))))
    return {
        name: (colour, _MARKERS[k % len(_MARKERS)], max(1.0, 1.8 - 0.4 * k))
        for k, (name, colour) in enumerate(zip(names, colours, strict=False))
    }


def _depths(axes: Axes, depths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(depths, labels=[str(depth) for depth in depths])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(depths[0] / 1.15, depths[-1] * 1.15)


def _name_lines(axes: Axes, names: Sequence[str]) -> None:
    """Beside the last panel of a row."""
    looks = _looks(names)
    handles = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linewidth=width,
            markersize=2 * width,
            label=_said(name),
        )
        for name, (colour, marker, width) in looks.items()
    ]
    axes.legend(
        handles=handles, loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small",
        handlelength=1.4, borderpad=0,
    )  # fmt: skip


def _said(name: str) -> str:
    """Short enough for the margin."""
    for long, short in _SHORT.items():
        name = name.replace(long, short)
    return name.replace("_", " ")


def _below(figure: Figure, text: str, residuals: bool = True) -> None:
    figure.supxlabel(f"depth: number of choices in a row\n{text}", fontsize=8)
    if residuals:
        handles = [
            Line2D([], [], color="black", label="without residuals"),
            Line2D([], [], color="black", linestyle=_DASHED, label="with DropRes"),
            Line2D([], [], color=_GREY, label="all other estimators, without"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
