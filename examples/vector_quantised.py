"""Residual vector quantisation of images, 4 stages of 32 rows, trained in several ways.

    python examples/vector_quantised.py            # about two minutes on 2 CPU cores
    python examples/vector_quantised.py --quick    # a few seconds, to see that it runs

A network makes 16 numbers of 64 pixels. Each stage chooses one of 32 rows for what those before it
left, 20 bits in all, and another network makes an image of the sum. The images are the 1,797 real
digits of the package: 1,100 for training, 200 for validation, 497 for the test, mostly by other
writers. All settings are in the table of docs/vector-quantisation.md, tested once, at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
from functools import partial
from statistics import mean, pstdev
from typing import Any

import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.tasks.addition.data.images import digits  # the images, and no more

STAGES, ROWS, BATCH, LR, MOVES = 4, 32, 64, 0.001, 500
SOFT, HARD = {"estimator": "gumbel_softmax"}, {"estimator": "straight_through_gumbel_softmax"}
DROPPED = HARD | {"residual": "replace"}
LARGE, SMALL = dc.temp_match(1.0, 2 / MOVES), dc.temp_match(0.02, 2 / MOVES)
NEVER, ONCE, OFTEN = range(0), range(1), range(0, 10**6, 50)  # when unused rows are revived
NAME, BETTER = "vector_quantize_pytorch", {"kmeans_init": True, "threshold_ema_dead_code": 2}
WAYS: dict[str, tuple[Any, ...]] = {  # the model, those steps, tau, beta
    "no network: nearest row, unused rows revived": ({"dim": 64}, OFTEN, 1.0, 0.0),
    "nearest row, unused rows revived": ({}, OFTEN, 1.0, 0.0),
    "nearest row": ({}, ONCE, 1.0, 0.0),
    "Gumbel-softmax, tau 0.02": (SOFT, ONCE, 0.02, 0.02),
    "Gumbel-softmax, tau 0.02, TempMatch": (SOFT, ONCE, 0.02, SMALL),
    "straight-through, tau 0.02, no noise": (HARD, ONCE, 0.02, 0.0),
    "straight-through, tau 0.02, TempMatch": (HARD, ONCE, 0.02, SMALL),
    "straight-through, tau 0.02, TempMatch and DropRes": (DROPPED, ONCE, 0.02, SMALL),
    "rows from N(0, 1): nearest row": ({}, NEVER, 1.0, 0.0),
    "rows from N(0, 1): straight-through, tau 1, no noise": (HARD, NEVER, 1.0, 0.0),
    "rows from N(0, 1): straight-through, tau 1, TempMatch": (HARD, NEVER, 1.0, LARGE),
    "rows from N(0, 1): the same and DropRes": (DROPPED, NEVER, 1.0, LARGE),
    "vector-quantize-pytorch": ({"package": {}}, NEVER, 1.0, 0.0),
    "vector-quantize-pytorch, k-means start, revived": ({"package": BETTER}, NEVER, 1.0, 0.0),
}
VQ: Any = importlib.import_module(NAME) if importlib.util.find_spec(NAME) else None


class Quantised(nn.Module):
    def __init__(self, dim: int = 16, package: Any = None, **node: Any) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, dim))
        self.decode = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 64))
        if dim == 64:
            self.encode = self.decode = nn.Sequential()  # the pixels themselves
        self.codebooks = nn.Parameter(torch.randn(STAGES, ROWS, dim))
        self.nearest, node = not node, {"residual": "none", "gate": "example"} | node
        self.node = dc.Discrete(dim + 1, ROWS, codebook="given", **node)
        shape = {"dim": dim, "num_quantizers": STAGES, "codebook_size": ROWS}
        self.package = None if package is None else VQ.ResidualVQ(**shape, **package)

    def forward(self, x: Tensor) -> Tensor:
        """The squared error; in training mode with what the choices add to the loss."""
        left, total, loss = self.encode(x), torch.zeros(()), torch.zeros(())
        self.node.train(self.training and not self.nearest)  # in eval mode it takes the nearest row
        if self.package is not None:
            total, _, loss = self.package(left)
        for codebook in self.codebooks if self.package is None else ():
            query, longer = dc.codebook.by_distance(left, codebook)
            row = self.node(query, codebook=longer)[..., :-1]
            if self.nearest:  # VQ-VAE (van den Oord et al., 2017): back as if nothing was chosen
                closer = (left.detach() - row).square() + 0.25 * (left - row.detach()).square()
                loss, row = loss + closer.mean(), dc.straight_through(row, left)
            left, total = left - row, total + row
        error: Tensor = (self.decode(total) - x).square().sum(-1).mean()
        return error + left.shape[-1] * loss.sum() if self.training else error


@torch.no_grad()
def in_use(model: Any, x: Tensor, revive: bool = False) -> Tensor:
    """How many rows are nearest to something, by stage; the others may become random data."""
    left, used = model.encode(x), []
    for codebook in (model.package or model).codebooks:
        index, row = dc.codebook.choose(*dc.codebook.by_distance(left, codebook), beta=0.0)
        used.append(dc.one_hot(index, ROWS).amax(0))
        if revive:
            data = left[torch.randint(len(x), (ROWS,))]
            codebook.copy_(torch.where(used[-1].unsqueeze(-1) > 0, codebook, data))
            _, row = dc.codebook.choose(*dc.codebook.by_distance(left, codebook), beta=0.0)
        left = left - row[..., :-1]
    return torch.stack(used).sum(-1)


def row(way: tuple[Any, ...], seeds: int, steps: int, *images: Tensor) -> dict[str, Any]:
    """Train in one way, all seeds as one program; errors in per cent of the variance."""
    model, revived, tau, beta = way
    found: dict[str, Any] = {"validation": [], "test": [], "used": []}
    schedules = {"alpha": dc.linear(0, 1, MOVES // 4), "beta": beta, "tau": tau}
    for group in [[seed] for seed in range(seeds)] if "package" in model else [range(seeds)]:
        population = dc.Population(partial(Quantised, **model), seeds=group)
        dials = dc.Dials(**schedules, every=max(1, steps // MOVES)).attach(population)
        optimizer = dc.population.Adam(population.parameters(), LR)
        torch.manual_seed(1)
        for k in range(steps):
            if k in revived:
                population.map(partial(in_use, revive=True), images[0])
            losses = population(images[0][torch.randint(len(images[0]), (BATCH,))])
            losses.sum().backward(), optimizer.step(), optimizer.zero_grad()
            dials.step()
        with torch.no_grad():
            for key, x in zip(found, images[1:], strict=False):
                variance = (x - x.mean(0)).square().sum(-1).mean()
                found[key] += (100 * population.eval()(x) / variance).tolist()
            found["used"] += population.map(in_use, images[2]).tolist()
    return found


def run(quick: bool = False) -> dict[str, Any]:
    steps, seeds = (5, 1) if quick else (1500, 4)
    images = (torch.cat([digits().train, digits().test]).flatten(1) / 16).split([1100, 200, 497])
    ways = [name for name, way in WAYS.items() if VQ or "package" not in way[0]]
    rows = {name: row(WAYS[name], seeds, steps, *images) for name in ways}
    return {"steps": steps, "seeds": seeds, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """Mean and standard deviation over the seeds; the mean of the rows in use at each stage."""
    lines = [
        "| 20 bits an image | error, validation | error, test | rows in use |\n|---|---|---|---|"
    ]
    for name, one in found["rows"].items():
        errors = [
            f"{mean(one[key]):.1f} ± {pstdev(one[key]):.1f}" for key in ("validation", "test")
        ]
        used = [f"{mean(stage):.0f}" for stage in zip(*one["used"], strict=True)]
        lines.append(f"| {name} | {' | '.join(errors)} | {', '.join(used)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    print(table(run(parser.parse_args().quick)))
    print("" if VQ else "To compare: pip install vector-quantize-pytorch")


if __name__ == "__main__":
    main()
