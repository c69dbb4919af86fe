"""Speed of a population against training one model the plain way, from one run.

    python benchmarks/population.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/population.py --table    # the records as tables, in docs/speed-training.md

What the record of a GPU says of more of them stands in docs/beyond-one-machine.md.

The model is the paper's addition network, the batch is 16. The images are random numbers in the
shapes of MNIST: a step takes the same time whatever the pixels are. A run takes about a minute on
2 CPU cores and two to three on CUDA. It writes benchmarks/results/population-DEVICE.json.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from common import (
    Contender,
    Record,
    main,
    markdown,
    records,
    seconds_per_step,
    steps_of_replicas,
    stopwatch,
)
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import Data
from dcgraph.experiments.engine.memory import keep_freed_memory
from dcgraph.experiments.engine.settings import dials_of
from dcgraph.experiments.engine.step import Stepper, bytes_per_replica
from dcgraph.experiments.tasks.addition.data.examples import to_batch
from dcgraph.experiments.tasks.addition.settings import PAPER
from dcgraph.experiments.tasks.addition.task import Addition
from dcgraph.population._rows import RowPopulation
from dcgraph.population._share import Share

REPLICAS = {"cpu": (1, 8, 32), "cuda": (1, 8, 64)}
SECONDS = {"cpu": 60, "cuda": 25}  # of timed steps, all contenders together
IMAGES, PAIRS, TESTED = 60_000, 30_000, 100

TASK = Addition()
STEPS_PER_EPOCH = PAIRS // PAPER.batch

_LONGEST_BLOCK = STEPS_PER_EPOCH // 8  # few blocks begin an epoch, the median has none


class Plain(nn.Module):
    """The network as one writes it for one model, with torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)])
        self.encode = nn.Sequential(
            nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 84)
        )
        self.symbol = dc.Discrete(84, 19, gate="example")  # [2, batch, 84]: one gate per summand
        self.add = nn.Sequential(
            nn.Linear(168, 168), nn.ReLU(), nn.Linear(168, 84), nn.ReLU()
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        x = images.transpose(0, 1).flatten(0, 1).unsqueeze(1)
        for convolution in self.convolutions:
            x = F.max_pool2d(convolution(x), 2).relu()
        first, second = self.symbol(self.encode(x.flatten(1)).unflatten(0, (2, -1)))
        return self.symbol.logits(self.add(torch.cat([first, second], -1)))


def random_data() -> Data:
    """As many images and pairs as MNIST addition has, already in memory as bytes."""
    constants = {
        "images": torch.randint(256, (IMAGES, 28, 28), dtype=torch.uint8),
        "labels": torch.randint(10, (IMAGES,)),
    }
    pairs = {
        "train": torch.randperm(IMAGES).view(PAIRS, 2),
        "test": torch.randint(IMAGES, (TESTED, 2)),
    }
    splits = {
        split: {"images": rows, "total": constants["labels"][rows].sum(-1)}
        for split, rows in pairs.items()
    }
    return Data(splits, "random", constants, partial(to_batch, PAPER))


def plain(data: Data, device: torch.device, *, fused: bool) -> Contender:
    """One model, eager, nothing read back from the device."""
    model = Plain().to(device)
    dc.Dials(**PAPER.schedules(), every=1).attach(model)
    optimizer = torch.optim.Adam(model.parameters(), PAPER.lr, fused=fused or None)
    images, train = data.constants["images"], data.table("train")
    order = torch.randperm(PAIRS, device=device).split(PAPER.batch)
    batches = itertools.cycle(order[:STEPS_PER_EPOCH])

    def run(steps: int) -> None:
        for index in itertools.islice(batches, steps):
            pixels = images[train["images"][index]] / 127.5 - 1
            loss = F.cross_entropy(model(pixels), train["total"][index], reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return Contender("plain, fused Adam" if fused else "plain", 1, run)


def population(data: Data, device: torch.device, size: int, *, compiled: bool) -> Contender:
    """The same network ``size`` times as one program: eager on the CPU, captured on CUDA."""
    replicas = [replace(PAPER, seed=seed) for seed in range(size)]
    models = RowPopulation(lambda: TASK.model(PAPER), range(size), device)
    dials_of(replicas).attach(models)
    orders = [torch.randperm(PAIRS) for _ in replicas]

    with stopwatch(device) as setup:
        steps_of_training = PAPER.epochs * STEPS_PER_EPOCH
        stepper = Stepper(TASK, models, replicas, data, steps_of_training, compiled=compiled)
        stepper.start_epoch([orders], [0] * STEPS_PER_EPOCH)
        stepper.run(1)
    position = 1

    def run(steps: int) -> None:
        nonlocal position
        if position + steps > STEPS_PER_EPOCH:
            stepper.start_epoch([orders], [0] * STEPS_PER_EPOCH)
            position = 0
        stepper.run(steps)
        position += steps

    way = "eager" if device.type == "cpu" else "compiled, captured" if compiled else "captured"
    print(f"population of {size}, {way}: set up in {setup[0]:.1f} s", flush=True)
    return Contender(way, size, run, setup[0])


def measure(name: str) -> Record:
    keep_freed_memory()
    torch.compiler.config.force_disable_caches = True  # set-up as for the first time on a machine
    torch.manual_seed(0)
    device, cuda = torch.device(name), name == "cuda"
    data = random_data().to(device)
    # On the CPU either Adam may be the faster one; the faster one counts.
    plains = [plain(data, device, fused=fused) for fused in ((True,) if cuda else (False, True))]
    populations = [
        population(data, device, size, compiled=compiled)
        for compiled in ((False, True) if cuda else (False,))
        for size in REPLICAS[name]
    ]
    contenders = [*plains, *populations]
    times = seconds_per_step(contenders, device, SECONDS[name], _LONGEST_BLOCK)
    best = min(statistics.median(own) for own in times[: len(plains)])
    rows = [_row(one, own, best) for one, own in zip(contenders, times, strict=True)]
    return {
        "batch": PAPER.batch,
        "rounds": len(times[0]),
        "plain": rows[: len(plains)],
        "population": rows[len(plains) :],
    }


def _row(contender: Contender, times: list[float], plain_time: float) -> Record:
    low, median, high = (1000 * quarter for quarter in statistics.quantiles(times, n=4))
    return {
        "way": contender.way,
        "replicas": contender.replicas,
        "setup_s": contender.setup,
        "ms_per_step": median,
        "ms_quartiles": [low, high],
        "speedup": contender.replicas * 1000 * plain_time / median,
    }


GPUS = {64: (1, 2, 4, 8, 16, 32, 64), 1024: (1, 8, 16, 32, 64)}
"""By the size of a population: over how many it is divided."""


def over_gpus() -> str:
    """What the record of one GPU says of a population over several: computed, not measured."""
    (record,) = (one for one in records("population") if "CPU" not in one["device"])
    rows = [row for row in record["population"] if row["way"] == "captured"]
    measured = {row["replicas"]: row["ms_per_step"] for row in rows}
    with torch.random.fork_rng():
        weights = sum(p.numel() for p in TASK.model(PAPER).parameters())
        memory = bytes_per_replica(TASK, PAPER, random_data())
    lines = []
    for total, counts in GPUS.items():
        for world in counts:
            shares = [Share(total, rank, world) for rank in range(world)]
            size = max(len(share.trained) for share in shares)
            time, gain = ms_per_step(size, measured), ms_per_step(total, measured)
            sent = checkpoint_bytes(weights, total - len(shares[0].own))
            extrapolated = " (extrapolated)" if size > max(measured) else ""
            cells = [f"{total:,}", f"{world}", f"{size:,}", f"{time:.2f}{extrapolated}"]
            cells += [f"{gain / time:.1f}x", f"{sent / 1e6:,.0f}", f"{size * memory / 1e6:,.0f}"]
            lines.append(cells)
    head = ["replicas", "GPUs", "on each", "ms per step", "against one GPU"]
    head += ["MB to rank 0 per checkpoint", "MB of replicas on a GPU"]
    return f"Computed, not measured, from steps on {record['device']}:\n\n{markdown(head, lines)}"


def ms_per_step(replicas: int, measured: dict[int, float]) -> float:
    """On the line through the two measured sizes around it; beyond the largest, it goes on."""
    sizes = sorted(measured)
    above = next((k for k, size in enumerate(sizes) if size >= replicas), len(sizes) - 1)
    low, high = sizes[max(0, above - 1)], sizes[max(1, above)]
    slope = (measured[high] - measured[low]) / (high - low)
    return measured[low] + slope * (replicas - low)


def checkpoint_bytes(parameters: int, replicas: int, *, average: bool = False) -> int:
    """Weights, two moments and the best weights; the average, if one is tested. And little more."""
    return 4 * (5 if average else 4) * parameters * replicas


def table(part: str = "") -> str:
    """The records as Markdown, one table per device; of the plain ways the faster one.

    Args:
        part: "gpus": what they say of several GPUs.
    """
    if part == "gpus":
        return over_gpus()
    parts = []
    for record in records("population"):
        fastest = min(record["plain"], key=lambda row: float(row["ms_per_step"]))
        rows = [fastest, *record["population"]]
        parts.append(f"On {record['device']}:\n\n{steps_of_replicas(rows)}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main("population", __doc__.split("\n")[0], measure, table)
