"""Nothing fails silently: dials that nobody attached, or steps, are said once."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import dcgraph as dc
from dcgraph import _dialled as dialled

U = torch.randn(5, 4)


@pytest.fixture(autouse=True)
def all_warnings() -> Iterator[None]:
    """pyproject.toml ignores the one of unattached nodes, which most tests mean."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_node_that_trains_unattached_says_so_once() -> None:
    for module in (dc.Discrete(4, 3), dc.Categorical()):
        with pytest.warns(UserWarning, match=r"no dials attached: .*\.Dials\.constant\(model\)"):
            module(U)
        module(U)
    around = dc.DropRes()
    with pytest.warns(UserWarning, match="no dials attached"):
        around(U, U)
    large = dc.Discrete(4, 5000, residual="none")
    with pytest.warns(UserWarning, match="no dials attached"):
        large(U)


def test_nothing_is_said_where_it_is_meant_or_does_not_matter() -> None:
    node = dc.Discrete(4, 3)
    node.eval()(U)
    with torch.no_grad():
        node.train()(U)
    dc.Dials.constant(node)
    node(U)
    other = dc.Discrete(4, 3)
    dc.Dials(tau=2.0, beta=2.0).attach(nn.Sequential(other))
    other(U)
    copy.deepcopy(other)(U)


def test_weights_loaded_into_an_unattached_model() -> None:
    saved = dc.Discrete(4, 3).state_dict()
    node = dc.Discrete(4, 3)
    node.load_state_dict(saved)
    with pytest.warns(UserWarning, match=r"weights were loaded .*\.load_state_dict"):
        node(U)
    attached = dc.Discrete(4, 3)
    dials = dc.Dials(alpha=dc.linear(0, 1, 5)).attach(attached)
    attached.load_state_dict(saved)
    attached(U)
    dials.step()


def test_dials_that_do_not_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a rank that forgets it."""
    monkeypatch.setattr(dialled, "_PATIENCE", 20)
    node = dc.Discrete(4, 3)
    dials = dc.Dials(alpha=dc.linear(0, 1, 5), every=1000).attach(node)
    for _ in range(5):  # however far apart the schedule steps are
        for _ in range(19):
            node(U)
        dials.step()
    for _ in range(19):
        node(U)
    with pytest.warns(UserWarning, match="have not stepped .* on every rank"):
        node(U)
    for _ in range(40):
        node(U)
    still = dc.Discrete(4, 3)
    dc.Dials.constant(still)
    for _ in range(40):  # nothing has to step
        still(U)


def test_a_population_says_it_once() -> None:
    population = dc.Population(lambda: dc.Discrete(4, 3), range(3))
    with pytest.warns(UserWarning, match="no dials attached"):
        population(U)
    population(U)
    dc.Dials.constant(population, tau=[1, 2, 4])
    population(U)
