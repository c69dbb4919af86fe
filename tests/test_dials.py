"""Dials, and that a run can be cut and resumed."""

from __future__ import annotations

import copy
import math
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from dcgraph._observe import apart, logit_spreads
from models import Adder


def dial_values(model: nn.Module) -> list[tuple[float, float, float]]:
    return [
        (node.tau.item(), node.beta.item(), node.alpha.item())
        for _, node in dc.named_nodes(model)
        if isinstance(node, dc.Discrete) and node.alpha is not None
    ]


def make_dials(every: int = 3) -> dc.Dials:
    return dc.Dials(tau=8.0, beta=dc.temp_match(8.0, 0.5), alpha=dc.linear(0, 1, 4), every=every)


def test_a_schedule_step_is_so_many_training_steps() -> None:
    model, dials = Adder(), make_dials(every=3)
    dials.attach(model)
    for call in range(1, 20):
        dials.step()
        t = call // 3
        assert dials.schedule_steps == t
        ((tau, beta, alpha),) = dial_values(model)
        assert (tau, alpha) == (8.0, min(1.0, 0.25 * t))
        assert beta == pytest.approx(8 * (1 - math.exp(-0.5 * t)))


def test_values_at_a_step_are_those_found_there() -> None:
    dials, ahead = make_dials(every=3).attach(Adder()), make_dials(every=3)
    for step in range(20):
        assert ahead.at(step) == dials.values()
        dials.step()
    assert ahead.schedule_steps == 0 and ahead.values() == ahead.at(0), "asking changes nothing"
    with pytest.raises(ValueError, match="step=-1"):
        dials.at(-1)


def test_nodes_see_the_current_dials_however_they_are_moved() -> None:
    dials = make_dials(every=1)
    attached_then_moved = Adder()
    dials.attach(attached_then_moved)
    attached_then_moved.to(torch.float64)
    moved_then_attached = Adder().to(torch.float64)
    dials.attach(moved_then_attached)
    dials.step()
    copied = copy.deepcopy(attached_then_moved)
    now: Any = [(8.0, pytest.approx(8 * (1 - math.exp(-0.5))), 0.25)]
    assert dial_values(copied) == now, "a copy has the values of the moment"
    assert dial_values(attached_then_moved) == dial_values(moved_then_attached) == now
    dials.attach(copied)
    dials.step()
    assert dial_values(copied) == dial_values(attached_then_moved) != now

    pair_model, pair_dials = copy.deepcopy((attached_then_moved, dials))
    pair_dials.step()
    assert dial_values(pair_model)[0][2] == 0.75, "model and dials copied together stay together"
    assert dial_values(attached_then_moved)[0][2] == 0.5, "and leave the originals alone"


def test_nodes_added_after_attaching_are_seen_at_the_next_schedule_step() -> None:
    model = nn.Sequential(dc.Discrete(4, 3))
    dials = make_dials(every=1).attach(model)
    model.append(dc.Discrete(4, 3))
    dials.step()
    first, second = dial_values(model)
    assert first == second


def test_attaching_twice_is_attaching_once() -> None:
    model = Adder()
    dials = make_dials().attach(model).attach(model)
    assert "1 model" in repr(dials) and "models" not in repr(dials)


def test_dials_and_schedules_can_be_pickled_and_compared() -> None:
    schedules = {
        "constant(2.0)": dc.constant(2.0),
        "linear(0, 1, 5)": dc.linear(0, 1, 5),
        "exponential(8, 1, 5)": dc.exponential(8, 1, 5),
        "temp_match(8.0, 0.1)": dc.temp_match(8.0, 0.1),
        "piecewise([(0, 1), (3, 2)])": dc.piecewise([(0, 1), (3, 2)]),
    }
    for text, schedule in schedules.items():
        again = pickle.loads(pickle.dumps(schedule))
        assert repr(again) == text and again == schedule
        assert [again(t) for t in range(8)] == [schedule(t) for t in range(8)]
    assert dc.linear(0, 1, 5) != dc.linear(0, 1, 6) != dc.exponential(1, 2, 6)
    model, dials = pickle.loads(pickle.dumps((model := Adder(), make_dials(1).attach(model))))
    dials.step()
    assert dial_values(model)[0][2] == 0.25, "they stay together"
    only = pickle.loads(pickle.dumps(dials))
    only.step()
    assert "1 model" in repr(only), "as an optimizer takes its parameters along"
    assert dial_values(model)[0][2] == 0.25, "which are copies then"
    assert only.attach(model).schedule_steps == 2 and dial_values(model)[0][2] == 0.5


