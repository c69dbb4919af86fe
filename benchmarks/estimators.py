"""Time and memory of every gradient estimator against Gumbel-softmax, as ratios from one run.

    python benchmarks/estimators.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/estimators.py --table    # the records as tables, in docs/speed-estimators.md

The estimators are those of the registries. All get the same logits or the same codebook, and the
same loss, a fixed linear function of what the node returns; forward and backward pass are timed
together, and launched one by one, as in a training loop that is not captured. On 2 CPU cores a run
takes about a quarter of an hour. It writes benchmarks/results/estimators-DEVICE.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch
from common import Contender, Record, main, markdown, peak, records, seconds_per_step
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.codebook._estimators import CODEBOOK_ESTIMATORS
from dcgraph.estimators import ESTIMATORS, LOSS_ESTIMATORS

BASE = "gumbel_softmax"
ONLY_LOSS = "the loss only"  # no choice at all: what every row pays
LEFT_OUT = {"enumeration": "it calls the loss once for every category, and is for short rows"}
"""What is not measured, and why."""

TAU = BETA = 1.0  # equal: all that estimate a gradient of E f estimate the same one
LIMIT = 16e9  # bytes; what needs more is not run
SECONDS = 1.0  # of measuring one estimator at one place, about


@dataclass(frozen=True)
class Place:
    """So many choices at once, by given logits or over a codebook of vectors of that width."""

    vectors: int
    categories: int
    dim: int | None = None

    @property
    def title(self) -> str:
        return f"{self.vectors} x {self.categories:,}" if self.dim is None else "over a codebook"


PLACES = (Place(512, 1000), Place(512, 38_696), Place(512, 38_696, 512))


class Step:
    """Forward and backward pass of one estimator under a linear loss.

    ``data`` are the input, the weights of the loss, and the codebook if there is one.
    """

    def __init__(self, name: str, place: Place, data: tuple[Tensor, ...], rows: int) -> None:
        self.input = data[0][:rows].detach().requires_grad_()
        self.weights = data[1]
        self.calls = 0  # of the loss, in the last run
        self.node: nn.Module
        if name == ONLY_LOSS:
            self.node = nn.Identity()
            return
        if place.dim is None:
            self.node = dc.Categorical(estimator=name, categories=place.categories)
        else:
            size = place.dim, place.categories
            node = dc.Discrete(*size, codebook="tied", estimator=name, residual="none")
            node.codebook = nn.Parameter(data[2])  # the same for all
            self.node = node
        self.node.to(self.input.device)
        dc.Dials.constant(self.node, tau=TAU, beta=BETA)

    @property
    def makes_logits(self) -> bool:
        """Whether a node over a codebook makes the matrix of all logits."""
        return isinstance(self.node, dc.Discrete) and not self.node.is_large

    @property
    def learned(self) -> list[Tensor]:
        return [self.input, *self.node.parameters()]

    def loss(self) -> Tensor:
        """One number for each row."""
        self.calls += 1
        losses: Tensor = self.node(self.input) @ self.weights
        return losses

    def run(self, times: int) -> None:
        for _ in range(times):
            self.calls = 0
            dc.surrogate(self.node, self.loss).sum().backward()
            for value in self.learned:
                value.grad = None

    def bytes(self) -> int | None:
        """At most in use in one run, beyond inputs and gradients."""
        self.run(1)  # what a first run leaves behind does not count
        with peak(self.input.device.type) as found:
            self.run(1)
        gradients = sum(value.numel() * value.element_size() for value in self.learned)
        return None if found[0] is None else max(0, found[0] - gradients)


def data_of(place: Place, device: str) -> tuple[Tensor, ...]:
    """Logits of variance 1, or vectors and rows whose products are such; weights of the loss."""
    width = place.dim or place.categories
    given = torch.randn(place.vectors, width, device=device)
    weights = torch.randn(width, device=device)
    if place.dim is None:
        return given, weights
    codebook = torch.randn(place.categories, place.dim, device=device)
    return given / place.dim**0.25, weights, codebook / place.dim**0.25


def reason(name: str, place: Place, data: tuple[Tensor, ...]) -> str | None:
    """Why an estimator is not run there; None if it is.

    Memory is foreseen from two runs with few rows, for it grows with the rows.
    """
    if name in LEFT_OUT:
        return LEFT_OUT[name]
    if place.dim is None and name not in {ONLY_LOSS, *ESTIMATORS, *LOSS_ESTIMATORS}:
        return "it is for codebooks, and needs their vectors"
    few, more = place.vectors // 16, place.vectors // 8
    sizes = [Step(name, place, data, rows).bytes() for rows in (few, more)]
    if sizes[0] is None or sizes[1] is None:
        return None
    growth = (sizes[1] - sizes[0]) / (more - few)
    foreseen = sizes[1] + growth * (place.vectors - more)
    return None if foreseen < LIMIT else f"it needs about {foreseen / 1e9:,.0f} GB"


def measure(device: str) -> Record:
    names = list(dict.fromkeys([BASE, *ESTIMATORS, *CODEBOOK_ESTIMATORS, *LOSS_ESTIMATORS]))
    rows = [row for place in PLACES for row in measure_at(place, [*names, ONLY_LOSS], device)]
    return {"tau": TAU, "beta": BETA, "rows": rows}


def measure_at(place: Place, names: list[str], device: str) -> list[Record]:
    """All estimators in turns, so that a busy moment hits all of them."""
    data = data_of(place, device)
    rows: list[Record] = [{"estimator": name, **vars(place)} for name in names]
    steps: list[tuple[Record, Step]] = []
    for row in rows:
        why = reason(row["estimator"], place, data)
        if why is not None:
            row["left_out"] = why
            continue
        step = Step(row["estimator"], place, data, place.vectors)
        row |= {"bytes": step.bytes(), "makes_logits": step.makes_logits, "calls": step.calls}
        steps.append((row, step))
    contenders = [Contender(row["estimator"], 1, step.run) for row, step in steps]
    long = device == "cpu" and place.categories > 4096
    times = seconds_per_step(
        contenders,
        torch.device(device),
        SECONDS * len(steps),
        longest_block=1 if long else 100,
        warm_up=1,
    )
    base = times[[row["estimator"] for row, _ in steps].index(BASE)]
    for (row, _), own in zip(steps, times, strict=True):
        row["seconds"] = median(own)
        row["times"] = median(mine / other for mine, other in zip(own, base, strict=True))
        print(f"{device} {place.title}: {row['estimator']} {row['times']:.2f}")
    return rows


def table(part: str = "") -> str:
    """The records as Markdown: that of one device, "cpu" or "cuda", or all of them."""
    parts = {
        "cpu" if "CPU" in record["device"] else "cuda": _table(record)
        for record in records("estimators")
    }
    if not part and parts:
        return "\n\n".join(parts.values())
    option = f" --device {part}" if part else ""
    none = f"*There is no record yet: `python benchmarks/estimators.py{option}`.*"
    return parts.get(part, none)


def _table(record: Record) -> str:
    by_place: dict[str, dict[str, Record]] = {}
    for row in record["rows"]:
        by_place.setdefault(_place(row).title, {})[row["estimator"]] = row
    *plain, last = by_place.values()
    lines = []
    for name in last:
        here = [rows[name] for rows in (*plain, last)]
        calls = dict.fromkeys(f"{row['calls']}" for row in here if "calls" in row)
        if not calls:
            continue
        times = [f"{row['times']:.2f}x" if "times" in row else "-" for row in here]
        memory, whole = last[name].get("bytes"), last[name].get("makes_logits")
        cells = [name if name == ONLY_LOSS else f"`{name}`", " to ".join(calls), *times]
        cells += ["-" if memory is None else f"{memory / 1e6:,.0f}"]
        lines.append([*cells, "-" if whole is None else ("yes" if whole else "no")])
    head = ["estimator", "calls of the loss", *by_place, "its memory, MB", "matrix of logits"]
    base = ", ".join(f"{1000 * rows[BASE]['seconds']:,.1f} ms" for rows in by_place.values())
    title = f"On {record['device']}, in times of `{BASE}` ({base}):"
    return f"{title}\n\n{markdown(head, lines)}{_left_out(record['rows'])}"


def _place(row: Record) -> Place:
    return Place(row["vectors"], row["categories"], row["dim"])


def _left_out(rows: list[Record]) -> str:
    """What was not run where, and why, as a paragraph."""
    where: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "left_out" in row:
            where.setdefault((row["estimator"], row["left_out"]), []).append(_place(row).title)
    every = len({_place(row).title for row in rows})
    said = []
    for (name, why), places in where.items():
        at = "" if len(places) == every else f" ({' and '.join(places)})"
        said.append(f"`{name}`{at}: {why}")
    return f"\n\nNot run: {'; '.join(said)}." if said else ""


if __name__ == "__main__":
    main("estimators", __doc__.split("\n")[0], measure, table)
