"""The record of the chain benchmark: its settings, its rows, and the tables made of them.

One JSON file holds all. A row is found by its own settings (:data:`KEY`), so that a run measures
only what is missing, and a changed setting makes other rows. Nothing here imports torch.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..engine.errors import RecordError, shortened
from ..engine.files import read_json, write_atomically
from ..engine.tables import as_markdown

SCHEMA = 1

Loss = Literal["cross_entropy", "linear", "quadratic"]
"""What is made of the last state."""

Steps = Literal["permute", "keep"]
"""What a step does to the state, mostly: to permute the symbols, or to keep them."""

KEY = (
    "estimator", "steps", "loss", "certainty", "categories", "depth", "alpha", "tau", "beta",
    "chains", "samples", "seed",
)  # fmt: skip
"""The settings of a row, which no other row has."""

METRICS = (
    "bias", "bias_error", "std", "mse", "cosine", "cosine_50", "cosine_50_std", "zeros",
    "not_finite", "seconds", "relative_seconds",
)  # fmt: skip
"""What is measured in a row, see :func:`..chains.summary`."""

Row = dict[str, Any]
Record = dict[str, Any]


@dataclass(frozen=True)
class ChainSettings:
    """What is measured. All estimators are measured with all of it: none is tuned."""

    categories: tuple[int, ...] = (2, 10, 100, 1000)
    depths: tuple[int, ...] = (1, 2, 4, 8, 16)
    alphas: tuple[float, ...] = (1.0, 0.5)  # share of dropped residuals; 1 is without DropRes
    steps: tuple[Steps, ...] = ("permute", "keep")
    # tau and beta; of the second kind of steps only the first
    dials: tuple[tuple[float, float], ...] = (
        (1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (0.5, 0.5), (2.0, 2.0),
    )  # fmt: skip
    loss: Loss = "cross_entropy"
    certainty: float = 0.9  # the mean probability of the likeliest next category
    chains: int = 8
    samples: int = 1000  # estimates for each chain, fewer for large ones
    elements: int = 200_000  # logits in a call, which samples are cut down to
    seed: int = 0

    def samples_of(self, categories: int, depth: int) -> int:
        """Of one chain: a multiple of 50, and at least that many."""
        fitting = self.elements // (categories * depth)
        return max(BATCH, min(self.samples, fitting) // BATCH * BATCH)

    def rows(self, estimator: str, categories: int, depth: int) -> Iterator[Row]:
        """What identifies each row of an estimator for chains of a size."""
        samples = BATCH if estimator in EXACT_SUMS else self.samples_of(categories, depth)
        for steps in self.steps:
            # The first node has no residual, and is all there is at depth 1.
            for alpha in self.alphas if depth > 1 else (1.0,):
                for tau, beta in self.dials if steps == self.steps[0] else self.dials[:1]:
                    yield {
                        "estimator": estimator, "steps": steps, "loss": self.loss,
                        "certainty": self.certainty, "categories": categories, "depth": depth,
                        "alpha": alpha, "tau": tau, "beta": beta, "chains": self.chains,
                        "samples": samples, "seed": self.seed,
                    }  # fmt: skip


BATCH = 50
"""Estimates in a mean, for the cosine of a mean."""

EXACT_SUMS: dict[str, int | None] = {"enumeration": None, "topk_sparsemax": 2}
"""Estimators that go through all paths and have no variance; of how many categories each time."""


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def empty_record(settings: ChainSettings) -> Record:
    stored = json.loads(json.dumps(asdict(settings)))
    return {"schema": SCHEMA, "settings": stored, "runs": [], "targets": [], "skipped": [],
            "rows": []}  # fmt: skip


def write_chains(path: Path, record: Record) -> None:
    """A line for each run, target and row; rows without the names of their columns."""
    rows = [[row[name] for name in _COLUMNS] for row in record["rows"]]
    parts = []
    for name, value in {**record, "columns": _COLUMNS, "rows": rows}.items():
        text = json.dumps(value, allow_nan=False)
        if name in ("runs", "targets", "skipped", "rows"):
            lines = [f"\n  {json.dumps(one, allow_nan=False)}" for one in value]
            text = f"[{','.join(lines)}]"
        parts.append(f'"{name}": {text}')
    content = "{\n " + ",\n ".join(parts) + "\n}\n"
    write_atomically(path, lambda draft: draft.write_text(content, encoding="utf-8"))


_COLUMNS = [*KEY, *METRICS, "run"]


def rounded(measured: dict[str, float | None]) -> dict[str, float | None]:
    """To five digits; what is not finite is None, for JSON has no NaN."""
    return {
        name: float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
        for name, value in measured.items()
    }


def read_chains(path: Path) -> Record:
    """A record, as :func:`write_chains` left it."""
    remedy = "delete it, and it is made again."
    try:
        stored = read_json(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or shortened(error)
        raise RecordError(f"cannot read the record {str(path)!r} ({reason}); {remedy}") from error
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise RecordError(f"{str(path)!r} is no record of chains of schema {SCHEMA}; {remedy}")
    try:
        if stored.pop("columns") != _COLUMNS:
            raise ValueError("its columns are others")
        rows = stored["rows"]
        stored["rows"] = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        settings_of(stored)
        for name in ("runs", "targets", "skipped"):
            if not isinstance(stored[name], list):
                raise TypeError(f"{name} is no list")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{str(path)!r} is a damaged record ({shortened(error)}); {remedy}"
        ) from error
    return stored


def current_rows(record: Record) -> list[Row]:
    """The rows that were measured with the settings of the record."""
    settings = settings_of(record)
    names = dict.fromkeys(row["estimator"] for row in record["rows"])
    sizes = [(k, depth) for k in settings.categories for depth in settings.depths]
    wanted = {key_of(row) for name in names for size in sizes for row in settings.rows(name, *size)}
    return [row for row in record["rows"] if key_of(row) in wanted]


def settings_of(record: Record) -> ChainSettings:
    return ChainSettings(**{name: _frozen(value) for name, value in record["settings"].items()})


def _frozen(value: Any) -> Any:
    """A list of JSON as the tuple that it was."""
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


def select(rows: Sequence[Row], **fields: Any) -> list[Row]:
    """Those rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def best_of_grid(rows: Sequence[Row], by: Literal["mse", "cosine_50"] = "mse") -> Row | None:
    """The row with the least squared error, or the largest cosine; of one size and estimator.

    The error has a flaw: an estimate of 0 has 1, which is less than that of many that point the
    right way. The cosine says nothing of the length.
    """
    measured = [row for row in rows if row[by] is not None]
    sign = 1 if by == "mse" else -1
    return min(measured, key=lambda row: sign * float(row[by]), default=None)


