"""Chains with a known gradient: the truth, and what is measured against it."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from dcgraph import estimators as registries
from dcgraph._checks import Dial
from dcgraph.experiments.compare import chains
from dcgraph.experiments.compare.chains import (
    Chain,
    all_estimators,
    estimates,
    exact_gradient,
    random_weights,
    run_chains,
    summary,
    why_not,
)
from dcgraph.experiments.compare.chains_record import (
    KEY,
    METRICS,
    ChainSettings,
    best_of_grid,
    chains_csv,
    chains_table,
    current_rows,
    key_of,
    read_chains,
    settings_of,
)
from dcgraph.experiments.engine.errors import RecordError
from dcgraph.functional import gumbel_softmax
from dcgraph.noise import Noise

SMALL = ChainSettings(
    categories=(2, 3), depths=(1, 2), dials=((1.0, 1.0), (2.0, 2.0)), chains=2, samples=50
)
NAMES = ["gumbel_softmax", "straight_through", "rotation"]


def enumerated(weights: chains.Weights, beta: float) -> Float[Tensor, " categories"]:
    """The gradient as a sum over all paths."""
    theta = weights.theta.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for path in itertools.product(range(len(theta)), repeat=weights.depth):
        log_p = (theta / beta).log_softmax(-1)[path[0]]
        for t, (here, following) in enumerate(itertools.pairwise(path)):
            logits = weights.maps[t] @ weights.codebooks[t][here] / beta
            log_p = log_p + logits.log_softmax(-1)[following]
        total = total + log_p.exp() * weights.f(weights.codebooks[-1][path[-1]])
    (gradient,) = torch.autograd.grad(total, theta)
    return gradient


@pytest.mark.parametrize("steps", ["permute", "keep"])
@pytest.mark.parametrize("loss", ["cross_entropy", "linear", "quadratic"])
@pytest.mark.parametrize(("categories", "depth"), [(2, 1), (2, 5), (3, 3), (20, 2)])
def test_the_exact_gradient_is_that_of_all_paths(
    categories: int, depth: int, loss: Any, steps: Any
) -> None:
    weights = random_weights(categories, depth, loss=loss, steps=steps, seed=1)
    for beta in (1.0, 2.0):
        torch.testing.assert_close(
            exact_gradient(weights, beta), enumerated(weights, beta), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("categories", [2, 10, 100])
@pytest.mark.parametrize("steps", ["permute", "keep"])
def test_the_gradient_at_the_start_outlasts_many_steps(categories: int, steps: Any) -> None:
    def norm(depth: int) -> float:
        found = [
            exact_gradient(random_weights(categories, depth, steps=steps, seed=s)).norm()
            for s in range(8)
        ]
        return torch.stack(found).mean().item()

    assert 0.02 < norm(16) / norm(1) < 0.6
    weights = random_weights(categories, 4, steps=steps, certainty=0.8, seed=0)
    for codebook, step in zip(weights.codebooks, weights.maps, strict=False):
        likeliest = (codebook[:64] @ step.T).softmax(-1).amax(-1).mean().item()
        assert likeliest == pytest.approx(0.8, abs=1e-6)
    last = weights.f(weights.codebooks[-1])
    assert abs(last.mean().item()) < 1e-9 and last.std(correction=0).item() == pytest.approx(1)


def test_at_test_the_nodes_walk_the_chain() -> None:
    """Sampled in eval mode, the loss has the mean that the recursion says."""
    weights = random_weights(3, 3, seed=2)
    model = Chain(weights, "gumbel_softmax").eval()
    for node in model.nodes:
        node.categorical.decode = "sample"  # type: ignore[union-attr]
    torch.manual_seed(0)
    losses = model(weights.theta.float().expand(20_000, -1)).double()
    p = weights.theta.softmax(-1)
    for codebook, step in zip(weights.codebooks, weights.maps, strict=False):
        p = p @ (codebook @ step.T).softmax(-1)
    expected = p @ weights.f(weights.codebooks[-1])
    assert (losses.mean() - expected).abs() < 4 * losses.std() / len(losses) ** 0.5


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_straight_through_is_unbiased_for_linear_functions_of_one_choice(beta: float) -> None:
    """And only there: for another function, or another step, it is not."""

    def bias(loss: Any, depth: int) -> tuple[float, float]:
        weights = random_weights(4, depth, loss=loss, seed=3)
        found, _ = estimates(weights, "straight_through", tau=beta, beta=beta, samples=20_000)
        measured = summary([found], [exact_gradient(weights, beta)])
        return measured["bias"], measured["bias_error"]

    linear, error = bias("linear", 1)
    assert linear < 1e-5 and error < 1e-5, "not even the draw matters"
    for loss, depth in (("quadratic", 1), ("cross_entropy", 1), ("linear", 3)):
        found, error = bias(loss, depth)
        assert found > 0.1 and found > 4 * error


def score_function(
    logits: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
) -> Tensor:
    """A hard draw whose gradient (D - p) <D - p, g> is unbiased for linear f, and not constant."""
    hard = gumbel_softmax(logits, tau, beta=beta, hard=True).detach()
    away = hard - logits.softmax(-1).detach()
    return hard + away * (away * (logits - logits.detach())).sum(-1, keepdim=True)


def wrong(
    logits: Tensor,
    *,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Half as much again."""
    z = score_function(logits, tau=tau, beta=beta, mask=mask, noise=noise, generator=generator)
    return z.detach() + 1.5 * (z - z.detach())


