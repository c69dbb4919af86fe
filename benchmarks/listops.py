"""Speed of ListOps training against one model trained the plain way, from one run.

    python benchmarks/listops.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/listops.py --table    # the records as tables, in docs/speed-training.md

The model is the paper's: two LSTMs, five rounds of messages, four discretisations; batches of 100.
The plain way writes it for one model with torch's own layers: eager, batches of one exact length,
a message for every pair of tokens. On CUDA batches follow the lengths of the training data; on the
CPU all have 50 tokens. A run takes about two minutes on 2 CPU cores and on CUDA. It writes
benchmarks/results/listops-DEVICE.json.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from common import (
    Contender,
    Record,
    main,
    records,
    seconds_per_step,
    steps_of_replicas,
    stopwatch,
)
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import Batch, Data
from dcgraph.experiments.engine.memory import keep_freed_memory
from dcgraph.experiments.engine.order import order_of_epoch, schedule_of_epoch
from dcgraph.experiments.engine.settings import dials_of
from dcgraph.experiments.engine.step import Stepper, batches_per_epoch
from dcgraph.experiments.tasks import get_task
from dcgraph.population._rows import RowPopulation

REPLICAS = {"cpu": (1, 4), "cuda": (1, 16, 40)}
SECONDS = {"cpu": 60, "cuda": 20}  # of timed steps, all contenders together
DIM, LONG = 60, 50

TASK = get_task("listops")
PAPER = TASK.presets["paper"]


class Plain(nn.Module):
    """The network as one writes it for one model, with torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.embed = nn.Embedding(14, DIM), nn.Embedding(14, DIM)
        self.queries = nn.LSTM(DIM, DIM, batch_first=True)
        self.keys = nn.LSTM(DIM, DIM, batch_first=True)
        self.message = nn.Sequential(
            nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Dropout(0.1), nn.Linear(DIM, DIM), nn.ReLU()
        )
        g = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 10, bias=False))
        self.edge, self.value = dc.Categorical(), dc.Discrete(DIM, 10, g=g, codebook="given")

    def forward(self, tokens: Tensor) -> Tensor:
        read = self.read(tokens)
        scores = self.queries(read)[0] @ self.keys(read)[0].mT
        not_root = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(-1) > 0
        edges = self.edge(scores * not_root)
        x = embedded = self.embed(tokens)
        pairs = tokens.shape[0], tokens.shape[1], tokens.shape[1], DIM
        for k in range(5):
            both = torch.cat(
                [embedded.unsqueeze(2).expand(pairs), x.unsqueeze(1).expand(pairs)], -1
            )
            x = x + torch.einsum("bji,bijd->bid", edges, self.message(both))
            if k < 4:
                x = self.value(x, codebook=self.embed.weight[4:])
        return self.value.logits(x[:, 0])


def rows_by_length(lengths: Tensor) -> dict[int, Tensor]:
    """The rows of each length that occurs, so that a batch has one shape and no padding."""
    order = lengths.argsort(stable=True)
    found, counts = lengths.unique(return_counts=True)
    return dict(zip(found.tolist(), order.split(counts.tolist()), strict=True))


def plain(batches: Sequence[Batch], device: torch.device) -> Contender:
    """One model, eager; ``batches`` of one length each, in the order to take them."""
    model = Plain().to(device)
    dc.Dials(**PAPER.schedules(), every=1).attach(model)
    optimizer = torch.optim.Adam(model.parameters(), PAPER.lr, fused=True)
    endless = itertools.cycle(batches)

    def run(steps: int) -> None:
        for batch in itertools.islice(endless, steps):
            loss = F.cross_entropy(model(batch["tokens"].long()), batch["label"], reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return Contender("plain", 1, run)


def exact_batches(data: Data) -> list[Batch]:
    """Batches of expressions of one length, without padding, shuffled."""
    batches = []
    for table in data.tables("train"):
        for length, rows in rows_by_length(table["length"]).items():
            for some in rows.split(PAPER.batch):
                batches.append(
                    {"tokens": table["tokens"][some, :length], "label": table["label"][some]}
                )
    order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(0)).tolist()
    return [batches[k] for k in order]


