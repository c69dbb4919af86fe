"""How far `dcgraph predict paths` can be trusted, and how many queries it answers in a second.

    python benchmarks/asking.py            # measure on the CPU
    python benchmarks/asking.py --table    # the records as tables

**Calibration.** The expected calibration error of the ten best new answers to test queries, of
2,000 pairs of an entity and a relation and of 1,000 walks for each longer length: of their shares,
of probabilities with one set of numbers for all lengths, and with one for each length, as `predict`
has them. Numbers are fitted on validation.

**Candidates.** By training triples only: the share of entities that the rule leaves as candidates,
and the share of test answers that are not among them, over test triples in both directions. Of the
models the mean reciprocal rank of the test answers among the new ones (other new right answers left
out), with all entities and with the candidates only.

**Speed.** Queries in a second by the model in the package, from lines of text to lines of JSON; the
fastest of five rounds.

The model of UMLS is that in the package; the others are trained here, with the same settings unless
said otherwise. `wn11-cut` has the triples of WN11 among 2,000 entities: those met first from the
one with most triples, breadth first; a tenth of them, every tenth by a hash, are for validation and
as many for the test. Needs the files of all graphs, and 10 minutes or so. It writes
benchmarks/results/asking-cpu.json.
"""

from __future__ import annotations

import tempfile
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import Record, main, markdown, records, stopwatch

from dcgraph.experiments.engine import train
from dcgraph.experiments.engine.models import calibration_of
from dcgraph.experiments.tasks.paths.answers.answerer import Answerer, among
from dcgraph.experiments.tasks.paths.answers.calibration import (
    Calibration,
    calibration_from,
    expected_calibration_error,
    fit,
    fit_lengths,
)
from dcgraph.experiments.tasks.paths.answers.candidates import Candidates, Rule
from dcgraph.experiments.tasks.paths.answers.known import known_triples
from dcgraph.experiments.tasks.paths.answers.predictor import Predictor
from dcgraph.experiments.tasks.paths.answers.reliability import (
    LENGTHS,
    natural_queries,
    new_answers,
)
from dcgraph.experiments.tasks.paths.commands import Commands
from dcgraph.experiments.tasks.paths.data import load_graph
from dcgraph.experiments.tasks.paths.data.files import write_graph
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph, Queries, inverse
from dcgraph.experiments.tasks.paths.data.walks import hash_bits
from dcgraph.experiments.tasks.paths.decoding import step_scores
from dcgraph.experiments.tasks.paths.evaluation import Ranks, Score
from dcgraph.experiments.tasks.paths.settings import INVERSE_TEMPERATURE, SMALL, PathSettings
from dcgraph.experiments.tasks.paths.task import Paths

TRAINED = ("nations", "kinships", "wn11-cut")
GRAPHS = ("nations", "umls", "kinships", "wn18rr", "wn11", "fb15k-237", "fb13")
CUT = 2000  # entities of WN11
GROUPS = {"1": range(1, 2), "2 to 5": range(2, 6), "6 to 10": range(6, 11)}
"""Lengths that stand in one row; those of the last are longer than what is fitted."""

_ASKED = 1000  # queries whose time is taken
_ROUNDS = 5  # of which the fastest counts: other programs only make it slower


def settings_for(graph: str) -> PathSettings:
    settings = replace(SMALL, graph=graph)
    if graph == "wn11-cut":  # few triples for each entity: more epochs, and vectors start small
        return replace(settings, epochs=160, gamma=0.01, alpha_step=0.00625, evaluate_every=16,
                       init=0.1, tau=1.0, batch=256)  # fmt: skip
    return settings


