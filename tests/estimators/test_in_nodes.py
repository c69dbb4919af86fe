"""Every estimator in a model: training with moving dials, DropRes, padding, populations, copies."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.estimators import VECTOR_ESTIMATORS
from dcgraph.nodes import Residual
from estimator_cases import CASES, FUNCTIONS, WITH_LOSS, dialled

ALL = [*FUNCTIONS, *WITH_LOSS]
VALID = torch.tensor([[True, True, False], [True, False, False]])


class Reader(nn.Module):
    """Nodes in a row between two layers."""

    def __init__(self, estimator: str, residual: Residual = "drop", length: int = 2) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 8)
        self.nodes = nn.ModuleList(
            dc.Discrete(8, 4, estimator=estimator, residual=residual) for _ in range(length)
        )
        self.read = nn.Linear(8, 4)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        v = self.encode(x)
        for position, node in enumerate(self.nodes):
            v = node(v, noise=None if noise is None else noise[position])
        out: Tensor = self.read(v)
        return out


def loss_of(model: nn.Module, x: Tensor, y: Tensor, noise: Tensor | None = None) -> Tensor:
    return dc.surrogate(
        model, lambda: F.cross_entropy(model(x, noise), y, reduction="none", label_smoothing=0.01)
    )


@pytest.mark.parametrize("name", ALL)
def test_it_trains_with_temp_match_and_dropres(name: str) -> None:
    """From beta = 0 and all residuals, to matched temperatures and none."""
    torch.manual_seed(0)
    model, steps = Reader(name, length=1), 100
    schedule = dc.temp_match(1.0, gamma=0.05)
    dials = dc.Dials(tau=1.0, beta=schedule, alpha=dc.linear(0, 1, steps // 2)).attach(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x = torch.eye(4).repeat(8, 1)
    y = (torch.arange(4) // 2).repeat(8)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, x, y).mean().backward()
        for parameter in model.parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all()
        optimizer.step()
        dials.step()
    untouched = [n for n, p in model.named_parameters() if p.grad is None]
    assert not untouched, "every parameter is on the way to the loss"
    model.eval()
    assert F.cross_entropy(model(x), y) < 0.4, "of which chance has log 2"


@pytest.mark.parametrize("residual", ["drop", "replace", "weighted", "always", "none"])
@pytest.mark.parametrize("name", ALL)
def test_residuals_around_every_estimator(name: str, residual: Residual) -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 4, estimator=name, residual=residual)
    dialled(node, tau=1.5, beta=0.7, alpha=0.4)
    u = torch.randn(5, 6, requires_grad=True)
    seen: list[Tensor] = []

    def closure() -> Tensor:
        seen.append(node(u))
        return seen[-1].square().sum(-1)

    dc.surrogate(node, closure).sum().backward()
    assert seen[0].shape == (5, 6)
    assert u.grad is not None and u.grad.isfinite().all() and (u.grad != 0).any()
    dropped = residual == "replace" and torch.equal(seen[0], u)  # by the gate of the last draw
    assert dropped or (node.codebook.grad is not None and (node.codebook.grad != 0).any())


@pytest.mark.parametrize("name", ALL)
def test_eval_mode_gives_exact_rows_and_training_with_a_hard_choice_too(name: str) -> None:
    node = dc.Discrete(6, 4, estimator=name, residual="none")
    dialled(node, tau=1.5, beta=0.7)
    u = torch.randn(30, 6)
    with torch.no_grad():  # nobody asks for a gradient, so nobody has to give the loss
        trained = node(u)
    is_row = (trained.unsqueeze(1) == node.codebook).all(-1).any(-1)
    assert is_row.all() == CASES[name].hard
    node.eval()
    assert torch.equal(node(u), node.codebook[node.logits(u).argmax(-1)])
    calls: list[int] = []

    def closure() -> Tensor:
        calls.append(1)
        return node(u).sum(-1)

    assert torch.equal(dc.surrogate(node, closure), node(u).sum(-1)) and len(calls) == 1


@pytest.mark.parametrize("name", ALL)
def test_padding_gets_no_gradient_and_changes_nothing(name: str) -> None:
    torch.manual_seed(0)
    node = dc.Discrete(4, 3, estimator=name, residual="none")
    dialled(node, tau=6.0, beta=0.7)
    before = torch.randn(2, 3, 4)
    fills: dict[Literal["input", "zero"] | Tensor, Tensor | None]
    fills = {"input": None, "zero": torch.zeros(2, 3, 4), before: before}
    arrived = torch.zeros(())
    for fill, expected in fills.items():
        u = torch.randn(2, 3, 4)
        u[~VALID] = torch.tensor([torch.nan, torch.inf, 0.0, 1.0])
        u.requires_grad_()
        seen: list[Tensor] = []

        def closure(
            fill: Literal["input", "zero"] | Tensor = fill, u: Tensor = u, seen: list[Tensor] = seen
        ) -> Tensor:
            v = node(u, rows=VALID, fill=fill)
            seen.append(v)
            return torch.where(VALID.unsqueeze(-1), v, 0.0).square().sum((1, 2))

        losses = dc.surrogate(node, closure)
        wanted = u if expected is None else expected
        torch.testing.assert_close(seen[0][~VALID], wanted[~VALID], equal_nan=True)
        (gradient,) = torch.autograd.grad(losses.sum(), u)
        assert (gradient[~VALID] == 0).all() and gradient.isfinite().all()
        arrived += gradient[VALID].abs().sum()
    assert arrived > 0


@pytest.mark.parametrize("name", ["enumeration", "topk_sparsemax"])
def test_padding_does_not_count_in_sums(name: str) -> None:
    node = dc.Categorical(estimator=name)
    dialled(node, beta=1.0)
    theta, costs = torch.randn(2, 3, 3), torch.randn(3)
    padded = dc.surrogate(node, lambda: (node(theta, rows=VALID) @ costs).sum(1).square())
    for i, length in enumerate((2, 1)):
        row = theta[i : i + 1, :length]
        alone = dc.surrogate(node, lambda r=row: (node(r) @ costs).sum(1).square())  # type: ignore[misc]
        torch.testing.assert_close(padded[i : i + 1], alone)


@pytest.mark.parametrize("name", ALL)
def test_masks_in_a_discrete_node(name: str) -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 4, estimator=name, residual="none")
    dialled(node, tau=1.5, beta=0.7)
    u, mask = torch.randn(40, 6), torch.tensor([True, False, True, True])
    dc.surrogate(node, lambda: node(u, mask=mask).square().sum(-1)).sum().backward()
    gradient = node.codebook.grad
    assert gradient is not None and gradient.isfinite().all()
    assert (gradient[1] == 0).all() and (gradient[[0, 2, 3]] != 0).any(-1).all()


@pytest.mark.parametrize("own_noise", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_populations_train(name: str, own_noise: bool) -> None:
    """surrogate inside of map; replicas have their own dials and their own noise."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 4), torch.arange(6) % 4
    population = dc.Population(lambda: Reader(name), range(3), own_noise=own_noise)
    dc.Dials.constant(population, tau=[0.7, 1.0, 2.0], beta=[0.0, 1.0, 0.5], alpha=1.0)
    losses = population.map(loss_of, x, y)
    assert losses.shape == (3, 6)
    losses.mean(-1).sum().backward()
    for parameter in population.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()
    codebook = population.stacked.get_parameter("nodes.1.codebook").grad
    assert codebook is not None and (codebook != 0).flatten(1).any(1).all()


