"""A graph with its path queries: one of ours by its name, anyone's by its folder."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ...._arguments import closest
from ...engine.datasets import DataError
from ...engine.task import Batch, fingerprint_of
from .adjacency import Adjacency
from .graph import KnowledgeGraph
from .graph_files import SPLITS, files_in, pick, read_graph, write_graph
from .protocols import Examination, Protocol, examine
from .queries import Queries
from .query_files import ENDINGS, read_queries, write_queries
from .ragged import Ragged
from .reachability import Reached, reachable
from .sampling import sample
from .sources import GRAPHS, located
from .storage import remembered

_LARGE = 1 << 20  # bytes of a text that is worth keeping as tensors
_MANY = 100_000  # queries whose answers take so long to find that one wants to know why

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PathData:
    """A graph, and for each split its path queries, a group for every length."""

    graph: KnowledgeGraph
    splits: Mapping[str, Sequence[Queries]]

    @cached_property
    def fingerprint(self) -> str:
        queries = (t for s in self.splits.values() for q in s for t in q.table().values())
        return fingerprint_of(self.graph.fingerprint, *self.splits, *queries)

    def examinations(
        self,
        protocol: Protocol,
        *splits: str,
        cache: Path | None = None,
        device: torch.device | str = "cpu",
    ) -> dict[str, Examination]:
        """Splits as they are asked by a protocol; validation and test if none is named.

        What queries reach is found once, on the device, and kept in the folder ``cache``, or else
        in that of the user's cache. The result is on the CPU.
        """

        def reach(graph: Adjacency, groups: Sequence[Queries]) -> Reached:
            asked = [tensor for group in groups for tensor in (group.source, group.path)]
            name = f"reached-{fingerprint_of(self.graph.fingerprint, *asked)}"

            def make() -> Batch:
                count = sum(map(len, groups))
                if count >= _MANY:
                    _log.info(
                        "Finding all answers of %s queries: a minute or so, once.", f"{count:,}"
                    )
                there = [group.to(device) for group in groups]
                return _tensors_of(reachable(graph.to(device), there).to("cpu"))

            kept = remembered(name, make, cache)
            return _reached_of(kept, len(groups))

        chosen = splits or [split for split in self.splits if split != "train"]
        queries = {split: self.splits[split] for split in chosen}
        return examine(self.graph.adjacency(), queries, protocol, reach)


def _tensors_of(reached: Reached) -> Batch:
    numbers = {f"of_{number}": of for number, of in enumerate(reached.of)}
    return {"offsets": reached.sets.offsets, "members": reached.sets.values, **numbers}


def _reached_of(tensors: Batch, groups: int) -> Reached:
    sets = Ragged(tensors["offsets"], tensors["members"])
    return Reached(sets, [tensors[f"of_{number}"] for number in range(groups)])


def load(
    name: str, data_dir: Path | None = None, seed: int = 0, cache: Path | None = None
) -> PathData:
    """A graph with its path queries.

    ``name`` is one of GRAPHS or a folder, as :mod:`.graph_files` describes. Queries come from files
    in a folder ``paths`` beside the triples, as :mod:`.query_files` describes; where there are
    none, they are sampled with the seed. Large files of text are read once, and what was in them is
    kept in the folder ``cache``, or else in that of the user's cache.
    """
    files = _files_of(name, data_dir)
    graph = read_graph(files, name)
    found = {split: _queries_of(split, files) for split in graph.triples}
    if not any(found.values()):
        return PathData(graph, sample(graph, seed))
    splits = {}
    for split, path in found.items():
        if path is None:
            raise DataError(
                f"{name}: there are path queries, but none for {split}; put paths/"
                f"{SPLITS[split][0]}.txt there, or remove the others, and all are sampled."
            )
        splits[split] = _read_once(path, graph, cache)
    return PathData(graph, splits)


def load_graph(name: str, data_dir: Path | None = None) -> KnowledgeGraph:
    """The graph alone."""
    return read_graph(_files_of(name, data_dir), name)


def _files_of(name: str, data_dir: Path | None) -> dict[str, Path]:
    if name in GRAPHS:
        return located(name, data_dir)
    if not Path(name).is_dir():
        raise DataError(
            f"{name!r} is no folder, seen from here, and no graph of ours; {closest(name, GRAPHS)}"
        )
    return files_in(Path(name))


def _read_once(path: Path, graph: KnowledgeGraph, cache: Path | None) -> list[Queries]:
    """The queries of a file, from what is kept of it if it is a large text."""
    if path.suffix == ".npz" or path.stat().st_size < _LARGE:
        return read_queries(path, graph)

    def make() -> Batch:
        groups = read_queries(path, graph)
        return {f"{name}_{g.hops}": t for g in groups for name, t in g.table().items()}

    content = hashlib.sha256(path.read_bytes()).hexdigest()
    kept = remembered(f"queries-{fingerprint_of(graph.fingerprint, content)}", make, cache)
    lengths = sorted(int(name.removeprefix("path_")) for name in kept if name.startswith("path_"))
    return [Queries(kept[f"source_{k}"], kept[f"path_{k}"], kept[f"target_{k}"]) for k in lengths]


def _queries_of(split: str, files: Mapping[str, Path]) -> Path | None:
    return pick(files, [f"paths/{name}" for name in SPLITS[split]], ENDINGS)


def write(folder: Path, data: PathData) -> dict[Path, int]:
    """Files that :func:`load` reads, in gzip; gives them and how many lines each of them has.

    What stands in the folder may be overwritten, but other files there might be read in place of
    these, and are an error.
    """
    ours = {"entities", "relations", *(SPLITS[split][0] for split in data.graph.triples)}
    for path in files_in(folder).values():
        if path.name not in {f"{name}.txt.gz" for name in ours}:
            raise DataError(f"{folder} holds {path.name} already; choose an empty folder.")
    written = write_graph(folder, data.graph)
    for split, groups in data.splits.items():
        path = folder / "paths" / f"{SPLITS[split][0]}.txt.gz"
        write_queries(path, groups, data.graph)
        written[path] = sum(map(len, groups))
    return written
