"""The data of path queries: a graph by its name, folder or file, its queries, what is trained on.

Path queries stand in text files of the folder ``paths`` beside the triples, named as those are:
source, tab, relations between commas, tab, target. ``**name`` is the inverse of a relation. Beside
text there are .npz files with the arrays ``source`` [n], ``path`` [n, longest], padded with -1 on
the right, and ``target`` [n], numbered like the graph.

The other rooms: :mod:`.graph` has graphs, queries and CSR rows; :mod:`.walks` samples queries and
finds what they reach; :mod:`.files` reads and writes graphs; :mod:`.one_file` splits one.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files as package_files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ....._arguments import closest
from ....engine.checkpoint import save_tensors
from ....engine.datasets import File, cache_folder, locate
from ....engine.errors import DataError
from ....engine.files import read_bytes
from ....engine.task import Batch, fingerprint_of
from ..settings import PathSettings
from .files import (
    SPLITS,
    TEXT,
    columns_of,
    fail_at,
    files_in,
    numbering,
    numbers_of,
    pick,
    read_graph,
    read_lines,
    shown,
    write_graph,
    write_lines,
)
from .graph import INVERSE, KnowledgeGraph, Queries, inverse_paths, joined
from .one_file import read_one
from .walks import path_hashes, sample

if TYPE_CHECKING:
    import numpy as np

_log = logging.getLogger(__name__)

_LARGE = 1 << 20  # bytes of a text that is worth keeping as tensors


def _graphs() -> dict[str, dict[str, File]]:
    """From the list of checksums. The small graphs are part of PyKEEN (Ali et al., 2021; MIT)."""
    listed = json.loads((package_files(__package__) / "graphs.json").read_text())
    return {
        graph: {
            name: File(
                f"{of['folder']}/{name}", sha256, (f"{of['copy']}/{name}",) if "copy" in of else ()
            )
            for name, sha256 in of["sha256"].items()
        }
        for graph, of in listed.items()
    }


GRAPHS = _graphs()
"""The files of each graph, as they stand below a data folder."""


@dataclass(frozen=True, eq=False)
class PathData:
    """A graph, and for each split its path queries, a group for every length."""

    graph: KnowledgeGraph
    splits: Mapping[str, Sequence[Queries]]

    @cached_property
    def fingerprint(self) -> str:
        queries = (t for s in self.splits.values() for q in s for t in q.table().values())
        return fingerprint_of(self.graph.fingerprint, *self.splits, *queries)


def load(
    name: str, data_dir: Path | None = None, seed: int = 0, cache: Path | None = None
) -> PathData:
    """A graph with its path queries.

    ``name`` is one of GRAPHS or a folder, as :mod:`.files` describes, or a file of triples, which
    is split as :mod:`.one_file` does. Queries come from files in its folder ``paths``; where there
    are none, they are sampled with the seed. Large files of text are read once, and what was in
    them is kept in the disk cache ``cache``, or else the user's.
    """
    if is_one_file(name):
        graph, about = read_one(Path(name), seed)
        for line in about.splitlines():
            _log.info("%s", line)
        return PathData(graph, sample(graph, seed))
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


def load_graph(name: str, data_dir: Path | None = None, seed: int = 0) -> KnowledgeGraph:
    """Only the graph; the seed is that of the split of one file."""
    if is_one_file(name):
        return read_one(Path(name), seed)[0]
    return read_graph(_files_of(name, data_dir), name)


def is_one_file(name: str) -> bool:
    """Whether a graph is a file of triples, which is split whenever it is read."""
    return name not in GRAPHS and Path(name).is_file()


def _files_of(name: str, data_dir: Path | None) -> dict[str, Path]:
    if name in GRAPHS:
        return {short: locate(file, data_dir) for short, file in GRAPHS[name].items()}
    if not Path(name).is_dir():
        raise DataError(
            f"{name!r} is neither a file or folder here nor a known graph; {closest(name, GRAPHS)}"
        )
    return files_in(Path(name))


def _read_once(path: Path, graph: KnowledgeGraph, cache: Path | None) -> list[Queries]:
    """The queries of a file, from what is kept of it if it is a large text."""
    if path.suffix == ".npz" or path.stat().st_size < _LARGE:
        return read_queries(path, graph)

    def make() -> Batch:
        groups = read_queries(path, graph)
        lengths = torch.tensor([group.hops for group in groups])
        tables = {f"{name}_{g.hops}": t for g in groups for name, t in g.table().items()}
        return {"lengths": lengths, **tables}

    content = hashlib.sha256(read_bytes(path)).hexdigest()
    kept = disk_cached(f"queries-2-{fingerprint_of(graph.fingerprint, content)}", make, cache)
    return [
        Queries(*(kept[f"{name}_{length}"] for name in ("source", "path", "target")))
        for length in kept["lengths"].tolist()
    ]


def _queries_of(split: str, files: Mapping[str, Path]) -> Path | None:
    return pick(files, [f"paths/{name}" for name in SPLITS[split]], (".npz", *TEXT))


def example() -> bytes:
    """A small graph in one file: made-up royal families, their towns and regions."""
    return (package_files(__package__) / "royals.tsv").read_bytes()


def write(folder: Path, data: PathData) -> dict[Path, int]:
    """Files that :func:`load` reads, in gzip; gives them and how many lines each of them has.

    What stands in the folder may be overwritten, but other files there might be read in place of
    these, and are an error.
    """
    for split, triples in data.graph.triples.items():
        if not len(triples):
            raise DataError(
                f"there are no triples for {split}, which a folder needs; train on the file itself."
            )
    names = {"entities", "relations", *(SPLITS[split][0] for split in data.graph.triples)}
    for path in files_in(folder).values():
        if path.name not in {f"{name}.txt.gz" for name in names}:
            raise DataError(f"{folder} holds {path.name} already; choose an empty folder.")
    written = write_graph(folder, data.graph)
    for split, groups in data.splits.items():
        path = folder / "paths" / f"{SPLITS[split][0]}.txt.gz"
        write_queries(path, groups, data.graph)
        written[path] = sum(map(len, groups))
    return written


def read_queries(path: Path, graph: KnowledgeGraph) -> list[Queries]:
    """The path queries of a file, those of one length together, shorter ones first."""
    return _from_arrays(path, graph) if path.suffix == ".npz" else _from_text(path, graph)


def _from_text(path: Path, graph: KnowledgeGraph) -> list[Queries]:
    lines = read_lines(path, "path queries")
    sources, texts, targets = columns_of(path, lines, ("source", "path", "target"))
    entity_of = numbering(graph.entities, {*sources, *targets})
    kinds = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    relation_of = _relation_numbers(graph, {name for text in kinds for name in text.split(",")})
    try:
        paths = [[relation_of[name] for name in text.split(",")] for text in kinds]
        source, target = numbers_of(sources, entity_of), numbers_of(targets, entity_of)
    except KeyError:
        fail_at(path, lines, lambda line: _query_complaint(line, entity_of, relation_of))
    longest = max(map(len, paths))
    table = torch.tensor([each + [-1] * (longest - len(each)) for each in paths])
    return _by_length(source, table[numbers_of(texts, kinds).long()], target)


def _relation_numbers(graph: KnowledgeGraph, used: set[str]) -> dict[str, int]:
    forward = numbering(graph.relations, {name.removeprefix(INVERSE) for name in used})
    backward = {INVERSE + name: len(forward) + number for name, number in forward.items()}
    return forward | backward


def _query_complaint(
    line: str, entity_of: Mapping[str, int], relation_of: Mapping[str, int]
) -> str:
    source, relations, target = line.split("\t")
    for name in (source, target):
        if name not in entity_of:
            return f"the entity {shown(name)} is not in the graph."
    unknown = [name for name in relations.split(",") if name not in relation_of]
    return f"the relation {shown(unknown[0])} is not in the graph." if unknown else ""


def _from_arrays(path: Path, graph: KnowledgeGraph) -> list[Queries]:
    source, relations, target = read_arrays(path, ("source", "path", "target"))
    rows = relations.shape[:1]
    if relations.ndim != 2 or not source.shape == target.shape == rows:
        raise DataError(f"{path}: source, path and target do not fit together; replace it.")
    if not relations.numel():
        raise DataError(f"{path} has no queries, or paths without relations; replace it.")
    for name, numbers, least, limit in (
        ("source", source, 0, len(graph.entities)),
        ("path", relations, -1, 2 * len(graph.relations)),
        ("target", target, 0, len(graph.entities)),
    ):
        low, high = (int(extreme) for extreme in numbers.aminmax())
        if low < least or high >= limit:
            raise DataError(
                f"{path}: {name} has numbers from {low} to {high}, but the graph has "
                f"{least} to {limit - 1}; replace it."
            )
    used = relations >= 0
    if not bool(used[:, 0].all()) or bool((used[:, 1:] & ~used[:, :-1]).any()):
        raise DataError(f"{path}: a path is empty or has a gap; pad it with -1 on the right.")
    return _by_length(source, relations, target)


_LARGEST = 1 << 30  # bytes that the arrays of a file may unpack to


def _array(content: bytes) -> np.ndarray[Any, Any]:
    """What numpy.save wrote; memory is taken for what is there, not for what a header says."""
    import numpy as np  # optional extra

    file = io.BytesIO(content)
    old = np.lib.format.read_magic(file) == (1, 0)
    header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape, by_column, dtype = header(file)
    rest = content[file.tell() :]
    if dtype.hasobject or min(shape, default=1) < 0 or math.prod(shape) > len(rest):
        raise ValueError("no array of numbers")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if by_column else "C")


def read_arrays(path: Path, names: Sequence[str]) -> list[Tensor]:
    """The arrays of these names in an .npz file, of signed integers; nothing in it is run."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
            members = {name: archive.getinfo(f"{name}.npy") for name in names}
            if (size := sum(member.file_size for member in members.values())) > _LARGEST:
                raise DataError(
                    f"{path} unpacks to {size >> 20:,} MiB, but 1024 are the most; replace it."
                )
            arrays = [_array(archive.read(member)) for member in members.values()]
    except KeyError:
        raise DataError(f"{path}: the arrays {', '.join(names)} are needed; replace it.") from None
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; replace it.") from error
    except Exception:  # a damaged file fails anywhere in the readers
        raise DataError(f"{path} is damaged or no .npz file of numbers; replace it.") from None
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind != "i" or not array.ndim:
            raise DataError(f"{path}: {name} is no array of signed integers; replace it.")
    native = (array.astype(array.dtype.newbyteorder("="), order="C") for array in arrays)
    return [torch.from_numpy(array) for array in native]