def chains_csv(record: Record) -> str:
    """All rows and all that was measured."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*KEY, *METRICS])
    for row in record["rows"]:
        writer.writerow([row[name] for name in (*KEY, *METRICS)])
    return lines.getvalue()


def chains_table(record: Record, *, categories: int = 10) -> str:
    """Two Markdown tables for one number of categories, and what was left out.

    The first has cosines by depth; the second errors, and the best of the grid.
    """
    settings = settings_of(record)
    if categories not in settings.categories:
        there_are = ", ".join(str(one) for one in settings.categories)
        raise ValueError(f"categories={categories} was not measured; here are: {there_are}.")
    rows = select(current_rows(record), categories=categories)
    if not rows:
        return f"There are no records of chains with {categories} categories yet."
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    middle = sorted(settings.depths)[len(settings.depths) // 2]
    parts = [
        _title(settings, categories, record["targets"]),
        _by_depth(rows, names, settings),
        f"Of one estimate at depth {middle}, as shares of the norm of the exact gradient: bias "
        "and standard deviation at tau = beta = 1. Then the least error² (bias² + std²) and the "
        f"largest cosine of the grid {_grid(settings)} for (tau, beta), the same for all; an "
        "estimate of 0 has an error² of 1. Time: of a call, that of gumbel_softmax is 1.",
        _by_error(rows, names, settings, middle),
    ]
    left_out = [
        f"- `{one['estimator']}`"
        + (f" at depth {one['depth']}" if one["depth"] else "")
        + f": {one['reason']}"
        for one in record["skipped"]
        if one["categories"] in (None, categories)
    ]
    if left_out:
        parts += ["Not measured:", "\n".join(left_out)]
    return "\n\n".join(parts)


def _title(settings: ChainSettings, categories: int, targets: list[Row]) -> str:
    own = [one for one in targets if one["categories"] == categories]
    own = sorted(select(own, steps=settings.steps[0]), key=lambda one: int(one["depth"]))
    norms = ", ".join(f"{one['norm']:.2g} at {one['depth']}" for one in own)
    share = 1 - min(settings.alphas)
    return (
        f"Chains of choices among {categories} categories: the cosine of the mean of {BATCH} "
        "estimates to the exact gradient, at tau = beta = 1, by depth; mean over "
        f"{settings.chains} random chains. DropRes adds the residual with probability {share:g}. "
        f"Norm of the exact gradient by depth: {norms}."
    )


def _grid(settings: ChainSettings) -> str:
    return ", ".join(f"({tau:g}, {beta:g})" for tau, beta in settings.dials)


def _by_depth(rows: list[Row], names: list[str], settings: ChainSettings) -> str:
    """Without DropRes at three depths; with it, and where steps keep the state, at the middle."""
    depths = sorted(settings.depths)
    shallow, middle, deep = depths[0], depths[len(depths) // 2], depths[-1]
    columns: dict[str, dict[str, Any]] = {
        f"depth {depth}": {"steps": settings.steps[0], "depth": depth, "alpha": 1.0}
        for depth in (shallow, middle, deep)
    }
    for steps in settings.steps:
        for alpha in settings.alphas:
            title = f"{middle}, {steps}" + (", DropRes" if alpha < 1 else "")
            if (steps, alpha) != (settings.steps[0], 1.0):
                columns[title] = {"steps": steps, "depth": middle, "alpha": alpha}
    lines = [["estimator", *columns]]
    for name in names:
        own = select(rows, estimator=name, tau=1, beta=1)
        found = [next(iter(select(own, **what)), None) for what in columns.values()]
        lines.append([name, *(_shown(row, "cosine_50") for row in found)])
    return as_markdown(lines)


def _by_error(rows: list[Row], names: list[str], settings: ChainSettings, depth: int) -> str:
    lines = [["estimator", "bias", "std", "least error²", "best cosine", "time"]]
    for name in names:
        own = select(rows, estimator=name, depth=depth, alpha=1.0, steps=settings.steps[0])
        plain = next(iter(select(own, tau=1, beta=1)), None)
        least, best = best_of_grid(own), best_of_grid(own, by="cosine_50")
        at_best = [_with_dials(least, "mse"), _with_dials(best, "cosine_50")]
        lines.append([name, _bias(plain), _shown(plain, "std"), *at_best])
        lines[-1].append(_shown(plain, "relative_seconds"))
    return as_markdown(lines)


def _with_dials(row: Row | None, metric: str) -> str:
    where = "" if row is None else f" ({row['tau']:g}, {row['beta']:g})"
    return f"{_shown(row, metric)}{where}"


def _bias(row: Row | None) -> str:
    """Below its Monte-Carlo error a bias is not seen."""
    if row is not None and row["bias"] is not None and row["bias"] < row["bias_error"]:
        return f"< {row['bias_error']:.2g}"
    return _shown(row, "bias")


def _shown(row: Row | None, metric: str) -> str:
    value = None if row is None else row[metric]
    if value is None:
        return "-"
    write: Callable[[float], str] = "{:.2f}".format if abs(value) < 10 else "{:.3g}".format
    return write(value)
