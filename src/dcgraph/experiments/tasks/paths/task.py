"""Path queries: from a source along relations, hop by hop, with only the answers given."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from ....distributed import shard_rows
from ....distributed._shards import Shard
from ...engine.errors import DataError
from ...engine.metrics import Decoder, Metric, Metrics
from ...engine.panels import Examples, Panel, Remark, Shown
from ...engine.settings import Settings
from ...engine.task import Batch, Data, Execution, Task
from .answers.answerer import Answerer
from .answers.reliability import calibrated
from .baselines import BASELINES, CoKE
from .commands import Commands
from .data import GRAPHS, PathData, is_one_file, load, load_graph, training_paths, validation_tables
from .data.graph import KnowledgeGraph, Queries, inverse, unpacked
from .data.packing import pack
from .decoding import (
    Walk,
    beam_scores,
    bidirectional_steps,
    calibrate_bidirectional_weight,
    calibrate_inverse_temperature,
    step_scores,
    walk,
)
from .evaluation import (
    METRICS,
    EvaluationSet,
    Protocol,
    Ranks,
    at_once,
    evaluation_sets,
    joined_ranks,
    negatives,
    rank,
    rank_all,
)
from .model import Bidirectional, DiscreteComplEx, PathModel, Shape
from .remarks import learned
from .settings import (
    BIDIRECTIONAL_WEIGHT,
    FITTED,
    HEADS,
    INVERSE_TEMPERATURE,
    PRESETS,
    SMALL,
    PathSettings,
    Size,
    fitted,
)

_SHOWN = 2  # walks of each length on the page of a run
_LONGEST_SHOWN = 5  # longer walks are hard to read


class Paths(Task[PathSettings]):
    name: ClassVar[str] = "paths"
    settings: ClassVar[type[Settings]] = PathSettings
    presets: ClassVar[Mapping[str, Settings]] = PRESETS
    open_settings: ClassVar[Mapping[str, Collection[str]]] = {"auto": FITTED}

    def __init__(
        self,
        data_dir: Path | None = None,
        graphs: Mapping[str, KnowledgeGraph] | None = None,
        whole: bool | None = None,
    ) -> None:
        """With graphs by name or folder that are here already, others are read when needed.

        ``whole`` says whether a model belongs to all triples of its graph and not only to its
        names; else that is so if the graph is one file.
        """
        self._whole = whole
        self._data_dir = data_dir
        self._graphs = dict(graphs or {})

    def graph(self, name: str) -> KnowledgeGraph:
        """A graph, as it was when it was asked for first; it decides how large a model is."""
        if name not in self._graphs:
            self._graphs[name] = load_graph(name, self._data_dir)
        return self._graphs[name]

    def preset_for(self, given: Mapping[str, str]) -> str:
        """A known graph may have a preset; any other one, such as one's own, has auto."""
        graph = given.get("graph", SMALL.graph)
        own = (name for name, preset in PRESETS.items() if preset.graph == graph)
        return next(own, "auto")

    def run_name(self, preset: str, given: Mapping[str, str]) -> str:
        """After the preset and, if it is not that of the preset, the graph."""
        graph = given.get("graph", "")
        if graph in ("", PRESETS[preset].graph):
            return super().run_name(preset, given)
        if graph in GRAPHS:
            stem = graph
        else:
            try:
                path = Path(graph).resolve()
            except (OSError, ValueError):  # no path can have this name, as loading it will say
                path = Path(graph)
            stem = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
        return "-".join([self.name, *([] if preset == "auto" else [preset]), stem])

    def fitted(
        self, settings: PathSettings, chosen: Collection[str], data_dir: Path | None = None
    ) -> PathSettings:
        source, _ = self._loaded(settings, data_dir)
        examples = tuple(map(len, training_paths(source, settings)))
        return fitted(settings, Size(len(source.graph.entities), examples), chosen)

    def data(self, settings: PathSettings, data_dir: Path | None = None) -> Data:
        source, asked = self._loaded(settings, data_dir)
        self._graphs[settings.graph] = source.graph
        train = [group.packed() for group in training_paths(source, settings)]
        splits: dict[str, list[Batch]] = {"train": train}
        for split, one in asked.items():
            if not one.tables:
                ranged = settings.protocol == "range"
                remedy = "use --protocol all" if ranged else "take a larger graph"
                raise DataError(f"{settings.graph}: no query of {split} has negatives; {remedy}.")
            splits[split] = one.tables
        if "validation" in splits:
            splits["validation"] = validation_tables(splits["validation"], settings)
        to_batch = batch_maker(settings, source.graph)
        return Data(splits, source.fingerprint, asked["test"].constants, to_batch)

    def model(self, settings: PathSettings) -> nn.Module:
        return self._model(settings, None)

    def divided_model(self, settings: PathSettings, group: dist.ProcessGroup) -> nn.Module:
        """With the rank's own rows of the table of entities."""
        if settings.model not in ("discrete", "complex"):
            raise ValueError(
                f"--divide codebook is for the models discrete and complex, not {settings.model}; "
                "leave it out, or choose one of the two."
            )
        if settings.top_k:
            raise ValueError(
                f"top_k={settings.top_k} needs the scores of all entities, which no rank has with "
                "--divide codebook; use --top-k 0."
            )
        return self._model(settings, group)

    def _model(self, settings: PathSettings, group: dist.ProcessGroup | None) -> nn.Module:
        graph = self.graph(settings.graph)
        entities = len(graph.entities)
        shape = Shape(
            entities,
            2 * len(graph.relations),
            2 * settings.dim,
            settings.init,
            settings.subject_dropout,
            settings.object_dropout,
            settings.relation_dropout,
            settings.l2_entities,
            settings.l2_relations,
            settings.precision,
            None if group is None else Shard(group, shard_rows(entities, group).start, entities),
        )
        if settings.model == "discrete":
            return DiscreteComplEx(
                shape,
                estimator=settings.estimator,
                noise=settings.noise,
                gate=settings.gate,
                top_k=settings.top_k,
            )
        if settings.model == "coke":
            return CoKE(shape, layers=settings.layers, heads=HEADS, dropout=settings.dropout)
        return BASELINES[settings.model](shape)

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        assert isinstance(model, PathModel)
        return model.loss(batch["source"], batch["path"], batch["target"])

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        protocol: Protocol = "range" if "range" in batch else "all"
        ranks = rank(model(batch["source"], batch["path"]), batch["target"], batch[protocol])
        return {name: value.float() for name, value in ranks.metrics(protocol).items()}

    def calibrate(self, model: nn.Module, settings: PathSettings, data: Data) -> dict[str, float]:
        """What a beam search needs, by the metric and the queries that weights are selected by.

        First the inverse temperature, then with it the weight of bidirectional scoring, and what
        makes probabilities of a beam search of answers that no known triple gives.
        """
        if settings.beam == 1:
            return {}
        asked, block = self._asked(settings, data, "validation"), self._block(settings)
        metric, width = settings.monitor, settings.beam
        temperature = calibrate_inverse_temperature(model, asked, metric, width, block)
        found = {INVERSE_TEMPERATURE: temperature}
        if isinstance(model, Bidirectional):
            found[BIDIRECTIONAL_WEIGHT] = calibrate_bidirectional_weight(
                model, temperature, asked, metric, width, block
            )
        on = asked.tables[0]["path"].device
        answers = calibrated(step_scores(model, temperature), self.graph(settings.graph), width, on)
        return found | answers.as_numbers()

    def final_metrics(
        self,
        model: nn.Module,
        settings: PathSettings,
        data: Data,
        calibration: Mapping[str, float],
    ) -> Metrics:
        """With optimistic ties, for each length, by beam search and by bidirectional scoring.

        The rest is in the test. Without calibration, scores are taken as they are.
        """
        asked, block = self._asked(settings, data, "test"), self._block(settings)
        ranks = rank_all(model, asked, block)
        optimistic = joined_ranks(list(ranks.values())).averages(settings.protocol, "optimistic")
        found: Metrics = {Metric(n, ties="optimistic"): value for n, value in optimistic.items()}
        found |= _metrics_by_length(ranks, settings.protocol)
        if settings.beam == 1:
            return found
        temperature = calibration.get(INVERSE_TEMPERATURE, 1.0)
        beam = beam_scores(step_scores(model, temperature), settings.beam)
        found |= _all_metrics(rank_all(beam, asked, block), settings.protocol, "beam", False)
        if isinstance(model, Bidirectional):
            weight = calibration.get(BIDIRECTIONAL_WEIGHT, 0.0)
            step = bidirectional_steps(model, temperature)(weight)
            widths: dict[Decoder, int] = {"beam": settings.beam, "argmax": 1}
            for decoder, width in widths.items():
                ranks = rank_all(beam_scores(step, width), asked, block)
                found |= _all_metrics(ranks, settings.protocol, decoder, True)
        return found

    def _loaded(
        self, settings: PathSettings, data_dir: Path | None
    ) -> tuple[PathData, dict[str, EvaluationSet]]:
        graph, stamp = settings.graph, ""
        if is_one_file(graph):
            path = Path(graph).resolve()
            stamp = f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}"
        return _loaded(graph, data_dir or self._data_dir, settings.protocol, stamp)

    def _asked(self, settings: PathSettings, data: Data, split: str) -> EvaluationSet:
        entities = len(self.graph(settings.graph).entities)
        tables = list(data.tables(split))
        return EvaluationSet(settings.protocol, entities, tables, data.constants, 0)

    def _block(self, settings: PathSettings) -> int:
        return at_once(len(self.graph(settings.graph).entities))

    def execution(self, settings: PathSettings) -> Execution:
        return Execution(
            monitor=settings.monitor,
            decoders=("argmax",),  # as the paper; a sample of thousands misses
            precision="high" if settings.precision == "tf32" else "highest",
            compiles=False,
            captures_evaluation=False,  # sets of negatives have all sizes
            evaluated_at_once=self._block(settings),
        )

    def vocabulary(self, settings: PathSettings) -> str:
        """Of a graph that is one file also the triples: with other ones its split is another."""
        graph = self.graph(settings.graph)
        whole = is_one_file(settings.graph) if self._whole is None else self._whole
        return graph.fingerprint if whole else graph.fingerprint_of_names

    def remarks(
        self, model: nn.Module, settings: PathSettings, data_dir: Path | None = None
    ) -> Sequence[Remark]:
        source, _ = self._loaded(settings, data_dir)
        return learned(model, source).remarks()

    def categories(self, settings: PathSettings) -> Sequence[str]:
        return self.graph(settings.graph).entities

    def carried(self, settings: PathSettings) -> bytes:
        """The graph: names, and the triples of all splits."""
        return pack(self.graph(settings.graph))

    def panels(self, model: nn.Module, settings: PathSettings, data: Data) -> Sequence[Panel]:
        """Some test queries of each length, from the source to the best answer."""
        on_cpu, graph = copy.deepcopy(model).cpu(), self.graph(settings.graph)
        walks = []
        for table in data.tables("test"):
            size, hops = table["path"].shape
            if hops > _LONGEST_SHOWN:
                continue
            for k in range(min(_SHOWN, size)):
                row = slice(place := k * size // _SHOWN, place + 1)
                query = Queries(*(table[name][row].cpu() for name in ("source", "path", "target")))
                walks.append(walk(on_cpu, graph, query, top=1))
        note = (
            "Test queries of each length, from the source on the left. After each relation stands "
            "the entity that the model chose, at the end its best answer, with their "
            "probabilities; ** begins the name of an inverse. Red and struck through is an entity "
            "to which the triples of all splits do not lead by the relations so far."
        )
        return (Examples("Decoded paths", note, tuple(map(_shown, walks)), chains=True),)

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        return Commands(Paths).by_name()

    @staticmethod
    def answerer(model: Path | None = None, **options: Any) -> Answerer:
        """What answers queries in a program, as ``dcgraph predict paths`` does on a screen.

        Args:
            model: a file, or the folder of a run; None is the model in the package.
            options: those of the command: beam, candidates, inverse_temperature, ...
        """
        return Commands(Paths).answerer(model, **options)


@lru_cache(maxsize=2)
def _loaded(
    graph: str, data_dir: Path | None, protocol: Protocol, stamp: str
) -> tuple[PathData, dict[str, EvaluationSet]]:
    """Reading, sampling and finding what queries reach take a while: once for a program.

    A file that has changed since has another stamp.
    """
    source = load(graph, data_dir)
    return source, evaluation_sets(source, protocol)


def batch_maker(
    settings: PathSettings, graph: KnowledgeGraph
) -> Callable[[Batch, Batch, bool], Batch]:
    """What makes batches of rows, as :class:`Data` needs it."""
    entities, relations = len(graph.entities), len(graph.relations)

    def to_batch(constants: Batch, rows: Batch, training: bool) -> Batch:
        """In training also the inverse paths, as further examples.

        Else the negatives of the targets, under the name of the protocol.
        """
        if not training:
            return rows | {settings.protocol: negatives(constants, rows, entities)}
        rows = unpacked(rows)
        if settings.trains_inverse(rows["path"].shape[1]):
            inverted = inverse(rows["path"].flip(1), relations)
            ends = {"source": rows["target"], "path": inverted, "target": rows["source"]}
            return {name: torch.cat([rows[name], ends[name]]) for name in ends}
        return rows

    return to_batch


def _all_metrics(
    ranks: Mapping[int, Ranks], protocol: Protocol, decoder: Decoder, bidirectional: bool
) -> Metrics:
    """Over all lengths, and of each."""
    every = joined_ranks(list(ranks.values())).averages(protocol)
    found: Metrics = {
        Metric(name, decoder=decoder, bidirectional=bidirectional): value
        for name, value in every.items()
    }
    return found | _metrics_by_length(ranks, protocol, decoder, bidirectional)


def _metrics_by_length(
    ranks: Mapping[int, Ranks],
    protocol: Protocol,
    decoder: Decoder = "argmax",
    bidirectional: bool = False,
) -> Metrics:
    """The first metric of the protocol and H@10."""
    found: Metrics = {}
    for length, some in ranks.items():
        averages = some.averages(protocol)
        for name in (METRICS[protocol][0], "H@10"):
            found[Metric(name, "test", decoder, bidirectional, length)] = averages[name]
    return found


def _shown(walked: Walk) -> tuple[Shown, ...]:
    stops = [*(first for first, *_ in walked.hops), walked.answers[0]]
    between = [*walked.relations[: len(walked.hops)]]
    between.append(", ".join(walked.relations[len(walked.hops) :]))
    return (
        Shown("source", walked.source),
        *(
            Shown(f"{relation}, {stop.probability:.0%}", stop.entity, right=stop.known)
            for relation, stop in zip(between, stops, strict=True)
        ),
    )