def _by_length(source: Tensor, relations: Tensor, target: Tensor) -> list[Queries]:
    hops = (relations >= 0).sum(1)
    groups = []
    for length in hops.unique().tolist():
        rows = (hops == length).nonzero().flatten()
        path = relations[:, :length][rows].int()
        groups.append(Queries(source[rows].int(), path, target[rows].int()))
    return groups


def write_queries(path: Path, groups: Sequence[Queries], graph: KnowledgeGraph) -> None:
    """A text file that :func:`read_queries` reads."""
    comma = next((name for name in graph.relations if "," in name), None)
    if comma is not None:
        raise DataError(
            f"the relation {shown(comma)} has a comma, which separates relations in files of "
            "path queries; rename it."
        )
    write_lines(path, chain.from_iterable(_query_lines(group, graph) for group in groups))


def _query_lines(group: Queries, graph: KnowledgeGraph) -> Iterator[str]:
    entities, relations = graph.entities, graph.relation_names
    for source, path, target in zip(*(t.tolist() for t in group.table().values()), strict=True):
        names = ",".join([relations[number] for number in path])
        yield f"{entities[source]}\t{names}\t{entities[target]}"


def training_paths(source: PathData, settings: PathSettings) -> list[Queries]:
    """The training paths that are not too long and no queries of other splits.

    Single triples are among them as often as the settings say.
    """
    groups = source.splits["train"]
    lengths = [group.hops for group in groups]
    if settings.length > max(lengths):
        _log.info("%s has training paths of up to %d relations.", settings.graph, max(lengths))
    short = [group for group in groups if group.hops <= settings.length]
    kept = [group for group in _without_queries(short, source, settings) if len(group)]
    if not kept:
        raise DataError(
            f"{settings.graph} has no training paths of up to {settings.length} relations whose "
            f"inverse is no query; it has paths of {min(lengths)} to {max(lengths)} relations."
        )
    if dropped := sum(map(len, short)) - sum(map(len, kept)):
        _log.info("%d training paths whose inverse is a query are left out.", dropped)
    return _with_triples(kept, settings)


