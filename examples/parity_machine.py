"""A recurrent machine whose state is one of 8 symbols: trained on 8 bits, exact on any number.

    python examples/parity_machine.py            # about two minutes on 2 CPU cores
    python examples/parity_machine.py --quick    # a few seconds, to see that it runs

Strings of 1 to 8 bits come in, bit by bit; the label is their parity, or their number modulo 5.
Those that have ended are padding: ``rows=`` lets their state stand still. What a machine does is a
table, which is compared with the right answers on ALL strings: it is exact, or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc

SYMBOLS, DIM, TAU, LENGTHS = 8, 16, 2.0, (8, 64, 512)
TASKS: dict[str, tuple[int, int, Callable[[Any, Any], Any]]] = {  # answers, steps, next value
    "parity": (2, 500, lambda value, bit: (value + bit) % 2),
    "modulo 5": (5, 2000, lambda value, bit: (2 * value + bit) % 5),
}
METHODS: dict[str, Any] = {"both methods": {}, "only DropRes": {"beta": 1.0}}  # else recommended
METHODS |= {"only TempMatch": {"alpha": 1.0}, "neither": {"beta": 1.0, "alpha": 1.0}}
NETWORKS = (("tanh RNN", dc.population.RNN, 32), ("GRU", dc.population.GRU, 16))  # and widths


class Machine(nn.Module):  # (state, bit) -> state, where the node makes it one of the symbols
    def __init__(self, answers: int) -> None:
        super().__init__()
        self.bit, self.start = nn.Embedding(2, DIM), nn.Parameter(torch.randn(1, DIM))
        self.step = nn.Sequential(nn.Linear(2 * DIM, 2 * DIM), nn.ReLU(), nn.Linear(2 * DIM, DIM))
        self.state = dc.Discrete(DIM, SYMBOLS, gate="vector")
        self.answer = nn.Linear(DIM, answers)

    def forward(self, bits: Tensor, lengths: Tensor) -> Tensor:
        state = self.start.expand(len(bits), DIM)
        for t in range(bits.shape[1]):
            state = self.advance(state, bits[:, t], t < lengths)
        answers: Tensor = self.answer(state)
        return answers

    def advance(self, state: Tensor, bit: Tensor, rows: Tensor | None = None) -> Tensor:
        return self.state(self.step(torch.cat([state, self.bit(bit)], -1)), rows=rows, fill=state)


class Recurrent(nn.Module):  # the same with a continuous state
    def __init__(self, answers: int, layer: Callable[..., nn.Module], width: int) -> None:
        super().__init__()
        self.bit, self.layer = nn.Embedding(2, DIM), layer(DIM, width, batch_first=True)
        self.answer = nn.Linear(width, answers)

    def forward(self, bits: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.layer(self.bit(bits))
        answers: Tensor = self.answer(states[torch.arange(len(bits)), lengths - 1])
        return answers


def strings(task: str, lengths: Tensor, draw: torch.Generator) -> tuple[list[Tensor], Tensor]:
    """Bits [batch, longest] and their lengths; the answers."""
    bits = torch.randint(2, (len(lengths), int(lengths.max())), generator=draw)
    value = 0 * lengths
    for t in range(bits.shape[1]):
        value = torch.where(t < lengths, TASKS[task][2](value, bits[:, t]), value)
    return [bits, lengths], value


def train(task: str, models: dc.Population, dials: dc.Dials, steps: int) -> list[list[float]]:
    """Accuracy of every model on 500 strings of each of LENGTHS."""
    optimizer, draw = dc.population.Adam(models.parameters(), 0.003), torch.Generator()
    slower = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, 2 - 2 * t / steps))
    torch.manual_seed(0), draw.manual_seed(0)
    for _ in range(steps):
        x, y = strings(task, torch.randint(1, LENGTHS[0] + 1, (64,), generator=draw), draw)
        models.map(lambda model, x, y: F.cross_entropy(model(*x), y), x, y).sum().backward()
        optimizer.step(), optimizer.zero_grad()
        slower.step()
        dials.step()
    tests = [strings(task, torch.full((500,), length), draw) for length in LENGTHS]
    with torch.no_grad():
        right = [models.eval()(*x).argmax(-1) == value for x, value in tests]
    return [one.float().mean(1).tolist() for one in right]


def automaton(machine: Any) -> tuple[list[list[int]], list[int]]:
    """Which symbol follows each symbol (and, last, the start) by 0 and 1; and their answers."""
    states = torch.cat([machine.state.codebook, machine.start])
    with dc.trace(machine) as moves:
        for bit in (0, 1):
            machine.advance(states, torch.full((SYMBOLS + 1,), bit))
    answers = machine.answer(states).argmax(-1)
    return torch.stack([move.index for move in moves], 1).tolist(), answers.tolist()


def is_exact(task: str, moves: list[list[int]], answers: list[int]) -> bool:
    """On every string there is: all (symbol, value) that can be reached together agree."""
    seen, new = set[tuple[int, int]](), {(SYMBOLS, 0)}
    while new:
        new = {(moves[s][bit], TASKS[task][2](v, bit)) for s, v in new for bit in (0, 1)} - seen
        seen |= new
    return all(answers[symbol] == value for symbol, value in seen)


def run(quick: bool = False) -> dict[str, Any]:
    seeds, rows, automata = range(2 if quick else 8), list[dict[str, Any]](), dict[str, Any]()
    for task, (answers, steps, _) in TASKS.items():
        steps = 20 if quick else steps
        for name, own in METHODS.items():
            machines = dc.Population(partial(Machine, answers), seeds)
            dials = dc.Dials.recommended(machines, steps=steps, tau=TAU, verbose=False, **own)
            accuracy = train(task, machines, dials, steps)
            exact = [one for i in seeds if is_exact(task, *(one := automaton(machines.replica(i))))]
            rows += [{"task": task, "model": name, "accuracy": accuracy, "exact": len(exact)}]
            automata |= {task: exact[0]} if exact else {}
        for name, layer, width in NETWORKS:
            networks = dc.Population(partial(Recurrent, answers, layer, width), seeds)
            accuracy = train(task, networks, dc.Dials(), steps)
            rows += [{"task": task, "model": name, "accuracy": accuracy, "exact": ""}]
    return {"rows": rows, "automata": automata}


def table(found: dict[str, Any]) -> str:
    """Accuracy in per cent: means, and at the longest each seed; and how many are exact."""
    lines = ["| task | model | 8 bits | 64 | 512 | 512, each seed | exact |", "|---" * 7 + "|"]
    for row in found["rows"]:
        means = " | ".join(f"{100 * sum(one) / len(one):.0f}" for one in row["accuracy"])
        each = ", ".join(f"{100 * one:.0f}" for one in sorted(row["accuracy"][-1]))
        lines.append(f"| {row['task']} | {row['model']} | {means} | {each} | {row['exact']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    found = run(parser.parse_args().quick)
    print(table(found))
    for task, (moves, answers) in found["automata"].items():
        print(f"\nAn exact machine for {task}; the last line is its start:")
        for symbol, (zero, one) in enumerate(moves):
            print(f"  {symbol} answers {answers[symbol]}; by 0 to {zero}, by 1 to {one}")


if __name__ == "__main__":
    main()