def deep(scale: float) -> nn.Sequential:
    """Two nodes whose logits spread by about ``scale``."""
    torch.manual_seed(0)
    model = nn.Sequential(dc.Discrete(64, 50), dc.Discrete(64, 50))
    for node in model:
        assert isinstance(node, dc.Discrete)
        node.codebook.data.mul_(scale / 8)  # logits of a unit input: 8 x init_std
    return model


@pytest.mark.parametrize(("scale", "tau"), [(0.01, 2.0), (1.5, 2.0), (3.0, 4.0), (7.0, 8.0)])
def test_recommended_tau_is_the_spread_of_the_logits_to_the_next_power_of_2(
    scale: float, tau: float, capsys: pytest.CaptureFixture[str]
) -> None:
    model, u = deep(scale)[:1], torch.randn(200, 64)
    before = torch.get_rng_state()
    dials = dc.Dials.recommended(model, lambda: model(u), steps=1000)
    assert torch.equal(before, torch.get_rng_state()) and model.training
    assert dials.values() == {"tau": tau, "beta": 0.0, "alpha": 0.0} and dials.every == 2
    assert dials.at(250)["alpha"] == 1.0 and dials.at(248)["alpha"] < 1.0
    assert dials.at(348)["beta"] == pytest.approx(tau / 2, rel=0.01)
    assert dials.at(1000)["beta"] == pytest.approx(tau * (1 - math.exp(-2)), rel=0.01)
    said = capsys.readouterr().out
    assert said.startswith(f"tau = {tau:g}: the logits of the node spread by")
    assert said.count("\n") == 4 and all(
        f"{name} = " in said for name in ("beta", "alpha", "every")
    )
    theta = node_logits(model, u)
    spread = theta.std(-1, correction=0).square().mean().sqrt()
    assert f"spread by {spread:.2g} at the start" in said


def node_logits(model: nn.Module, u: Tensor) -> Tensor:
    ((_, node),) = dc.named_nodes(model)
    assert isinstance(node, dc.Discrete)
    return node.logits(u)


def test_recommended_settings_can_be_overridden(capsys: pytest.CaptureFixture[str]) -> None:
    model, u = deep(3.0), torch.randn(200, 64)
    dials = dc.Dials.recommended(
        model, lambda: model(u), steps=900, tau=2.0, alpha=dc.linear(0, 1, 4), every=9
    )
    assert dials.values()["tau"] == 2.0 and dials.every == 9
    assert dials.at(36)["alpha"] == 1.0
    assert dials.at(900)["beta"] == pytest.approx(2 * (1 - math.exp(-2)), rel=0.01)
    assert "tau =" not in capsys.readouterr().out
    dc.Dials.recommended(model, lambda: model(u), verbose=False)
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match=r"tau is a schedule, .* give beta"):
        dc.Dials.recommended(model, lambda: model(u), tau=dc.exponential(8, 1, 10))
    with pytest.raises(ValueError, match="the closure called no node"):
        dc.Dials.recommended(model, lambda: None)
    with pytest.raises(ValueError, match="steps=0"):
        dc.Dials.recommended(model, lambda: model(u), steps=0)
    dials = dc.Dials.recommended(model, steps=900, tau=2.0, verbose=False)
    assert dials.values()["tau"] == 2.0, "without a look at the logits"
    with pytest.raises(ValueError, match="tau is chosen from the logits; pass a closure"):
        dc.Dials.recommended(model, steps=900)


