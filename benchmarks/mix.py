"""Speed and memory of mix, choose and cross_entropy over a codebook, against whole matrices.

    python benchmarks/mix.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/mix.py --table    # the records as tables, in docs/speed-codebook.md

Whole matrices are measured at every precision that ours are; noise and softmax are in float32.
A run takes about five minutes on 2 CPU cores, and a few on an H200, where it compiles kernels.
It writes benchmarks/results/mix-DEVICE.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from common import Record, csv_of, main, markdown, peak, records
from torch import Tensor

import dcgraph as dc
from dcgraph.codebook._functions import make_problem, using
from dcgraph.codebook._problem import Implementation, fastest

TAU, BETA = 4.0, 2.0
SECONDS = 0.4  # of measuring one thing, about; on a GPU less will do
UNITS = {"mix": (2, 4), "mix, hard": (1, 3), "choose": (1, 0), "cross_entropy": (1, 2)}
"""Products of all queries with the whole codebook, forward and backward: what must be computed."""
PRECISIONS = {"float32": torch.float32, "TF32": torch.float32, "bf16": torch.bfloat16}

Run = Callable[[], Any]


@dataclass(frozen=True)
class Size:
    rows: int
    dim: int
    n: int


def whole_mix(query: Tensor, codebook: Tensor, _: Tensor) -> Tensor:
    """What the paper's code does, with whole matrices."""
    logits = query @ codebook.T
    soft = ((logits + BETA * _gumbel(logits)) / TAU).softmax(-1)
    return soft.to(codebook.dtype) @ codebook


def whole_hard_mix(query: Tensor, codebook: Tensor, _: Tensor) -> Tensor:
    """The same, straight through."""
    logits = query @ codebook.T
    soft = ((logits + BETA * _gumbel(logits)) / TAU).softmax(-1)
    hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
    return (hard - soft.detach() + soft).to(codebook.dtype) @ codebook


def whole_choose(query: Tensor, codebook: Tensor, _: Tensor) -> Tensor:
    logits = query @ codebook.T
    return F.embedding((logits + BETA * _gumbel(logits)).argmax(-1), codebook)


def whole_cross_entropy(query: Tensor, codebook: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy((query @ codebook.T).float(), target, reduction="none")


def _gumbel(logits: Tensor) -> Tensor:
    return -torch.empty_like(logits, dtype=torch.float32).exponential_().log()


WHOLE = "whole matrices"
WHOLE_MATRICES = {
    "mix": whole_mix,
    "mix, hard": whole_hard_mix,
    "choose": whole_choose,
    "cross_entropy": whole_cross_entropy,
}


def ours(task: str, way: Implementation | None) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    calls: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "mix": lambda q, c, _: dc.mix(q, c, TAU, beta=BETA),
        "mix, hard": lambda q, c, _: dc.mix(q, c, TAU, beta=BETA, hard=True),
        "choose": lambda q, c, _: dc.codebook.choose(q, c, beta=BETA)[1],
        "cross_entropy": lambda q, c, target: dc.codebook.cross_entropy(q, c, target),
    }

    def call(query: Tensor, codebook: Tensor, target: Tensor) -> Tensor:
        with using(way):
            return calls[task](query, codebook, target)

    return call


def seconds(runs: list[Run], device: str) -> list[list[float]]:
    """Times of each; on the CPU in turns, so that a busy moment hits all of them."""
    if device == "cuda":
        return [cuda_seconds(run) for run in runs]
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    stop = time.perf_counter() + SECONDS * len(runs)
    while time.perf_counter() < stop or len(times[0]) < 5:
        for run, own in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            own.append(time.perf_counter() - start)
    return times


