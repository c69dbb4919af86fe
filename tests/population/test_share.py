"""Which replicas a rank trains, and whose random numbers it takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph._streams import BITS, Streams, draw, has_stream
from dcgraph.noise import draw_gumbel, draw_uniform, draw_words, dropout
from dcgraph.population._share import Share
from statistics_of_fit import kolmogorov_p


@pytest.mark.parametrize("world", range(1, 6))
@pytest.mark.parametrize("total", range(1, 8))
def test_every_replica_has_one_rank(total: int, world: int) -> None:
    shares = [Share(total, rank, world) for rank in range(world)]
    assert [index for share in shares for index in share.own] == list(range(total))
    assert max(len(s.own) for s in shares) - min(len(s.own) for s in shares) <= 1
    for share in shares:
        assert len(share.trained) >= min(2, total), "one is computed by other operations"
        assert share.of(range(total))[share.kept] == list(share.own)


def losses(population: dc.Population, steps: int = 3) -> Tensor:
    u = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    drawn = [population.map(lambda model, u: model(u).sum(), u) for _ in range(steps)]
    return torch.stack(drawn, 1).detach()


def build() -> dc.Discrete:
    node = dc.Discrete(6, 5, gate="example")
    dc.Dials.constant(node, alpha=0.5)
    return node


def test_with_noise_of_their_own_replicas_do_not_depend_on_each_other() -> None:
    together = losses(dc.Population(build, range(5), own_noise=True))
    assert torch.equal(losses(dc.Population(build, [3, 4], own_noise=True)), together[3:])
    assert len(together.unique()) == together.numel(), "neither alike, nor the same again"
    torch.manual_seed(1)
    assert torch.equal(losses(dc.Population(build, range(5), own_noise=True)), together)
    assert not torch.equal(losses(dc.Population(build, range(5))), together)


def test_a_single_replica_has_the_same_noise() -> None:
    """Its results may differ in the last bit only."""
    together = losses(dc.Population(build, range(2), own_noise=True))
    torch.testing.assert_close(losses(dc.Population(build, [0], own_noise=True)), together[:1])


def test_what_is_observed_draws_from_the_streams_too() -> None:
    population = dc.Population(build, range(3), own_noise=True)
    with dc.trace(population):
        observed = losses(population)
    torch.testing.assert_close(observed, losses(dc.Population(build, range(3), own_noise=True)))


class Inside(torch.nn.Module):
    """A model that uses vmap itself: one draw of numbers for each example, or one for all."""

    def __init__(self, randomness: str) -> None:
        super().__init__()
        self.randomness = randomness
        self.shift = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        def one(x: Tensor) -> Tensor:
            return dc.gumbel_softmax(x + self.shift, 1.0, beta=1.0)

        many = torch.vmap(torch.vmap(one, randomness=self.randomness), randomness=self.randomness)
        drawn: Tensor = many(x)
        return drawn


@pytest.mark.parametrize(("randomness", "different"), [("different", 6), ("same", 1)])
def test_a_model_may_use_vmap_itself(randomness: str, different: int) -> None:
    x = torch.zeros(2, 3, 4)
    together = dc.Population(lambda: Inside(randomness), range(3), own_noise=True)(x)
    assert together.shape == (3, 2, 3, 4)
    assert len(together.flatten(0, 2).unique(dim=0)) == 3 * different
    single = dc.Population(lambda: Inside(randomness), [2], own_noise=True)(x)
    torch.testing.assert_close(single, together[2:])


def test_draws_from_streams_have_their_distributions() -> None:
    streams = Streams([5])
    cpu = torch.device("cpu")
    with streams.only(0):
        assert has_stream() and not has_stream("cuda")
        noise = draw_gumbel((20_000,), None, torch.float32, cpu)
        assert kolmogorov_p(torch.exp(-torch.exp(-noise.double()))) > 1e-4
        assert kolmogorov_p(draw_uniform((20_000,), None, cpu).double()) > 1e-4
        words = draw_words(20_000, cpu)
        ones = torch.stack([(words >> bit & 1).double().mean() for bit in range(64)])
        assert ((ones - 0.5).abs() < 5 * 0.5 / 20_000**0.5).all(), "all 64 bits are random"
        bits = draw("bits", (20_000,))
        assert bits.min() > 0 and bits.max() < 1 << BITS
        dropped = dropout(torch.ones(20_000), 0.25)
        torch.testing.assert_close(dropped.unique(), torch.tensor([0.0, 1 / 0.75]))
        assert abs((dropped == 0).double().mean() - 0.25) < 5 * (0.25 * 0.75 / 20_000) ** 0.5
        assert torch.equal(dropout(torch.ones(5), 0.5, training=False), torch.ones(5))
    assert not has_stream()


def test_what_is_drawn_aside_is_not_noticed() -> None:
    streams, same = Streams([1, 2]), Streams([1, 2])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with streams.aside(1):
        aside = draw("uniform", (4,)), torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    with same.aside(1):
        again = draw("uniform", (4,)), torch.rand(4)
    assert all(map(torch.equal, aside, again)), "a matter of the replica only"
    assert torch.equal(streams.state(), Streams([1, 2]).state())


def test_streams_go_on_from_their_state() -> None:
    streams = Streams([1, 2])
    with streams.only(0):
        draw("bits", (3,))
    state = streams.state()
    with streams.only(0):
        expected = draw("bits", (3,))
    other = Streams([8, 9])
    other.load_state(state)
    with other.only(0):
        assert torch.equal(draw("bits", (3,)), expected)


def test_gather_without_a_group_and_of_something_else() -> None:
    population = dc.Population(build, range(3))
    value = torch.arange(3.0)
    assert population.gather(value) is value
    with pytest.raises(ValueError, match="gather what map returned"):
        population.gather(torch.zeros(2))