@pytest.mark.parametrize("name", ALL)
def test_a_replica_of_a_population_draws_what_it_draws_by_itself(name: str) -> None:
    """With noise of its own nothing depends on who else is there: all is drawn from its stream."""
    x, y = torch.randn(6, 4), torch.arange(6) % 4
    found = []
    for seeds in ([3, 5, 8], [5, 8]):
        population = dc.Population(lambda: Reader(name), seeds, own_noise=True)
        dc.Dials.constant(population, tau=1.5, beta=0.7, alpha=0.5)
        losses = population.map(loss_of, x, y)
        gradients = torch.autograd.grad(losses.sum(), [*population.parameters()])
        at = seeds.index(5)
        found.append([losses[at].detach(), *(g[at] for g in gradients)])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("name", [n for n in ALL if not CASES[n].draws_more])
def test_a_population_is_its_replicas_given_the_noise(name: str) -> None:
    x, y, noise = torch.randn(6, 4), torch.arange(6) % 4, dc.gumbel([3, 2, 6, 4])
    population = dc.Population(lambda: Reader(name, "none"), range(3))
    dc.Dials.constant(population, tau=[0.7, 1.0, 2.0], beta=[0.2, 1.0, 0.5])
    losses = population.map(loss_of, x, y, noise, in_dims=(None, None, 0))
    losses.sum().backward()
    for r in range(3):
        alone = population.replica(r)
        single = loss_of(alone, x, y, noise[r])
        single.sum().backward()
        torch.testing.assert_close(losses[r], single)
        for own, stacked in zip(alone.parameters(), population.parameters(), strict=True):
            assert own.grad is not None and stacked.grad is not None
            torch.testing.assert_close(stacked.grad[r], own.grad)


