"""The data of path queries: graphs by name or folder, and which paths are trained on.

Its rooms: :mod:`.graph` has graphs, queries and CSR rows; :mod:`.walks` samples queries and finds
what they reach; :mod:`.files` reads and writes both, with :mod:`.text` below it.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from ....._arguments import closest
from ....engine.datasets import File, cache_folder, locate
from ....engine.errors import DataError
from ....engine.files import write_atomically
from ....engine.task import Batch, fingerprint_of
from ..settings import PathSettings
from .files import (
    SPLITS,
    TEXT_OR_ARRAYS,
    files_in,
    pick,
    read_graph,
    read_queries,
    write_graph,
    write_queries,
)
from .graph import KnowledgeGraph, Queries, inverse_paths, joined
from .walks import path_hashes, sample

_log = logging.getLogger(__name__)

_LARGE = 1 << 20  # bytes of a text that is worth keeping as tensors

# The small graphs are part of PyKEEN (Ali et al., 2021; MIT licence).
_PYKEEN = "https://raw.githubusercontent.com/pykeen/pykeen/v1.11.1/src/pykeen/datasets"


def _files(folder: str, checksums: Mapping[str, str], copy: str | None = None) -> dict[str, File]:
    return {
        name: File(f"{folder}/{name}", sha256, () if copy is None else (f"{copy}/{name}",))
        for name, sha256 in checksums.items()
    }


GRAPHS: dict[str, dict[str, File]] = {
    "wn11": _files(
        "wn11",
        {
            "dev.txt.gz": "7bbc11ffe72e54141cf14cacc39d9754ae4e0a03e382ca0dc86db4c8c105a00e",
            "entities.txt.gz": "0d14553d9fe40a0d64a20e6f7cca1de94e27b60cc05fc26cd9a37ac79662f04a",
            "paths/dev.npz": "fdca9ba847cc1b6eb2425541d3ad00e32b2a3d891fc17b55b0ed807e571f4c5f",
            "paths/test.npz": "0619db4ba4d30431ae3fd5b5693322083fe69b723cca41f2e74fea64717817ea",
            "paths/train.npz": "8041a8e74b0f04f87f1e58f7282656e6a35baff991fb436480cc4c4d4fdd8ad6",
            "relations.txt": "1abbcb63f698476c510cb73996beee21699852278c243d445e6c9893a79f973c",
            "test.txt.gz": "6ac2e9a7606feff7ae73274856464687e435e63e87cc91cf8895aef3e05e5990",
            "train.txt.gz": "b840d4c0b8f6af92a75a78762dc4bb121b4cf6de6b6a64acd38c7abdac12a3af",
        },
    ),
    "fb13": _files(
        "fb13",
        {
            "dev.txt.gz": "f91e99fd1f5dc3fb3cd318a2048b4de0c79eca662ad2979b95f538aa54679b90",
            "entities.txt.gz": "49ba69351d96e3bd38e8fb9d81914912d5467c9dad2a0991f48fcbd8d12ff66f",
            "paths/dev.npz": "ec706c31d0c9748da52d895223b24c1346de6d211a93c9f02a16e9531a8abe48",
            "paths/test.npz": "c5a8b0ac38b4fd77485b136eeb22d64756e95af43e9d627e923fb08dc141cac5",
            "paths/train.npz": "7f93a05e3b22687466cecf2e844b1b548021f271a6269e9e9b62954346a4ecf5",
            "relations.txt": "dd7e8f0e8f4926dd31acc536d5fe9f8743d24d1e4dcf1011f1a5cba77e58b9e1",
            "test.txt.gz": "f20e01ac1d8bf59c14ae66570ce8e748aa01e9d0910bdbc841f5850252af3c34",
            "train.txt.gz": "fcc42d3485685fbed23ae594426ef223708a11384393363af2cd0f38eb25b08a",
        },
    ),
    "fb15k-237": _files(
        "fb15k-237",
        {
            "test.txt.gz": "047a9ad8bc9c371ec319f1284a81dfe972a1dd2523ccb614e9b7b29e663f25d5",
            "train.txt.gz": "25c2babac9aae6414004a5e4ce83534a48d2b60ec791e0b4f48bd926ebb2f20d",
            "valid.txt.gz": "571cc165d7800ad21e71a641baf233f9c036e8fbe585b9d15f8c32b83f14022c",
        },
    ),
    "wn18rr": _files(
        "wn18rr",
        {
            "test.txt.gz": "44e826dc083adad5baea9dc96bb29f2bb7a55471078f2f26802a7f87de84a722",
            "train.txt.gz": "be00cacfeffa49a33672df41e965dfccc60917da36cb05e777eec45130515848",
            "valid.txt.gz": "d5c9c681ce9ac11cf41c31c5f94d9347c21bd2489ead507b15a00e6ab3069482",
        },
    ),
    "nations": _files(
        "small-kg/nations",
        {
            "test.txt": "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
            "train.txt": "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
            "valid.txt": "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
        },
        f"{_PYKEEN}/nations",
    ),
    "umls": _files(
        "small-kg/umls",
        {
            "test.txt": "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
            "train.txt": "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
            "valid.txt": "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        },
        f"{_PYKEEN}/umls",
    ),
    "kinships": _files(
        "small-kg/kinships",
        {
            "test.txt": "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
            "train.txt": "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
            "valid.txt": "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
        },
        f"{_PYKEEN}/kinships",
    ),
}
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

    ``name`` is one of GRAPHS or a folder, as :mod:`.files` describes. Queries come from files in
    its folder ``paths``; where there are none, they are sampled with the seed. Large files of text
    are read once, and what was in them is kept in the disk cache ``cache``, or else the user's.
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
    """Only the graph."""
    return read_graph(_files_of(name, data_dir), name)


def _files_of(name: str, data_dir: Path | None) -> dict[str, Path]:
    if name in GRAPHS:
        return {short: locate(file, data_dir) for short, file in GRAPHS[name].items()}
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
    kept = disk_cached(f"queries-{fingerprint_of(graph.fingerprint, content)}", make, cache)
    lengths = sorted(int(name.removeprefix("path_")) for name in kept if name.startswith("path_"))
    return [Queries(kept[f"source_{k}"], kept[f"path_{k}"], kept[f"target_{k}"]) for k in lengths]


def _queries_of(split: str, files: Mapping[str, Path]) -> Path | None:
    return pick(files, [f"paths/{name}" for name in SPLITS[split]], TEXT_OR_ARRAYS)


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


def trains_inverse(hops: int, settings: PathSettings) -> bool:
    """Whether the inverses of paths of a length are trained on, too."""
    return settings.inverse == "paths" or (settings.inverse == "triples" and hops == 1)


def _without_queries(
    groups: Sequence[Queries], source: PathData, settings: PathSettings
) -> list[Queries]:
    """Without those whose inverse is a query of validation or test.

    It matters where inverses are trained on, or inverse queries are asked. Sampled paths never are
    such, those of files may be. What files have in two splits as it is stays in both.
    """
    relations, kept = len(source.graph.relations), []
    for group in groups:
        if settings.protocol == "all" or trains_inverse(group.hops, settings):
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
    path = (folder or cache_folder() / "paths") / f"{name}.pt"
    with suppress(Exception):  # absent, cut, of another kind: torch raises all sorts of errors
        stored = torch.load(path, weights_only=True)
        if isinstance(stored, dict):
            return stored
    made = make()
    with suppress(OSError):
        write_atomically(path, lambda draft: torch.save(made, draft))
    return made