def cut(graph: KnowledgeGraph, size: int) -> KnowledgeGraph:
    """The triples among the entities met first, breadth first, from the one with most triples."""
    whole = graph.adjacency("train")
    start = int(torch.bincount(graph.triples["train"][:, ::2].flatten().long()).argmax())
    met, queue = {start: None}, deque([start])
    while queue and len(met) < size:
        entity = queue.popleft()
        first, last = whole.first[entity], whole.first[entity + 1]
        ends = whole.ends.values[int(whole.ends.offsets[first]) : int(whole.ends.offsets[last])]
        for neighbour in ends.tolist():
            if neighbour not in met and len(met) < size:
                met[neighbour] = None
                queue.append(neighbour)
    number = torch.full((len(graph.entities),), -1)
    number[torch.tensor(sorted(met))] = torch.arange(len(met))
    rows = torch.cat([*graph.triples.values()]).long().unique(dim=0)
    head, tail = number[rows[:, 0]], number[rows[:, 2]]
    inside = (head >= 0) & (tail >= 0)
    rows = torch.stack([head, rows[:, 1], tail], 1)[inside].int()
    place = hash_bits(torch.arange(len(rows))).argsort() % 10
    chosen = {"train": place > 1, "validation": place == 0, "test": place == 1}
    names = tuple(graph.entities[entity] for entity in sorted(met))
    return KnowledgeGraph(names, graph.relations, {s: rows[k] for s, k in chosen.items()})


def measure(name: str) -> Record:
    if name != "cpu":
        return {}
    rows: dict[str, list[Record]] = {"calibration": [], "candidates": [], "ranks": []}
    with tempfile.TemporaryDirectory() as folder:
        for graph in ("umls", *TRAINED):
            model, found, calibration = _model(graph, Path(folder))
            print(f"trained on {graph}", flush=True)
            steps = step_scores(model, calibration[INVERSE_TEMPERATURE])
            rows["calibration"] += [{"graph": graph, **row} for row in _errors(steps, found)]
            rows["ranks"].append({"graph": graph, **_ranks(steps, found)})
    for graph in GRAPHS:
        rows["candidates"].append({"graph": graph, **_lost(load_graph(graph))})
    return {**rows, "speed": _speed()}


def _model(graph: str, folder: Path) -> tuple[Any, KnowledgeGraph, dict[str, float]]:
    if graph == "umls":
        with Commands(Paths)._named(None) as file:
            network, _, found = Commands(Paths)._opened(file, None, None)
            return network, found, calibration_of(file)
    settings = settings_for(graph)
    if graph == "wn11-cut":
        write_graph(folder / graph, cut(load_graph("wn11"), CUT))
        settings = replace(settings, graph=str(folder / graph))
    task = Paths()
    outcome = train(task, [settings], task.data(settings))
    return outcome.model(0), task.graph(settings.graph), outcome.calibration[0]


def _errors(steps: Score, graph: KnowledgeGraph) -> list[Record]:
    """For each group of lengths, on the test."""
    width = SMALL.beam
    fitted = {length: new_answers(steps, graph, "validation", length, width) for length in LENGTHS}
    pairs = {length: (one.features, one.right) for length, one in fitted.items()}
    each = fit_lengths(pairs)
    together = fit(*(torch.cat(column) for column in zip(*pairs.values(), strict=True)))
    one = Calibration({1: together})
    rows = []
    for group, lengths in GROUPS.items():
        found = {length: new_answers(steps, graph, "test", length, width) for length in lengths}
        right = torch.cat([some.right for some in found.values()])

        def error(calibration: Calibration, some: dict[int, Any] = found, of: Any = right) -> float:
            said = [
                (x.features @ torch.tensor(calibration.numbers(length)).double()).sigmoid()
                for length, x in some.items()
            ]
            return expected_calibration_error(torch.cat(said), of)

        shares = torch.cat([some.share for some in found.values()])
        rows.append(
            {
                "lengths": group,
                "answers": len(right),
                "right": float(right.double().mean()),
                "error of shares": expected_calibration_error(shares, right),
                "error, one fit": error(one),
                "error, a fit for each length": error(each),
            }
        )
    return rows


