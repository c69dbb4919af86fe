"""Networks of logic gates, 6 and 12 layers deep: each gate is one of 16 functions of two bits.

    python examples/logic_gates.py            # about three minutes on 2 CPU cores
    python examples/logic_gates.py --quick    # a few seconds, to see that it runs

The network adds two numbers of 5 bits; half of the 1,024 pairs are for training, the others for the
test. 128 wires go through all layers. Gate i of a layer sees wire i and another one, and what it
makes of them is the new wire i; in training it computes with probabilities, a mixture of its
functions. What matters at depth is that wires get through. They do if choices start with "wire i as
it is" (pass-through), or by DropRes around each layer. All settings have the same seeds and none
was left out; the learning rate is the better of two (0.03, 0.1) for plain softmax.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.residual import Mode

BITS, ANSWERS, WIRES, DEPTHS = 10, 6, 128, (6, 12)
BATCH, LR, STEPS = 64, 0.1, 400
TRUTH = torch.arange(16).unsqueeze(1) >> torch.arange(4) & 1  # at (a, b) = 00, 01, 10, 11
PASS = 0b1100  # the function whose values are those of a
GROWING = None  # the noise of TempMatch
SETTINGS: dict[
    str, tuple[bool, float | None, Mode | None]
] = {  # passes at the start, beta, DropRes
    "softmax": (False, 0.0, None),
    "TempMatch": (False, GROWING, None),
    'DropRes, "replace" by gate': (False, 0.0, "replace"),
    'DropRes, "weighted"': (False, 0.0, "weighted"),
    'TempMatch and DropRes, "weighted"': (False, GROWING, "weighted"),
    "pass-through, softmax": (True, 0.0, None),
    "pass-through, Gumbel-softmax": (True, 1.0, None),
    "pass-through, TempMatch": (True, GROWING, None),
    'pass-through, DropRes, "replace" by gate': (True, 0.0, "replace"),
    'pass-through, DropRes, "weighted"': (True, 0.0, "weighted"),
}


class Gates(nn.Module):
    """Layers of gates; the mean of a group of wires is an answer."""

    other: Tensor
    truth: Tensor

    def __init__(self, depth: int, passes: bool, mode: Mode | None) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.randn(depth, WIRES, 16))
        if passes:
            dc.init.favour_(self.logits, PASS, 0.9)
        self.function = dc.Categorical()  # one choice for each gate
        self.around = dc.DropRes(mode or "replace", gate="element")
        self.has_residual = mode is not None
        self.register_buffer("other", torch.stack([torch.randperm(WIRES) for _ in range(depth)]))
        self.register_buffer("truth", TRUTH.float(), persistent=False)

    def forward(self, bits: Tensor) -> Tensor:
        wires = bits.repeat(1, WIRES // BITS + 1)[:, :WIRES]
        values = self.function(self.logits) @ self.truth  # [depth, wires, 4]: gates as tables
        for table, other in zip(values.unbind(0), self.other, strict=True):
            a, b = wires, wires[:, other]
            f00, f01, f10, f11 = table.unbind(-1)
            new = f00 * (1 - a) * (1 - b) + f01 * (1 - a) * b + f10 * a * (1 - b) + f11 * a * b
            wires = self.around(new, wires) if self.has_residual else new
        groups = wires[:, : WIRES // ANSWERS * ANSWERS].unflatten(1, (ANSWERS, -1))
        logits: Tensor = 10 * (groups.mean(-1) - 0.5)
        return logits


def data() -> tuple[Tensor, Tensor]:
    """All inputs [1024, 10] in random order, and their sums [1024, 6], bit by bit."""
    pairs = torch.randperm(2**BITS, generator=torch.Generator().manual_seed(0))
    sums = (pairs >> BITS // 2) + pairs % 2 ** (BITS // 2)
    bits, answers = (
        numbers.unsqueeze(1) >> torch.arange(width) & 1
        for numbers, width in ((pairs, BITS), (sums, ANSWERS))
    )
    return bits.float(), answers.float()


def train(depth: int, setting: str, seeds: range, steps: int) -> dict[str, Any]:
    """Shares of the bits of the answers that are right in the test, for every seed."""
    passes, beta, mode = SETTINGS[setting]
    x, y = data()
    half = len(x) // 2
    models = dc.Population(partial(Gates, depth, passes, mode), seeds)
    noise = dc.temp_match(1.0, 2 / steps) if beta is GROWING else beta
    alpha = dc.linear(0, 1, max(1, steps // 2)) if mode else 1.0
    dials = dc.Dials(tau=1.0, beta=noise, alpha=alpha).attach(models)
    optimizer, draw = dc.population.Adam(models.parameters(), LR), torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    for _ in range(steps):
        rows = torch.randint(half, (BATCH,), generator=draw)
        models.map(
            lambda model, x, y: F.binary_cross_entropy_with_logits(model(x), y), x[rows], y[rows]
        ).sum().backward()
        optimizer.step(), optimizer.zero_grad()
        dials.step()
    dc.Dials.constant(models, beta=0.0)  # relaxed: no noise and no residual, tau and alpha are 1
    found: dict[str, Any] = {"depth": depth, "setting": setting}
    with torch.no_grad():
        for kind, training in (("relaxed", True), ("hard", False)):
            right = (models.train(training)(x[half:]) > 0) == (y[half:] > 0.5)
            found[kind] = right.float().mean((1, 2)).tolist()
    return found


def run(quick: bool = False) -> dict[str, Any]:
    seeds, steps = (range(2), 5) if quick else (range(8), STEPS)
    settings = itertools.product(SETTINGS, DEPTHS)
    return {"rows": [train(depth, setting, seeds, steps) for setting, depth in settings]}


def table(found: dict[str, Any]) -> str:
    """Bits that are right in the test, in per cent: means of the seeds, and every seed."""
    lines = ["| | layers | relaxed | hard | hard, each seed |", "|---" * 5 + "|"]
    for row in found["rows"]:
        means = (100 * sum(row[kind]) / len(row[kind]) for kind in ("relaxed", "hard"))
        each = ", ".join(f"{100 * one:.0f}" for one in sorted(row["hard"]))
        cells = row["setting"], str(row["depth"]), *(f"{mean:.0f}" for mean in means), each
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    print(table(run(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