def cuda_seconds(run: Run) -> list[float]:
    """Of what is short, as a captured graph, so that launches do not count."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    once = _event_seconds(run)
    if once < 0.05:  # a longer one is not held up by its launches
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
        once = _event_seconds(run)
    together = max(1, round(2e-3 / once))
    repeats = min(20, max(3, round(SECONDS / (together * once))))
    return [_event_seconds(run, together) for _ in range(repeats)]


def _event_seconds(run: Run, times: int = 1) -> float:
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000 / times


@contextmanager
def precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "TF32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass
class Contender:
    """One way of computing something, ready to run."""

    way: str
    precision: str
    call: Callable[[Tensor, Tensor, Tensor], Tensor]
    forward: Run | None = None  # None where it ran out of memory
    both: Run | None = None  # forward and backward; only forward where nothing is learned
    bytes: int | None = None

    def prepare(self, task: str, size: Size, device: str) -> None:
        """Make the inputs, run once, and measure the memory beyond results and gradients."""
        dtype = PRECISIONS[self.precision]
        learns = UNITS[task][1] > 0
        query = (torch.randn(size.rows, size.dim, device=device) / size.dim**0.25).to(dtype)
        codebook = torch.randn(size.n, size.dim, device=device, dtype=dtype) / size.dim**0.25
        query.requires_grad_(learns)
        codebook.requires_grad_(learns)
        target = torch.randint(size.n, (size.rows,), device=device)

        def forward() -> Tensor:
            with precision(self.precision):
                return self.call(query, codebook, target)

        def both() -> tuple[Tensor, ...]:
            with precision(self.precision):
                v = self.call(query, codebook, target)
                return torch.autograd.grad(v, (query, codebook), torch.ones_like(v))

        run: Run = both if learns else forward
        try:
            run()
            with peak(device) as found:
                results = run()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            return
        of_results = sum(r.numel() * r.element_size() for r in results) if learns else 0
        self.bytes = None if found[0] is None else max(0, found[0] - of_results)
        self.forward, self.both = forward, run


def rates(device: str) -> dict[str, float]:
    """Operations per second of a large matrix product, and bytes per second of a copy."""
    side = 8192 if device == "cuda" else 2048
    found = {}
    for name, dtype in PRECISIONS.items():
        if device == "cpu" and name != "float32":
            continue
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        with precision(name):
            found[name] = 2 * side**3 / median(seconds([partial(torch.mm, a, b)], device)[0])
    big = torch.empty(1 << (29 if device == "cuda" else 26), device=device)
    target = torch.empty_like(big)
    found["copy"] = 2 * 4 * big.numel() / median(seconds([lambda: target.copy_(big)], device)[0])
    return found


def _backward(forward: list[float], both: list[float], device: str) -> float:
    """What the backward pass takes: on the CPU of each turn, because turns differ."""
    if device == "cuda":
        return median(both) - median(forward)
    return median(b - f for f, b in zip(forward, both, strict=True))


def floor(task: str, size: Size, name: str, speed: dict[str, float]) -> float:
    """Seconds that the products take at full speed, or reading the codebook and writing its
    gradient, whichever is longer."""
    forward, backward = UNITS[task]
    operations = (forward + backward) * 2 * size.rows * size.dim * size.n
    codebook = size.n * size.dim * PRECISIONS[name].itemsize
    passes = 1 + (2 if backward else 0)
    rate = speed.get(name, speed["float32"])
    return max(operations / rate, passes * codebook / speed["copy"])


def plans(device: str) -> Iterator[tuple[str, Size, list[tuple[str, Implementation | None]]]]:
    """Task, size, and our contenders: precision and way, where None is the one that is taken."""
    every: list[tuple[str, Implementation | None]] = [(name, None) for name in PRECISIONS]
    if device == "cpu":
        for n in (1_000, 10_000, 100_000, 1_000_000):
            for task in UNITS:
                yield task, Size(64, 64, n), every[:1]
        return
    for n in (1_000, 14_541, 38_696, 75_043, 1_000_000):
        yield "mix", Size(512, 512, n), every
        yield "mix, hard", Size(512, 512, n), every[2:]
        yield "choose", Size(512, 512, n), every[2:]
        yield "cross_entropy", Size(512, 512, n), every[2:]
    for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
        other: list[tuple[str, Implementation | None]] = [
            (name, "blockwise") for name in PRECISIONS
        ]
        yield "mix", Size(512, 64, n), every + (other if n == 10**6 else [])
        yield "choose", Size(512, 64, n), every[2:]
        yield "cross_entropy", Size(512, 64, n), every[2:]
    yield "mix", Size(2048, 64, 10_000_000), every[2:]  # whole matrices are too large for a GPU


def way_taken(size: Size, device: str, name: str) -> Implementation:
    """The way that is taken by itself."""
    like = torch.empty((), device=device, dtype=PRECISIONS[name])
    query, codebook = like.expand(size.rows, size.dim), like.expand(size.n, size.dim)
    p, _ = make_problem(query, codebook, TAU, 0.0, None, None, None)
    return fastest(p)


def measure(device: str) -> Record:
    start = time.perf_counter()
    speed = rates(device)
    rows: list[Record] = []
    for task, size, wanted in plans(device):
        precisions = dict.fromkeys(("float32", *(name for name, _ in wanted)))
        contenders = [Contender(WHOLE, name, WHOLE_MATRICES[task]) for name in precisions]
        for name, way in wanted:
            taken = way or way_taken(size, device, name)
            contenders.append(Contender(taken, name, ours(task, way)))
        rows += compete(task, size, device, contenders, speed)
    return {"rates": speed, "rows": rows, "seconds": time.perf_counter() - start}


def compete(
    task: str, size: Size, device: str, contenders: list[Contender], speed: dict[str, float]
) -> list[Record]:
    for contender in contenders:
        contender.prepare(task, size, device)
    runs = [run for c in contenders for run in (c.forward, c.both) if run is not None]
    times = iter(seconds(runs, device))
    rows: list[Record] = []
    for contender in contenders:
        row: Record = {"task": task, **vars(size), "precision": contender.precision}
        row["way"] = contender.way
        if contender.both is not None:
            forward, both = next(times), next(times)
            total = median(both)
            backward = _backward(forward, both, device) if UNITS[task][1] else 0.0
            row |= {"forward": median(forward), "backward": backward}
            row["total"] = total
            row |= {"bytes": contender.bytes}
            row["of_floor"] = floor(task, size, contender.precision, speed) / total
            if rows and "forward" in rows[0]:
                row["speedup"] = rows[0]["total"] / total
        rows.append(row)
        print("  ".join(f"{cell:>14}" for cell in _cells(row, rows)))
    return rows


def _cells(row: Record, rows: list[Record]) -> list[str]:
    """A row to print while it is measured."""
    size = [row["task"], f"{row['n']:,}", f"{row['rows']} x {row['dim']}"]
    size += [row["precision"], row["way"]]
    if "forward" not in row:
        return [*size, "out of memory", "", "", "", "", ""]
    return [
        *size,
        _milliseconds(row["forward"]),
        _milliseconds(row["backward"]) if UNITS[row["task"]][1] else "-",
        _times(row.get("speedup")),
        _times(_gain(row, rows)),
        f"{row['of_floor']:.0%}",
        _megabytes(row["bytes"]),
    ]


def _whole_matrices(row: Record, rows: list[Record]) -> Record:
    """The row of whole matrices for the same at the same precision; empty where there is none."""
    same = ("task", "rows", "dim", "n", "precision")
    for other in rows:
        if other["way"] == WHOLE and all(other[k] == row[k] for k in same):
            return other
    return {}


def _gain(row: Record, rows: list[Record]) -> float | None:
    """Against whole matrices at the row's own precision, where that was measured."""
    other = {} if row["way"] == WHOLE else _whole_matrices(row, rows)
    return other["total"] / row["total"] if "total" in other and "total" in row else None


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3f}" if seconds < 0.01 else f"{1000 * seconds:,.1f}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f}x"


