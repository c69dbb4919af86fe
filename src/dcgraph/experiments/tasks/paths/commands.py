"""What ``dcgraph evaluate``, ``predict`` and ``data`` do for path queries."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Literal

import torch

from ...engine.datasets import DataError
from ...engine.models import load_model, readout_of
from .beams import by_steps, check_beam
from .composing import PathModel
from .data import PathData, load, load_graph, write
from .evaluation import Score
from .evaluation import evaluate as measure
from .looking_back import check_weight, reversible, step
from .ranking import Ties
from .sampling import sample
from .settings import PathSettings
from .task import SHARPNESS, WAY_BACK, Paths, at_once
from .walking import parse, walk

_log = logging.getLogger(__name__)


def _trained(
    model: Path, data_dir: Path | None, back: float | None
) -> tuple[PathModel, PathSettings, Paths]:
    task = Paths(data_dir)
    loaded, settings = load_model(model, task)
    assert isinstance(loaded, PathModel) and isinstance(settings, PathSettings)
    if back is not None:
        try:
            reversible(loaded)
        except ValueError as error:
            raise DataError(str(error)) from None
    return loaded, settings, task


def _weight(back: str | None, model: Path) -> float | None:
    """Of the way back: as given, or "best", which training chose."""
    if back is None:
        return None
    weight = readout_of(model).get(WAY_BACK) if back == "best" else back
    if weight is None:
        raise DataError(f"the run {str(model)!r} chose no weight of the way back; give a number.")
    try:
        check_weight(float(weight))
    except ValueError:
        raise DataError(
            f"back={weight}, but the weight of the way back is a number from 0 to 1, or best."
        ) from None
    return float(weight)


def _check_beam(beam: int | None, sharpness: float | None, back: str | None = None) -> None:
    """Before anything is loaded, which may take a while."""
    for name, value in (("sharpness", sharpness), ("back", back)):
        if beam is None and value is not None:
            raise DataError(f"{name}={value} is for a beam; use it with --beam.")
    if beam is not None:
        try:
            check_beam(beam, 1.0 if sharpness is None else sharpness)
        except ValueError as error:
            raise DataError(str(error)) from None


def evaluate(
    *,
    model: Path,
    split: Literal["test", "validation"] = "test",
    ties: Ties = "realistic",
    protocol: Literal["range", "all"] | None = None,
    beam: int | None = None,
    sharpness: float | None = None,
    back: str | None = None,
    data_dir: Path | None = None,
) -> str:
    """Measure a trained model on the path queries of its graph; prints JSON.

    Args:
        model: file or folder of a run.
        split: which queries.
        ties: rank of an answer among others of the same score.
        protocol: range or all; else the one it was trained with.
        beam: entities to follow at once; else the model's own way, for ours the argmax.
        sharpness: of a beam, what scores are multiplied by; else chosen by validation queries.
        back: of a beam, the weight of the way back, 0 to 1, or best: what training chose.
        data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
    """
    _check_beam(beam, sharpness, back)
    weight = _weight(back, model)
    on = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network, settings, task = _trained(model, data_dir, weight)
    queries = load(settings.graph, data_dir)
    if split not in queries.splits:
        raise DataError(f"{settings.graph} has no {split} queries; use --split test.")
    asked = queries.examinations(protocol or settings.protocol, split, device=on)[split]
    score: Score = network.to(on)
    if beam is not None:
        as_trained = beam == settings.beam or (beam == 1 and weight is not None)
        if sharpness is None and as_trained:
            sharpness = readout_of(model).get(SHARPNESS)
        if sharpness is None and beam == 1:
            sharpness = 1.0
        if sharpness is None:
            _log.info("Choosing the sharpness of the beam on validation queries.")
            if split == "validation":
                _log.info("They are those that are measured: the test says what it is worth.")
            sharpness = task.sharpness(network, settings, task.data(settings).to(on), beam)
        _check_beam(beam, sharpness)
        score = by_steps(step(network, sharpness, weight), beam)
    found = measure(score, asked.to(on), ties, at_once(asked.entities))
    return json.dumps(
        {
            "task": Paths.name,
            "model": str(model),
            "graph": settings.graph,
            "split": split,
            "protocol": found.protocol,
            "ties": found.ties,
            "beam": beam,
            "sharpness": sharpness,
            "back": weight,
            "queries": found.queries,
            "skipped": found.skipped,
            **_rounded(found.averages),
            "by length": {str(hops): _rounded(each) for hops, each in found.by_length.items()},
            "in words": found.words(),
        },
        indent=1,
    )


def _rounded(averages: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in averages.items()}


def predict(
    entity: str,
    path: str,
    /,
    *,
    model: Path,
    top: int = 10,
    beam: int | None = None,
    sharpness: float | None = None,
    back: str | None = None,
    data_dir: Path | None = None,
) -> str:
    """Follow a path from an entity, and rank the answers.

    After each relation but the last: the entity chosen, with its probability.

    By a beam: all that are followed.

    Then the best answers; known is what the triples of all splits lead to.

    Args:
        entity: where the path starts, by name.
        path: relations between commas; **name goes backwards.
        model: file or folder of a run.
        top: how many answers to show.
        beam: entities to follow at once; else the model's own way, for ours the argmax.
        sharpness: of a beam, what scores are multiplied by; else as in training, or 1.
        back: of a beam, the weight of the way back, 0 to 1, or best: what training chose.
        data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
    """
    if top < 1:
        raise DataError(f"top={top}, but at least 1 answer is shown.")
    _check_beam(beam, sharpness, back)
    weight = _weight(back, model)
    network, settings, task = _trained(model, data_dir, weight)
    graph = task.graph(settings.graph)
    query = parse(graph, entity, path)
    if beam is not None and (beam > 1 or weight is not None) and sharpness is None:
        sharpness = readout_of(model).get(SHARPNESS)
    try:
        return walk(network, graph, query, top, beam, sharpness or 1.0, weight).text()
    except ValueError as error:  # a path that this model cannot read
        raise DataError(str(error)) from None


def data(*, graph: str, out: Path, seed: int = 0, data_dir: Path | None = None) -> str:
    """Sample path queries by random walks and write them as text, with the graph.

    A line: source, tab, relations between commas, tab, target; **name is an inverse.

    Args:
        graph: wn11, fb13, fb15k-237, wn18rr, nations, umls, kinships; or a folder.
        out: folder for the files; it can be named as a graph then.
        seed: of the walks; with 0 they are those that `train` uses.
        data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
    """
    source = load_graph(graph, data_dir)
    try:
        splits = sample(source, seed)
    except ValueError as error:
        raise DataError(str(error)) from None
    written = write(out, PathData(source, splits))
    lines = [f"{path.relative_to(out)}: {size:,} lines" for path, size in written.items()]
    queries = sum(len(group) for groups in splits.values() for group in groups)
    return "\n".join([*lines, f"{queries:,} path queries, in {out}."])