def _test_triples(graph: KnowledgeGraph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """In both directions."""
    head, relation, tail = graph.triples["test"].long().unbind(1)
    back = inverse(relation, len(graph.relations))
    return torch.cat([head, tail]), torch.cat([relation, back]), torch.cat([tail, head])


def _lost(graph: KnowledgeGraph) -> Record:
    _, relation, tail = _test_triples(graph)
    found: Record = {"entities": len(graph.entities)}
    for rule in ("range", "kind", "auto"):
        chosen = Candidates(graph.adjacency("train"), rule)
        lost = left = 0
        for number in relation.unique().tolist():
            asked = relation == number
            mask = chosen.of(number)
            lost += int((~mask[tail[asked]]).sum())
            left += int(asked.sum()) * int(mask.sum())
        size = len(relation)
        found[rule] = {"left": left / size / len(graph.entities), "lost": lost / size}
    return found


@torch.no_grad()
def _ranks(steps: Score, graph: KnowledgeGraph) -> Record:
    """The mean reciprocal rank of test answers, among what is not known before the test."""
    splits = [split for split in graph.triples if split != "test"]
    known, whole = known_triples(graph, splits), known_triples(graph)
    source, relation, tail = _test_triples(graph)
    queries = Queries(source.int(), relation.int().unsqueeze(1), tail.int())
    right = whole.reached(queries)[-1] < len(whole.marks)
    found: Record = {}
    rules: tuple[Rule, ...] = ("all", "auto")
    for rule in rules:
        taken = among(steps, Candidates(known.everything, rule))
        scores = taken(queries.source, queries.path)
        own = scores.gather(1, tail.unsqueeze(1))
        others = ~right
        higher = ((scores > own) & others).sum(1).int()
        # An answer that is lost comes behind all candidates.
        same = ((scores == own) & others).sum(1).int()
        ranks = Ranks(higher, same, others.sum(1).int())
        found[rule] = float((1 / ranks.ranks()).mean())
    return found


def _speed() -> list[Record]:
    rows = []
    with Commands(Paths)._named(None) as file:
        network, settings, graph = Commands(Paths)._opened(file, None, None)
        numbers = calibration_of(file)
    known = known_triples(graph)
    answerer = Answerer(
        graph,
        known,
        step_scores(network, numbers[INVERSE_TEMPERATURE]),
        Candidates(known.everything),
        settings.beam,
        calibration_from(numbers),
    )
    predictor = Predictor(answerer, top=10, json=True)
    for length in (1, 3, 10):
        queries = natural_queries(known.everything, length, _ASKED)
        columns = queries.source.tolist(), queries.path.tolist()
        lines = [
            f"{graph.entities[source]}\t{','.join(graph.relation_names[k] for k in path)}".encode()
            for source, path in zip(*columns, strict=True)
        ]
        deque(predictor.many(lines[:10]), maxlen=0)
        times: list[float] = []
        for _ in range(_ROUNDS):
            with stopwatch(torch.device("cpu")) as seconds:
                deque(predictor.many(lines), maxlen=0)
            times += seconds
        rows.append(
            {
                "length": length,
                "queries": len(lines),
                "seconds": min(times),
                "threads": torch.get_num_threads(),
            }
        )
    return rows


def table(part: str = "calibration") -> str:
    """The records as Markdown: one of their parts."""
    found = [record for record in records("asking") if record.get("calibration")]
    rows = [(record["device"], row) for record in found for row in record[part]]
    if part == "calibration":
        head = [
            "graph",
            "relations",
            "new answers",
            "right",
            "shares",
            "one fit",
            "a fit for each length",
        ]
        return markdown(
            head,
            [
                [row["graph"], row["lengths"], f"{row['answers']:,}", f"{row['right']:.1%}",
                 *(f"{100 * row[kind]:.1f}" for kind in
                   ("error of shares", "error, one fit", "error, a fit for each length"))]
                for _, row in rows
            ],
        )  # fmt: skip
    if part == "candidates":
        rules = ("range", "kind", "auto")
        head = ["graph", *(f"{rule}: {what}" for rule in rules for what in ("left", "lost"))]
        return markdown(
            head,
            [
                [row["graph"],
                 *(f"{100 * row[rule][what]:.{digits}f}" for rule in rules
                   for what, digits in (("left", 0), ("lost", 2)))]
                for _, row in rows
            ],
        )  # fmt: skip
    if part == "ranks":
        return markdown(
            ["graph", "all entities", "candidates by the rule"],
            [
                [row["graph"], f"{100 * row['all']:.1f}", f"{100 * row['auto']:.1f}"]
                for _, row in rows
            ],
        )
    return markdown(
        ["device", "relations", "queries in a second"],
        [
            [device, f"{row['length']}", f"{row['queries'] / row['seconds']:,.0f}"]
            for device, row in rows
        ],
    )


if __name__ == "__main__":
    main("asking", __doc__.split("\n")[0], measure, table)
