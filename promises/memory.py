"""Memory over 10,000 steps: what a training loop takes after a warm-up, it takes at the end.

python promises/memory.py; `make memory` does the same. Two loops on the CPU: one model with
`Discrete` nodes, DropRes and `Dials`, probed and traced now and then, and a `Population` of four
such models. Measured are the resident memory of the process, and what Python has allocated
(tracemalloc), after a fifth of the steps and at the end.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import dcgraph as dc
from promised import markdown, write

STEPS = 10_000
RESIDENT = 8 << 20  # bytes of growth that are allowed
PYTHON = 16 << 10


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.add = nn.Linear(8, 8), nn.Linear(16, 8)
        self.symbol = dc.Discrete(8, 5, gate="example")

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.symbol(self.encode(a)), self.symbol(self.encode(b))
        return self.symbol.logits(self.add(torch.cat([x, y], -1)))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(4, 8), torch.randn(4, 8), torch.randint(5, (4,))


def dials_for(model: nn.Module) -> dc.Dials:
    schedules = {"beta": dc.temp_match(8.0, 0.01), "alpha": dc.linear(0, 1, 500)}
    return dc.Dials(tau=8.0, every=10, **schedules).attach(model)


def one_model() -> Callable[[int], None]:
    model = Chain()
    dials, optimizer = dials_for(model), torch.optim.Adam(model.parameters())

    def step(number: int) -> None:
        a, b, total = batch()
        loss(model, a, b, total).backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()
        if number % 200 == 0:
            dc.probe(model, lambda: loss(model, a, b, total))
            model.eval()
            with dc.trace(model):
                model(a, b)
            model.train()

    return step


def population() -> Callable[[int], None]:
    models = dc.Population(Chain, seeds=range(4))
    dials = dials_for(models)
    optimizer = dc.population.Adam(models.parameters())

    def step(number: int) -> None:
        a, b, total = batch()
        models.map(loss, a, b, total).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()

    return step


def loss(model: nn.Module, a: Tensor, b: Tensor, total: Tensor) -> Tensor:
    return cross_entropy(model(a, b), total)


LOOPS = {"one model, with Dials, probes and traces": one_model, "a Population of four": population}


def settle() -> None:
    """Leave only what is in use: no garbage, nothing in Python's own cache of attribute names."""
    sys._clear_type_cache()
    gc.collect()


def resident() -> int:
    settle()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def growth(make: Callable[[], Callable[[int], None]], steps: int) -> dict[str, int]:
    """Bytes that are taken at the end and were not after a fifth of the steps."""
    torch.manual_seed(0)
    step = make()
    for number in range(steps // 5):
        step(number)
    tracemalloc.start()
    for number in range(100):
        step(number)
    settle()
    before, python = resident(), tracemalloc.get_traced_memory()[0]
    for number in range(steps - steps // 5):
        step(number)
    settle()
    after = {"python": tracemalloc.get_traced_memory()[0] - python}
    tracemalloc.stop()
    return {"resident": resident() - before, **after}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, rows = time.monotonic(), {}
    for name, make in LOOPS.items():
        rows[name] = growth(make, options.steps)
        print(name, rows[name], flush=True)
    record = {"steps": options.steps, "loops": rows, "seconds": round(time.monotonic() - began)}
    if options.steps == STEPS:
        write("memory", record)
    if any(row["resident"] > RESIDENT or row["python"] > PYTHON for row in rows.values()):
        raise SystemExit("memory grows")


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    head = ["loop", "steps", "growth of the process", "of it Python's objects"]
    rows = [
        [
            name,
            f"{found['steps']:,}",
            *(f"{row[key] / 1024:,.0f} KB" for key in ("resident", "python")),
        ]
        for name, row in found["loops"].items()
    ]
    return markdown([head, *rows])


if __name__ == "__main__":
    main()
