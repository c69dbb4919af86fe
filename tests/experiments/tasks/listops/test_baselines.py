"""The baselines of the paper: states without digits, and an LSTM."""

from __future__ import annotations

import pytest
import torch

from dcgraph.experiments.tasks.listops.baselines import Sequence, StateTree
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import TEXTS, VARIANTS, batch_of


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
