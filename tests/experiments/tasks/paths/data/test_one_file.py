"""A graph that is one file: every way to write it is read alike, and split so that all is seen."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.paths.data import example, is_one_file, load, load_graph
from dcgraph.experiments.tasks.paths.data.one_file import (
    MOST,
    SHARE,
    read_one,
    read_triples,
    split_of,
)

TRIPLES = [
    ("new york", "in", "usa"),
    ("ann", "lives in", "new york"),
    ("bob", "knows", "ann"),
    ("ann", "knows", "bob"),
    ("bob", "knows", "bob"),
]
PLAIN = [(h.replace(" ", "_"), r.replace(" ", "_"), t.replace(" ", "_")) for h, r, t in TRIPLES]


def put(folder: Path, content: str | bytes, name: str = "graph.tsv") -> Path:
    path = folder / name
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def joined(separator: str, end: str = "\n") -> str:
    return "".join(separator.join(triple) + end for triple in TRIPLES)


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        (joined("\t"), "tabs"),
        (joined(" \t "), "tabs"),
        (joined("\t", "\r\n"), "tabs"),
        (joined(","), "commas"),
        (joined(", "), "commas"),
        (joined(";"), "semicolons"),
        ("".join(f'"{h}", "{r}", "{t}"\n' for h, r, t in TRIPLES), "commas"),
        ("\ufeff" + joined("\t") + "\n \n", "tabs"),
        (joined("\t").rstrip("\n"), "tabs"),
        ("Head\tRelation\tTail\n" + joined("\t"), "tabs"),
        ("subject,predicate,object\n" + joined(","), "commas"),
        (joined("\t") + joined("\t"), "tabs"),
        (joined("\t1\t").replace("\t1\t", "\t"), "tabs"),
        (joined("\t", "\t1\n") + "bob\tin\tusa\t-1\n", "tabs"),
    ],
)
def test_ways_to_write_a_graph(content: str, separator: str, tmp_path: Path) -> None:
    read = read_triples(put(tmp_path, content))
    assert list(read.triples) == TRIPLES and read.separator == separator
    assert read == read_triples(put(tmp_path, content, "graph.tsv.gz"))
    assert read.header == content[0].isupper() or content.startswith("subject")
    assert read.repeated == (len(TRIPLES) if content == 2 * joined("\t") else 0)
    assert read.false == content.count("-1\n")


def test_spaces_separate_where_names_have_none(tmp_path: Path) -> None:
    lines = "".join("  ".join(triple) + " \n" for triple in PLAIN)
    read = read_triples(put(tmp_path, lines))
    assert list(read.triples) == PLAIN and read.separator == "spaces"


def test_a_comma_in_a_name_between_quotation_marks(tmp_path: Path) -> None:
    read = read_triples(put(tmp_path, '"Paris, Texas",in,usa\nann,"says ""hi""",bob\n'))
    assert read.triples == (("Paris, Texas", "in", "usa"), ("ann", 'says "hi"', "bob"))


@pytest.mark.parametrize("rows", ["h\tr\tt\nh\tknows\tt\n", "from\ttype\tto\na\ttype\tb\n"])
def test_a_first_line_whose_words_come_again_is_a_triple(rows: str, tmp_path: Path) -> None:
    assert not read_triples(put(tmp_path, rows)).header


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", " has no rows; write one per line."),
        ("\n \n", " has no rows; write one per line."),
        ("a\tr\tb\na\tr\n", ", line 2: 2 columns between tabs, but most lines have 3"),
        ("a,r,b\nc,r,d\n\na,r,b,c,d\n", ", line 4: 5 columns between commas, but most lines"),
        ("hello\n", ", line 1: 'hello' is no triple; write a head, a relation and a tail"),
        ("x" * 90 + "\n", "is no triple"),
        ("a\tr\tb\na\t\tb\n", ", line 2: the relation is empty."),
        ("a,r,b\na,r, \n", ", line 2: the tail is empty."),
        ("a\tr\tb\t1\na\tr\tc\t2\n", ", line 2: the label is '2', but it is 1 or -1."),
        ("a\tr\tb\t-1\n", " has no triple with the label 1; true ones are needed."),
        ("a\tr\tb\nb\t**r\ta\n", ", line 2: '**r': a name that begins with ** is that of an inv"),
        ("head\trelation\ttail\n", " has no triples after its first line; write one per line."),
        (b"a\tr\tb\nb\tr\t\xff\n", ", line 2: not text in UTF-8; name a file of triples."),
        ('a,r,b\na,"r,b\n', ", line 2: "),
        ("a,r,b\r,c,d\n", ", line 1: "),
    ],
)
def test_a_bad_file_is_an_error_of_one_line(
    content: str | bytes, reason: str, tmp_path: Path
) -> None:
    path = put(tmp_path, content)
    with pytest.raises(DataError) as raised:
        read_triples(path)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(str(path)) and reason in line and line.endswith(".")


