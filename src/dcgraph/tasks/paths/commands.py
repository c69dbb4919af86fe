"""What ``dcgraph data`` does for path queries."""

from __future__ import annotations

from pathlib import Path

from ..datasets import DataError
from .data import PathData, load_graph, write
from .sampling import sample


def data(*, graph: str, out: Path, seed: int = 0, data_dir: Path | None = None) -> str:
    """Sample path queries by random walks and write them as text, with the graph.

    A line is source, tab, relations between commas, tab, target; **name is an inverse.

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
