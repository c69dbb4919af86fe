"""Codebooks divided over ranks: equal to one process, whatever the number of ranks.

The programs are in tests/shards.py; all that two, or three, ranks are to find is found in one go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load

import dcgraph as dc
import ranks
import shards
from dcgraph.codebook import _sharded
from dcgraph.distributed import _parameter, shard_rows
from statistics_of_fit import kolmogorov_p

TWO = [
    "functions",
    "ties",
    "errors",
    "bytes_on_the_wire",
    "own_batches",
    "ddp",
    "nodes",
    "saves",
    "loads",
]
PROGRAMS = {2: TWO, 3: ["functions", "ties", "own_batches", "nodes", "loads"], 1: ["loads"]}
"""By number of ranks; two of them save what the others load, and so come first."""

Found = Callable[[int, str], list[Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each rank has found, by the number of ranks and the program."""
    folder, known = tmp_path_factory.mktemp("sharded"), dict[int, list[ranks.Found]]()

    def ask(world: int, program: str) -> list[Any]:
        for number in (2, world):
            if number not in known:
                own = folder / str(number)
                own.mkdir()
                names = [f"shards.{name}" for name in PROGRAMS[number]]
                known[number] = ranks.run(names, number, own)
        return [one[f"shards.{program}"] for one in known[world]]

    return ask


@pytest.mark.parametrize("world", [2, 3])
def test_functions_find_what_one_process_finds(found: Found, world: int) -> None:
    for rank, errors in enumerate(found(world, "functions")):
        wrong = {name: value for name, value in errors.items() if not value < tolerance(name)}
        assert not wrong and len(errors) == 25, f"on rank {rank}"


def tolerance(name: str) -> float:
    if name.startswith("choose"):
        return 1e-300  # to the bit
    return 1e-2 if "bfloat16" in name else 3e-6 if "float32" in name else 1e-13


@pytest.mark.parametrize("world", [2, 3])
def test_choices_are_exact_and_ties_go_to_the_first_row(found: Found, world: int) -> None:
    for own in found(world, "ties"):
        assert all(own.values()) and len(own) >= 4, own
    assert {"drawn", "scaled"} <= found(world, "ties")[0].keys()


