"""Speed of training on path queries against a step that torch does the plain way, from one run.

    python benchmarks/paths.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/paths.py --table    # the records as tables, in docs/speed-paths.md

A step is that of the paper's model on a graph of the size of WN11: 38,696 entities with 512 numbers
each, 512 queries, one to five relations. The plain way makes the matrix of all scores, adds noise,
takes the softmax and multiplies with all entities, eager. It is there twice: as ComplEx is usually
written, with real and imaginary parts apart and torch's Adam as it comes, and leaner, with scores
as one product and the fused Adam. On CUDA each is there in float32, in TF32 and with autocast to
bfloat16; noise and softmax are in float32 always. dcgraph is the step of the training loop, on CUDA
a captured graph. Queries are random, which changes nothing in the work. On the CPU the graph has
4,096 entities with 64 numbers, and 64 queries, and all is in float32. A run takes about a minute
there, three on one H200. It writes benchmarks/results/paths-DEVICE.json.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Contender,
    Record,
    csv_of,
    main,
    markdown,
    records,
    seconds_per_step,
    stopwatch,
)
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import Data
from dcgraph.experiments.engine.memory import keep_freed_memory
from dcgraph.experiments.engine.step import Stepper, matmul_precision
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph, Queries
from dcgraph.experiments.tasks.paths.operators import complex_product
from dcgraph.experiments.tasks.paths.settings import PAPER, PathSettings
from dcgraph.experiments.tasks.paths.task import Paths, batch_maker
from dcgraph.population._rows import RowPopulation

RELATIONS = 11
HOPS = {"cpu": (3,), "cuda": (1, 3, 5)}
PRECISIONS = {"cpu": ("float32",), "cuda": ("float32", "tf32", "bf16")}
SECONDS = {"cpu": 40, "cuda": 5}  # of timed steps, for each number of hops
STEPS = 50  # in an epoch of random queries
TAU, BETA, ALPHA = 4.0, 2.0, 0.5
USUAL, LEAN, DCGRAPH = "whole matrices, parts apart", "whole matrices, one product", "dcgraph"


@dataclass(frozen=True)
class Size:
    entities: int
    dim: int  # complex numbers
    batch: int


SIZES = {"cpu": Size(4096, 32, 64), "cuda": Size(38_696, 256, 512)}


class Random(Paths):
    """The task on a graph without triples, for random queries of one length."""

    def __init__(self, size: Size, hops: int) -> None:
        super().__init__()
        names = tuple(map(str, range(size.entities))), tuple(map(str, range(RELATIONS)))
        self._graphs["random"] = KnowledgeGraph(*names, {})
        self._size, self._hops = size, hops

    def data(self, settings: PathSettings, data_dir: Path | None = None) -> Data:
        count, draw = STEPS * self._size.batch, torch.Generator().manual_seed(0)
        ends = torch.randint(self._size.entities, (2, count), generator=draw).int()
        path = torch.randint(2 * RELATIONS, (count, self._hops), generator=draw).int()
        queries = Queries(ends[0], path, ends[1])
        splits = {"train": queries.packed(), "test": queries.table()}
        to_batch = batch_maker(settings, self.graph(settings.graph))
        return Data(splits, "random", to_batch=to_batch)


class Parts(nn.Module):
    """The model by its formula, with whole matrices: real and imaginary parts apart."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.re, self.im = (_uniform(size.entities, size.dim) for _ in range(2))
        self.relation_re, self.relation_im = (_uniform(2 * RELATIONS, size.dim) for _ in range(2))

    def forward(self, source: Tensor, path: Tensor) -> Tensor:
        p = PAPER.subject_dropout
        re, im = F.dropout(self.re[source], p), F.dropout(self.im[source], p)
        for hop, relation in enumerate(path.unbind(1), 1):
            p = PAPER.relation_dropout
            r_re, r_im = (
                F.dropout(self.relation_re[relation], p),
                F.dropout(self.relation_im[relation], p),
            )
            to_re, to_im = re * r_re - im * r_im, re * r_im + im * r_re
            if hop == path.shape[1]:
                break
            z = _relaxed(to_re @ self.re.T + to_im @ self.im.T)
            gate = torch.rand((), device=z.device) < 1 - ALPHA
            v_re, v_im = z @ self.re, z @ self.im
            re, im = torch.where(gate, v_re + re, v_re), torch.where(gate, v_im + im, v_im)
        p = PAPER.object_dropout
        return to_re @ F.dropout(self.re, p).T + to_im @ F.dropout(self.im, p).T