def test_recommended_settings_of_a_population(capsys: pytest.CaptureFixture[str]) -> None:
    """One tau, from all calls of all replicas, of which each has its own batch or the same."""
    torch.manual_seed(0)
    scales = [1.0, 3.0, 20.0]
    population = dc.Population(lambda: deep(1.0)[:1], range(3))
    with torch.no_grad():
        for name, parameter in population.stacked.named_parameters():
            if name.endswith("codebook"):
                parameter.mul_(torch.tensor(scales).view(3, 1, 1))
    u = torch.randn(3, 50, 64)
    spreads = []
    for index in range(3):
        one = population.replica(index)
        spreads += logit_spreads(one, partial(one, u[index]))
    before = torch.get_rng_state(), [p.clone() for p in population.parameters()]
    dials = dc.Dials.recommended(population, lambda: population(u, in_dims=0), steps=1000)
    said = capsys.readouterr().out
    range_ = f"{min(spreads):.2g} to {max(spreads):.2g}"
    assert f"{len(spreads)} calls of nodes spread by {range_}" in said
    assert "give parts of the model, or replicas, dials of their own" in said
    typical = sorted(spreads)[len(spreads) // 2]
    assert dials.values()["tau"] == 2.0 ** math.ceil(math.log2(typical)) > 2
    assert torch.equal(before[0], torch.get_rng_state())
    assert all(map(torch.equal, before[1], population.parameters()))
    assert population.training and population(u[0]).shape == (3, 50, 64)


def test_recommended_noise_follows_the_tau_of_every_replica() -> None:
    population = dc.Population(lambda: dc.Discrete(4, 3), range(2))
    dials = dc.Dials.recommended(population, steps=500, tau=[2.0, 8.0], verbose=False)
    end = 1 - math.exp(-2)
    assert dials.at(500)["beta"] == pytest.approx([2 * end, 8 * end], rel=1e-3)
    assert population.stacked.get_buffer("categorical.tau").tolist() == [2.0, 8.0]
    with pytest.raises(ValueError, match="tau is a schedule"):
        dc.Dials.recommended(population, steps=9, tau=[2.0, dc.constant(8.0)])


def test_calls_with_nothing_but_padding_do_not_count_in_the_spread() -> None:
    """As the last steps of a loop over sequences that are all shorter."""
    node = dc.Categorical()
    theta, none = torch.tensor([[0.0, 8.0]]), torch.tensor([False])

    def calls() -> None:
        for rows in (none, none, ~none, none):
            node(theta, rows=rows)

    dials = dc.Dials.recommended(node, calls, steps=100, verbose=False)
    assert dials.values()["tau"] == 4.0
    with pytest.raises(ValueError, match="on padding only"):
        dc.Dials.recommended(node, lambda: node(theta, rows=none), steps=100)


def test_replicas_one_after_the_other_do_what_they_do_together() -> None:
    population = dc.Population(lambda: deep(1.0), range(3)).eval()
    u = torch.randn(3, 5, 64)
    together = population.map(lambda model, u: {"v": model(u), "u": u}, u, in_dims=0)
    with apart():
        separate = population.map(lambda model, u: {"v": model(u), "u": u}, u, in_dims=0)
        shared = population(u[0])
    torch.testing.assert_close(separate, together)
    torch.testing.assert_close(shared, population(u[0]))


def test_recommended_settings_of_a_node_with_a_network_of_its_own() -> None:
    torch.manual_seed(0)
    g = nn.Linear(8, 5)
    node, u = dc.Discrete(8, 5, g=g), torch.randn(100, 8)
    with torch.no_grad():
        g.weight.mul_(20)
    dials = dc.Dials.recommended(node, lambda: node(u), steps=100, verbose=False)
    spread = g(u).std(-1, correction=0).square().mean().sqrt().item()
    assert dials.values()["tau"] == 2.0 ** math.ceil(math.log2(spread)) > 4


def test_recommended_settings_without_any_choice(capsys: pytest.CaptureFixture[str]) -> None:
    around = dc.DropRes()
    dials = dc.Dials.recommended(around, steps=100)
    assert dials.at(25) == {"tau": 1.0, "beta": 1.0, "alpha": 1.0}
    assert dials.at(0)["alpha"] == 0.0
    assert "tau and beta do not matter" in capsys.readouterr().out
    with pytest.raises(ValueError, match="has no discrete nodes"):
        dc.Dials.recommended(nn.Linear(2, 2), lambda: None, tau=1.0)


def test_masked_logits_and_padding_do_not_count_in_the_spread() -> None:
    node = dc.Categorical()
    theta = torch.tensor([[0.0, 4.0, 1e9], [2.0, 6.0, -torch.inf], [1e5, 0.0, -1e5]])
    mask, rows = torch.tensor([True, True, False]), torch.tensor([True, True, False])
    dials = dc.Dials.recommended(
        node, lambda: node(theta, mask=mask, rows=rows), steps=100, verbose=False
    )
    assert dials.values()["tau"] == 2.0, "the standard deviation of 0 and 4"


def test_the_spread_at_a_large_codebook_is_that_of_its_logits() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(8, 5000)
    assert node.is_large
    u = torch.randn(30, 8)
    (found,) = logit_spreads(node, lambda: node(u))
    theta = node.logits(u)
    expected = theta.std(-1, correction=0).square().mean().sqrt().item()
    assert found == pytest.approx(expected, rel=1e-4)


def test_foreign_state_is_refused() -> None:
    dials = make_dials()
    with pytest.raises(ValueError, match="not a state of Dials"):
        dials.load_state_dict({"step": 3})
    with pytest.raises(ValueError, match="every=7"):
        dials.load_state_dict({"calls": 3, "every": 7})


class Run:
    """A small training run that can be saved and loaded."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Adder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.dials = make_dials(every=7).attach(self.model)
        data = torch.Generator().manual_seed(1)
        self.a, self.b = (torch.randn(200, 16, 6, generator=data) for _ in range(2))
        self.target = torch.randint(5, (200, 16), generator=data)

    def train(self, steps: range) -> None:
        for i in steps:
            F.cross_entropy(self.model(self.a[i], self.b[i]), self.target[i]).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.dials.step()

    def save(self, path: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "dials": self.dials.state_dict(),
            "rng": torch.get_rng_state(),
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.dials.load_state_dict(state["dials"])
        torch.set_rng_state(state["rng"])


def test_resumed_run_equals_the_whole_run_bit_for_bit(tmp_path: Path) -> None:
    def weights(run: Run) -> dict[str, Tensor]:
        return dict(run.model.state_dict())

    whole = Run()
    whole.train(range(200))
    first = Run()
    first.train(range(100))
    first.save(tmp_path / "run.pt")
    torch.manual_seed(99)
    second = Run()
    second.load(tmp_path / "run.pt")
    second.train(range(100, 200))
    for name, weight in weights(whole).items():
        assert torch.equal(weight, weights(second)[name])
    assert not torch.equal(weights(first)["encode.weight"], weights(second)["encode.weight"])


def test_states_and_values_that_are_none_are_said() -> None:
    dials = dc.Dials(every=3)
    for state in ({}, {"calls": 1}, {"calls": 1.0, "every": 3}, {"calls": True, "every": 3}):
        with pytest.raises(ValueError, match="this is not a state of Dials: it has the keys"):
            dials.load_state_dict(state)
    with pytest.raises(ValueError, match="saved with every=2, but these dials have every=3"):
        dials.load_state_dict({"calls": 1, "every": 2})
    with pytest.raises(ValueError, match="step=-1, but training steps are counted from 0"):
        dials.seek(-1)
    assert dials.at(0) == {"tau": 1.0, "beta": 1.0, "alpha": 1.0}
    for every in (0, -1, True, 1.0):
        with pytest.raises((ValueError, TypeError), match="every"):
            dc.Dials(every=every)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tau is an empty list; give one value for each replica"):
        dc.Dials(tau=[])


def test_dials_of_many_replicas_print_the_ends() -> None:
    values = [float(k) for k in range(1, 8)]
    assert "tau=[1, 2, 3, ..., 7]" in repr(dc.Dials(tau=values))
    assert "tau=[1, 2, 3, 4, 5, 6]," in repr(dc.Dials(tau=values[:6]))
    assert repr(dc.Dials()).endswith("every=1)  # 0 schedule steps, 0 models")
    one = dc.Dials(every=1).attach(dc.Discrete(2, 2))
    one.step()
    assert repr(one).endswith("# 1 schedule step, 1 model")


def test_a_run_of_one_step_has_recommended_settings(capsys: pytest.CaptureFixture[str]) -> None:
    node = dc.Discrete(4, 3)
    dials = dc.Dials.recommended(node, lambda: node(torch.randn(5, 4)), steps=1)
    assert dials.every == 1 and dials.at(1)["alpha"] == 1.0 and dials.at(0)["alpha"] == 0.0
    assert "alpha = linear(0, 1, 1): no residual is left from step 1 on." in capsys.readouterr().out
    for steps in (0, -1, True, 1.0):
        with pytest.raises((TypeError, ValueError), match="steps"):
            dc.Dials.recommended(node, lambda: None, steps)  # type: ignore[arg-type]


def test_calls_of_nodes_that_are_not_the_model_s_do_not_count() -> None:
    model, other = dc.Discrete(4, 3), dc.Discrete(4, 3)
    u = torch.randn(5, 4)
    assert logit_spreads(model, lambda: (model(u), other(9 * u))) == logit_spreads(
        model, lambda: model(u)
    )


def test_without_arguments_dials_are_plain_gumbel_softmax_at_every_step() -> None:
    ones = {"tau": 1.0, "beta": 1.0, "alpha": 1.0}
    assert dc.Dials().values() == dc.Dials.constant(dc.Discrete(4, 3)).values() == ones
    assert dc.Dials().every == 1
