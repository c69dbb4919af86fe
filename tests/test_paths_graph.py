"""Knowledge graphs: where steps and paths lead, against sets and loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgraph.experiments.tasks.paths import draws, reachability
from dcgraph.experiments.tasks.paths.adjacency import adjacency_of
from dcgraph.experiments.tasks.paths.queries import Queries, inverse, single_hops, turned
from dcgraph.experiments.tasks.paths.ragged import portions, ragged_of, stacked
from dcgraph.experiments.tasks.paths.reachability import reachable
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

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6)

# Rows of different lengths


@given(LISTS, st.data())
@settings(max_examples=50)
def test_ragged_rows_are_lists(rows: list[list[int]], data: st.DataObject) -> None:
    sizes = torch.tensor([len(row) for row in rows])
    ragged = ragged_of(sizes, torch.tensor([x for row in rows for x in row], dtype=torch.int32))
    assert ragged.lists() == rows and len(ragged) == len(rows)
    assert ragged.row_numbers().tolist() == [k for k, row in enumerate(rows) for _ in row]
    assert stacked([ragged, ragged]).lists() == rows + rows
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    some = torch.tensor(chosen, dtype=torch.int64)
    assert ragged.take(some).lists() == [rows[k] for k in chosen]
    assert ragged.contain(some, some + 1).tolist() == [k + 1 in rows[k] for k in chosen]
    assert ragged.mask(some, 10).tolist() == [[x in rows[k] for x in range(10)] for k in chosen]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 15))
def test_portions_are_whole_and_within_the_limit(sizes: list[int], limit: int) -> None:
    parts = list(portions(torch.tensor(sizes, dtype=torch.int64), limit))
    assert [k for part in parts for k in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in parts:
        assert sum(sizes[part]) <= limit or part.stop == part.start + 1


# Steps and paths


@given(graphs())
@settings(max_examples=25)
def test_steps_and_ranges(plain: Plain) -> None:

    whole = graph_of(*plain)
    for splits in ((), ("train",)):
        graph, edges = whole.adjacency(*splits), edges_of(whole, *splits)
        for entity in range(graph.entities):
            for relation in range(graph.relations):
                (step,) = graph.find(torch.tensor([entity]), torch.tensor([relation])).tolist()
                ends = sorted(reached_by(edges, entity, [relation]))
                assert (graph.ends.lists()[step] if step >= 0 else []) == ends
        ranges = [{t for _, label, t in edges if label == r} for r in range(graph.relations)]
        assert graph.ranges().lists() == [sorted(entities) for entities in ranges]


def test_a_graph_needs_triples() -> None:
    with pytest.raises(ValueError, match="there are no triples"):
        adjacency_of(torch.empty(0, 3, dtype=torch.int32), 2, 1)


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
    monkeypatch.setattr(reachability, "_AT_ONCE", at_once)
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


@given(graphs(), st.data())
def test_turned_paths_lead_back(plain: Plain, data: st.DataObject) -> None:

    rows, graph = data.draw(queries_on(plain, 3)), graph_of(*plain)
    queries, r, edges = queries_of(rows), len(graph.relations), edges_of(graph)
    back = turned(queries, r)
    for (s, path, t), (s2, path2, t2) in zip(rows_of(queries), rows_of(back), strict=True):
        assert (s2, t2) == (t, s)
        assert (t in reached_by(edges, s, path)) == (s in reached_by(edges, t, path2))
    for before, after in zip(rows_of(queries), rows_of(turned(back, r)), strict=True):
        assert before == after


def test_inverses_and_single_hops() -> None:
    relation = torch.arange(6)
    assert inverse(relation, 3).tolist() == [3, 4, 5, 0, 1, 2]
    queries = single_hops(torch.tensor([[0, 1, 2], [2, 0, 0]], dtype=torch.int32))
    assert rows_of(queries) == [(0, [1], 2), (2, [0], 0)]
    assert (len(queries), queries.hops, rows_of(queries[1:])) == (2, 1, [(2, [0], 0)])


# Numbered draws


def test_the_bits_are_those_of_splitmix64() -> None:
    step = 0x9E3779B97F4A7C15
    mask = (1 << 64) - 1

    def plain(number: int) -> int:
        z = (number * step + step) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    numbers = [0, 1, 2, -1, 10**12, -(2**63)]
    found = [bits % (1 << 64) for bits in draws.mixed(torch.tensor(numbers)).tolist()]
    assert found == [plain(number & mask) for number in numbers]


def test_draws_are_uniform() -> None:
    bits = draws.mixed(torch.arange(30_000))
    assert kolmogorov_p(bits.double() / 2.0**64 + 0.5) > 1e-4
    for limit in (1, 2, 7, 1000):
        numbers = draws.below(torch.full((30_000,), limit), bits)
        assert int(numbers.min()) >= 0 and int(numbers.max()) < limit
        counts = torch.bincount(numbers, minlength=limit)
        if limit > 1:
            assert chi_square_p(counts, torch.ones(limit) / limit) > 1e-4
    coarse = draws.below(torch.full((30_000,), 7), torch.arange(30_000) << 40)
    assert chi_square_p(torch.bincount(coarse, minlength=7), torch.ones(7) / 7) < 1e-4  # can fail


def test_rows_are_told_apart_by_order_too() -> None:
    a, b = torch.tensor([0, 1, 0, 5]), torch.tensor([1, 0, 0, 5])
    assert len(draws.combined(a, b).unique()) == 4
