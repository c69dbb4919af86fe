"""A population is R single models: given the same noise, to the last digits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import dcgraph as dc
from dcgraph.population._rows import RowPopulation
from models import Adder


def test_replicas_start_as_their_seeds_say() -> None:
    population = dc.Population(Adder, [3, 5])
    torch.manual_seed(5)
    alone = Adder()
    for name, parameter in population.replica(1).named_parameters():
        assert torch.equal(parameter, alone.get_parameter(name)), name
    first = population.stacked.get_parameter("encode.weight")
    assert first.shape == (2, *alone.encode.weight.shape) and not torch.equal(first[0], first[1])
    assert population.num_parameters == sum(p.numel() for p in alone.parameters())


def test_building_a_population_leaves_the_global_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    dc.Population(Adder, [3, 5])
    assert torch.equal(torch.get_rng_state(), before)


class Noisy(nn.Module):
    """A chain of two nodes whose noise is handed in."""

    def __init__(self) -> None:
        super().__init__()
        self.node = dc.Discrete(4, 3, residual="none")

    def forward(self, u: Tensor, noise: Tensor) -> Tensor:
        return self.node.logits(self.node(self.node(u, noise=noise[0]), noise=noise[1]))


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_population_step_equals_single_steps_given_the_same_noise(replicas: int) -> None:
    examples = 5
    u, noise = torch.randn(replicas, examples, 4), dc.gumbel((replicas, 2, examples, 3))
    target = torch.randint(3, (replicas, examples))
    population = dc.Population(Noisy, range(replicas))
    tau, beta = [2.0 + r for r in range(replicas)], [0.5 * r for r in range(replicas)]
    dc.Dials.constant(population, tau=tau, beta=beta)

    def loss(model: nn.Module, u: Tensor, noise: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(model(u, noise), target, reduction="sum")

    losses = population.map(loss, u, noise, target, in_dims=0)
    losses.sum().backward()
    for r in range(replicas):
        alone = population.replica(r)
        single = loss(alone, u[r], noise[r], target[r])
        single.backward()
        torch.testing.assert_close(losses[r], single)
        for own, stacked in zip(alone.parameters(), population.parameters(), strict=True):
            assert own.grad is not None and stacked.grad is not None
            torch.testing.assert_close(stacked.grad[r], own.grad)


def test_arguments_are_shared_unless_they_are_said_to_be_each_replicas_own() -> None:
    population = dc.Population(lambda: nn.Linear(4, 3), range(2))
    x = torch.randn(2, 4)  # as many examples as replicas: nothing may be guessed from that
    models = [population.replica(r) for r in range(2)]
    torch.testing.assert_close(population(x), torch.stack([model(x) for model in models]))
    own = torch.stack([model(x[r]) for r, model in enumerate(models)])
    torch.testing.assert_close(population(x, in_dims=0), own)
    mixed = population.map(
        lambda model, one, rest: model(one) + rest["bias"], x, {"bias": torch.ones(3)},
        in_dims=(0, None),
    )  # fmt: skip
    torch.testing.assert_close(mixed, own + 1)
    with pytest.raises(ValueError, match="is for 1 arguments, but there are 2"):
        population.map(lambda model, a, b: model(a), x, x, in_dims=(0,))


def test_other_parameters_can_take_the_place_of_its_own() -> None:
    population = dc.Population(lambda: nn.Linear(4, 3), range(2))
    zeros = {name: torch.zeros_like(p) for name, p in population.stacked.named_parameters()}
    u = torch.randn(5, 4)
    assert (population.map(lambda model: model(u), parameters=zeros) == 0).all()
    assert (population.replica(1, parameters=zeros)(u) == 0).all()
    assert (population.replica(1)(u) != 0).any()


class Buffered(nn.Module):
    """One buffer is another for every seed, one counts its calls, one is a constant."""

    own: Tensor
    calls: Tensor
    constant: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("own", torch.randn(4), persistent=False)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("constant", torch.arange(4.0), persistent=False)

    def forward(self, u: Tensor) -> Tensor:
        self.calls.add_(1)
        out: Tensor = self.linear(u) + self.own * self.constant
        return out


@pytest.mark.parametrize("replicas", [1, 2])
def test_buffers_are_each_replicas_own(replicas: int) -> None:
    population = dc.Population(Buffered, range(3, 3 + replicas))
    u = torch.randn(5, 4)
    outputs = population(u)
    for r in range(replicas):
        torch.manual_seed(3 + r)
        torch.testing.assert_close(outputs[r], Buffered()(u))
        assert population.replica(r).calls == 1
    stacked = population.stacked
    assert isinstance(stacked, Buffered)
    assert stacked.calls.tolist() == [1] * replicas and "stacked.calls" in population.state_dict()
    assert stacked.constant.shape == (4,), "a constant is shared"


def test_a_replica_is_a_copy_and_can_be_overwritten() -> None:
    population = dc.Population(Buffered, range(2))
    model = population.replica(0)
    with torch.no_grad():
        model.get_parameter("linear.weight").zero_()
    assert (population.replica(0).get_parameter("linear.weight") != 0).any()
    again = population.replica(1, into=model)
    assert again is model
    u = torch.randn(5, 4)
    torch.testing.assert_close(model(u), population(u)[1])
    with pytest.raises(IndexError, match="index=2, but the population has replicas 0 to 1"):
        population.replica(2)


def test_batch_normalisation_keeps_statistics_of_each_replica() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

    population = dc.Population(build, range(3))
    alone = [population.replica(r) for r in range(3)]
    for _ in range(2):
        u = torch.randn(7, 4)
        together = population(u)
        for r, model in enumerate(alone):
            torch.testing.assert_close(together[r], model(u))
    for r, model in enumerate(alone):
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(population.stacked.get_buffer(name)[r], buffer)
    torch.testing.assert_close(population.eval()(u)[1], alone[1].eval()(u))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)

    def forward(self, token: Tensor) -> Tensor:
        out: Tensor = self.out(self.embed(token) + self.frozen)
        return out


def test_shared_and_frozen_parameters_stay_so() -> None:
    population = dc.Population(Tied, range(2))
    assert [name for name, _ in population.stacked.named_parameters()] == ["frozen", "embed.weight"]
    token = torch.tensor([1, 2])
    population(token).square().sum().backward()
    model = population.replica(1)
    assert isinstance(model, Tied) and model.out.weight is model.embed.weight
    model(token).square().sum().backward()
    stacked = population.stacked
    assert isinstance(stacked, Tied) and stacked.embed.weight.grad is not None
    assert model.embed.weight.grad is not None and stacked.frozen.grad is None
    torch.testing.assert_close(stacked.embed.weight.grad[1], model.embed.weight.grad)


def test_parametrised_layers_map() -> None:
    population = dc.Population(lambda: parametrizations.orthogonal(nn.Linear(4, 3)), range(2))
    u = torch.randn(5, 4)
    torch.testing.assert_close(population(u)[1], population.replica(1)(u))


def test_a_population_is_saved_copied_and_moved_as_any_module() -> None:
    population = dc.Population(Adder, range(2))
    a, b = torch.randn(7, 6), torch.randn(7, 6)
    expected = population.eval()(a, b)
    other = dc.Population(Adder, range(5, 7)).eval()
    other.load_state_dict(population.state_dict())
    for same in (other, copy.deepcopy(population), pickle.loads(pickle.dumps(population))):
        torch.testing.assert_close(same(a, b), expected)
    copied = copy.deepcopy(population)
    for parameter in copied.parameters():
        parameter.detach().zero_()
    torch.testing.assert_close(population(a, b), expected)
    assert population.to("meta").device.type == "meta"


def test_any_optimizer_of_single_numbers_trains_the_replicas_apart() -> None:
    population = dc.Population(lambda: nn.Linear(4, 3), range(2))
    alone = [population.replica(r) for r in range(2)]
    groups = [{"params": list(m.parameters()), "lr": 0.1} for m in (population, *alone)]
    optimizers = [torch.optim.SGD([g], momentum=0.9) for g in groups]
    for _ in range(4):
        u = torch.randn(5, 4)
        losses = [population(u).square().mean((1, 2)), *(m(u).square().mean() for m in alone)]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
    for r, model in enumerate(alone):
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(population.stacked.get_parameter(name)[r], parameter)


def test_dials_of_each_replica() -> None:
    population = dc.Population(Adder, range(3))
    dials = dc.Dials(
        tau=[1, 2, 4], beta=[dc.temp_match(t, 0.5) for t in (1, 2, 4)], alpha=dc.linear(0, 1, 4)
    )
    dials.attach(population)
    dials.step()
    values = dials.at(1)
    ((_, node),) = dc.named_nodes(population)
    assert isinstance(node, dc.Discrete) and node.alpha is not None
    torch.testing.assert_close(node.beta, torch.tensor(values["beta"]))
    assert node.tau.tolist() == [1, 2, 4] and node.alpha.tolist() == [0.25] * 3
    assert dc.named_nodes(population.replica(2)).__next__()[1].tau == 4
    dc.Dials(tau=9.0, beta=0.0, alpha=0.5).attach(population, replica=1)
    assert node.tau.tolist() == [1, 9, 4] and node.alpha.tolist() == [0.25, 0.5, 0.25]


@pytest.mark.parametrize(
    ("attach", "message"),
    [
        (lambda p: dc.Dials(tau=[1, 2]).attach(p), "tau has 2 values, .* has 3 replicas"),
        (lambda p: dc.Dials().attach(p, replica=3), "replica=3, but Population has replicas 0 to"),
        (lambda p: dc.Dials().attach(p.replica(0), replica=0), "replica=0, but Adder has none"),
        (lambda p: dc.Dials(tau=[1, 2]).attach(p.replica(0)), "tau has 2 values, .* is one model"),
        (lambda p: dc.Dials(tau=[]), "tau is an empty list"),
        (lambda p: dc.Dials(tau=[1, 0]), "tau=0, but a temperature"),
    ],
)
def test_dials_that_do_not_fit(attach: Callable[[dc.Population], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attach(dc.Population(Adder, range(3)))


def build_other(kind: str) -> Callable[[], nn.Module]:
    """A model that is another for every seed in a way that cannot be stacked."""

    def build() -> nn.Module:
        model = nn.Linear(4, 3 if kind != "shape" or torch.rand(()) < 0.5 else 5)
        if kind == "attribute":
            model.order = torch.randperm(100)
        return model

    return build


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (build_other("shape"), ValueError, r"seeds\[\d\] has other parameters"),
        (build_other("attribute"), ValueError, r"'order' is a tensor .*\.register_buffer\('order'"),
        (lambda: nn.Linear(2, 2).double(), TypeError, "'weight' is torch.float64, .* float32"),
        (lambda: nn.LazyLinear(2), ValueError, "'weight' has no shape yet"),
        (lambda: nn.Sequential(nn.LSTM(4, 3)), TypeError, "0 is a torch.nn.LSTM.*population.LSTM"),
    ],
)
def test_models_that_cannot_be_stacked(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dc.Population(build, range(8))


class Refused(nn.Module):
    """What vmap cannot do."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(4, 4), kind
        self.register_buffer("constant", torch.zeros(4), persistent=False)

    def forward(self, u: Tensor) -> Tensor:
        out: Tensor = self.linear(u)
        if self.kind == "branch" and out.sum() > 0:
            return -out
        if self.kind == "item":
            return out * out.sum().item()
        if self.kind == "shape":
            return out[out > 0]
        if self.kind == "write":
            self.get_buffer("constant").add_(out.sum(0))
        return None if self.kind == "nothing" else out  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("branch", "torch.where"),
        ("item", "cannot read the values"),
        ("shape", "masks"),
        ("write", "persistent=True"),
        ("nothing", "only writes"),
    ],
)
def test_what_cannot_be_mapped_comes_with_a_remedy(kind: str, hint: str) -> None:
    population = dc.Population(lambda: Refused(kind), range(2))
    with pytest.raises((RuntimeError, ValueError)) as caught:
        population(torch.randn(5, 4))
    (note,) = caught.value.__notes__
    assert note.startswith("dcgraph.Population: ") and hint in note