def test_ranks_that_do_not_agree_all_say_so(found: Found) -> None:
    expected = {
        "width of one": "the query has width 6, but the rows of the codebook have 7",
        "width": "ValueError: width: 6 on rank 0, but 7 on rank 1",
        "queries": "queries: [2, 6] on rank 0, but [3, 6] on rank 1",
        "call": "call: choose on rank 0, but mix on rank 1",
        "type": "types: ['torch.float64', 'torch.float64'] on rank 0, but ['torch.float32'",
        "noise": "draws noise: False on rank 0, but True on rank 1",
        "target": "target=1003 is no row of a codebook of 1003 rows",
        "no row": "the codebook has no row on any rank",
        "all masked": "has no category left",
        "vmap": "RuntimeError: a codebook divided over ranks cannot be used under vmap",
        "second derivative": "RuntimeError: over a codebook divided over ranks there is no second",
        "logits": "no rank has all logits",
        "g": "leave out g=",
        "estimator": "estimator='gapped_straight_through' cannot divide its codebook over ranks",
        "no group": "the codebook is a DTensor, divided over ranks; pass these as group=",
        "batches": "batch: [2, 6] on rank 0, but [3, 6] on rank 1",
    }
    first, second = found(2, "errors")
    assert first.keys() == expected.keys()
    for name, part in expected.items():
        assert part in first[name] and part in second[name], (name, first[name], second[name])
    assert "rank 1 could not take part in this call" in first["width of one"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_on_the_wire_are_those_of_the_formula(found: Found, dtype: str) -> None:
    """As in docs/sharded-codebooks.md: of each query, with a width of d."""
    d = shards.DIM
    formula = {
        "mix": (16 + 4 * d, 4 * d),
        "mix, no noise": (8 + 4 * d, 4 * d),
        "mix, hard": (20 + 4 * d, 4 + 4 * d),
        "choose": (16 + 4 * d, 0),
        "logsumexp": (8, 4 * d),
        "cross_entropy": (12, 4 * d),
    }
    for own in found(2, "bytes_on_the_wire"):
        for name, (forward, backward) in formula.items():
            seen = own[f"{name}, torch.{dtype}"]
            expected = {
                "forward": shards.ROWS * forward,
                "backward": shards.ROWS * backward,
            }
            assert seen == expected, name


@pytest.mark.parametrize("world", [2, 3])
def test_batches_of_their_own_meet_in_one_codebook(found: Found, world: int) -> None:
    assert all(own["error"] < 1e-13 for own in found(world, "own_batches"))


def test_batches_of_their_own_in_ddp(found: Found) -> None:
    assert all(own["error"] < 1e-5 for own in found(2, "ddp"))


@pytest.mark.parametrize("world", [2, 3])
def test_a_node_is_that_of_one_process(found: Found, world: int) -> None:
    own = found(world, "nodes")
    first = own[0]
    for name in ("relaxed", "hard", "straight through", "second order", "ZGR", "rotation"):
        assert first[f"error, {name}"] < 1e-5
    assert first["sampled as one"]
    for one in own:
        assert one["eval"] and one["padding is zero"]
        (index, probability), (index_of_one, probability_of_one) = one["trace"]
        assert torch.equal(index, index_of_one)
        torch.testing.assert_close(probability, probability_of_one)
        assert one["spread"][0] == pytest.approx(one["spread"][1])
    assert first["probe"][0] == pytest.approx(first["probe"][1], rel=1e-4)


@pytest.mark.parametrize("world", [2, 3])
def test_all_ranks_go_on_with_the_same_values_and_gradients(found: Found, world: int) -> None:
    """To the bit, gates and noise included: replicated layers stay equal without averaging."""
    first, *others = found(world, "nodes")
    assert len(first["values"]) == 24
    for one in others:
        assert torch.equal(one["values"], first["values"])
        assert torch.equal(one["sampled"], first["sampled"])
        for name in ("relaxed", "hard", "straight through", "second order", "ZGR", "rotation"):
            for own, other in zip(
                one[f"gradients, {name}"], first[f"gradients, {name}"], strict=True
            ):
                assert torch.equal(own, other)


def test_the_codebook_starts_alike_for_any_number_of_ranks(found: Found) -> None:
    two, three = (found(world, "nodes")[0] for world in (2, 3))
    assert torch.equal(two["initial"], three["initial"])
    assert kolmogorov_p(torch.special.ndtr(two["initial"].double().flatten())) > 1e-4
    assert [one["own"] for one in found(3, "nodes")] == [(1367, 6), (1367, 6), (1365, 6)]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_another_number_of_ranks_goes_on_from_a_checkpoint(found: Found, world: int) -> None:
    saved = found(2, "saves")[0]
    for own in found(world, "loads"):
        assert torch.equal(own["loaded"], saved["saved"])
        torch.testing.assert_close(own["later"], saved["later"])
        assert not torch.allclose(saved["later"], saved["saved"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_process_without_ranks_reads_the_checkpoint(
    found: Found, tmp_path_factory: pytest.TempPathFactory
) -> None:
    saved = found(2, "saves")[0]["saved"]
    *_, folder = sorted(tmp_path_factory.getbasetemp().glob("sharded?/checkpoint"))
    node = dc.Discrete(shards.DIM, shards.LARGE)
    state: dict[str, Any] = {"model": {"node.codebook": node.codebook}}
    load(state, checkpoint_id=folder, no_dist=True)
    assert torch.equal(node.codebook, saved)


def test_rows_of_a_rank_are_those_of_dtensor(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2, 7, 8, 9, 1000):
        for world in (1, 2, 3, 8):
            monkeypatch.setattr(dist, "is_initialized", lambda: True)
            monkeypatch.setattr(dist, "get_world_size", lambda group, world=world: world)
            pieces = torch.arange(n).chunk(world)
            for rank in range(world):
                monkeypatch.setattr(dist, "get_rank", lambda group, rank=rank: rank)
                own = list(shard_rows(n))
                assert own == (pieces[rank].tolist() if rank < len(pieces) else [])
    with pytest.raises(ValueError, match="n=0, but a codebook has at least one row"):
        shard_rows(0)
    monkeypatch.setattr(dist, "get_rank", lambda group=None: -1)
    with pytest.raises(ValueError, match="is not in the group"):
        shard_rows(3)


def test_initial_rows_are_a_function_of_their_number() -> None:
    """Normal, with nothing in common between neighbours, and the same however they are divided."""
    key = torch.tensor([12345])
    whole = torch.empty(2000, 7)
    _parameter.fill_normal(whole, key, 0)
    part = torch.empty(900, 7)
    _parameter.fill_normal(part, key, 700)
    assert torch.equal(part, whole[700:1600])
    assert kolmogorov_p(torch.special.ndtr(whole.double().flatten())) > 1e-4
    for a, b in ((whole[1:], whole[:-1]), (whole[:, 1:], whole[:, :-1])):
        both = torch.stack([a.flatten(), b.flatten()])
        for moment in (both, both.square()):
            assert abs(torch.corrcoef(moment)[0, 1]) < 4.5 / a.numel() ** 0.5


def best(tops: list[list[float]], places: list[list[int]], monkeypatch: Any) -> tuple[Any, Any]:
    """What ranks find that have these maxima at these places."""
    sides: list[Tensor] = []
    group = dist.ProcessGroup(0, 1)  # type: ignore[call-arg]

    def keep(value: Tensor, group: Any, op: Any) -> Tensor:
        sides.append(value)
        return value

    monkeypatch.setattr(_sharded, "reduce", keep)
    for top, place in zip(tops, places, strict=True):
        _sharded._best(torch.tensor(top), torch.tensor(place), group)
    largest = torch.stack(sides).amax(0)
    monkeypatch.setattr(_sharded, "reduce", lambda *_: largest)
    return _sharded._best(torch.tensor(tops[0]), torch.tensor(places[0]), group)


def test_a_maximum_and_its_place_are_one_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of floats, with the first place of a tie; NaN wins, whatever its sign."""
    nan, inf, last = float("nan"), float("inf"), (1 << 32) - 2
    cases = [  # of two ranks: maxima and places; and what is found
        (1.5, 7, 1.25, 3, 1.5, 7),
        (-1.5, 7, -1.25, 3, -1.25, 3),
        (-1e-30, 7, 1e-30, 9, 1e-30, 9),
        (2.0, 9, 2.0, 4, 2.0, 4),
        (-2.0, 4, -2.0, 9, -2.0, 4),
        (0.0, 9, -0.0, 4, 0.0, 4),
        (-inf, -1, -3e38, 5, -3e38, 5),
        (-inf, -1, -inf, -1, -inf, -1),
        (inf, 2, 3e38, 1, inf, 2),
        (1.0, last, 0.0, 0, 1.0, last),
        (nan, 3, inf, 2, nan, 3),
        (-nan, 3, 1.0, 2, nan, 3),
    ]
    a, i, b, j, top, place = zip(*cases, strict=True)
    found = best([list(a), list(b)], [list(i), list(j)], monkeypatch)
    torch.testing.assert_close(found[0], torch.tensor(top), equal_nan=True, rtol=0, atol=0)
    assert found[1].tolist() == list(place)
