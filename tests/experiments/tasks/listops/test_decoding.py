"""Hard decoding by tables decides what the model itself decides, and counts it rightly."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.experiments.engine.step import set_decode
from dcgraph.experiments.engine.task import Data
from dcgraph.experiments.tasks.listops.data.expressions import CLOSE, MIN, ZERO, parse, tree_of
from dcgraph.experiments.tasks.listops.data.sets import tables_of, tensors_of
from dcgraph.experiments.tasks.listops.decoding import (
    Decoded,
    TreeDecoder,
    at_once,
    count,
    groups,
    measure,
)
from dcgraph.experiments.tasks.listops.model.edges import Counters
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.reading import answers, read
from dcgraph.experiments.tasks.listops.settings import ListOpsSettings
from dcgraph.nodes import Decode
from listops_models import ABLE, RANDOM, TASK, able_model, some_expressions
from statistics_of_fit import chi_square_p

KINDS: list[dict[str, Any]] = [
    *(
        {"encoder": encoder, "parents": parents, "earlier": True}
        for encoder, parents in itertools.product(("lstm", "ternary"), ("tokens", "operators"))
    ),
    {"earlier": False},
    {"silent_root": True},
    {"earlier": True, "encoder": "ternary", "senders": "values", "restart": True},
    *({"edges": "given", "parents": parents} for parents in ("tokens", "operators")),
]


def random_model(settings: ListOpsSettings, seed: int = 0) -> LatentTree:
    torch.manual_seed(seed)
    model = TASK.model(settings).eval()
    assert isinstance(model, LatentTree)
    return model


@torch.no_grad()
def by_the_model(
    model: LatentTree, tokens: Tensor, lengths: Tensor, parents: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """Parents, and values after every round, as the nodes of the model report them."""
    with dc.trace(model) as steps:
        edges, logits = model.run(tokens, lengths, parents, rounds)
    chosen = torch.where(edges.any(-1), edges.argmax(-1), -1)
    values = [step.index for step in steps if step.node == "value"]
    return chosen, torch.stack([*values, logits.argmax(-1)])


def assert_same(decoded: Decoded, parents: Tensor, values: Tensor) -> None:
    """For all expressions but one: sums in another order can turn a choice that is nearly a tie."""
    assert torch.equal(decoded.parents, parents)
    assert decoded.values.shape == values.shape
    differing = (decoded.values != values).flatten(2).any(-1).any(0)
    assert int(differing.sum()) <= 1 < len(differing)
    assert torch.equal(decoded.answers, decoded.values[-1, :, 0])


@pytest.mark.parametrize("decode", ["argmax", "sample"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_it_decides_as_the_model(kind: dict[str, Any], decode: Decode) -> None:
    table = tensors_of(some_expressions())
    batch = table["tokens"].long(), table["length"], table["parents"].long()
    model = random_model(replace(RANDOM, **kind))
    set_decode(model, decode)
    for rounds in (1, 2, 5, 8):
        torch.manual_seed(rounds)
        parents, values = by_the_model(model, *batch, rounds)
        torch.manual_seed(rounds)
        assert_same(TreeDecoder(model)(*batch, rounds), parents, values)
    assert len(values.unique()) > 3, "the test would say little of a model that always says 7"
    if decode == "sample":
        again = TreeDecoder(model)(*batch, 8)
        assert not torch.equal(again.values, values)


def test_it_decides_as_a_model_that_is_mostly_right() -> None:
    table = tensors_of(some_expressions())
    batch = table["tokens"].long(), table["length"], table["parents"].long()
    model = able_model()
    decoded = TreeDecoder(model)(*batch)
    assert_same(decoded, *by_the_model(model, *batch, 5))
    assert torch.equal(decoded.parents, batch[2]), "its parser is right by hand"
    assert (decoded.answers == table["label"]).float().mean() > 0.7


def test_draws_have_the_distribution_of_the_scores() -> None:
    model = random_model(replace(RANDOM, encoder="ternary", earlier=True))
    assert isinstance(model.edges.encode, Counters)
    torch.nn.init.normal_(model.edges.encode.bias)
    set_decode(model, "sample")
    tokens = tensors_of([parse("[MAX 1 2 ]")])["tokens"].long()
    with torch.no_grad():
        scores = model.edges.encode(tokens)[0]
    draws = 20_000
    decoded = TreeDecoder(model)(tokens.expand(draws, -1), torch.full((draws,), 4), None, 1)
    for child in (2, 3):  # the only ones with several tokens before them
        distribution = scores[child, :child].softmax(-1)
        seen = decoded.parents[:, child].bincount(minlength=child)
        assert chi_square_p(seen, distribution) > 1e-4
        assert chi_square_p(seen, distribution.roll(1)) < 1e-4, "the test can fail"


def test_padding_changes_nothing() -> None:
    model = random_model(RANDOM)
    expressions = some_expressions(5)
    together = read(TreeDecoder(model), expressions, 5)
    for expression, reading in zip(expressions, together, strict=True):
        (alone,) = read(TreeDecoder(model), [expression], 5)
        assert alone == reading and alone.expression == expression
    assert answers(TreeDecoder(model), expressions, 5) == [each.answer for each in together]


def test_following_a_tree_is_what_a_model_does_that_is_given_it() -> None:
    table = tensors_of(some_expressions())
    tokens, parents = table["tokens"].long(), table["parents"].long()
    learned = random_model(RANDOM)
    given = random_model(replace(RANDOM, edges="given"), seed=1)
    given.load_state_dict(learned.state_dict(), strict=False)
    followed = TreeDecoder(learned).follow(tokens, parents)
    assert_same(followed, *by_the_model(given, tokens, table["length"], parents, 5))


def test_tokens_that_receive_nothing() -> None:
    model = random_model(replace(RANDOM, parents="operators", earlier=True))
    tokens = tensors_of([parse("[MAX 1 2 ]")])["tokens"].long()
    alone = torch.full_like(tokens, -1)
    on_a_digit = torch.ones_like(tokens)  # which cannot receive
    decoder = TreeDecoder(model)
    expected = model.value.logits(model.embedding[tokens]).argmax(-1)
    assert torch.equal(decoder.follow(tokens, alone, 1).values[0], expected)
    assert torch.equal(decoder.follow(tokens, on_a_digit, 1).values[0], expected)


def test_mistakes() -> None:
    model = random_model(RANDOM)
    with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
        TreeDecoder(model.train())
    tokens = tensors_of([parse("[MAX 1 2 ]")])["tokens"].long()
    with pytest.raises(ValueError, match="rounds=0, but at least 1"):
        TreeDecoder(model.eval()).follow(tokens, torch.zeros_like(tokens), 0)


def test_groups_hold_every_expression_once_and_little_padding() -> None:
    expressions = [bytes(size) for size in [*range(1, 300), *[5] * 1200, 3000]]
    some = list(groups(expressions))
    assert sorted(k for group in some for k in group) == list(range(len(expressions)))
    for group in some:
        longest = max(len(expressions[k]) for k in group)
        assert len(group) <= at_once(longest)
    assert [len(expressions[k]) for group in some for k in group] == sorted(map(len, expressions))
    assert list(groups([])) == []


@pytest.mark.parametrize("settings", [RANDOM, ABLE, replace(RANDOM, model="lstm")])
def test_what_is_counted(settings: ListOpsSettings) -> None:
    """One by one, with Python's tree of every expression, from the network itself."""
    torch.manual_seed(0)
    model = able_model() if settings == ABLE else TASK.model(settings).eval()
    expressions = some_expressions(20)
    right = {"task accuracy": 0, "edge precision": 0, "intermediate accuracy": 0}
    out_of = dict(right)
    for expression in expressions:
        truth, table = tree_of(expression), tensors_of([expression])
        batch = table["tokens"].long(), table["length"], table["parents"].long()
        with torch.no_grad():
            answer = int(model(*batch).argmax())
        right["task accuracy"] += answer == truth.values[0]
        out_of["task accuracy"] += 1
        if not isinstance(model, LatentTree):
            continue
        parents, values = by_the_model(model, *batch, 5)
        for k, token in enumerate(expression):
            if k and token != CLOSE:
                right["edge precision"] += int(parents[0, k]) == truth.parents[k]
                out_of["edge precision"] += 1
            if k and MIN <= token < ZERO:
                right["intermediate accuracy"] += int(values[-1, 0, k]) == truth.values[k]
                out_of["intermediate accuracy"] += 1
    tables = tables_of(expressions)
    counted = count(model, tables, 5)
    assert counted == {name: (right[name], n) for name, n in out_of.items() if n}
    data = Data({"train": tables, "test": tables}, "")
    shares = {name: some / number for name, (some, number) in counted.items()}
    assert measure(model, data, "test", 5) == shares


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_it_is_the_same_on_a_gpu() -> None:
    table = tensors_of(some_expressions())
    model = random_model(RANDOM)
    here = TreeDecoder(model)(table["tokens"].long(), table["length"])
    there = TreeDecoder(model.cuda())(table["tokens"].long().cuda(), table["length"].cuda())
    assert (here.parents != there.parents.cpu()).float().mean() < 1e-3
    assert (here.values != there.values.cpu()).float().mean() < 1e-2


def test_the_root_of_the_papers_model_sends_anywhere_and_by_argmax_to_itself() -> None:
    """Which is why its answers are worse by argmax, see docs/listops.md."""
    model = random_model(RANDOM)
    (table,) = tables_of([parse("[MAX 2 9 [MIN 4 7 ] 0 ]")] * 500)
    tokens, lengths = table["tokens"].long(), table["length"]
    set_decode(model, "argmax")
    assert (TreeDecoder(model)(tokens, lengths).parents[:, 0] == 0).all()
    set_decode(model, "sample")
    assert len(TreeDecoder(model)(tokens, lengths).parents[:, 0].unique()) == lengths[0]
