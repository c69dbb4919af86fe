"""The baselines of the paper: states without digits, and an LSTM."""

from __future__ import annotations

import pytest
import torch

from dcgraph.experiments.tasks.listops.baselines import NearestOperator, Sequence, StateTree
from dcgraph.experiments.tasks.listops.data.expressions import CLOSE, text_of, tree_of
from dcgraph.experiments.tasks.listops.data.sets import tables_of, tensors_of
from dcgraph.experiments.tasks.listops.decoding import count
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import TEXTS, VARIANTS, batch_of, some_expressions
from listops_oracles import FUNCTIONS


def test_the_baseline_reads_the_last_token_of_each() -> None:
    torch.manual_seed(0)
    model = Sequence(8)
    together = batch_of(TEXTS)
    logits = model(together["tokens"], together["length"])
    for row, text in enumerate(TEXTS):
        alone = batch_of((text,))
        torch.testing.assert_close(logits[row], model(alone["tokens"], alone["length"])[0])


def state_model(name: str) -> StateTree:
    torch.manual_seed(0)
    model = ListOps().model(VARIANTS[name])
    assert isinstance(model, StateTree)
    return model.eval()


def test_states_send_messages_for_each_pair() -> None:
    model = state_model("states given")
    batch = batch_of(TEXTS[:1])
    edges, answers = model.run(batch["tokens"], batch["length"], batch["parents"], rounds=1)
    x = model.embedding[batch["tokens"][0]]
    root = x[0].clone()
    for child in range(x.shape[0]):
        if edges[0, child, 0]:
            layers = model.message
            hidden = (layers.of_receiver(x[0]) + layers.of_sender(x[child])).relu()
            root = root + layers.last(hidden).relu()
    torch.testing.assert_close(answers[0], model.classify(root))


@pytest.mark.parametrize("name", ["states given", "arborescence", "spanning tree"])
def test_padding_changes_nothing_for_the_baselines(name: str) -> None:
    model = state_model(name)
    together = batch_of(TEXTS)
    edges, answers = model.run(together["tokens"], together["length"], together["parents"])
    for row, text in enumerate(TEXTS):
        alone = batch_of((text,))
        length = int(alone["length"])
        own_edges, own = model.run(alone["tokens"], alone["length"], alone["parents"])
        assert torch.equal(edges[row, :length, :length], own_edges[0])
        torch.testing.assert_close(answers[row], own[0])


def test_hard_edges_of_the_baselines_are_trees() -> None:
    batch = batch_of(TEXTS)
    directed = state_model("arborescence").edges(batch["tokens"], batch["length"])
    assert torch.equal(directed.sum((1, 2)), batch["length"].float() - 1)
    undirected = state_model("spanning tree").edges(batch["tokens"], batch["length"])
    assert torch.equal(undirected, undirected.mT)
    assert torch.equal(undirected.sum((1, 2)), 2.0 * (batch["length"] - 1))


def ruled(text: str) -> tuple[list[int], dict[int, int]]:
    """The rule, written another way: each token's parent, and the value of each operator."""
    words, parents, latest = text.split(), [], -1
    for position, word in enumerate(words):
        parents.append(latest)
        latest = position if word.startswith("[") else latest
    values: dict[int, int] = {}
    for position in reversed(range(len(words))):
        if words[position].startswith("["):
            children = [k for k, parent in enumerate(parents) if parent == position]
            digits = [
                values[k] if k in values else int(words[k]) for k in children if words[k] != "]"
            ]
            values[position] = FUNCTIONS[words[position][1:]](digits)
    return parents, values


def test_the_rule_takes_the_nearest_operator_before() -> None:
    expressions = some_expressions(30)
    model, table = NearestOperator(), tensors_of(expressions)
    parents, values = model.run(table["tokens"].long())
    answers = model(table["tokens"].long(), table["length"]).argmax(-1)
    for row, expression in enumerate(expressions):
        expected, computed = ruled(text_of(expression))
        assert parents[row, : len(expression)].tolist() == expected
        assert {k: int(values[row, k]) for k in computed} == computed
        assert answers[row] == computed[0]


def test_what_is_right_of_the_rule_is_counted() -> None:
    expressions = some_expressions(30)
    counted = count(NearestOperator(), tables_of(expressions), 5)
    right = dict.fromkeys(("task accuracy", "edge precision", "intermediate accuracy"), 0)
    out_of = dict(right)
    for expression in expressions:
        truth, (parents, values) = tree_of(expression), ruled(text_of(expression))
        right["task accuracy"] += values[0] == truth.values[0]
        out_of["task accuracy"] += 1
        for k in range(1, len(expression)):
            if expression[k] != CLOSE:
                right["edge precision"] += parents[k] == truth.parents[k]
                out_of["edge precision"] += 1
            if k in values:
                right["intermediate accuracy"] += values[k] == truth.values[k]
                out_of["intermediate accuracy"] += 1
    assert counted == {name: (right[name], out_of[name]) for name in right}