def _with_triples(groups: Sequence[Queries], settings: PathSettings) -> list[Queries]:
    if settings.triples > 1 and all(group.hops > 1 for group in groups):
        raise DataError(
            f"triples={settings.triples}, but no training path of {settings.graph} has only "
            "one relation; use --triples 1."
        )
    return [joined([group] * settings.triples) if group.hops == 1 else group for group in groups]


def _without_queries(
    groups: Sequence[Queries], source: PathData, settings: PathSettings
) -> list[Queries]:
    """Without those whose inverse is a query of validation or test.

    It matters where inverses are trained on, or inverse queries are asked. Sampled paths never are
    such, those of files may be. What files have in two splits as it is stays in both.
    """
    relations, kept = len(source.graph.relations), []
    for group in groups:
        if settings.protocol == "all" or settings.trains_inverse(group.hops):
            forward, inverse = path_hashes(group), path_hashes(inverse_paths(group, relations))
            seen = torch.zeros(len(group), dtype=torch.bool)
            for split in source.splits.keys() - {"train"}:
                for asked in source.splits[split]:
                    if asked.hops == group.hops:
                        known = path_hashes(asked)
                        seen |= torch.isin(inverse, known) & ~torch.isin(forward, known)
            group = group[~seen]
        kept.append(group)
    return kept