def _pairs(rows: list[Record], *first: str) -> str:
    """A table in which whole matrices and what dcgraph takes for them share a row."""
    lines = []
    for row in rows:
        if row["way"] == WHOLE or _forced(row):
            continue
        other = _whole_matrices(row, rows)
        n = f"{row['n']:,}" if row["rows"] <= 512 else f"{row['n']:,}, {row['rows']:,} queries"
        cells = [n if name == "categories" else str(row[name]) for name in first]
        out = "out of memory" if other else "-"
        cells += [_milliseconds(o["total"]) if "total" in o else out for o in (other, row)]
        cells += [_times(_gain(row, rows))]
        cells += [_megabytes(o["bytes"]) if "bytes" in o else "-" for o in (other, row)]
        lines.append(cells)
    head = ["function" if name == "task" else name for name in first]
    head += ["whole matrices, ms", "dcgraph, ms", "times as fast", "whole matrices, MB"]
    return markdown([*head, "dcgraph, MB"], lines)


def _forced(row: Record) -> bool:
    """Whether another way than the one that is taken by itself was measured, to compare them."""
    return bool(row["way"] == "blockwise" and row["dim"] == 64 and row["rows"] > 64)


def table(part: str = "") -> str:
    """The records as Markdown: one part, or all of them.

    "wide" and "narrow" are mix on a GPU, at width 512 and 64; "others" are the other functions
    there, in bfloat16; "cpu" are all functions on a CPU.
    """
    parts = {}
    for record in records("mix"):
        rows, on = record["rows"], f"On {record['device']}"
        if "CPU" in record["device"]:
            title = f"{on}, 64 queries of width 64, float32:"
            parts["cpu"] = f"{title}\n\n{_pairs(rows, 'task', 'categories')}"
            continue
        for name, dim in (("wide", 512), ("narrow", 64)):
            shown = [row for row in rows if (row["task"], row["dim"]) == ("mix", dim)]
            title = f"{on}, 512 queries of width {dim}:"
            parts[name] = f"{title}\n\n{_pairs(shown, 'categories', 'precision')}"
        shown = [row for row in rows if row["task"] != "mix" and row["dim"] == 512]
        shown = [row for row in shown if row["precision"] == "bf16"]
        title = f"{on}, 512 queries of width 512, bfloat16:"
        parts["others"] = f"{title}\n\n{_pairs(shown, 'task', 'categories')}"
    return parts[part] if part else "\n\n".join(parts.values())


def whole() -> str:
    """All rows of all records, as CSV."""
    lines = []
    for record in records("mix"):
        for row in record["rows"]:
            cells = [record["device"], *(row[k] for k in ("task", "n", "rows", "dim"))]
            cells += [row["precision"], row["way"]]
            if "total" not in row:
                lines.append([*cells, "out of memory", *[None] * 5])
                continue
            backward = 1000 * row["backward"] if UNITS[row["task"]][1] else None
            ratios = row.get("speedup"), _gain(row, record["rows"]), row["of_floor"]
            memory = None if row["bytes"] is None else row["bytes"] / 1e6
            numbers = 1000 * row["forward"], backward, *ratios, memory
            lines.append([*cells, *(None if x is None else round(x, 3) for x in numbers)])
    head = ["device", "function", "categories", "queries", "width", "precision", "way"]
    head += ["forward, ms", "backward, ms", "against whole matrices in float32"]
    return csv_of([*head, "same precision", "share of the floor", "memory, MB"], lines)


if __name__ == "__main__":
    main("mix", __doc__.split("\n")[0], measure, table)