def test_probe_and_trace_look_at_single_replicas() -> None:
    population = dc.Population(Adder, range(2))
    dc.Dials.constant(population)
    a, b = torch.randn(7, 6), torch.randn(7, 6)
    with dc.trace(population) as steps:
        population(a, b)
    assert not steps
    model = population.replica(1)
    assert len(dc.probe(model, lambda: model(a, b).sum()).readings) == 2


def test_a_population_has_a_replica() -> None:
    with pytest.raises(ValueError, match="seeds is empty"):
        dc.Population(Adder, [])


@pytest.mark.parametrize("seeds", [range(3, 5), torch.tensor([3, 4]), np.array([3, 4])], ids=str)
def test_seeds_can_be_an_array(seeds: Any) -> None:
    population = dc.Population(Adder, seeds)
    assert population.replicas == 2
    same = dc.Population(Adder, [3, 4])
    assert all(map(torch.equal, population.parameters(), same.parameters()))


def test_a_population_says_what_it_is() -> None:
    assert repr(dc.Population(lambda: nn.Linear(30, 50), range(8))) == (
        "Population(8 replicas of Linear, 1,550 parameters each, cpu)"
    )
    assert repr(dc.Population(dc.Categorical, [0])).startswith("Population(1 replica of Cat")


def test_the_rows_are_the_parameters() -> None:
    torch.manual_seed(0)
    population, rows = dc.Population(Adder, range(3)), RowPopulation(Adder, range(3))
    for own, expected in zip(rows.parameters(), population.parameters(), strict=True):
        assert torch.equal(own, expected)
    with torch.no_grad():
        rows.weights[1].zero_()
    assert all((parameter[1] == 0).all() for parameter in rows.parameters())
    assert all((parameter[0] != 0).any() for parameter in rows.parameters())


@pytest.mark.parametrize("large", [0, 1 << 20])
def test_columns_are_the_slices_in_their_order(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgraph.population._rows._LARGE", large)
    population = RowPopulation(Adder, range(3))
    slices = list(population.slices(population.weights).values())
    found = torch.zeros_like(population.weights)
    columns = list(population.columns(slices))
    for where, tensor in columns:
        found[:, where] = tensor
    assert torch.equal(found, population.weights)
    assert len(columns) == (1 if large else len(slices))


def test_an_error_of_the_model_s_own_is_raised_as_it_is() -> None:
    def breaks(model: nn.Module, x: Tensor) -> Tensor:
        raise RuntimeError("out of paper")

    population = dc.Population(lambda: nn.Linear(2, 2), seeds=range(2))
    with pytest.raises(RuntimeError, match="out of paper") as caught:
        population.map(breaks, torch.randn(3, 2))
    assert not getattr(caught.value, "__notes__", [])
