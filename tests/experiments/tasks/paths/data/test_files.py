"""Graphs and path queries in files: read, written and read again; every bad file names its line."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.paths import data as path_data
from dcgraph.experiments.tasks.paths.data import (
    GRAPHS,
    PathData,
    load,
    load_graph,
    read_arrays,
    read_queries,
    write_queries,
)
from dcgraph.experiments.tasks.paths.data import (
    files as graph_files,
)
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from dcgraph.experiments.tasks.paths.data.walks import sample
from small_graphs import graph_of, random_graph, rows_of

TRAIN = "b\tlikes\ta\na\tlikes\tc\na\tknows\tb\n"
TEST = "c\tknows\ta\n"


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def folder_of(folder: Path, **files: str | bytes) -> Path:
    """Files by their names with __ for a dot; train and test are there by default."""
    for name, content in ({"train__txt": TRAIN, "test__txt": TEST} | files).items():
        put(folder, name.replace("__", "."), content)
    return folder


def named(graph: KnowledgeGraph, split: str) -> list[tuple[str, str, str]]:
    return [
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for h, r, t in graph.triples[split].tolist()
    ]


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(DataError) as raised:
        action()
    (line,) = str(raised.value).splitlines()
    assert line.endswith(".")
    return line


# Triples


def test_names_are_sorted_and_triples_are_there_once(tmp_path: Path) -> None:
    graph = load_graph(str(folder_of(tmp_path, train__txt=TRAIN + "b\tlikes\ta\n \n\n")))
    assert graph.entities == ("a", "b", "c") and graph.relations == ("knows", "likes")
    assert graph.relation_names == ("knows", "likes", "**knows", "**likes")
    assert named(graph, "train") == [("a", "knows", "b"), ("a", "likes", "c"), ("b", "likes", "a")]
    assert named(graph, "test") == [("c", "knows", "a")]
    assert list(graph.triples) == ["train", "test"]
    assert graph.triples["train"].dtype == torch.int32


@pytest.mark.parametrize("name", ["valid__txt", "dev__txt__gz", "validation__txt"])
def test_files_by_other_names_in_gzip_and_of_other_systems(tmp_path: Path, name: str) -> None:
    graph = load_graph(str(folder_of(tmp_path, **{name: "\ufeffc\tlikes\ta\r\nb\tknows\tb\r\n"})))
    assert named(graph, "validation") == [("b", "knows", "b"), ("c", "likes", "a")]
    assert list(graph.triples) == ["train", "validation", "test"]


def test_triples_that_are_labelled_as_false_are_left_out(tmp_path: Path) -> None:
    graph = load_graph(str(folder_of(tmp_path, test__txt="c\tknows\ta\t1\nc\tknows\tz\t-1\n")))
    assert named(graph, "test") == [("c", "knows", "a")]
    assert "z" not in graph.entities


def test_lists_fix_the_numbering(tmp_path: Path) -> None:
    lists = {"entities__txt__gz": "c\nnobody\nb\na\n", "relation__txt": "likes\nknows\n"}
    graph = load_graph(str(folder_of(tmp_path, **lists)))
    assert graph.entities == ("c", "nobody", "b", "a")
    assert graph.triples["test"].tolist() == [[0, 1, 3]]


def test_files_may_use_numbers_in_place_of_names(tmp_path: Path) -> None:
    triples = {"train__txt": "1\t0\t3\n", "test__txt": "3\t1\t2\n"}
    lists = {"entities__txt": "d\nc\nb\na\n", "relations__txt": "likes\nknows\n"}
    paths = {"paths/train__txt": "1\t0,**1\t3\n", "paths/test__txt": "3\t1\t2\n"}
    data = load(str(folder_of(tmp_path, **triples, **lists, **paths)))
    assert named(data.graph, "train") == [("c", "likes", "a")]
    assert rows_of(data.splits["train"][0]) == [(1, [0, 3], 3)]


def test_numbers_without_lists_keep_their_order(tmp_path: Path) -> None:
    graph = load_graph(str(folder_of(tmp_path, train__txt="10\t0\t9\n", test__txt="9\t11\t2\n")))
    assert graph.entities == ("2", "9", "10") and graph.relations == ("0", "11")


def test_the_fingerprint_is_that_of_the_graph(tmp_path: Path) -> None:
    graph = load_graph(str(folder_of(tmp_path / "a")))
    same = load_graph(str(folder_of(tmp_path / "b", train__txt=TRAIN + TRAIN)))
    other = load_graph(str(folder_of(tmp_path / "c", test__txt="c\tknows\tb\n")))
    renamed = load_graph(str(folder_of(tmp_path / "d", train__txt=TRAIN.replace("b", "bb"))))
    assert graph.fingerprint == same.fingerprint
    assert len({each.fingerprint for each in (graph, other, renamed)}) == 3
    assert PathData(graph, sample(graph_of({"train": [(0, 0, 1)]}), 0)).fingerprint


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("train__txt", "a\tlikes\tb\n\na\tlikes\n", ", line 3: 2 columns, but there should be 3"),
        (
            "train__txt",
            "a\tr\tb\na\tr\tc\na\tr\tb\t1\n",
            ", line 3: 4 columns, but there should be 3 between tabs",
        ),
        (
            "train__txt",
            "a likes b\n",
            ", line 1: 1 column, but there should be 3 between tabs: hea",
        ),
        (
            "train__txt",
            "a\tb\tc\td\te\n",
            ", line 1: 5 columns, but there should be 3 between tabs",
        ),
        (
            "test__txt",
            "a\tr\tb\t1\na\tr\tb\n",
            ", line 2: 3 columns, but there should be 4 between",
        ),
        ("test__txt", "a\tr\tb\t1\na\tr\tb\t0\n", ", line 2: the label is '0', but it is 1 or -1."),
        ("test__txt", "a\tr\tb\t-1\n", " has no triple with the label 1; true ones are needed."),
        ("train__txt", "a\tr\tb\na\t\tb\n", ", line 2: the relation is empty."),
        ("train__txt", "a\tr\tb\na\tr\t\n", ", line 2: the tail is empty."),
        ("train__txt", "\n \n", " has no rows; write one per line."),
        ("train__txt", "", " has no rows; write one per line."),
        (
            "train__txt",
            b"a\tr\tb\n\x89PNG\xff\n",
            ", line 2: not text in UTF-8; name a file of triples.",
        ),
        (
            "train__txt",
            "a\tr\tb\na\t**r\tb\n",
            ", line 2: '**r': a name that begins with ** is that",
        ),
        ("entities__txt", "a\nb\n\nc\n", ", line 3: the name is empty."),
        ("entities__txt", "a\nb\na\nc\n", ", line 3: 'a' is there already."),
        ("relations__txt", "likes\nknows\n**x\n", ", line 3: '**x': a name that begins with ** is"),
    ],
)
def test_a_bad_file_of_a_graph_is_an_error(
    tmp_path: Path, name: str, content: str | bytes, reason: str
) -> None:
    folder = folder_of(tmp_path, **{name: content})
    said = complaint(lambda: load_graph(str(folder)))
    assert said.startswith(f"{tmp_path / name.replace('__', '.')}{reason}")


def test_names_that_are_not_listed_are_errors(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, entities__txt="a\nb\n", relations__txt="likes\nknows\n")
    listed = tmp_path / "entities.txt"
    assert complaint(lambda: load_graph(str(folder))) == (
        f"{tmp_path / 'train.txt'}, line 2: the entity 'c' is not in {listed}; add it there."
    )
    folder_of(tmp_path, train__txt="0\tlikes\t1\n1\tlikes\t2\n", test__txt="0\tlikes\t1\n")
    assert complaint(lambda: load_graph(str(folder))) == (
        f"{tmp_path / 'train.txt'}, line 2: the entity '2' is not in {listed}; add it there."
    )
    folder_of(tmp_path, entities__txt="a\nb\nc\n")
    put(tmp_path, "relations.txt", f"likes\n{'x' * 50}\n")
    assert "line 3: the relation 'knows' is not in" in complaint(lambda: load_graph(str(folder)))


def test_what_is_missing_or_damaged_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complaint(lambda: load("fb15k")) == (
        "'fb15k' is neither a file or folder here nor a known graph; did you mean 'fb15k-237'? "
        "There are: wn11, fb13, fb15k-237, wn18rr, nations, umls, kinships."
    )
    folder = folder_of(tmp_path / "graph")
    (folder / "test.txt").unlink()
    said = complaint(lambda: load(str(folder)))
    assert said.startswith(f"{folder} has no test.txt or test.txt.gz; put a file of triples there")
    (folder / "test.txt.gz").write_bytes(b"not in gzip")
    assert "test.txt.gz is damaged or not in gzip (Error -3" in complaint(lambda: load(str(folder)))
    (folder / "test.txt.gz").write_bytes(gzip.compress(TEST.encode())[:-9])
    assert "test.txt.gz is damaged or not in gzip (" in complaint(lambda: load(str(folder)))
    monkeypatch.delenv("DCGRAPH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = complaint(lambda: load("wn18rr"))
    assert said.startswith("wn18rr/test.txt.gz is missing: looked at ")
    assert "no download address is known; fetch it and put it at" in said
    for name in ("nations", "umls", "kinships"):
        for file in GRAPHS[name].values():
            (url,) = file.urls
            assert url.endswith(file.path.removeprefix("small-kg"))


# Path queries


@pytest.fixture
def graph() -> KnowledgeGraph:
    return random_graph(20, 3, 90, seed=0)


def test_what_is_written_is_read(tmp_path: Path, graph: KnowledgeGraph) -> None:
    before = PathData(graph, sample(graph, 0))
    written = path_data.write(tmp_path, before)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(written)
    for path, lines in written.items():
        assert gzip.decompress(path.read_bytes()).count(b"\n") == lines
    after = load(str(tmp_path))
    assert after.fingerprint == before.fingerprint
    bits = {path: path.read_bytes() for path in written}
    path_data.write(tmp_path, after)
    assert {path: path.read_bytes() for path in written} == bits


def test_the_form_of_a_line(tmp_path: Path) -> None:
    graph = graph_of({"train": [(0, 0, 1), (1, 1, 2)]})
    text = "e0\tr0,r1\te2\ne1\t**r0\te0\n"
    path = put(tmp_path, "queries.txt", text)
    one, two = read_queries(path, graph)
    assert rows_of(one) == [(1, [2], 0)] and rows_of(two) == [(0, [0, 1], 2)]
    write_queries(tmp_path / "again.txt", [two, one], graph)
    assert (tmp_path / "again.txt").read_text() == text


def test_without_files_of_queries_they_are_sampled(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    path_data.write(folder, PathData(random_graph(20, 3, 90, seed=0), {}))
    data, other = load(str(folder)), load(str(folder), seed=1)
    assert [group.hops for group in data.splits["test"]] == list(range(1, 11))
    assert data.fingerprint != other.fingerprint
    put(folder, "paths/train.txt", "e0\tr0\te1\n")
    said = complaint(lambda: load(str(folder)))
    assert said.startswith(
        f"{folder}: there are path queries, but none for validation; put paths/v"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("e0\tr0\te1\ne0\tr0,r9\te1\n", ", line 2: the relation 'r9' is not in the graph."),
        ("e0\tr0,,r1\te1\n", ", line 1: the relation '' is not in the graph."),
        ("e0\t***r0\te1\n", ", line 1: the relation '***r0' is not in the graph."),
        ("x\tr0\te1\n", ", line 1: the entity 'x' is not in the graph."),
        ("e0\tr0\te1\n\ne0\tr0\ty\n", ", line 3: the entity 'y' is not in the graph."),
        ("e0\tr0\n", ", line 1: 2 columns, but there should be 3 between tabs: source, path,"),
        ("e0\t\te1\n", ", line 1: the path is empty."),
        ("", " has no rows; write one per line."),
    ],
)
def test_a_bad_file_of_queries_is_an_error(
    tmp_path: Path, graph: KnowledgeGraph, content: str, reason: str
) -> None:
    path = put(tmp_path, "queries.txt", content)
    assert complaint(lambda: read_queries(path, graph)).startswith(f"{path}{reason}")


def test_names_with_commas_cannot_be_written(tmp_path: Path) -> None:
    graph = replace(graph_of({"train": [(0, 0, 1)]}), relations=("likes, a lot",))
    said = complaint(lambda: write_queries(tmp_path / "queries.txt", [], graph))
    assert said.startswith("the relation 'likes, a lot' has a comma, which separates relations")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, graph: KnowledgeGraph) -> None:
    target = put(tmp_path, "file", "not a folder") / "queries.txt"
    assert "name a folder that can be written" in complaint(
        lambda: write_queries(target, [], graph)
    )


# Arrays


def test_an_array_that_says_to_be_larger_than_it_is_gets_no_memory(tmp_path: Path) -> None:
    """A header of 100 bytes made numpy ask for 22 GB."""
    path = tmp_path / "q.npz"
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({10**15},), }}"
    start = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + f"{header:<117}\n".encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("source", "path", "target"):
            archive.writestr(f"{name}.npy", start + bytes(80))
    with pytest.raises(DataError, match=r"is damaged or no \.npz file of numbers; replace it"):
        read_arrays(path, ("source", "path", "target"))


def queries_npz(path: Path, source: list[int], paths: list[list[int]], target: list[int]) -> Path:
    np.savez_compressed(
        path,
        source=np.array(source, dtype="i4"),
        path=np.array(paths, dtype="i1").reshape(len(paths), -1),
        target=np.array(target, dtype="i8"),
    )
    return path


def test_arrays_are_as_numpy_writes_them(tmp_path: Path) -> None:
    columnwise = np.asfortranarray(np.arange(6, dtype="i4").reshape(2, 3))
    arrays = {
        "a": np.arange(-6, 6, dtype="i2").reshape(3, 4),
        "b": np.arange(5, dtype="i8"),
        "c": np.zeros((0, 2), dtype="i1"),
        "d": columnwise,
        "e": np.arange(5, dtype=">i4"),
    }
    np.savez_compressed(tmp_path / "some.npz", **arrays)  # type: ignore[arg-type]
    read = read_arrays(tmp_path / "some.npz", "abcde")
    for found, array in zip(read, arrays.values(), strict=True):
        assert found.tolist() == array.tolist()
        assert str(found.dtype) == f"torch.{array.dtype.name}" and found.shape == array.shape


def test_queries_in_arrays(tmp_path: Path, graph: KnowledgeGraph) -> None:
    path = queries_npz(tmp_path / "q.npz", [4, 0, 7], [[0, 5], [3, -1], [1, 1]], [1, 2, 19])
    one, two = read_queries(path, graph)
    assert rows_of(one) == [(0, [3], 2)]
    assert rows_of(two) == [(4, [0, 5], 1), (7, [1, 1], 19)]
    assert one.source.dtype == two.path.dtype == torch.int32


def test_bad_arrays_are_errors(tmp_path: Path, graph: KnowledgeGraph) -> None:
    path = tmp_path / "q.npz"
    cases: list[tuple[tuple[list[int], list[list[int]], list[int]], str]] = [
        (
            ([0], [[0, 6]], [1]),
            ": path has numbers from 0 to 6, but the graph has -1 to 5; replace",
        ),
        (([20], [[0]], [1]), ": source has numbers from 20 to 20, but the graph has 0 to 19; repl"),
        (([0], [[0]], [-1]), ": target has numbers from -1 to -1, but the graph has 0 to 19; repl"),
        (([0], [[0, -1, 2]], [1]), ": a path is empty or has a gap; pad it with -1 on the right."),
        (([0], [[-1]], [1]), ": a path is empty or has a gap; pad it with -1 on the right."),
        (([0, 1], [[0]], [1]), ": source, path and target do not fit together; replace it."),
        (([0], [[]], [1]), " has no queries, or paths without relations; replace it."),
    ]
    for rows, reason in cases:
        queries_npz(path, *rows)
        assert complaint(lambda: read_queries(path, graph)).startswith(f"{path}{reason}")


@pytest.mark.parametrize(
    "array",
    [np.zeros(1, dtype="f4"), np.zeros(1, dtype="u2"), np.array(3), np.array(["a"])],
    ids=["floats", "unsigned", "no-dimension", "text"],
)
def test_arrays_that_are_not_for_us(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    path = tmp_path / "q.npz"
    np.savez(path, source=array)
    said = complaint(lambda: read_arrays(path, ["source"]))
    assert said == f"{path}: source is no array of signed integers; replace it."


def test_archives_that_are_none(tmp_path: Path) -> None:
    path = put(tmp_path, "q.npz", "no archive")
    damaged = f"{path} is damaged or no .npz file of numbers; replace it."
    assert complaint(lambda: read_arrays(path, ["source"])) == damaged
    np.savez(path, other=np.zeros(1, dtype="i4"))
    assert "the arrays source, path are needed" in complaint(
        lambda: read_arrays(path, ["source", "path"])
    )
    np.savez_compressed(path, source=np.arange(1000))
    path.write_bytes(path.read_bytes()[:-300])
    assert complaint(lambda: read_arrays(path, ["source"])) == damaged
    np.savez(path, source=np.array([{}], dtype=object))  # a pickle, which is not opened
    assert complaint(lambda: read_arrays(path, ["source"])) == damaged
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("source.npy", b"something")
    assert complaint(lambda: read_arrays(path, ["source"])) == damaged
    with path.open("wb") as file:
        np.save(file, np.zeros(3, dtype="i4"))  # an array without an archive
    assert complaint(lambda: read_arrays(path, ["source"])) == damaged
    assert "cannot read" in complaint(lambda: read_arrays(tmp_path / "absent.npz", ["source"]))


def npy(shape: str, content: bytes, kind: str = "'<i8'", more: str = "") -> bytes:
    """An array whose header says what it likes."""
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, {more}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    "content",
    [
        npy("(1000000000000,)", b"x" * 100),
        npy(f"({10**30},)", b"x" * 100),
        npy("(-1,)", b"x" * 100),
        npy("(-5, -7)", b"x" * 280),
        npy("(2,)", b"x" * 16, "'|O'"),
        npy("(2,)", b"x" * 16, "'<i8,(1000000000,)i8'"),
        npy("(2,)", b"x" * 16, more="'x': " + "(" * 5000),
        npy("(2,)", b"x" * 15),
        b"\x93NUMPY\x03\x00" + b"\xff" * 4 + b"{",
        b"hello",
        b"",
    ],
)
def test_an_array_whose_header_lies_is_damaged(content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(path := tmp_path / "odd.npz", "w") as archive:
        archive.writestr("source.npy", content)
    with pytest.raises(DataError, match=r"is damaged or no \.npz file of numbers; replace it"):
        read_arrays(path, ["source"])


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_one_line(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(path := tmp_path / "odd.npz", "w", method) as archive:
        archive.writestr("source.npy", npy("(2,)", bytes(range(16))))
    whole = path.read_bytes()
    assert read_arrays(path, ["source"])[0].shape == (2,)
    for place in range(30, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with suppress(DataError):  # some bytes say nothing
            read_arrays(path, ["source"])


def test_what_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_data, "_LARGEST", 1 << 20)
    lines = tmp_path / "names.txt.gz"
    lines.write_bytes(gzip.compress(b"a\n" * (1 << 22)))
    with pytest.raises(DataError, match=r"names\.txt\.gz .*more than 200 times its size"):
        graph_files.read_lines(lines, "names")
    arrays = tmp_path / "odd.npz"
    with zipfile.ZipFile(arrays, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("source.npy", npy("(1000000,)", bytes(8_000_000)))
    with pytest.raises(DataError, match=r"odd\.npz unpacks to 7 MiB"):
        read_arrays(arrays, ["source"])


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "names.txt")
    with pytest.raises(DataError, match="no ordinary file"):
        graph_files.read_lines(tmp_path / "names.txt", "names")
    os.mkfifo(tmp_path / "some.npz")
    with pytest.raises(DataError, match="no ordinary file"):
        read_arrays(tmp_path / "some.npz", ["source"])
