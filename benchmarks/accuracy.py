"""How exact the functions over a codebook are at each precision, whichever way is chosen.

python benchmarks/accuracy.py; --table prints the record as Markdown, as in docs/codebook-inside.md.
The reference is float64 on the same numbers, rounded to the precision of the row. An error is the
largest one of all entries, over the largest entry. The times, of one thread, say what exact logits
cost; of what is by hand they are against itself, as a control.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import torch
from common import Record, csv_of, main, markdown, records
from torch import Tensor

import dcgraph as dc
from dcgraph.codebook._functions import using

_ROWS = 16
_SIZES = (100, 64), (1000, 256), (10_000, 128)  # categories, width
_TIMED_FROM = 1000  # categories; below, a step is mostly calls of Python
_TAU = 4.0
_SPREAD = 2.0  # of the entries of a query: the largest logits are about 8 times the root of a width
_BY_HAND = "by hand, logits rounded"
_WAYS = "dense", "blockwise", _BY_HAND
_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_ROUNDS, _CALLS = 15, 4

Numbers = tuple[Tensor, Tensor, Tensor]
"""The mixture, and the gradients of query and codebook."""


def _mix(way: str, query: Tensor, codebook: Tensor, noise: Tensor) -> Tensor:
    if way != _BY_HAND:
        with using("dense" if way == "dense" else "blockwise"):
            return dc.mix(query, codebook, _TAU, noise=noise)
    logits = query @ codebook.mT
    return dc.gumbel_softmax(logits, _TAU, noise=noise) @ codebook


def _found(way: str, query: Tensor, codebook: Tensor, noise: Tensor, of_value: Tensor) -> Numbers:
    query, codebook = (leaf.detach().requires_grad_() for leaf in (query, codebook))
    value = _mix(way, query, codebook, noise)
    of_query, of_codebook = torch.autograd.grad(value, (query, codebook), of_value)
    return value.detach(), of_query, of_codebook


def _error(found: Tensor, exact: Tensor) -> float:
    return float(f"{float((found.double() - exact).abs().max() / exact.abs().max()):.2g}")


def _ratios(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The time of each against that of the last, which is there twice: its ratio should be 1.

    In turns, and by the clock of this process: what else the machine does is not in it.
    """
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(_ROUNDS + 1):
        for run, own in zip(runs, times, strict=True):
            began = time.process_time()
            for _ in range(_CALLS):
                run()
            if turn:  # the first one warms up
                own.append(time.process_time() - began)
    base = median(times[-1])
    return [round(median(own) / base, 2) for own in times]


def measure(device: str) -> Record:
    torch.set_num_threads(1)  # several would wait for each other, which is time of the process too
    rows = []
    for n, dim in _SIZES:
        generator = torch.Generator().manual_seed(0)
        noise = dc.gumbel((_ROWS, n), generator=generator).to(device)
        drawn = [
            torch.randn(size, generator=generator, dtype=torch.float64).to(device)
            for size in ((_ROWS, dim), (n, dim), (_ROWS, dim))
        ]
        for dtype, name in _NAMES.items():
            query, codebook, of_value = (x.to(dtype) for x in (_SPREAD * drawn[0], *drawn[1:]))
            given = query, codebook, noise, of_value
            exact = _found("dense", *(tensor.double() for tensor in given))
            ways = (*_WAYS, _BY_HAND)  # twice, as the measure of the measure
            ratios: Sequence[float | None] = [None] * len(ways)
            if n >= _TIMED_FROM:
                ratios = _ratios([partial(_found, way, *given) for way in ways])
            for way, ratio in zip(_WAYS, ratios, strict=False):
                found = _found(way, *given)
                errors = [_error(one, all_) for one, all_ in zip(found, exact, strict=True)]
                size = {"categories": n, "dim": dim, "precision": name, "way": way}
                rows.append({**size, "errors": errors, "time": ratio})
    return {"queries": _ROWS, "tau": _TAU, "node": _of_a_node(device), "rows": rows}


def _of_a_node(device: str) -> list[Record]:
    """The same of a node under autocast, whose logits are those of a linear layer."""
    found = []
    for n, dim in _SIZES[:2]:
        generator = torch.Generator().manual_seed(0)
        node = dc.Discrete(dim, n, codebook="tied").to(device)
        u = _SPREAD * torch.randn(_ROWS, dim, generator=generator).to(device)
        noise = dc.gumbel((_ROWS, n), generator=generator).to(device)
        dc.Dials.constant(node, tau=_TAU)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            value = node(u, noise=noise)
        with torch.no_grad():
            exact = node.double()(u.double(), noise=noise.double())
        found.append({"categories": n, "dim": dim, "error": _error(value, exact)})
    return found


_ERRORS = ["mixture", "gradient of the queries", "gradient of the codebook"]
_TIME = "time against by hand"


def table() -> str:
    """Of all records, from the size on at which times are measured; one table per device."""
    parts = []
    for record in records("accuracy"):
        lines = [
            [
                f"{row['categories']:,} x {row['dim']}",
                row["precision"],
                row["way"],
                *(f"{error:.1e}" for error in row["errors"]),
                "-" if row["time"] is None else f"{row['time']:.1f}x",
            ]
            for row in record["rows"]
            if row["categories"] >= _TIMED_FROM
        ]
        head = ["codebook", "precision", "way", *_ERRORS, _TIME]
        title = f"On {record['device']}, {record['queries']} queries:"
        parts.append(f"{title}\n\n{markdown(head, lines)}")
    return "\n\n".join(parts)


def whole() -> str:
    """All rows of all records, as CSV."""
    lines = [
        [record["device"], row["categories"], record["queries"], row["dim"], row["precision"],
         row["way"], *row["errors"], row["time"]]
        for record in records("accuracy")
        for row in record["rows"]
    ]  # fmt: skip
    head = ["device", "categories", "queries", "width", "precision", "way", *_ERRORS, _TIME]
    return csv_of(head, lines)


if __name__ == "__main__":
    main("accuracy", __doc__ or "", measure, table)
