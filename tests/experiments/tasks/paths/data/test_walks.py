"""Walks: the distribution of sampled ones, no repetitions; what paths reach; the hash RNG."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.paths.data import walks as walks_module
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph, Queries
from dcgraph.experiments.tasks.paths.data.walks import (
    LENGTHS,
    distinct_walks,
    hash_bits,
    hash_rows,
    reachable,
    sample,
    undirected_hashes,
    uniform_below,
    walks,
)
from small_graphs import (
    Plain,
    edges_of,
    graph_of,
    graphs,
    queries_of,
    queries_on,
    random_graph,
    reached_by,
    rows_of,
)
from statistics_of_fit import chi_square_p, kolmogorov_p

STREAM = torch.tensor(7)
NONE = torch.empty(0, dtype=torch.int64)
Walk = tuple[int, tuple[int, ...], int]


def reverse(walk: Walk, relations: int) -> Walk:
    source, path, target = walk
    back = (r + relations if r < relations else r - relations for r in path[::-1])
    return target, tuple(back), source


def every_walk(graph: KnowledgeGraph, hops: int) -> dict[Walk, float]:
    """All walks with their probabilities, by the words of the paper."""
    edges = edges_of(graph)
    starts = sorted({head for head, _, _ in edges})
    distribution: Counter[Walk] = Counter()
    todo: list[tuple[Walk, float]] = [((start, (), start), 1 / len(starts)) for start in starts]
    while todo:
        (source, path, now), p = todo.pop()
        if len(path) == hops:
            distribution[source, path, now] += p  # type: ignore[assignment]
            continue
        relations = sorted({label for head, label, _ in edges if head == now})
        for relation in relations:
            ends = [tail for head, label, tail in edges if (head, label) == (now, relation)]
            todo += [
                ((source, (*path, relation), end), p / len(relations) / len(ends)) for end in ends
            ]
    return dict(distribution)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_distribution_of_walks_by_enumeration(hops: int) -> None:
    # Entity 5 has no triple; entity 0 has many ways on by one relation and one by another.
    edges = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 4), (1, 0, 2), (3, 1, 3)]
    graph = graph_of({"train": edges}, entities=6)
    distribution = every_walk(graph, hops)
    assert sum(distribution.values()) == pytest.approx(1)
    drawn = walks(graph.adjacency(), hops, 0, 40_000, STREAM)
    counts = Counter((s, tuple(p), t) for s, p, t in rows_of(drawn))
    assert set(counts) <= set(distribution)
    found = torch.tensor([counts[walk] for walk in distribution])
    probabilities = torch.tensor([*distribution.values()], dtype=torch.float64)
    assert chi_square_p(found, probabilities) > 1e-4
    assert (
        chi_square_p(found, torch.ones(len(distribution)) / len(distribution)) < 1e-4
    )  # the test can fail


def test_a_walk_depends_only_on_its_number() -> None:
    graph = random_graph(10, 2, 40, seed=0).adjacency()
    every = rows_of(walks(graph, 3, 0, 100, STREAM))
    assert rows_of(walks(graph, 3, 20, 30, STREAM)) == every[20:50]
    assert rows_of(walks(graph, 3, 0, 100, STREAM + 1)) != every


def test_the_first_new_ones_are_taken_in_their_order() -> None:
    graph = random_graph(6, 2, 20, seed=0).adjacency()
    first: dict[Walk, None] = {}
    for s, p, t in rows_of(walks(graph, 2, 0, 3_000, STREAM)):
        if reverse((s, tuple(p), t), 2) not in first:
            first[s, tuple(p), t] = None
    taken = distinct_walks(graph, 2, 60, STREAM, NONE)
    assert [(s, tuple(p), t) for s, p, t in rows_of(taken)] == list(first)[:60]
    more = distinct_walks(graph, 2, 20, STREAM, undirected_hashes(taken, 2))
    assert [(s, tuple(p), t) for s, p, t in rows_of(more)] == list(first)[60:80]


@given(graphs(), st.integers(0, 10))
@settings(max_examples=12)
def test_any_graph_is_sampled_or_refused(plain: Plain, seed: int) -> None:
    graph = graph_of(*plain)
    try:
        splits = sample(graph, seed)
    except DataError as error:
        assert "new paths of length" in str(error)
        return
    seen: set[Walk] = set()
    for split, groups in splits.items():
        assert [group.hops for group in groups] == [1, *LENGTHS[split]]
        assert {len(group) for group in groups} == {len(graph.triples[split])}
        assert [[s, *p, t] for s, p, t in rows_of(groups[0])] == graph.triples[split].tolist()
        edges = edges_of(graph, "train") if split == "train" else edges_of(graph)
        for group in groups[1:]:
            for source, path, target in rows_of(group):
                now = {source}
                for relation in path:
                    now = {t for h, label, t in edges if h in now and label == relation}
                assert target in now, "it is a walk in the graph of its split"
                walk = source, tuple(path), target
                assert walk not in seen, "it is new, and no other from its end"
                seen |= {walk, reverse(walk, len(graph.relations))}


def test_splits_walk_where_they_should() -> None:
    graph = random_graph(40, 3, 300, seed=0)
    splits = sample(graph, 0)
    train = edges_of(graph, "train")
    for split in ("validation", "test"):
        steps = [
            (s, p[0]) for group in splits[split][1:] for s, p, _ in rows_of(group)
        ]  # first steps that the training graph does not have
        assert any(not any((h, label) == step for h, label, _ in train) for step in steps)


def test_the_same_seed_gives_the_same_bits() -> None:
    triples = [(k % 20, k % 3, k * k % 19) for k in range(120)]
    graph = graph_of({"train": triples[:80], "validation": triples[80:100], "test": triples[100:]})

    def everything(seed: int) -> list[tuple[int, list[int], int]]:
        return [
            row for groups in sample(graph, seed).values() for g in groups for row in rows_of(g)
        ]

    assert everything(3) == everything(3) != everything(4)
    # On every machine and with every version of torch.
    assert hashlib.sha256(repr(everything(3)).encode()).hexdigest()[:16] == "82d9c6b7adec1217"


def test_a_negative_seed_is_an_error() -> None:
    with pytest.raises(ValueError, match="seed=-1, but a seed is at least 0"):
        sample(random_graph(20, 3, 120, seed=0), -1)


def test_a_graph_with_few_paths_gives_all_of_them(caplog: pytest.LogCaptureFixture) -> None:
    # There and back, from either end: one for training, one for test. There, back and there is
    # its own reverse, so that there is none for test.
    tiny = graph_of({"train": [(0, 0, 1)], "test": [(0, 0, 1)]})
    with caplog.at_level("INFO", "dcgraph"):
        splits = sample(tiny, 0)
    assert [group.hops for group in splits["train"]] == [1, 2, 3, 4, 5]
    assert [group.hops for group in splits["test"]] == [1, 2, 4, 6, 7, 8, 9, 10]
    assert caplog.messages == ["Fewer paths for test than triples, of length 3, 5."]


def test_rare_paths_are_found_though_many_draws_are_known_ones() -> None:
    pairs = graph_of({"train": [(2 * k, 0, 2 * k + 1) for k in range(150)]})
    found = distinct_walks(pairs.adjacency(), 2, 300, STREAM, NONE)
    assert len(found) == 300, "there and back from either end, and nothing else"


def test_a_split_without_triples_has_paths_and_without_paths_is_none() -> None:
    ring = [(k, 0, (k + 1) % 30) for k in range(30)]
    splits = sample(graph_of({"train": ring, "validation": [], "test": []}), 0)
    assert [(g.hops, len(g)) for g in splits["validation"]] == [(hops, 3) for hops in range(2, 6)]
    loop: dict[str, list[tuple[int, int, int]]] = {"train": [(0, 0, 0)]}
    none = {hops: range(2, 2) for hops in ("train", "validation", "test")}
    assert list(sample(graph_of(loop | {"validation": []}), 0, none)) == ["train"]
    with pytest.raises(DataError, match="no path for a test that is not in training"):
        sample(graph_of(loop | {"test": []}), 0, none)


# What paths reach


@given(graphs(), st.data())
@settings(max_examples=15)
def test_reached_sets(plain: Plain, data: st.DataObject) -> None:

    rows = [data.draw(queries_on(plain, hops)) for hops in (2, 1, 4)]
    graph, groups = graph_of(*plain), [queries_of(some) for some in rows]
    reached = reachable(graph.adjacency(), groups)
    sets, edges = reached.sets.lists(), edges_of(graph)
    assert len({tuple(each) for each in sets}) == len(sets), "equal ones are one"
    for group, numbers in zip(groups, reached.of, strict=True):
        for (source, path, _), number in zip(rows_of(group), numbers.tolist(), strict=True):
            assert sets[number] == sorted(reached_by(edges, source, path))


@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
@pytest.mark.parametrize("triples", [40, 400])
def test_neither_portions_nor_density_make_a_difference(
    at_once: int, triples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks_module, "_AT_ONCE", at_once)
    graph = random_graph(30, 2, triples, seed=0)
    edges = edges_of(graph)
    generator = torch.Generator().manual_seed(1)

    source = torch.randint(30, (60,), generator=generator).int()
    queries = Queries(source, torch.randint(4, (60, 3), generator=generator).int(), source)
    reached = reachable(graph.adjacency(), [queries])
    found = reached.sets.take(reached.of[0]).lists()
    assert found == [sorted(reached_by(edges, s, p)) for s, p, _ in rows_of(queries)]
    assert {len(each) for each in found} & {0} or triples == 400


def test_nothing_to_reach_is_an_error() -> None:
    with pytest.raises(ValueError, match="there are no queries"):
        reachable(graph_of({"train": [(0, 0, 1)]}).adjacency(), [])


# The hash RNG


def test_the_bits_are_those_of_splitmix64() -> None:
    step = 0x9E3779B97F4A7C15
    mask = (1 << 64) - 1

    def plain(number: int) -> int:
        z = (number * step + step) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    numbers = [0, 1, 2, -1, 10**12, -(2**63)]
    found = [bits % (1 << 64) for bits in hash_bits(torch.tensor(numbers)).tolist()]
    assert found == [plain(number & mask) for number in numbers]


def test_hashed_numbers_are_uniform() -> None:
    bits = hash_bits(torch.arange(30_000))
    assert kolmogorov_p(bits.double() / 2.0**64 + 0.5) > 1e-4
    for limit in (1, 2, 7, 1000):
        numbers = uniform_below(torch.full((30_000,), limit), bits)
        assert int(numbers.min()) >= 0 and int(numbers.max()) < limit
        counts = torch.bincount(numbers, minlength=limit)
        if limit > 1:
            assert chi_square_p(counts, torch.ones(limit) / limit) > 1e-4
    coarse = uniform_below(torch.full((30_000,), 7), torch.arange(30_000) << 40)
    assert chi_square_p(torch.bincount(coarse, minlength=7), torch.ones(7) / 7) < 1e-4  # can fail


def test_rows_differ_by_order_too() -> None:
    a, b = torch.tensor([0, 1, 0, 5]), torch.tensor([1, 0, 0, 5])
    assert len(hash_rows(a, b).unique()) == 4