def population(data: Data, device: torch.device, size: int) -> Contender:
    """The paper's network ``size`` times as one program: eager on the CPU, captured on CUDA."""
    replicas = [replace(PAPER, seed=seed) for seed in range(size)]
    models = RowPopulation(lambda: TASK.model(PAPER), range(size), device)
    dials_of(replicas).attach(models)
    batches = batches_per_epoch(data, PAPER.batch)
    orders = [
        [order_of_epoch(count, replica.seed, 0, table) for replica in replicas]
        for table, count in enumerate(data.sizes("train"))
    ]
    with stopwatch(device) as setup:
        stepper = Stepper(TASK, models, replicas, data, PAPER.epochs * sum(batches))
        stepper.start_epoch(orders, list(range(len(batches))))
        stepper.run(len(batches))  # a step of every length
    schedule = schedule_of_epoch(batches, 0)
    position = len(schedule)

    def run(steps: int) -> None:
        nonlocal position
        if position + steps > len(schedule):
            stepper.start_epoch(orders, schedule)
            position = 0
        stepper.run(steps)
        position += steps

    way = "eager" if device.type == "cpu" else "captured"
    return Contender(way, size, run, setup[0])


def of_length(data: Data, length: int) -> Data:
    """The longest expressions only, repeated until they fill some batches."""
    table = data.tables("train")[-1]
    rows = (table["length"] == length).nonzero().flatten()
    batches = 4
    chosen = rows.repeat(1 + batches * PAPER.batch // len(rows))[: batches * PAPER.batch]
    tables = {"train": {name: tensor[chosen] for name, tensor in table.items()}}
    return replace(data, splits={**tables, "test": tables["train"]}, fingerprint="long")


def peak_memory(data: Data, device: torch.device) -> Record:
    """Bytes in a training step at the largest length, on CUDA; for a population per replica."""
    long = of_length(data, LONG).to(device)
    replicas = 16
    return {
        "plain": _peak(lambda: plain(exact_batches(long), device), device),
        f"population of {replicas}": _peak(lambda: population(long, device, replicas), device)
        / replicas,
    }


def _peak(make: Callable[[], Contender], device: torch.device) -> float:
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    contender = make()  # with the capture of a graph, whose replays allocate nothing
    contender.run(3)
    return torch.cuda.max_memory_allocated(device) - before


def measure(name: str) -> Record:
    keep_freed_memory()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # TF32 for all; our messages take bfloat16
    device, cuda = torch.device(name), name == "cuda"
    whole = TASK.data(PAPER)
    data = (whole if cuda else of_length(whole, LONG)).to(device)
    contenders = [plain(exact_batches(data), device)]
    contenders += [population(data, device, size) for size in REPLICAS[name]]
    longest, warm_up = (200, 20) if cuda else (2, 2)
    times = seconds_per_step(contenders, device, SECONDS[name], longest, warm_up)
    plain_time = statistics.median(times[0])
    rows = []
    for contender, own in zip(contenders, times, strict=True):
        low, median, high = (1000 * quarter for quarter in statistics.quantiles(own, n=4))
        rows.append(
            {
                "way": contender.way,
                "replicas": contender.replicas,
                "setup_s": contender.setup,
                "ms_per_step": median,
                "ms_quartiles": [low, high],
                "speedup": contender.replicas * 1000 * plain_time / median,
            }
        )
    memory = peak_memory(whole, device) if cuda else None
    lengths = "as in training" if cuda else str(LONG)
    return {"batch": PAPER.batch, "lengths": lengths, "rows": rows, "peak_bytes": memory}


def table() -> str:
    """The records as Markdown, one table per device."""
    parts = []
    for record in records("listops"):
        lengths = str(record["lengths"])
        lengths = f"{lengths} tokens" if lengths.isdigit() else f"lengths {lengths}"
        parts.append(f"On {record['device']}, {lengths}:\n\n{steps_of_replicas(record['rows'])}")
        if record["peak_bytes"]:
            sizes = (f"{way} {size / 2**20:,.0f} MiB" for way, size in record["peak_bytes"].items())
            parts.append(
                f"Peak memory of a step at {LONG} tokens, {record['device']}: "
                f"{', '.join(sizes)} a replica."
            )
    return "\n\n".join(parts)


if __name__ == "__main__":
    main("listops", __doc__.split("\n")[0], measure, table)