def test_replicas_of_several_estimators_are_no_population() -> None:
    names = iter(["zgr", "reinmax"])
    with pytest.raises(ValueError, match=r"categorical\.estimator is 'zgr' for .* build a popul"):
        dc.Population(lambda: dc.Discrete(4, 3, estimator=next(names)), range(2))


def test_surrogate_around_a_population_says_where_it_belongs() -> None:
    population = dc.Population(lambda: dc.Discrete(4, 3, estimator="reinforce"), range(2))
    dc.Dials.constant(population)
    with pytest.raises(ValueError, match=r"shape \(2, 5\), but one .* with a population, inside"):
        dc.surrogate(population, lambda: population(torch.randn(5, 4)).sum(-1))


@pytest.mark.parametrize("name", ALL)
def test_autocast(name: str) -> None:
    model = Reader(name)
    dialled(model, tau=1.5, beta=0.7, alpha=0.5)
    x, y = torch.randn(6, 4), torch.arange(6) % 4
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model, x, y)
    loss.mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "state_dict"])
@pytest.mark.parametrize("name", ALL)
def test_copies_do_the_same(name: str, how: str) -> None:
    model = Reader(name)
    dialled(model, tau=1.5, beta=0.7, alpha=0.5)
    x, y = torch.randn(6, 4), torch.arange(6) % 4
    loss_of(model, x, y)  # after which nothing of the surrogate is left in it
    if how == "deepcopy":
        other = copy.deepcopy(model)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = Reader(name)
        dialled(other, tau=1.5, beta=0.7, alpha=0.5)
        other.load_state_dict(torch.load(file, weights_only=True))
    results = []
    for one in (model, other):
        torch.manual_seed(1)
        losses = loss_of(one, x, y)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), [*one.parameters()])])
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_the_probe_and_recommended_dials_look_at_it_without_the_loss(name: str) -> None:
    model = Reader(name)
    dialled(model, tau=1.5, beta=0.7)
    x, y = torch.randn(6, 4), torch.arange(6) % 4
    report = dc.probe(model, lambda: F.cross_entropy(model(x), y))
    assert [row.name for row in report.readings] == ["nodes.0", "nodes.1"]
    assert all(row.categories == 4 and row.entropy is not None for row in report.readings)
    assert "nodes.1" in str(report)
    with dc.trace(model.eval()) as steps:
        model(x)
    assert len(steps) == 2
    dials = dc.Dials.recommended(
        model.train(), lambda: loss_of(model, x, y), steps=100, verbose=False
    )
    assert dials.values()["tau"] > 0


@pytest.mark.parametrize("name", WITH_LOSS)
def test_training_without_the_loss_is_an_error_unless_no_gradient_is_asked_for(name: str) -> None:
    for node in (
        dc.Categorical(estimator=name, categories=4),
        dc.Discrete(4, 4, estimator=name),
    ):
        dialled(node)
        x = torch.randn(5, 4)
        with pytest.raises(ValueError, match=rf"'{name}' needs the loss.* dcgraph\.surrogate\("):
            node(x)
        with torch.no_grad():
            assert node(x).shape == (5, 4)
        node.eval()
        assert node(x).shape == (5, 4)


