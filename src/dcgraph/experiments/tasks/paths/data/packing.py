"""A graph in few bytes, for the file of a model: names and triples, compressed.

Sorted triples are stored by columns, a plane for each byte of the numbers, heads as differences;
xz makes of that about two bytes for a triple of a small graph. Equal graphs give equal bytes.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Int32
from torch import Tensor

from .files import SPLITS
from .graph import INVERSE, KnowledgeGraph

_FORMAT = "dcgraph graph 1"
_LARGEST = 1 << 30  # bytes, unpacked: more than ten times FB13
_PLANES = 4  # of a number of 32 bits


@lru_cache(maxsize=2)
def pack(graph: KnowledgeGraph) -> bytes:
    """Once for all replicas of a run."""
    names = {
        "format": _FORMAT,
        "entities": graph.entities,
        "relations": graph.relations,
        "triples": {split: len(triples) for split, triples in graph.triples.items()},
    }
    text = json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode()
    planes = (plane for triples in graph.triples.values() for plane in _planes(triples))
    content = b"".join([len(text).to_bytes(4, "little"), text, *planes])
    return lzma.compress(content, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, preset=6)


def _planes(triples: Int32[Tensor, "n 3"]) -> Iterator[bytes]:
    head, relation, tail = triples.unbind(1)
    for column in (head.diff(prepend=head.new_zeros(1)), relation, tail):
        for plane in range(_PLANES):
            yield bytes(((column >> (8 * plane)) & 255).tolist())


def unpack(packed: bytes) -> KnowledgeGraph:
    """The graph that :func:`pack` was given; a ValueError says what is wrong with other bytes."""
    try:
        reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=1 << 28)
        content = reader.decompress(packed, _LARGEST)
    except lzma.LZMAError as error:
        raise ValueError(f"its graph is damaged: {error}") from error
    if not reader.eof:
        raise ValueError("its graph is cut, or too large")
    end = 4 + int.from_bytes(content[:4], "little")
    try:
        names = json.loads(content[4:end])
    except (ValueError, RecursionError) as error:
        raise ValueError("the names of its graph are damaged") from error
    if not isinstance(names, dict) or names.get("format") != _FORMAT:
        raise ValueError("its graph is of another version")
    entities, relations = _names(names, "entities"), _names(names, "relations")
    if any(name.startswith(INVERSE) for name in relations):
        raise ValueError(f"its graph has a relation whose name begins with {INVERSE}")
    sizes = names.get("triples")
    if not isinstance(sizes, dict) or not {"train", "test"} <= sizes.keys() <= SPLITS.keys():
        raise ValueError("its graph has other splits than train, validation and test")
    if not all(type(size) is int and size > 0 for size in sizes.values()):
        raise ValueError("its graph has splits without triples")
    if len(content) - end != 3 * _PLANES * sum(sizes.values()):
        raise ValueError("its graph has other triples than it says")
    return KnowledgeGraph(entities, relations, _triples(content[end:], sizes, entities, relations))


def _names(found: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    names = found.get(kind)
    if not isinstance(names, list) or not names:
        raise ValueError(f"its graph has no {kind}")
    if not all(type(name) is str and name for name in names) or len(set(names)) < len(names):
        raise ValueError(f"its graph has {kind} without a name of their own")
    if any(set(name) & set("\t\n") for name in names):  # no file of triples can have such
        raise ValueError(f"its graph has {kind} with a tab or a new line in the name")
    return tuple(names)


def _triples(
    content: bytes, sizes: Mapping[str, int], entities: Sequence[str], relations: Sequence[str]
) -> dict[str, Int32[Tensor, "_ 3"]]:
    splits, begin = {}, 0
    for split, size in sizes.items():
        columns = []
        for _ in range(3):
            column = torch.zeros(size, dtype=torch.int64)
            for plane in range(_PLANES):
                part = torch.frombuffer(bytearray(content[begin : begin + size]), dtype=torch.uint8)
                column |= part.long() << (8 * plane)
                begin += size
            columns.append(column)
        columns[0] = columns[0].cumsum(0)
        for column, limit in zip(
            columns, (len(entities), len(relations), len(entities)), strict=True
        ):
            if int(column.max()) >= limit:
                raise ValueError("its graph has triples of things without a name")
        splits[split] = torch.stack(columns, 1).int()
    return splits
