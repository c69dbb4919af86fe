"""What the docs say of the gradient estimators, by the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments.compare.chains_record import read_chains, select
from dcgraph.experiments.engine.comparison import BETAS, METHODS, PLANE_TAUS
from dcgraph.experiments.engine.tables import as_json
from dcgraph.experiments.tasks import get_table

RESULTS = Path(__file__).parents[2] / "results"
OURS = "gumbel_softmax"
Cells = dict[tuple[str, str], float]


def measured(task: str) -> Cells:
    """The test of every estimator with every method, in per cent."""
    found = as_json(get_table(f"estimators-{task}"), RESULTS)
    return {
        (cell["row"], method): cell["mean"]
        for cell in found
        for method in METHODS
        if cell["column"] == f"{method}, test" and cell["mean"] is not None
    }


@pytest.fixture(scope="module")
def digits() -> Cells:
    return measured("addition")


@pytest.fixture(scope="module")
def listops() -> Cells:
    return measured("listops")


@pytest.fixture(scope="module")
def graph() -> Cells:
    return measured("paths")


def of_others(cells: Cells, *names: str) -> float:
    """The best of all estimators except these, with any method."""
    return max(value for (name, _), value in cells.items() if name not in (OURS, *names))


def test_the_papers_method_is_the_best_on_long_chains(digits: Cells, listops: Cells) -> None:
    assert digits[OURS, "both"] == pytest.approx(79, abs=0.5) and of_others(digits) < 46
    assert listops[OURS, "both"] == pytest.approx(67, abs=0.5) and of_others(listops) < 63.5
    assert digits[OURS, "neither"] == pytest.approx(58, abs=0.5)
    for cells in (digits, listops):
        assert cells[OURS, "both"] == max(cells.values())


def test_both_methods_against_neither_on_listops(listops: Cells) -> None:
    names = {name for name, _ in listops}
    gains = {name: listops[name, "both"] - listops[name, "neither"] for name in names}
    assert len(gains) == 15
    assert {name for name, gain in gains.items() if gain < 0} == {"reinforce"}
    assert sum(gain >= 10 for gain in gains.values()) == 9
    worst = min(max(listops[name, m] for m in METHODS) for name in names - {"imle"})
    assert max(listops["imle", m] for m in METHODS) < 32 < 40 < worst


def test_score_functions(digits: Cells, graph: Cells) -> None:
    assert graph["reinforce", "neither"] == pytest.approx(72, abs=0.5)
    assert of_others(graph, "reinforce") <= graph[OURS, "TempMatch"]
    assert graph[OURS, "TempMatch"] == pytest.approx(69, abs=0.5)
    assert graph["reinforce", "both"] < graph["reinforce", "TempMatch"] < 61
    for name in ("reinforce", "rebar", "relax", "imle", "rotation"):
        assert max(digits[name, method] for method in METHODS) < 13, name
    assert max(digits["zgr", method] for method in METHODS) < 16


def test_estimators_are_level_on_the_graph(graph: Cells) -> None:
    level = [
        *(OURS, "straight_through", "straight_through_gumbel_softmax", "gumbel_rao"),
        *("gapped_straight_through", "zgr", "reinmax", "reinmax_rao", "reinmax_cv"),
        *("sparsemax", "entmax15"),
    ]
    values = [graph[name, "neither"] for name in level]
    assert max(values) - min(values) < 1.3
    for name in level:
        assert 0.8 < graph[name, "neither"] - graph[name, "DropRes"] < 2.2
    for name in ("rebar", "relax", "adaptive_imle"):
        assert graph[name, "neither"] < 60


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    rows = read_chains(RESULTS / "compare" / "chains.json")["rows"]
    return select(rows, tau=1.0, beta=1.0)


def test_gradients_along_chains(rows: list[dict[str, Any]]) -> None:
    def of(name: str, categories: int, depth: int, of: str = "cosine_50", **more: Any) -> float:
        what = {"steps": "permute", "alpha": 1.0, **more}
        (row,) = select(rows, estimator=name, categories=categories, depth=depth, **what)
        return float(row[of])

    through = (
        *("gumbel_softmax", "straight_through", "straight_through_gumbel_softmax"),
        *("gumbel_rao", "gapped_straight_through"),
    )
    for categories in (10, 100):
        assert all(0.8 < of(name, categories, 1) < 0.955 for name in through)
    assert max(of(name, 100, 4) for name in through) == pytest.approx(0.33, abs=0.005)
    assert max(of(name, 100, 16) for name in through) == pytest.approx(0.15, abs=0.005)
    assert all(of(name, 100, 4, "bias") > 0.9 for name in through)
    assert of("straight_through", 10, 4) == pytest.approx(0.7, abs=0.05)
    assert of("reinmax", 10, 4) == pytest.approx(0.3, abs=0.05)
    of_variances = of("reinmax", 10, 4, "std") / of("straight_through", 10, 4, "std")
    assert 40 < of_variances**2 < 60
    assert of("reinforce", 10, 4) == pytest.approx(0.97, abs=0.005)
    assert of("reinforce", 100, 4) == pytest.approx(0.82, abs=0.005)
    deviations = [of("reinforce", k, t, "std") for k in (10, 100) for t in (1, 2, 4, 8, 16)]
    assert min(deviations) > 1 and max(deviations) < 20
    for depth in (4, 8):
        for categories in (10, 100):
            one, other = of("rebar", categories, depth), of("reinforce", categories, depth)
            assert one < other
    assert of("reinmax_rao", 100, 4) > 5 * of("reinmax", 100, 4)
    keep = {"steps": "keep"}
    assert of("straight_through", 100, 4, **keep) == pytest.approx(0.62, abs=0.005)
    assert of("straight_through", 100, 4, **keep, alpha=0.5) == pytest.approx(0.86, abs=0.005)
    assert of("straight_through", 10, 4, alpha=0.5) < 0.2


def plane(task: str, part: str) -> dict[tuple[float, float | None], float]:
    found = {
        (cell["row"], cell["column"]): cell["mean"]
        for cell in as_json(get_table(f"plane-{task}"), RESULTS)
    }
    return {
        (tau, beta): found[
            f"tau {tau:g}", ("TempMatch" if beta is None else f"beta {beta:g}") + f", {part}"
        ]
        for tau in PLANE_TAUS
        for beta in BETAS
    }


def test_the_plane() -> None:
    def best_beta(cells: dict[tuple[float, float | None], float], tau: float) -> float:
        return max((b for b in BETAS if b is not None), key=lambda b: cells[tau, b])

    def constant(cells: dict[tuple[float, float | None], float]) -> float:
        return max(value for (_, beta), value in cells.items() if beta is not None)

    def matched(cells: dict[tuple[float, float | None], float]) -> float:
        return max(value for (_, beta), value in cells.items() if beta is None)

    digits = plane("addition", "relaxed")
    for tau, half, diagonal in ((2.0, 73, 36), (4.0, 67, 40), (8.0, 63, 35)):
        assert best_beta(digits, tau) == tau / 2
        assert digits[tau, tau / 2] == pytest.approx(half, abs=0.5)
        assert digits[tau, tau] == pytest.approx(diagonal, abs=0.5)
    for task, part, best, with_match in (
        ("addition", "relaxed", 73, 78.5),
        ("listops", "relaxed", 67, 69),
        ("paths", "relaxed", 68, 68),
        ("addition", "hard", 41, 43),
        ("listops", "hard", 62, 64),
        ("paths", "hard", 68, 66),
    ):
        cells = plane(task, part)
        assert constant(cells) == pytest.approx(best, abs=0.55)
        assert matched(cells) == pytest.approx(with_match, abs=0.55)
        if part == "hard":
            where = max((k for k in cells if k[1] is not None), key=lambda k: cells[k])
            assert where[1] is not None and where[1] <= where[0] / 2
            assert task != "paths" or where[1] == 0
