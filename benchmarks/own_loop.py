"""Models per second in a loop of one's own: one after the other, torch.func by hand, dc.Population.

    python benchmarks/own_loop.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/own_loop.py --table    # the records as a table, as in docs/population.md

The model is the one of docs/own-model.md: small layers around four discrete choices, batch 32. All
ways train the same module by Adam, each model on the same batch with noise of its own. A run takes
about two minutes on 2 CPU cores and one on CUDA. It writes benchmarks/results/own_loop-DEVICE.json.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from common import Contender, Record, main, markdown, records, seconds_per_step
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import dcgraph as dc
from dcgraph.experiments.engine.memory import keep_freed_memory

SIZES = (1, 4, 16, 64, 256)
SECONDS = {"cpu": 90, "cuda": 45}  # of timed steps, all ways together
DIM, SYMBOLS, BATCH, LR = 32, 13, 32, 0.003


class Sum(nn.Module):
    """Reads three measurements and adds them, as in docs/own-model.md."""

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


def loss(model: nn.Module, x: Tensor, total: Tensor) -> Tensor:
    return F.cross_entropy(model(x), total)


class Batches:
    """The same few batches again and again, on the device."""

    def __init__(self, device: torch.device) -> None:
        x = torch.randn(8, 3, BATCH, 16, device=device)
        total = torch.randint(SYMBOLS, (8, BATCH), device=device)
        self._batches, self._next = list(zip(x, total, strict=True)), 0

    def next(self) -> tuple[Tensor, Tensor]:
        self._next = (self._next + 1) % len(self._batches)
        return self._batches[self._next]


def attach(model: nn.Module) -> None:
    """In the middle of training: noise, and a residual now and then."""
    dc.Dials.constant(model, tau=2.0, beta=1.0, alpha=0.5)


def adam(parameters: Iterable[Tensor], device: torch.device) -> torch.optim.Adam:
    """On the CPU the fused one is the fastest, on CUDA that over all tensors is as good."""
    return torch.optim.Adam(parameters, LR, fused=True, capturable=device.type == "cuda")


def loop(size: int, device: torch.device) -> Contender:
    """One model after the other."""
    models = [Sum().to(device) for _ in range(size)]
    for model in models:
        attach(model)
    optimizers = [adam(model.parameters(), device) for model in models]
    batches = Batches(device)

    def run(steps: int) -> None:
        for _ in range(steps):
            x, total = batches.next()
            for model, optimizer in zip(models, optimizers, strict=True):
                loss(model, x, total).backward()
                optimizer.step()
                optimizer.zero_grad()

    return Contender("a loop over models", size, run)


def by_hand(size: int, device: torch.device) -> Contender:
    """As torch's tutorial on ensembles has it."""
    models = [Sum().to(device) for _ in range(size)]
    for model in models:
        attach(model)
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    optimizer = adam(parameters.values(), device)
    batches = Batches(device)

    def one(p: dict[str, Tensor], b: dict[str, Tensor], x: Tensor, total: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(base, (p, b), (x,)), total)

    mapped = vmap(one, in_dims=(0, 0, None, None), randomness="different")

    def run(steps: int) -> None:
        for _ in range(steps):
            mapped(parameters, buffers, *batches.next()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return Contender("torch.func by hand", size, run)


def population(size: int, device: torch.device, *, captured: bool) -> Contender:
    """This library's way."""
    models = dc.Population(Sum, range(size), device)
    attach(models)
    optimizer = dc.population.Adam(models.parameters(), LR)
    batches = Batches(device)

    def step(x: Tensor, total: Tensor) -> Tensor:
        losses: Tensor = models.map(loss, x, total)
        losses.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return losses.detach()

    one: Callable[[Tensor, Tensor], Tensor] = models.capture(step) if captured else step

    def run(steps: int) -> None:
        for _ in range(steps):
            one(*batches.next())

    return Contender("dc.Population, captured" if captured else "dc.Population", size, run)


def measure(name: str) -> Record:
    keep_freed_memory()
    torch.manual_seed(0)
    device = torch.device(name)
    contenders = []
    for size in SIZES:
        contenders += [loop(size, device), by_hand(size, device)]
        contenders.append(population(size, device, captured=False))
        if name == "cuda":
            contenders.append(population(size, device, captured=True))
    times = seconds_per_step(contenders, device, SECONDS[name], 500, warm_up=5)
    rows = [
        {
            "way": contender.way,
            "replicas": contender.replicas,
            "ms_per_step": 1000 * statistics.median(own),
            "model_steps_per_second": contender.replicas / statistics.median(own),
        }
        for contender, own in zip(contenders, times, strict=True)
    ]
    return {"batch": BATCH, "rounds": len(times[0]), "rows": rows}


def table() -> str:
    """Training steps of a model per second, for each way and number of models."""
    lines = []
    for record in records("own_loop"):
        for way in dict.fromkeys(row["way"] for row in record["rows"]):
            found = {r["replicas"]: r for r in record["rows"] if r["way"] == way}
            rates = [f"{found[size]['model_steps_per_second']:,.0f}" for size in SIZES]
            lines.append([record["device"], way, *rates])
    if not lines:
        return "*There is no record yet: `python benchmarks/own_loop.py`.*"
    head = [f"{size} model" + ("s" if size > 1 else "") for size in SIZES]
    return markdown(["device", "way", *head], lines)


if __name__ == "__main__":
    main("own_loop", (__doc__ or "").split("\n")[0], measure, table)
