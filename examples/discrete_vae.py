"""A discrete VAE, 8 choices among 16 categories, trained in several ways.

    python examples/discrete_vae.py            # about two minutes on 2 CPU cores
    python examples/discrete_vae.py --quick    # a few seconds, to see that it runs

The images are the 1,797 real digits of 8 x 8 pixels that come with the package, black and white:
1,100 for training, 200 for validation, 497 for the test, mostly by other writers. Every setting is
in the table, each tested once, with its last weights. docs/discrete-vae.md discusses it.
"""

from __future__ import annotations

import argparse
import math
from statistics import mean, pstdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import kl_divergence

import dcgraph as dc
from dcgraph.experiments.tasks.addition.data.images import digits  # the images, and no more

GROUPS, CATEGORIES, CODES, WIDTH, BATCH, LR, MOVES = 8, 16, 128, 128, 64, 0.001, 500
GUMBEL, STRAIGHT = "gumbel_softmax", "straight_through_gumbel_softmax"
KEYS = ("validation", "test", "tighter", "relaxed", "used")


class VAE(nn.Module):
    def __init__(self, estimator: str) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CODES))
        self.node = dc.Categorical(estimator=estimator, decode="sample")
        self.decode = nn.Sequential(nn.Linear(CODES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, dc.OneHotCategorical]:
        """log p(x | z), z, and q(z | x), from which z is drawn in eval mode."""
        logits = self.encode(x).unflatten(-1, (GROUPS, CATEGORIES))
        z = self.node(logits)
        loss = F.binary_cross_entropy_with_logits(self.decode(z.flatten(-2)), x, reduction="none")
        return -loss.sum(-1), z, self.node.distribution(logits)


def elbo(model: nn.Module, x: Tensor) -> Tensor:
    """A lower bound of log p(x) if z is a true sample, as in eval mode. With a relaxed z: none."""
    log_p, _, q = model(x)
    return torch.mean(log_p - kl_divergence(q, q.uniform()).sum(-1))


def plain(model: VAE, x: Tensor) -> Tensor:
    """The relaxed ELBO in plain torch, which does without the node."""
    logits = model.encode(x).unflatten(-1, (GROUPS, CATEGORIES))
    z, log_q = F.gumbel_softmax(logits, tau=0.5), logits.log_softmax(-1)
    loss = F.binary_cross_entropy_with_logits(model.decode(z.flatten(-2)), x, reduction="sum")
    return torch.div(-loss - (log_q.exp() * (log_q + math.log(CATEGORIES))).sum(), len(x))


WAYS: dict[str, tuple[Any, ...]] = {  # objective, estimator, tau, beta
    "plain torch: F.gumbel_softmax, tau 0.5": (plain, GUMBEL, 0.5, 1.0),
    "Gumbel-softmax, tau 0.5": (elbo, GUMBEL, 0.5, 1.0),
    "Gumbel-softmax, tau 1": (elbo, GUMBEL, 1.0, 1.0),
    "Gumbel-softmax, tau from 1 to 0.3": (elbo, GUMBEL, dc.exponential(1.0, 0.3, MOVES), 1.0),
    "TempMatch, tau 1": (elbo, GUMBEL, 1.0, dc.temp_match(1.0, 2 / MOVES)),
    "tau 0.5, beta from 0 to 1 in a fifth of the run": (elbo, GUMBEL, 0.5, dc.linear(0, 1, 100)),
    "straight-through Gumbel-softmax, tau 0.5": (elbo, STRAIGHT, 0.5, 1.0),
    "the same, beta from 0 to 1 in a fifth of the run": (elbo, STRAIGHT, 0.5, dc.linear(0, 1, 100)),
    "straight-through, tau 1": (elbo, "straight_through", 1.0, 1.0),
}


def train(ways: list[str], seeds: int, steps: int, x: Tensor) -> list[nn.Module]:
    """Some ways with one objective and estimator, each with all seeds, as one program."""
    each = [WAYS[way] for way in ways for _ in range(seeds)]
    objectives, estimators, tau, beta = map(list, zip(*each, strict=True))
    population = dc.Population(lambda: VAE(estimators[0]), seeds=[*range(seeds)] * len(ways))
    dials = dc.Dials(tau=tau, beta=beta, every=max(1, steps // MOVES)).attach(population)
    optimizer = dc.population.Adam(population.parameters(), LR)
    torch.manual_seed(1)
    for _ in range(steps):
        loss = -population.map(objectives[0], x[torch.randint(len(x), (BATCH,))])
        loss.sum().backward(), optimizer.step(), optimizer.zero_grad()
        dials.step()
    return [population.replica(r) for r in range(len(each))]


@torch.no_grad()
def tested(models: list[nn.Module], validation: Tensor, test: Tensor) -> dict[str, Any]:
    torch.manual_seed(2)
    own, many = (x.expand(100, -1, -1) for x in (validation, test))  # so many samples of an image
    found: dict[str, Any] = {key: [] for key in KEYS}
    for model in models:
        found["relaxed"].append(elbo(model.train(), many).item())
        found["validation"].append(elbo(model.eval(), own).item())
        found["test"].append(elbo(model, many).item())
        log_p, z, q = model(many)  # the bound of Burda et al. (2016): from all samples of an image
        weights = log_p + (q.uniform().log_prob(z) - q.log_prob(z)).sum(-1)
        found["tighter"].append((weights.logsumexp(0) - math.log(len(many))).mean().item())
        report = dc.probe(model, lambda: -elbo(model, test), groups=1)  # noqa: B023
        found["used"].append([reading.used for reading in report.readings])
    return found


def mixture(k: int, x: Tensor, *held_out: Tensor) -> dict[str, Any]:
    """log p(x) of a mixture of k products of Bernoullis, by EM: exact, and no network."""
    torch.manual_seed(0)
    p, weight = x[torch.randperm(len(x))[:k]] / 2 + 0.25, torch.full((k,), 1 / k)
    for _ in range(60):
        share = (x @ p.log().T + (1 - x) @ (1 - p).log().T + weight.log()).softmax(-1)
        p = (share.T @ x + 0.5) / (share.sum(0) + 1).unsqueeze(1)
        weight = (share.sum(0) + 0.5) / (len(x) + k / 2)
    joint = (one @ p.log().T + (1 - one) @ (1 - p).log().T + weight.log() for one in held_out)
    return {key: [one.logsumexp(-1).mean().item()] for key, one in zip(KEYS, joint, strict=False)}


def run(quick: bool = False) -> dict[str, Any]:
    steps, seeds = (5, 1) if quick else (3000, 4)
    pixels = torch.cat([digits().train, digits().test]).flatten(1)  # from 0 to 16
    x, *held_out = (pixels >= 8).float().split([1100, 200, 497])
    held_out = [one[:20] if quick else one for one in held_out]
    rows = {f"no network: mixture of {k}": mixture(k, x, *held_out) for k in (1, 80)}
    for kind in dict.fromkeys(way[:2] for way in WAYS.values()):
        ways = [name for name, way in WAYS.items() if way[:2] == kind]
        models = train(ways, seeds, steps, x)
        for k, name in enumerate(ways):
            rows[name] = tested(models[k * seeds : (k + 1) * seeds], *held_out)
    return {"steps": steps, "seeds": seeds, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """Nats per image, mean and standard deviation over the seeds."""
    columns = "ELBO, validation | ELBO, test | tighter bound | relaxed: no bound | used of 128"
    lines = [f"| nats per image | {columns} |", "|---|---|---|---|---|---|"]
    for name, row in found["rows"].items():
        row = row | {"used": [sum(each) for each in row.get("used", [])]}  # of all groups
        some = [row[key] for key in KEYS if row.get(key)]
        cells = [" ± ".join(f"{v:.2f}" for v in (mean(x), pstdev(x))[: len(x)]) for x in some]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    print(table(run(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
