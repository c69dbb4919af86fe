"""The probe: gradients, entropies, used categories, and that it changes nothing."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.inspect import _probe as probing
from models import Adder, Chain


def gradient_ratio(alpha: float, seed: int) -> float:
    torch.manual_seed(seed)
    model = Chain(length=6)
    dc.Dials(tau=8.0, beta=1.0, alpha=alpha).attach(model)
    x, target = torch.randn(64, 16), torch.randn(64, 16)
    report = dc.probe(model, lambda: F.mse_loss(model(x), target))
    first, last = report.readings[0].gradient, report.readings[-1].gradient
    assert first is not None and last is not None
    return first / last


@pytest.mark.parametrize("seed", range(5))
def test_gradient_dies_along_a_chain_without_dropres_and_lives_with_it(seed: int) -> None:
    assert gradient_ratio(alpha=1.0, seed=seed) < 0.05
    assert gradient_ratio(alpha=0.0, seed=seed) > 0.5


def test_probe_reads_what_is_there() -> None:
    torch.manual_seed(0)
    node = dc.Categorical()
    dc.Dials(tau=2.0, beta=0.0).attach(node)
    theta = torch.tensor([[30.0, 0.0, 0.0], [1.0, 0.5, -0.5], [0.0, 2.0, 0.0]], requires_grad=True)
    weights = torch.tensor([1.0, -2.0, 0.5])
    report = dc.probe(node, lambda: (node(theta) @ weights).sum())
    (row,) = report.readings
    z, p = (theta / 2.0).softmax(-1), theta.softmax(-1)
    (gradient,) = torch.autograd.grad((z @ weights).sum(), theta)
    expected = {
        "gradient": gradient.abs().mean(),
        "logit_gradient": gradient.abs().mean(),
        "entropy": dc.entropy(theta).mean(),
        "largest": p.amax(-1).mean(),
        "saturated": 1 / 3,
        "gap": 1 - z.amax(-1).mean(),
    }
    for name, value in expected.items():
        assert getattr(row, name) == pytest.approx(
            float(torch.as_tensor(value).detach()), abs=1e-6
        ), name
    assert (row.categories, row.used, row.dead) == (3, 2, 1)
    each = row.by_category
    assert each is not None and each.gradient is not None
    assert each.use == pytest.approx([2 / 3, 1 / 3, 0])
    assert each.weight == pytest.approx(z.mean(0).tolist())
    assert each.gradient == pytest.approx(gradient.abs().mean(0).tolist())
    assert report.loss == pytest.approx(float((z @ weights).sum().detach()))
    assert report.hard_loss == pytest.approx(1.0 + 1.0 - 2.0)


def test_groups_are_read_apart() -> None:
    """A node that is called on [batch, 8, K] makes eight choices, each with its own story."""
    torch.manual_seed(0)
    node = dc.Categorical()
    dc.Dials.constant(node, tau=2.0, beta=0.0)
    theta = torch.randn(20, 3, 5, requires_grad=True)
    with torch.no_grad():
        theta[:, 1] = torch.tensor([9.0, 0.0, 0.0, 0.0, 0.0])  # this group has collapsed
    weights = torch.randn(3, 5)

    def loss(theta: Tensor) -> Tensor:
        return (node(theta) * weights[: theta.shape[-2]]).sum()

    report = dc.probe(node, lambda: loss(theta), groups=1)
    assert [(r.call, r.group) for r in report.readings] == [(0, 0), (0, 1), (0, 2)]
    for group, reading in enumerate(report.readings):
        own = theta.detach()[:, group].clone().requires_grad_()

        def own_loss(own: Tensor = own, weights: Tensor = weights[group]) -> Tensor:
            return (node(own) * weights).sum()

        (alone,) = dc.probe(node, own_loss).readings
        for name in ("gradient", "entropy", "largest", "used", "dead", "saturated", "gap"):
            expected = pytest.approx(getattr(alone, name), rel=1e-5)
            assert getattr(reading, name) == expected, name
        assert reading.by_category is not None and alone.by_category is not None
        assert reading.by_category.weight == pytest.approx(alone.by_category.weight)
    assert (report.readings[1].used, report.readings[1].dead) == (1, 4)
    assert str(report).splitlines()[0].split()[:3] == ["node", "call,", "group"]
    whole = dc.probe(node, lambda: loss(theta)).readings
    assert len(whole) == 1 and whole[0].group is None and whole[0].used == 5
    assert dc.probe(node, lambda: loss(theta), groups=-1).readings == report.readings
    assert len(dc.probe(node, lambda: loss(theta), groups=2).readings) == 1, "no such dimension"


def test_a_group_is_compared_with_the_same_group_of_the_last_call() -> None:
    torch.manual_seed(0)
    node = dc.Categorical()
    dc.Dials.constant(node, tau=2.0, beta=0.0)
    theta = torch.randn(20, 3, 5, requires_grad=True)
    valid = torch.ones(20, 3, dtype=torch.bool)
    valid[:, 2] = False  # the last group is padding: no gradient to compare with

    def loss() -> Tensor:
        first = node(theta)
        return (node(5 * first, rows=valid) * torch.tensor([1.0, 10.0, 0.0]).view(3, 1)).std()

    report = dc.probe(node, loss, groups=1)
    shown = [line.split()[4] for line in str(report).splitlines()[1:-1]]
    gradients = [reading.gradient for reading in report.readings]
    for group in range(2):
        first, last = gradients[group], gradients[3 + group]
        assert first is not None and last is not None
        assert float(shown[group]) == pytest.approx(first / last, rel=0.06)
        assert shown[3 + group] == "1"
    assert gradients[5] is None and shown[2] == shown[5] == "-"


def test_probe_reports_calls_in_order_and_watched_tensors() -> None:
    class Watched(Adder):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return super().forward(dc.watch("input", a), b)

    model = Watched()
    a, b, target = torch.randn(9, 6, requires_grad=True), torch.randn(9, 6), torch.arange(9) % 5
    report = dc.probe(model, lambda: F.cross_entropy(model(a, b), target))
    rows = [(row.name, row.call) for row in report.readings]
    assert rows == [("input", 0), ("symbol", 0), ("symbol", 1)]
    watched = report.readings[0]
    assert watched.gradient is not None and watched.gradient > 0 and watched.categories is None
    assert json.loads(json.dumps(report.to_dict()))["readings"][1]["name"] == "symbol"
    table = str(report)
    assert len(table.splitlines()) == 5 and "soft-hard gap" in table and "/5" in table
    assert dc.watch("outside", a) is a


def test_a_small_z_keeps_the_gradient_small() -> None:
    """The paper's bound: the gradient at theta_j is at most sqrt(2) / tau |dL/dz| z_j."""
    torch.manual_seed(1)
    tau = 2.0
    node = dc.Categorical()
    dc.Dials(tau=tau, beta=1.0).attach(node)
    theta = 4 * torch.randn(1, 8, requires_grad=True)
    weights = torch.randn(8)
    (row,) = dc.probe(node, lambda: (node(theta) @ weights).sum()).readings
    each = row.by_category
    assert each is not None and each.gradient is not None
    assert min(each.weight) < 0.05, "there is one to be kept small"
    for z, gradient in zip(each.weight, each.gradient, strict=True):
        assert gradient <= math.sqrt(2) / tau * float(weights.norm()) * z


