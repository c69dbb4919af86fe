"""Several ranks: noise of their own, equal parameters and dials, and dials that stand still."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import dcgraph as dc
import ranks
from dcgraph._ranks import Position
from dcgraph.noise import _of_rank
from statistics_of_fit import kolmogorov_p


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[ranks.Found]:
    return ranks.run(
        ["draws", "ddp", "forgetful", "lightning"], 2, tmp_path_factory.mktemp("ranks")
    )


def test_ranks_that_are_seeded_alike_draw_apart(found: list[ranks.Found]) -> None:
    first, second = (one["draws"] for one in found)
    assert torch.equal(first.pop("by a generator"), second.pop("by a generator"))
    for name, value in first.items():
        assert value.isfinite().all() and not torch.equal(value, second[name]), name
    both = torch.stack([first["gumbel"], second["gumbel"]])
    for own in both:
        assert kolmogorov_p(torch.exp(-torch.exp(-own.flatten().double()))) > 1e-4
    assert abs(torch.corrcoef(both.flatten(1))[0, 1]) < 4 / 20_000**0.5
    for gate in ("example", "vector", "element"):
        kept = torch.stack([first[gate], second[gate]]).flatten(1)
        assert ((kept[0] == kept[1]).float().mean() - 0.5).abs() < 0.15


def test_ddp_keeps_parameters_and_dials_equal_and_resumes_to_the_bit(
    found: list[ranks.Found],
) -> None:
    first, second = (one["ddp"] for one in found)
    for name in ("weights", "resumed", "without broadcast"):
        assert torch.equal(first[name], second[name]), "equal on all ranks"
        assert torch.equal(first[name], first["weights"])
    assert first["dials"] == second["dials"] == [2.0, pytest.approx(1.7293, abs=1e-4), 1.0]


def test_a_rank_whose_dials_stand_still_is_said(found: list[ranks.Found]) -> None:
    first, second = (one["forgetful"]["said"] for one in found)
    assert len(first) == 2 and not second, "once for each run, by the rank before it"
    assert "the dials of rank 1 have stepped 0 times, those of rank 0 101 times" in first[0]


def test_bits_of_other_ranks_are_as_good_as_those_of_rank_0() -> None:
    torch.manual_seed(0)
    bits = torch.randint(1, 1 << 62, (20_000,))
    assert torch.equal(_of_rank(bits, 0), bits)

    def uniform(bits: Tensor) -> Tensor:
        return bits.double() * 2.0**-62

    own = [uniform(_of_rank(bits, rank)) for rank in (0, 1, 2, 3, 1000)]
    for one in own:
        assert kolmogorov_p(one) > 1e-4
    matrix = torch.corrcoef(torch.stack(own)) - torch.eye(len(own))
    assert matrix.abs().max() < 4.5 / 20_000**0.5
    neighbours = uniform(_of_rank(torch.arange(1, 20_001), 1))  # even of numbers in a row
    assert kolmogorov_p(neighbours) > 1e-4


def test_lightning_on_two_ranks_resumes_to_the_bit(found: list[ranks.Found]) -> None:
    first, second = (one["lightning"] for one in found)
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["resumed"], second["resumed"])
    assert torch.equal(first["resumed"], first["weights"])
    assert first["random states differ"]


def test_another_number_of_ranks_goes_on_with_fresh_noise(
    found: list[ranks.Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dcgraph.frameworks.lightning import _set_random_state

    file = found[0]["lightning"]["file"]
    saved = torch.load(file, weights_only=True)["callbacks"]["DialsCallback"]["random"]

    def numbers(ranks: int, rank: int) -> Tensor:
        torch.manual_seed(5)
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        _set_random_state(saved, torch.device("cpu"))
        return torch.rand(3)

    same, other = [numbers(2, rank) for rank in (0, 1)], [numbers(3, rank) for rank in (0, 1, 2)]
    everything = torch.stack([*same, *other])
    assert len(everything.unique(dim=0)) == 5, "no two ranks draw alike"
    assert torch.equal(other[1], numbers(3, 1)), "but it is the same every time"
    torch.set_rng_state(saved[1][0])
    assert torch.equal(same[1], torch.rand(3))


class Peers:
    """The store of a process group, without the group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: int = 3) -> None:
        self.store = dist.HashStore()  # type: ignore[attr-defined]
        for name, value in (
            ("is_initialized", True), ("get_world_size", world), ("get_rank", world - 1),
        ):  # fmt: skip
            monkeypatch.setattr(dist, name, lambda value=value: value)
        monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: self.store)


def test_ranks_may_differ_by_two_schedule_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, own = Peers(monkeypatch), Position()
    own.compare(10**6, 1)  # the next rank has no dials
    peers.store.set(own._key(0), "1000")  # the next of the last rank is the first
    own.publish(1300)
    own.compare(1300, 150)
    own.compare(700, 150)
    with pytest.warns(UserWarning, match=r"rank 0 have stepped 1,000 times, those of rank 2 1,301"):
        own.compare(1301, 150)
    own.compare(5000, 150)  # it is said once
    assert peers.store.get(own._key(2)) == b"1300"


def test_a_store_that_fails_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, own = Peers(monkeypatch), Position()
    asked = []

    def fail() -> None:
        asked.append(1)
        raise dist.DistNetworkError("gone")

    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", fail)
    for step in range(5):
        own.publish(step)
        own.compare(step, 1)
    assert len(asked) == 1 and peers.store.num_keys() == 0


def test_a_single_rank_has_nobody_to_tell() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        node = dc.Discrete(3, 2)
        dials = dc.Dials(alpha=dc.linear(0, 1, 2)).attach(node)
        dials.step()
        assert node.alpha == 0.5 and Position()._store() is None
        torch.manual_seed(0)
        first = dc.gumbel([2000])
    finally:
        dist.destroy_process_group()
    torch.manual_seed(0)
    assert torch.equal(dc.gumbel([2000]), first), "the noise of a process without ranks"
