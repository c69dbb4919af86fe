"""What ``dcgraph evaluate``, ``predict`` and ``data`` do for path queries."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

import torch

from ...engine.errors import DataError, ModelError
from ...engine.files import write_atomically
from ...engine.metrics import Ties
from ...engine.models import calibration_of, carried_by, load_model, settings_of, vocabulary_of
from ...engine.task import Task
from .answers.answerer import Answerer
from .answers.calibration import Calibration, calibration_from
from .answers.candidates import Candidates, Rule
from .answers.known import known_triples
from .answers.predictor import Predictor, lines_of, relations_at
from .data import PathData, example, load, load_graph, validation_tables, write
from .data.graph import KnowledgeGraph
from .data.packing import unpack
from .data.walks import sample
from .decoding import (
    beam_scores,
    calibrate_inverse_temperature,
    check_beam,
    check_bidirectional,
    check_weight,
    step_scores,
)
from .evaluation import Protocol, Score, at_once, evaluate, evaluation_sets
from .model import PathModel
from .settings import BIDIRECTIONAL_WEIGHT, INVERSE_TEMPERATURE, PathSettings

SHIPPED = "umls.safetensors"
"""The model in the package."""

_log = logging.getLogger(__name__)


class Commands:
    """The commands of the task, which is made with a folder of the data, and graphs by name."""

    def __init__(self, task: Callable[..., Task[PathSettings]]) -> None:
        self._task = task

    def by_name(self) -> dict[str, Callable[..., str | Iterator[str]]]:
        return {"evaluate": self.evaluate, "predict": self.predict, "data": self.data}

    def evaluate(
        self,
        *,
        model: Path | None = None,
        split: Literal["test", "validation"] = "test",
        ties: Ties = "realistic",
        protocol: Protocol | None = None,
        beam: int | None = None,
        inverse_temperature: float | None = None,
        bidirectional: str | None = None,
        data_dir: Path | None = None,
    ) -> str:
        """Measure a trained model on the path queries of its graph; prints JSON.

        Args:
            model: file or folder of a run; the model in the package, if not given.
            split: which queries.
            ties: rank of an answer among others of the same score.
            protocol: candidates: range or all; else those it was trained with.
            beam: width of a beam search; else the discrete model decodes by argmax.
            inverse_temperature: of a beam search; else chosen on the validation split.
            bidirectional: of a beam search, the weight of the inverse direction, 0 to 1, or best.
            data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        """
        _check_beam(beam, inverse_temperature, bidirectional)
        with self._named(model) as file:
            weight = _weight(bidirectional, file)
            if model is None:  # its queries are sampled, so that no data are needed
                network, settings, graph = self._opened(file, data_dir, weight)
                queries = PathData(graph, sample(graph, 0))
            else:
                network, settings = self._load(file, data_dir, weight)
                queries = load(settings.graph, data_dir)
            calibrated = calibration_of(file)
        on = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if split not in queries.splits:
            raise DataError(f"{settings.graph} has no {split} queries; use --split test.")
        asked = evaluation_sets(queries, protocol or settings.protocol, split, device=on)[split]
        score: Score = network.to(on)
        if beam is not None:
            as_trained = beam == settings.beam or (beam == 1 and weight is not None)
            if inverse_temperature is None and as_trained:
                inverse_temperature = calibrated.get(INVERSE_TEMPERATURE)
            if inverse_temperature is None and beam == 1:
                inverse_temperature = 1.0
            if inverse_temperature is None:
                _log.info("Choosing the inverse temperature on the validation split.")
                if split == "validation":
                    _log.info("That split is measured: only the test says what it is worth.")
                inverse_temperature = _best_temperature(network, settings, queries, beam, on)
            _check_beam(beam, inverse_temperature)
            score = beam_scores(step_scores(network, inverse_temperature, weight), beam)
        found = evaluate(score, asked.to(on), ties, at_once(asked.entities))
        return json.dumps(
            {
                "task": "paths",
                "model": str(model) if model else "shipped",
                "graph": settings.graph,
                "split": split,
                "protocol": found.protocol,
                "ties": found.ties,
                "beam": beam,
                INVERSE_TEMPERATURE: inverse_temperature,
                BIDIRECTIONAL_WEIGHT: weight,
                "queries": found.queries,
                "skipped": found.skipped,
                **_rounded(found.averages),
                "by length": {str(hops): _rounded(each) for hops, each in found.by_length.items()},
                "in words": found.words(),
            },
            indent=1,
        )

    def predict(
        self,
        source: str | None = None,
        path: str | None = None,
        /,
        *,
        queries: Path | None = None,
        json_: bool = False,
        top: int = 10,
        new: bool = False,
        candidates: Rule = "auto",
        model: Path | None = None,
        beam: int | None = None,
        inverse_temperature: float | None = None,
        bidirectional: str | None = None,
        data_dir: Path | None = None,
    ) -> Iterator[str]:
        """Follow a path of relations from an entity, and rank the answers.

        For example: dcgraph predict paths bacterium "causes,**treats"

        An answer is marked in training, in validation or in test if triples up to
        that split lead to it; else it is new, and has the probability to be right.
        Exit code: 0; 1 if a query could not be read; 2 for wrong options.

        Args:
            source: where the path starts; with no path, its relations are shown.
            path: relations between commas; **name is an inverse.
            queries: file, or - for stdin: source, tab, path per line.
            json_: a JSON object per query and line, see docs/asking.md.
            top: how many answers to show.
            new: only answers that no known triples lead to.
            candidates: what a relation can lead to.
            model: file or folder of a run; else a model of UMLS.
            beam: width of the beam search; else that of training.
            inverse_temperature: of scores; else as calibrated in training.
            bidirectional: weight of the inverse direction, 0 to 1, or best.
            data_dir: of data, for models saved without their graph.
        """
        if top < 1:
            raise DataError(f"top={top}, but at least 1 answer is shown.")
        if (source is None) == (queries is None):
            raise DataError(
                "name a source and a path, such as hormone disrupts; or queries with --queries."
            )
        answerer = self.answerer(
            model,
            candidates=candidates,
            beam=beam,
            inverse_temperature=inverse_temperature,
            bidirectional=bidirectional,
            data_dir=data_dir,
        )
        predictor = Predictor(answerer, top, json_, new)
        if queries is not None:
            return predictor.many(lines_of(queries))
        assert source is not None
        if path is None:
            return iter([relations_at(answerer, source)])
        return predictor.one(source, path)

    def answerer(
        self,
        model: Path | None = None,
        *,
        candidates: Rule = "auto",
        beam: int | None = None,
        inverse_temperature: float | None = None,
        bidirectional: str | None = None,
        data_dir: Path | None = None,
    ) -> Answerer:
        """What answers queries; arguments as of :meth:`predict`."""
        _check_beam(1 if beam is None else beam, inverse_temperature)
        with self._named(model) as file:
            weight = _weight(bidirectional, file)
            network, settings, graph = self._opened(file, data_dir, weight)
            numbers = calibration_of(file)
            calibration = _calibration(numbers, file)
        calibrated_temperature = numbers.get(INVERSE_TEMPERATURE, 1.0)
        temperature = inverse_temperature or calibrated_temperature
        width = beam or settings.beam
        _check_beam(width, temperature)
        as_calibrated = (width, candidates, weight, temperature) == (
            settings.beam, "auto", None, calibrated_temperature
        )  # fmt: skip
        known = known_triples(graph)
        return Answerer(
            graph,
            known,
            step_scores(network, temperature, weight),
            Candidates(known.everything, candidates),
            width,
            calibration if as_calibrated else None,
        )

    def data(self, *, graph: str, out: Path, seed: int = 0, data_dir: Path | None = None) -> str:
        """Sample path queries by random walks and write them as text, with the graph.

        A line: source, tab, relations between commas, tab, target; **name is an inverse.
        The graph "example" is a file of triples to try things with, and is copied.

        Args:
            graph: wn11, fb13, fb15k-237, wn18rr, nations, umls, kinships; a folder; a file;
                example.
            out: folder for the files, which can be named as a graph then; of example a file.
            seed: of the walks, and of the split of a file; with 0 both are those that train uses.
            data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        """
        if graph == "example":
            if out.exists():
                raise DataError(f"{out} is there already; choose another --out.")
            content = example()
            write_atomically(out, lambda draft: draft.write_bytes(content))
            count = content.count(b"\n") - 1  # without the header
            return f"{count} triples of made-up royal families, in {out}."
        source = load_graph(graph, data_dir, seed)
        try:
            splits = sample(source, seed)
        except ValueError as error:
            raise DataError(str(error)) from None
        written = write(out, PathData(source, splits))
        lines = [f"{path.relative_to(out)}: {size:,} lines" for path, size in written.items()]
        queries = sum(len(group) for groups in splits.values() for group in groups)
        return "\n".join([*lines, f"{queries:,} path queries, in {out}."])

    @contextmanager
    def _named(self, model: Path | None) -> Iterator[Path]:
        """The file or folder, or the model in the package."""
        with as_file(files(__package__) / SHIPPED) if model is None else nullcontext(model) as path:
            yield path

    def _opened(
        self, model: Path, data_dir: Path | None, weight: float | None
    ) -> tuple[PathModel, PathSettings, KnowledgeGraph]:
        """A model and its graph: the one that it carries, or for older models that of the data."""
        graphs: dict[str, KnowledgeGraph] = {}
        whole: bool | None = None
        if content := carried_by(model):
            try:
                carried = unpack(content)
                graphs = {str(settings_of(model).get("graph")): carried}
                whole = vocabulary_of(model) == carried.fingerprint
            except ValueError as error:
                raise ModelError(f"{str(model)!r} is damaged: {error}; train it again.") from error
        network, settings = self._load(model, data_dir, weight, graphs, whole)
        graph = graphs.get(settings.graph)
        return network, settings, load_graph(settings.graph, data_dir) if graph is None else graph

    def _load(
        self,
        model: Path,
        data_dir: Path | None,
        weight: float | None,
        graphs: Mapping[str, KnowledgeGraph] | None = None,
        whole: bool | None = None,
    ) -> tuple[PathModel, PathSettings]:
        loaded, settings = load_model(model, self._task(data_dir, graphs, whole))
        assert isinstance(loaded, PathModel)
        if weight is not None:
            try:
                check_bidirectional(loaded)
            except ValueError as error:
                raise DataError(str(error)) from None
        return loaded, settings


def _calibration(numbers: Mapping[str, float], model: Path) -> Calibration:
    try:
        return calibration_from(numbers)
    except ValueError as error:
        raise ModelError(
            f"{str(model)!r} has a calibration this dcgraph cannot read: {error}; train it again."
        ) from error


def _weight(bidirectional: str | None, model: Path) -> float | None:
    """As given, or "best", which training chose."""
    if bidirectional is None:
        return None
    weight: str | float | None = bidirectional
    if bidirectional == "best":
        weight = calibration_of(model).get(BIDIRECTIONAL_WEIGHT)
    if weight is None:
        raise DataError(
            f"the run {str(model)!r} has no calibrated bidirectional weight; give a number."
        )
    try:
        check_weight(float(weight))
    except ValueError:
        raise DataError(
            f"bidirectional={weight}, but the weight is a number from 0 to 1, or best."
        ) from None
    return float(weight)


def _check_beam(
    beam: int | None, inverse_temperature: float | None, bidirectional: str | None = None
) -> None:
    """Before anything is loaded, which may take a while."""
    options = {"inverse_temperature": inverse_temperature, "bidirectional": bidirectional}
    for name, value in options.items():
        if beam is None and value is not None:
            raise DataError(f"{name}={value} is for a beam search; use it with --beam.")
    if beam is not None:
        try:
            check_beam(beam, 1.0 if inverse_temperature is None else inverse_temperature)
        except ValueError as error:
            raise DataError(str(error)) from None


def _best_temperature(
    model: PathModel, settings: PathSettings, queries: PathData, beam: int, on: torch.device
) -> float:
    """On the queries and by the metric that the weights were selected by; 1 without queries."""
    if "validation" not in queries.splits:
        return 1.0
    asked = evaluation_sets(queries, settings.protocol, "validation", device=on)["validation"]
    kept = replace(asked, tables=validation_tables(asked.tables, settings)).to(on)
    return calibrate_inverse_temperature(
        model, kept, settings.monitor, beam, at_once(asked.entities)
    )


def _rounded(averages: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in averages.items()}