def test_no_list_of_millions_of_categories() -> None:
    node = dc.Categorical()
    theta = torch.zeros(1, probing.LISTED + 1, requires_grad=True)
    (row,) = dc.probe(node, lambda: node(theta).square().sum()).readings
    assert row.by_category is None and row.categories == probing.LISTED + 1


def test_probe_leaves_no_trace() -> None:
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5), dc.Discrete(6, 4))
    model[1].eval()
    model(torch.randn(5, 6)).sum().backward()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    before = torch.get_rng_state()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first = dc.probe(model, lambda: model(x).square().sum())
    assert dc.probe(model, lambda: model(x).square().sum()) == first, "and repeats"
    assert torch.equal(before, torch.get_rng_state())
    assert [module.training for module in model] == [True, False, True]
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    now = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(*pair) for pair in zip(gradients, now, strict=True))


def test_vs_last_compares_with_the_last_node() -> None:
    row = probing.Reading
    report = probing.Report(
        1.0, 1.0, (row("a", 0, 0.5, categories=3), row("b", 0, 2.0, categories=3), row("w", 0, 4.0))
    )
    assert [line.split()[3] for line in str(report).splitlines()[1:4]] == ["0.25", "1", "2"]


def test_hard_and_relaxed_calls_are_matched_by_name() -> None:
    class Reordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = dc.Categorical(), dc.Categorical()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            if self.training:
                first, second = self.small(dc.watch("a", a)), self.large(b)
            else:
                second, first = self.large(b), self.small(a)
            total: Tensor = first.sum() + second.sum()
            return total

    model = Reordered()
    dc.Dials(beta=0.0).attach(model)
    a, b = 50 * torch.eye(3)[[0, 1]], 50 * torch.eye(10)[[8, 9]]
    report = dc.probe(model, lambda: model(a, b))
    gaps = {row.name: row.gap for row in report.readings}
    assert gaps == {"a": None, "small": pytest.approx(0.0), "large": pytest.approx(0.0)}