def test_a_wrong_estimator_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registries.ESTIMATORS, "wrong", wrong)
    monkeypatch.setitem(registries.ESTIMATORS, "right", score_function)
    every = [random_weights(4, 1, loss="linear", seed=k) for k in range(4)]
    exact = [exact_gradient(weights) for weights in every]

    def measured(name: str) -> dict[str, float]:
        return summary([estimates(w, name, samples=20_000, seed=1)[0] for w in every], exact)

    right, off = measured("right"), measured("wrong")
    assert right["std"] > 0.5 and right["bias"] < 3 * right["bias_error"] < 0.1
    assert off["bias"] == pytest.approx(0.5, abs=5 * off["bias_error"])
    assert off["std"] == pytest.approx(1.5 * right["std"])
    assert off["cosine_50"] == pytest.approx(right["cosine_50"])


def test_what_is_said_of_estimates() -> None:
    g = torch.tensor([3.0, 4.0], dtype=torch.float64)
    found = torch.tensor([[6.0, 8.0], [0.0, 0.0]]).repeat(50, 1)
    one = summary([found, found], [g, 2 * g])
    # The mean is g: no error on the first chain, g of 2 g on the second; |g| = 5, |2 g| = 10.
    assert one["std"] ** 2 == pytest.approx(2 * 25 * 100 / 99 / 125)
    assert one["bias_error"] ** 2 == pytest.approx(one["std"] ** 2 / 100)
    assert one["bias"] ** 2 == pytest.approx(25 / 125 - one["bias_error"] ** 2)
    assert one["mse"] == pytest.approx(one["bias"] ** 2 + one["std"] ** 2)
    assert (one["zeros"], one["not_finite"]) == (0.5, 0.0)
    cosines = [one[name] for name in ("cosine", "cosine_50", "cosine_50_std")]
    assert cosines == pytest.approx([0.5, 1.0, 0.0])
    found[0, 0] = torch.nan
    broken = summary([found], [g])
    assert broken["not_finite"] == 0.01 and broken["bias"] != broken["bias"]


def test_residuals_change_what_is_estimated_and_only_then() -> None:
    weights = random_weights(3, 2, seed=0)
    off, dropped, kept = (
        estimates(weights, "straight_through", alpha=alpha, samples=100, seed=4)[0]
        for alpha in (1.0, 1.0, 0.5)
    )
    assert torch.equal(off, dropped) and not torch.equal(off, kept)


def test_a_run_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "compare" / "chains.json"
    lines: list[str] = []
    first = run_chains(out, estimators=NAMES[:1], settings=SMALL, progress=lines.append)
    assert len(lines) == 4 and "3 categories, depth 2" in lines[-1]
    assert read_chains(out) == json.loads(json.dumps(first)), "what is returned is what is stored"
    # At each size 2 dials and the other kind of steps; at depth 2 with and without DropRes.
    assert len(first["rows"]) == 2 * (3 + 6)
    calls: list[str] = []
    real = chains._Run._estimates

    def counted(run: Any, row: Any, every: Any) -> Any:
        calls.append(row["estimator"])
        return real(run, row, every)

    monkeypatch.setattr(chains._Run, "_estimates", counted)
    again = run_chains(out, estimators=NAMES[:1], settings=SMALL)
    assert not calls and again["rows"] == read_chains(out)["rows"]
    monkeypatch.setattr(chains, "_EVERY", 0.0)

    def cut_off(run: Any, row: Any, every: Any) -> Any:
        if len(calls) == 12:
            raise KeyboardInterrupt
        return counted(run, row, every)

    monkeypatch.setattr(chains._Run, "_estimates", cut_off)
    with pytest.raises(KeyboardInterrupt):
        run_chains(out, estimators=NAMES, settings=SMALL)
    partly = len(read_chains(out)["rows"])
    assert 18 < partly < 36
    monkeypatch.setattr(chains._Run, "_estimates", counted)
    record = run_chains(out, estimators=NAMES, settings=SMALL)
    assert len({key_of(row) for row in record["rows"]}) == len(record["rows"]) == 36
    assert [run["rows"] for run in record["runs"]] == [18, partly - 18, 36 - partly]
    assert {one["estimator"] for one in record["skipped"]} == {"rotation"}

    alone = run_chains(tmp_path / "b.json", estimators=NAMES[1:], settings=SMALL)
    measured = [name for name in METRICS if "seconds" not in name]
    for row in alone["rows"]:
        same = next(one for one in record["rows"] if key_of(one) == key_of(row))
        assert [row[name] for name in measured] == pytest.approx(
            [same[name] for name in measured], rel=1e-4
        ), "its numbers do not depend on what ran before"