class OneProduct(nn.Module):
    """The same with both parts side by side, so that scores are one product."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.entities = _uniform(size.entities, 2 * size.dim)
        self.relations = _uniform(2 * RELATIONS, 2 * size.dim)

    def forward(self, source: Tensor, path: Tensor) -> Tensor:
        s = F.dropout(self.entities[source], PAPER.subject_dropout)
        *others, last = F.dropout(self.relations[path], PAPER.relation_dropout).unbind(1)
        for r in others:
            v = _relaxed(complex_product(s, r) @ self.entities.T) @ self.entities
            s = torch.where(torch.rand((), device=v.device) < 1 - ALPHA, v + s, v)
        candidates = F.dropout(self.entities, PAPER.object_dropout)
        return complex_product(s, last) @ candidates.T


def _uniform(*sizes: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*sizes).uniform_(-1, 1))


def _relaxed(scores: Tensor) -> Tensor:
    noise = -torch.empty_like(scores, dtype=torch.float32).exponential_().log()
    return ((scores + BETA * noise) / TAU).softmax(-1)


@contextmanager
def products(precision: str, device: torch.device) -> Iterator[None]:
    """Matrix products of float32 tensors in the given precision, as torch offers it."""
    with (
        matmul_precision("high" if precision == "tf32" else "highest"),
        torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"),
    ):
        yield


def plain(way: str, size: Size, hops: int, device: torch.device, precision: str) -> Contender:
    task = Random(size, hops)
    settings = settings_of(size, "float32")
    data = task.data(settings).to(device)
    table = data.table("train")
    model = (Parts if way == USUAL else OneProduct)(size).to(device)
    optimizer = torch.optim.Adam(model.parameters(), settings.lr, fused=way != USUAL)

    def run(steps: int) -> None:
        for step in range(steps):
            rows = slice(step * size.batch, (step + 1) * size.batch)
            batch = {name: tensor[rows] for name, tensor in table.items()}
            inputs = data.batch(batch, training=True)
            with products(precision, device):
                scores = model(inputs["source"].long(), inputs["path"].long())
                loss = F.cross_entropy(scores, inputs["target"].long(), reduction="sum")
            optimizer.zero_grad()
            with matmul_precision("high" if precision == "tf32" else "highest"):
                loss.backward()
            optimizer.step()

    return Contender(way, 1, run, precision=precision)


def fast(size: Size, hops: int, device: torch.device, precision: str) -> Contender:
    task, settings = Random(size, hops), settings_of(size, precision)
    data = task.data(settings).to(device)
    models = RowPopulation(lambda: task.model(settings), [0], device)
    dc.Dials.constant(models, tau=TAU, beta=BETA, alpha=ALPHA)
    order = [[torch.arange(STEPS * size.batch)]]
    with stopwatch(device) as setup:
        stepper = Stepper(task, models, [settings], data, 10**6)
        stepper.start_epoch(order, [0] * STEPS)
        stepper.run(1)

    def run(steps: int) -> None:
        stepper.start_epoch(order, [0] * STEPS)
        stepper.run(steps)

    return Contender(DCGRAPH, 1, run, setup[0], precision)


def settings_of(size: Size, precision: str) -> PathSettings:
    base = replace(PAPER, graph="random", dim=size.dim, batch=size.batch)
    return replace(base, precision=precision)  # type: ignore[arg-type]


def measure(name: str) -> Record:
    keep_freed_memory()
    torch.manual_seed(0)
    device, size = torch.device(name), SIZES[name]
    longest, warm_up = (STEPS, 20) if name == "cuda" else (10, 2)
    rows = []
    for hops in HOPS[name]:
        contenders = [
            plain(way, size, hops, device, precision)
            for precision in PRECISIONS[name]
            for way in (USUAL, LEAN)
        ]
        contenders += [fast(size, hops, device, precision) for precision in PRECISIONS[name]]
        times = seconds_per_step(contenders, device, SECONDS[name], longest, warm_up)
        references = [statistics.median(own) for own in times[:2]]  # in float32
        for contender, own in zip(contenders, times, strict=True):
            low, median, high = statistics.quantiles(own, n=4)
            rows.append(
                {
                    "hops": hops,
                    "way": contender.way,
                    "precision": contender.precision,
                    "setup_s": contender.setup,
                    "ms_per_step": 1000 * median,
                    "ms_quartiles": [1000 * low, 1000 * high],
                    "speedups": [reference / median for reference in references],
                }
            )
    return {"size": vars(size), "rows": rows}


def table() -> str:
    """The records as Markdown, one table per device, a row for each length and precision."""
    parts = []
    for record in records("paths"):
        lines = []
        for row in record["rows"]:
            if row["way"] == DCGRAPH:
                times = [_time(way, row, record) for way in (USUAL, LEAN, DCGRAPH)]
                shown = ["-" if time is None else f"{time:.2f}" for time in times]
                like = _like_for_like(row, record)
                ratios = ["-" if like is None else f"{like:.2f}x", f"{row['speedups'][0]:.2f}x"]
                lines.append([str(row["hops"]), row["precision"], *shown, *ratios])
        head = ["relations", "precision", *(f"{way}, ms" for way in ("parts apart", "one product"))]
        head += ["dcgraph, ms", "against the faster", "against parts apart in float32"]
        title = f"On {record['device']}, {record['size']['entities']:,} entities:"
        parts.append(f"{title}\n\n{markdown(head, lines)}")
    return "\n\n".join(parts)


def whole() -> str:
    """All rows of all records, as CSV."""
    lines: list[list[Any]] = []
    for record in records("paths"):
        for row in record["rows"]:
            like = _like_for_like(row, record)
            ratios = [*row["speedups"], like]
            lines.append(
                [record["device"], *record["size"].values(), row["hops"], row["way"],
                 row["precision"], round(row["ms_per_step"], 3),
                 *(None if ratio is None else round(ratio, 2) for ratio in ratios)]
            )  # fmt: skip
    head = ["device", *("entities", "complex numbers", "queries"), "relations", "way", "precision"]
    head += ["ms per step", "against parts apart in float32", "against one product in float32"]
    return csv_of([*head, "against the faster of the two at the same precision"], lines)


def _time(way: str, row: Record, record: Record) -> float | None:
    """Milliseconds that another way takes for the same, where that was measured."""
    for other in record["rows"]:
        alike = (other["hops"], other["precision"]) == (row["hops"], row["precision"])
        if alike and other["way"] == way:
            return float(other["ms_per_step"])
    return None


def _like_for_like(row: Record, record: Record) -> float | None:
    """Against the faster of the plain ways at the row's own precision, where that was measured."""
    times = (_time(way, row, record) for way in (USUAL, LEAN))
    plain_times = [time for time in times if time is not None]
    return min(plain_times) / float(row["ms_per_step"]) if plain_times else None


if __name__ == "__main__":
    main("paths", __doc__.split("\n")[0], measure, table)