def validation_tables(tables: Sequence[Batch], settings: PathSettings) -> list[Batch]:
    """The tables of the validation split that the weights are selected on."""
    trained = settings.length
    shortest = trained + 1 if settings.validate_on == "next" else 1
    longest = {"trained": trained, "next": trained + 1}.get(settings.validate_on, math.inf)
    kept = [table for table in tables if shortest <= table["path"].shape[1] <= longest]
    if not kept:
        raise DataError(
            f"{settings.graph} has no validation paths for validate_on={settings.validate_on!r} "
            f"and length={settings.length}; use --validate-on all."
        )
    return kept


def disk_cached(name: str, make: Callable[[], Batch], folder: Path | None = None) -> Batch:
    """Tensors that take long to compute: from the disk cache, or made and put there.

    The name must change with whatever the tensors depend on. The folder is that of the user's cache
    unless another is given. A file that cannot be read is made anew, and where nothing can be
    written, nothing is kept. Loading runs no code.
    """
    if folder is None:
        if (cache := cache_folder()) is None:
            return make()
        folder = cache / "paths"
    path = folder / f"{name}.pt"
    with suppress(Exception):  # absent, cut, of another kind: torch raises all sorts of errors
        stored = torch.load(io.BytesIO(read_bytes(path)), weights_only=True)
        if isinstance(stored, dict):
            return stored
    made = make()
    with suppress(OSError):
        save_tensors(path, made)
    return made