def test_closure_that_calls_backward_is_refused_and_nothing_is_lost() -> None:
    model = Adder()
    a = torch.randn(3, 6)
    model(a, a).sum().backward()
    before = [p.grad for p in model.parameters()]

    def closure() -> Tensor:
        loss: Tensor = model(a, a).sum()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match="called backward"):
        dc.probe(model, closure)
    assert all(p.grad is g for p, g in zip(model.parameters(), before, strict=True))


def test_probe_inside_inference_mode() -> None:
    model = Adder()
    a = torch.randn(3, 6)
    with torch.inference_mode():
        report = dc.probe(model, lambda: model(a, a).square().sum())
    assert all(row.gradient for row in report.readings)


def test_probe_restores_after_an_error() -> None:
    model = Adder().eval()
    with pytest.raises(ZeroDivisionError):
        dc.probe(model, lambda: torch.ones(()) * (1 / 0))
    assert not model.training


def test_probe_shows_masked_categories_as_dead() -> None:
    node = dc.Categorical()
    theta = torch.randn(50, 4, requires_grad=True)
    mask = torch.tensor([True, True, False, False])
    report = dc.probe(node, lambda: node(theta, mask=mask).square().sum())
    assert report.readings[0].used == 2


def test_probe_refuses_what_it_cannot_probe() -> None:
    model = Adder()
    a = torch.randn(3, 6)
    with pytest.raises(ValueError, match="no discrete nodes"):
        dc.probe(nn.Linear(2, 2), lambda: torch.zeros(()))
    with pytest.raises(ValueError, match="called no node"):
        dc.probe(model, lambda: torch.zeros(()))
    with pytest.raises(ValueError, match=r"shape \(3, 5\).*scalar"):
        dc.probe(model, lambda: model(a, a))


def test_the_gap_is_the_distance_from_the_hard_choice_not_from_the_nearest_row() -> None:
    """Noise leads the relaxed rows elsewhere: then they are far from what the hard run chooses."""
    theta = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], requires_grad=True)
    noise = torch.tensor([[0.0, 9.0, 0.0], [0.0, 0.0, 0.0]])  # only the first row changes its mind
    node = dc.Categorical()
    report = dc.probe(node, lambda: node(theta, noise=noise).square().sum())
    z = dc.gumbel_softmax(theta.detach(), noise=noise)
    hard = dc.one_hot(dc.argmax(theta.detach()), 3)
    assert report.readings[0].gap == pytest.approx(float((z - hard).abs().sum(-1).mean() / 2))
    assert z.argmax(-1).tolist() == [1, 1] and hard.argmax(-1).tolist() == [0, 1]
