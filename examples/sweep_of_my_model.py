"""64 models as one program, in a loop of one's own: temperature against the start of the codebook.

    python examples/sweep_of_my_model.py            # about one minute on 2 CPU cores
    python examples/sweep_of_my_model.py --quick    # a few seconds, to see that it runs

The task is that of docs/own-model.md: three noisy measurements come in, each of one of five objects
that stand for 0 to 4, and the label is their sum. A node reads each measurement and the first sum.
The codebook is tied, so the logits grow with its rows, and tau must fit them: this sweep shows how.
All settings in the table are shown, none was chosen; every model is tested on the same 2,000 fresh
examples.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc

DIM, SYMBOLS, BATCH, LR = 32, 13, 32, 0.003
TAUS = (1.0, 2.0, 4.0, 8.0)
SCALES = {"small rows, N(0, 1/32)": DIM**-0.5, "large rows, N(0, 1)": 1.0}


class Sum(nn.Module):
    """The model is written for one; nothing in it knows of a population."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.symbol = dc.Discrete(DIM, SYMBOLS, gate="example")
        self.first, self.second = (
            nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, DIM)) for _ in range(2)
        )

    def forward(self, measurements: Tensor) -> Tensor:
        x, y, z = self.symbol(self.encode(measurements))
        xy = self.symbol(self.first(torch.cat([x, y], -1)))
        return self.symbol.logits(self.second(torch.cat([xy, z], -1)))


def examples(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Measurements [3, count, 16] and their sums."""
    objects = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    digits = torch.randint(5, (3, count), generator=generator)
    noise = 0.35 * torch.randn(3, count, 16, generator=generator)
    return objects[digits] + noise, digits.sum(0)


def loss(model: nn.Module, x: Tensor, total: Tensor) -> Tensor:
    return F.cross_entropy(model(x), total)


def run(quick: bool = False, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    steps, seeds = (30, 2) if quick else (2000, 8)
    settings = list(itertools.product(SCALES, TAUS, range(seeds)))  # one for each replica
    population = dc.Population(Sum, seeds=[seed for _, _, seed in settings])
    scales = torch.tensor([SCALES[scale] for scale, _, _ in settings])
    with torch.no_grad():  # a parameter of the population is [replicas, ...]
        population.stacked.get_parameter("symbol.codebook").mul_(scales.view(-1, 1, 1))
    taus = [tau for _, tau, _ in settings]
    beta, every = [dc.temp_match(tau, 0.02) for tau in taus], max(1, steps // 100)
    dials = dc.Dials(tau=taus, beta=beta, alpha=dc.linear(0, 1, 25), every=every)
    dials.attach(population)
    optimizer = dc.population.Adam(population.parameters(), LR)
    slower = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, 2 - 2 * t / steps))
    draw = torch.Generator().manual_seed(1)
    torch.manual_seed(1)

    @population.capture  # a CUDA graph on a GPU; on the CPU the function itself
    def step(x: Tensor, total: Tensor) -> Tensor:
        losses: Tensor = population.map(loss, x, total)  # the same batch for all, their own noise
        losses.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return losses.detach()

    began = time.perf_counter()
    for k in range(steps):
        losses = step(*examples(BATCH, draw))
        slower.step()
        dials.step()
        if k % max(1, steps // 10) == 0:
            report(f"step {k:,} of {steps:,}, mean loss {losses.mean():.2f}")
    seconds = time.perf_counter() - began
    x, total = examples(2000, torch.Generator().manual_seed(2))
    with torch.no_grad():
        answers = population.eval()(x).argmax(-1)  # [replicas, 2000]
    hard = (answers == total).float().mean(1).tolist()
    rows = [
        {
            "codebook": scale,
            "tau": tau,
            "accuracy": [a for a, s in zip(hard, settings, strict=True) if s[:2] == (scale, tau)],
        }
        for scale, tau in itertools.product(SCALES, TAUS)
    ]
    alone = seconds_alone(steps // 10)
    return {
        "steps": steps,
        "seeds": seeds,
        "models": len(settings),
        "rows": rows,
        "ms_per_step": 1000 * seconds / steps,
        "ms_per_step_of_one_model": 1000 * alone,
    }


def seconds_alone(steps: int) -> float:
    """A step of one model in the ordinary loop."""
    model = Sum()
    dc.Dials.constant(model, tau=2.0, beta=1.0, alpha=0.5)
    optimizer = torch.optim.Adam(model.parameters(), LR, fused=True)
    draw = torch.Generator().manual_seed(1)
    began = time.perf_counter()
    for _ in range(steps):
        loss(model, *examples(BATCH, draw)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - began) / steps


def table(found: dict[str, Any]) -> str:
    """Hard accuracy of every model, in per cent."""
    lines = ["| start of the codebook | tau | mean | each seed |", "|---|---|---|---|"]
    for row in found["rows"]:
        each = sorted(round(100 * value) for value in row["accuracy"])
        mean = 100 * sum(row["accuracy"]) / len(each)
        lines.append(f"| {row['codebook']} | {row['tau']:g} | {mean:.0f} | {str(each)[1:-1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    found = run(parser.parse_args().quick, report=print)
    print(f"\n{table(found)}\n")
    together, alone = found["ms_per_step"], found["ms_per_step_of_one_model"]
    print(f"A step of all {found['models']} models takes {together:.1f} ms, of one {alone:.2f} ms.")


if __name__ == "__main__":
    main()