@pytest.mark.parametrize("name", WITH_LOSS)
def test_an_error_in_the_closure_leaves_no_player_behind(name: str) -> None:
    node = dc.Categorical(estimator=name, categories=4)
    dialled(node)

    def fails() -> Tensor:
        node(torch.zeros(3, 4))
        raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        dc.surrogate(node, fails)
    with pytest.raises(ValueError, match="needs the loss"):
        node(torch.zeros(3, 4))


@pytest.mark.parametrize("name", WITH_LOSS)
def test_one_surrogate_inside_of_another_is_an_error_for_the_same_nodes(name: str) -> None:
    """The outer one would miss the choices of the inner one."""
    x, costs = torch.zeros(3, 4), torch.arange(4.0)
    node, other = (dc.Categorical(estimator=name, categories=4) for _ in range(2))
    for one in (node, other):
        dialled(one)

    def inner(model: dc.Categorical) -> Tensor:
        return dc.surrogate(model, lambda: model(x) @ costs)

    with pytest.raises(RuntimeError, match=r"already runs for these nodes.*; call it once"):
        dc.surrogate(node, lambda: inner(node))
    losses = dc.surrogate(node, lambda: node(x) @ costs + inner(other))
    assert losses.shape == (3,)


@pytest.mark.parametrize("name", WITH_LOSS)
def test_threads_train_models_of_their_own(name: str) -> None:
    def trained(seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        theta = torch.randn(50, 4, generator=generator).requires_grad_()
        losses = []
        for _ in range(20):
            loss = dc.surrogate(nodes[seed], lambda: nodes[seed](theta, generator=generator)[:, 0])
            losses += [loss.detach(), *torch.autograd.grad(loss.sum(), theta)]
        return losses

    nodes = [dc.Categorical(estimator=name, categories=4) for _ in range(2)]
    for node in nodes:
        dialled(node)
    expected = [trained(seed) for seed in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(trained, range(2)))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_relax_wants_to_know_the_categories() -> None:
    with pytest.raises(ValueError, match=r"'relax' learns a weight .* categories=\.\.\."):
        dc.Categorical(estimator="relax")
    node = dc.Discrete(4, 7, estimator="relax")
    assert node.categorical.control is not None
    assert node.categorical.control.inner.in_features == 7
    for name in ALL:
        if name != "relax":
            assert not list(dc.Categorical(estimator=name).parameters())


def test_two_estimators_in_one_model() -> None:
    """Any beside one that needs the loss, but not two that do."""
    x = torch.randn(5, 4)

    def loss(model: nn.Sequential) -> Callable[[], Tensor]:
        return lambda: model(x).square().sum(-1)

    both = nn.Sequential(*(dc.Discrete(4, 4, estimator=n) for n in ("reinforce", "rebar")))
    with pytest.raises(ValueError, match=r"several estimators .* rebar, reinforce; use one"):
        dc.surrogate(both, loss(both))
    both[1].eval()  # which does not need it now
    dc.surrogate(both, loss(both)).mean().backward()
    for name in FUNCTIONS:
        model = nn.Sequential(
            dc.Discrete(4, 4, estimator="reinforce", residual="none"),
            dc.Discrete(4, 4, estimator=name, residual="none"),
        )
        dialled(model)
        dc.surrogate(model, loss(model)).mean().backward()
        assert all(p.grad is not None and (p.grad != 0).any() for p in model.parameters())


@pytest.mark.parametrize("name", VECTOR_ESTIMATORS)
def test_those_for_vectors_need_a_codebook_that_makes_the_logits(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' sends gradients from a row .*tied"):
        dc.Discrete(4, 4, g=nn.Linear(4, 4), estimator=name)
    with pytest.raises(ValueError, match=f"'{name}' sends gradients from a row .*tied"):
        dc.Discrete(4, 4, codebook="separate", estimator=name)
    choice = dc.Categorical(estimator=name)
    dialled(choice)
    with pytest.raises(ValueError, match=f"'{name}' is for vectors"):
        choice(torch.zeros(3, 4))
