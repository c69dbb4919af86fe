"""Edges: who may be a parent, and what the encoders can express."""

from __future__ import annotations

from random import Random

import pytest
import torch

from dcgraph.experiments.tasks.listops.data.expressions import (
    CLOSE,
    OPERATORS,
    TOKENS,
    Expression,
)
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of, tensors_of
from dcgraph.experiments.tasks.listops.model.edges import Counters, TwoLSTMs, nearest
from listops_models import TEXTS, batch_of, tree_model


@pytest.mark.parametrize(
    "name",
    ["paper", "silent root", "earlier", "operators", "best match", "nearest match", "counters"],
)
@pytest.mark.parametrize("training", [True, False])
def test_every_token_has_one_parent_among_those_allowed(name: str, training: bool) -> None:
    model = tree_model(name).train(training)
    batch = batch_of(TEXTS)
    tokens, lengths = batch["tokens"], batch["length"]
    edges = model.edges(tokens, lengths)
    place = torch.arange(tokens.shape[1])
    sends = place < lengths.unsqueeze(1)
    if name != "paper":
        sends = sends & (place > 0)
        assert edges.diagonal(dim1=1, dim2=2).eq(0).all(), "no token is its own parent"
    later_parents = bool(edges.triu(1).ne(0).any())
    assert later_parents == (name in ("paper", "silent root")), "a parent stands before its child"
    if model.edges.senders == "values":
        sends = sends & (tokens != CLOSE)
    torch.testing.assert_close(edges.sum(-1), sends.float())
    if name not in ("paper", "silent root", "earlier"):
        operator = torch.isin(tokens, torch.tensor(list(OPERATORS)))
        assert edges.sum(1)[~operator].eq(0).all()
    assert edges.transpose(1, 2)[place.expand_as(tokens) >= lengths.unsqueeze(1)].eq(0).all()


def test_the_given_tree_is_taken() -> None:
    batch = batch_of(TEXTS)
    edges = tree_model("given").edges(batch["tokens"], batch["length"], batch["parents"])
    has = batch["parents"] >= 0
    assert torch.equal(edges.argmax(-1)[has], batch["parents"][has])
    assert torch.equal(edges.sum(-1), has.float())


def test_nearest_is_the_last_match_before_a_token() -> None:
    torch.manual_seed(0)
    match = torch.randn(2, 6, 6, dtype=torch.float64)
    accept = match.sigmoid()
    found = nearest(match).exp()
    for i in range(1, 6):
        refused = torch.ones(2, dtype=torch.float64)
        for j in reversed(range(1, i)):
            torch.testing.assert_close(found[:, i, j], accept[:, i, j] * refused)
            refused = refused * (1 - accept[:, i, j])
        torch.testing.assert_close(found[:, i, 0], refused)  # the root takes what is left


def counting_parser(counters: Counters) -> Counters:
    """The bracket depth as a counter, set by hand."""
    with torch.no_grad():
        for parameter in counters.parameters():
            parameter.zero_()
        counters.increments[list(OPERATORS), 0] = 1.0
        counters.increments[CLOSE, 0] = -1.0
        counters.distance[0] = 1.0
        counters.scale.fill_(40.0)
        counters.bias.fill_(-20.0)
        counters.bias[:, list(OPERATORS)] = 10.0
    return counters


def deep_expressions() -> list[Expression]:
    return distinct(distribution_of(10, longest=100), 30, Random(1)) + distinct(
        distribution_of(4), 30, Random(2)
    )


def test_counters_can_parse_at_any_depth() -> None:
    table = tensors_of(deep_expressions())
    tokens, parents = table["tokens"].long(), table["parents"].long()
    for training in (True, False):
        scores = counting_parser(Counters(2)).train(training)(tokens)
        earlier = torch.ones_like(scores[0], dtype=torch.bool).tril(-1)
        guessed = scores.masked_fill(~earlier, -torch.inf).argmax(-1)
        assert torch.equal(guessed[parents >= 0], parents[parents >= 0])


def test_without_nearest_the_best_match_is_the_parent() -> None:
    """The same parser, whose matches merely compete: a farther operator matches as well."""
    tokens = batch_of(("[MAX [MIN 1 2 ] [MED 3 4 ] 5 ]",))["tokens"]
    parser, unguided = counting_parser(Counters(2)), counting_parser(Counters(2, nearest=False))
    apart = parser(tokens)[0, 7], unguided(tokens)[0, 7]  # the 4, whose parent is MED at 5
    assert apart[0].argmax() == 5, "MIN at 1 matches too, but is farther"
    torch.testing.assert_close(apart[1][1], apart[1][5])


def test_ternary_steps_are_for_testing_and_can_be_left_out() -> None:
    for kind in (Counters(2), Counters(2, ternary=False)):
        assert kind.train().table() is kind.increments
    assert kind.eval().table() is kind.increments


def test_ternary_counters_return_to_where_they_were() -> None:
    encoder = Counters(2)
    with torch.no_grad():
        encoder.increments.fill_(0.1)
        encoder.increments[:4, 0] = torch.tensor([-1.2, 0.9, 1.0, 0.9])
        encoder.increments[:4, 1] = 0.0
    increments = encoder.eval().table()
    assert increments[:4, 0].tolist() == pytest.approx([-1.0, 1.0, 1.0, 1.0])
    assert (increments[4:, 0] == 0).all()
    assert increments[4:, 1].tolist() == pytest.approx([0.1] * 10)
    assert encoder.train().table() is encoder.increments
    with torch.no_grad():
        encoder.increments.zero_()
    assert (encoder.eval().table() == 0).all()


def test_two_lstms_give_products_of_their_states() -> None:
    torch.manual_seed(0)
    encoder = TwoLSTMs(8)
    tokens = torch.randint(len(TOKENS), (2, 5))
    q, k = encoder.lstms(tokens)
    torch.testing.assert_close(encoder(tokens)[1, 3, 2], (q[1, 3] * k[1, 2]).sum())