def test_changed_settings_make_other_rows(tmp_path: Path) -> None:
    out = tmp_path / "chains.json"
    small = dataclasses.replace(SMALL, categories=(2,), depths=(1,))
    run_chains(out, estimators=NAMES[:1], settings=small)
    changed = dataclasses.replace(small, certainty=0.8)
    record = run_chains(out, estimators=NAMES[:1], settings=changed)
    assert len(record["rows"]) == 6 and settings_of(record) == changed
    assert {row["certainty"] for row in current_rows(record)} == {0.8}
    back = run_chains(out, estimators=NAMES[:1], settings=small)
    assert len(back["rows"]) == 6 and {row["certainty"] for row in current_rows(back)} == {0.9}


def test_the_table_and_the_csv_have_what_was_measured(tmp_path: Path) -> None:
    record = run_chains(tmp_path / "chains.json", estimators=NAMES, settings=SMALL)
    table = chains_table(record, categories=3)
    rows = [line for line in table.splitlines() if line.startswith("| straight_through ")]
    assert len(rows) == 2 and all(len(row.split("|")) - 2 <= 7 for row in rows)
    of = {"categories": 3, "depth": 2, "alpha": 1.0, "estimator": "straight_through"}
    own = [row for row in record["rows"] if of.items() <= row.items() and row["steps"] == "permute"]
    plain, best = next(row for row in own if row["tau"] == 1), best_of_grid(own)
    assert best is not None and best["mse"] == min(row["mse"] for row in own)
    assert f" {plain['std']:.2f} " in rows[1]
    assert f" {best['mse']:.2f} ({best['tau']:g}, {best['beta']:g}) " in rows[1]
    largest = best_of_grid(own, by="cosine_50")
    assert largest is not None and largest["cosine_50"] == max(row["cosine_50"] for row in own)
    assert "- `rotation`: it needs a codebook" in table
    exact = [
        exact_gradient(random_weights(3, 2, seed=chains._seed(0, 3, 2, k))).square().sum()
        for k in range(SMALL.chains)
    ]
    assert f"{torch.stack(exact).mean().sqrt().item():.2g} at 2." in table
    read = list(csv.DictReader(io.StringIO(chains_csv(record))))
    assert len(read) == len(record["rows"]) and list(read[0]) == [*KEY, *METRICS]
    assert float(read[-1]["mse"]) == record["rows"][-1]["mse"]
    with pytest.raises(ValueError, match=r"categories=7 was not measured; here are: 2, 3\."):
        chains_table(record, categories=7)


def test_what_cannot_be_measured_says_why(tmp_path: Path) -> None:
    assert set(registries.ESTIMATORS) <= set(all_estimators())
    assert why_not("rotation", 2, 1) == chains._NEVER["rotation"]
    assert why_not("enumeration", 2, 8) is None
    assert why_not("enumeration", 10, 4) == "it goes through 10^4 paths"
    assert why_not("gumbel_softmax", 1000, 16) is None
    with pytest.raises(ValueError, match="estimators='no_such' is unknown; "):
        run_chains(tmp_path / "chains.json", estimators=["no_such"])
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"schema": 1, "columns": [], "rows": [], "settings": {}}')
    with pytest.raises(RecordError, match=r"is a damaged record .*; delete it, and it is made"):
        run_chains(damaged)
    damaged.write_text('{"schema": 2}')
    with pytest.raises(RecordError, match="is no record of chains of schema 1"):
        read_chains(damaged)


def test_samples_are_fewer_for_larger_chains() -> None:
    settings = ChainSettings()
    assert settings.samples_of(2, 1) == 1000
    assert settings.samples_of(100, 16) == 100
    assert settings.samples_of(1000, 16) == 50
