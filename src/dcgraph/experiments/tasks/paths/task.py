"""Path queries: from a source along relations, hop by hop, with only the answers given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ....nodes import Decode
from ...engine.datasets import DataError
from ...engine.panels import Exhibit
from ...engine.readouts import Layout
from ...engine.settings import Settings
from ...engine.task import Batch, Data, Precision, Task
from .arranging import ARGMAX_BACK, BACK, BEAM, by_way
from .beams import SHARPNESSES, by_beam, by_steps
from .composing import Bilinear, ComplEx, DistMult, PathModel, Reversible, Shape, TransE
from .data import PathData, load, load_graph
from .evaluation import Score, best_way, stand
from .graph import KnowledgeGraph
from .hopping import DiscreteComplEx
from .looking_back import WEIGHTS, looking_back
from .protocols import METRICS, Examination, Protocol, competitors, measured
from .queries import inverse, unpacked
from .ranking import Standing, Ties, standing
from .recurrent import ROP, PathRNN
from .selecting import chosen_on, is_turned, trained_on
from .settings import HEADS, PRESETS, PathSettings
from .transformer import CoKE

_SCORES = 1 << 28  # that an evaluation makes at once: one gigabyte
SHARPNESS, WAY_BACK = "sharpness of the beam", "weight of the way back"
"""Their names in the readout."""

BASELINES: dict[str, type[PathModel]] = {
    "complex": ComplEx,
    "distmult": DistMult,
    "bilinear": Bilinear,
    "transe": TransE,
    "rnn": PathRNN,
    "rop": ROP,
}


class Paths(Task):
    name: ClassVar[str] = "paths"
    settings: ClassVar[type[Settings]] = PathSettings
    presets: ClassVar[Mapping[str, Settings]] = PRESETS
    monitor: ClassVar[str] = "H@10"
    replays_evaluation: ClassVar[bool] = False  # sets of competitors have all sizes
    compiles: ClassVar[bool] = False
    decodes: ClassVar[tuple[Decode, ...]] = ("argmax",)  # as the paper; a draw of thousands misses

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir
        self._graphs: dict[str, KnowledgeGraph] = {}

    def graph(self, name: str) -> KnowledgeGraph:
        """A graph, as it was when it was asked for first; it decides how large a model is."""
        if name not in self._graphs:
            self._graphs[name] = load_graph(name, self._data_dir)
        return self._graphs[name]

    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        s = cast(PathSettings, settings)
        source, asked = _loaded(s.graph, data_dir or self._data_dir, s.protocol)
        self._graphs[s.graph] = source.graph
        train = [group.packed() for group in trained_on(source, s)]
        splits: dict[str, list[Batch]] = {"train": train}
        for split, exam in asked.items():
            if not exam.tables:
                remedy = "use --protocol all" if s.protocol == "range" else "take a larger graph"
                raise DataError(f"{s.graph}: no query of {split} has competitors; {remedy}.")
            splits[split] = exam.tables if split == "test" else chosen_on(exam.tables, s)
        return Data(splits, source.fingerprint, asked["test"].shared)

    def model(self, settings: Settings) -> nn.Module:
        s = cast(PathSettings, settings)
        graph = self.graph(s.graph)
        shape = Shape(
            len(graph.entities),
            2 * len(graph.relations),
            2 * s.dim,
            s.init,
            s.subject_dropout,
            s.object_dropout,
            s.relation_dropout,
            s.l2_entities,
            s.l2_relations,
            s.precision,
        )
        if s.model == "discrete":
            return DiscreteComplEx(
                shape, estimator=s.estimator, noise=s.noise, gate=s.gate, nearest=s.nearest
            )
        if s.model == "coke":
            return CoKE(shape, layers=s.layers, heads=HEADS, dropout=s.dropout)
        return BASELINES[s.model](shape)

    def inputs(self, settings: Settings, shared: Batch, rows: Batch, training: bool) -> Batch:
        """In training also the same paths backwards, as further examples.

        Else the competitors of the targets, under the name of the protocol.
        """
        s = cast(PathSettings, settings)
        graph = self.graph(s.graph)
        if not training:
            return rows | {s.protocol: competitors(shared, rows, len(graph.entities))}
        rows = unpacked(rows)
        if is_turned(rows["path"].shape[1], s):
            back = inverse(rows["path"].flip(1), len(graph.relations))
            ends = {"source": rows["target"], "path": back, "target": rows["source"]}
            return {name: torch.cat([rows[name], ends[name]]) for name in ends}
        return rows

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        assert isinstance(model, PathModel)
        return model.loss(batch["source"], batch["path"], batch["target"])

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        protocol: Protocol = "range" if "range" in batch else "all"
        stands = standing(model(batch["source"], batch["path"]), batch["target"], batch[protocol])
        return {name: value.float() for name, value in measured(stands, protocol).items()}

    def readout(self, model: nn.Module, settings: Settings, data: Data) -> dict[str, float]:
        """By the tie rule of the paper, for each length, by a beam, and by one that looks back.

        The last also by its steps with one entity followed. The rest is in the test.
        """
        s = cast(PathSettings, settings)
        exam, block = self._asked(s, data, "test"), self.evaluated_at_once(s)
        stands = stand(model, exam, block)
        numbers = {
            f"{name}, ties as the paper": _mean(list(stands.values()), s.protocol, name, "paper")
            for name in METRICS[s.protocol]
        }
        numbers |= _by_length(stands, s.protocol, "")
        if s.beam > 1:
            numbers[SHARPNESS] = sharpness = self.sharpness(model, s, data, s.beam)
            ways = {BEAM: by_beam(model, s.beam, sharpness)}
            if isinstance(model, Reversible):
                weighed = looking_back(model, sharpness)
                weights = {weight: by_steps(weighed(weight), s.beam) for weight in WEIGHTS}
                numbers[WAY_BACK] = weight = self._best_way(weights, s, data)
                ways[BACK] = weights[weight]
                ways[ARGMAX_BACK] = by_steps(weighed(weight), 1)
            for name, way in ways.items():
                stands = stand(way, exam, block)
                for metric in METRICS[s.protocol]:
                    mean = _mean(list(stands.values()), s.protocol, metric)
                    numbers[f"{metric}, {name}"] = mean
                numbers |= _by_length(stands, s.protocol, f", {name}")
        return numbers

    def sharpness(self, model: nn.Module, settings: PathSettings, data: Data, beam: int) -> float:
        """What a beam needs, by the queries and the metric that weights are chosen by."""
        ways = {sharpness: by_beam(model, beam, sharpness) for sharpness in SHARPNESSES}
        return self._best_way(ways, settings, data)

    def _best_way(self, ways: Mapping[float, Score], settings: PathSettings, data: Data) -> float:
        """The first one without queries for validation: the test is not for choosing."""
        if "validation" not in data.splits:
            return next(iter(ways))
        asked = self._asked(settings, data, "validation")
        return best_way(ways, asked, settings.choose_by, self.evaluated_at_once(settings))

    def _asked(self, settings: PathSettings, data: Data, split: str) -> Examination:
        entities = len(self.graph(settings.graph).entities)
        return Examination(settings.protocol, entities, list(data.tables(split)), data.shared, 0)

    def monitored(self, settings: Settings) -> str:
        return cast(PathSettings, settings).choose_by

    def precision(self, settings: Settings) -> Precision:
        return "high" if cast(PathSettings, settings).precision == "tf32" else "highest"

    def evaluated_at_once(self, settings: Settings) -> int:
        return at_once(len(self.graph(cast(PathSettings, settings).graph).entities))

    def names_fingerprint(self, settings: Settings) -> str:
        return self.graph(cast(PathSettings, settings).graph).fingerprint_of_names

    def arranged(self, names: Iterable[str]) -> tuple[list[str], Layout]:
        return by_way(names)

    def exhibits(self, model: nn.Module, settings: Settings, data: Data) -> Sequence[Exhibit]:
        from . import exhibits

        return exhibits.of_model(model, self.graph(cast(PathSettings, settings).graph), data)

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        from . import commands

        return {
            "evaluate": commands.evaluate,
            "predict": commands.predict,
            "data": commands.data,
        }


def at_once(entities: int) -> int:
    """How many queries to ask together, so that their scores take a gigabyte at most."""
    return max(1, _SCORES // entities)


@lru_cache(maxsize=2)
def _loaded(
    graph: str, data_dir: Path | None, protocol: Protocol
) -> tuple[PathData, dict[str, Examination]]:
    """Reading, sampling and finding what queries reach take a while: once for a program."""
    source = load(graph, data_dir)
    return source, source.examinations(protocol)


def _by_length(stands: Mapping[int, Standing], protocol: Protocol, way: str) -> dict[str, float]:
    return {
        f"{name}{way}, length {hops}": _mean([of_length], protocol, name)
        for hops, of_length in stands.items()
        for name in (("MQ", "H@10") if protocol == "range" else ("MRR", "H@10"))
    }


def _mean(
    stands: Sequence[Standing], protocol: Protocol, name: str, ties: Ties = "realistic"
) -> float:
    values = [measured(some, protocol, ties)[name] for some in stands]
    return float(torch.cat(values).mean())