def _entities(triples: set[tuple[str, str, str]]) -> set[str]:
    return {name for head, _, tail in triples for name in (head, tail)}


def _relations(triples: set[tuple[str, str, str]]) -> set[str]:
    return {relation for _, relation, _ in triples}


Names = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("rs"), st.sampled_from("abcdefgh"))


@given(st.lists(Names, min_size=1, max_size=60), st.integers(0, 3), st.randoms())
@settings(max_examples=60)
def test_training_has_every_name_and_the_order_does_not_matter(
    triples: list[tuple[str, str, str]], seed: int, random: st.DataObject
) -> None:
    split = split_of(triples, seed)
    parts = [set(split[name]) for name in ("train", "validation", "test")]
    assert sum(map(len, parts)) == len(set(triples)) and set().union(*parts) == set(triples)
    for column in (0, 1, 2):
        seen = {t[column] for t in parts[0]} | (
            {t[2 - column] for t in parts[0]} if column != 1 else set()
        )
        assert {t[column] for t in triples} <= seen
    wanted = max(1, round(SHARE * len(set(triples))))
    assert len(parts[1]) <= wanted and 0 <= len(parts[1]) - len(parts[2]) <= 1
    shuffled = list(triples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert split_of(shuffled + triples, seed) == split


def two_rings(size: int) -> list[tuple[str, str, str]]:
    steps = (("a", 1), ("b", 7))
    return [(f"n{k}", r, f"n{(k + step) % size}") for k in range(size) for r, step in steps]


def test_a_dense_graph_keeps_a_tenth_twice_and_another_seed_others() -> None:
    ring = two_rings(50)
    split = split_of(ring)
    assert [len(some) for some in split.values()] == [80, 10, 10]
    assert split_of(ring, 1)["test"] != split["test"]
    assert split["test"][0] == ("n48", "b", "n5"), "on every machine"


def test_a_large_graph_keeps_no_more_than_is_of_use() -> None:
    ring = [
        (f"n{k}", r, f"n{(k + s) % 30_000}") for k in range(30_000) for r, s in (("a", 1), ("b", 7))
    ]
    assert [len(some) for some in split_of(ring).values()] == [60_000 - 2 * MOST, MOST, MOST]


def test_a_graph_of_one_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = put(tmp_path, example())
    with caplog.at_level(logging.INFO, "dcgraph"):
        data = load(str(path))
    assert caplog.messages == [
        "graph.tsv: 302 triples between tabs, 50 entities, 9 relations; its first line is a "
        "header.",
        "Split: 242 triples for training, 30 for validation, 30 for test; training has every "
        "entity and every relation.",
    ]
    graph = load_graph(str(path))
    assert graph.fingerprint == data.graph.fingerprint == read_one(path)[0].fingerprint
    assert graph.fingerprint != load_graph(str(path), seed=1).fingerprint
    assert {name: [group.hops for group in groups] for name, groups in data.splits.items()} == {
        "train": [1, 2, 3, 4, 5], "validation": [1, 2, 3, 4, 5], "test": list(range(1, 11)),
    }  # fmt: skip
    assert is_one_file(str(path)) and not is_one_file(str(tmp_path)) and not is_one_file("umls")


def test_where_nothing_can_be_kept_it_is_said_and_paths_are_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    star = put(tmp_path, "".join(f"leaf{k}\tin\thub\n" for k in range(40)))
    with caplog.at_level(logging.INFO, "dcgraph"):
        data = load(str(star))
    assert "No triple can be left out of training for validation or test" in caplog.text
    assert [len(some) for some in data.graph.triples.values()] == [40, 0, 0]
    assert all(group.hops > 1 for group in data.splits["validation"])
    assert len(data.splits["validation"][0]) == 4, "a tenth of the training triples"


def test_a_relation_that_cannot_be_asked_for_is_said(tmp_path: Path) -> None:
    _, about = read_one(put(tmp_path, "a\tin, near\tb\nb\tin, near\ta\n"))
    assert "has a comma" in about.splitlines()[-1]
