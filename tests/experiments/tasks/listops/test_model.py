"""The ListOps model: the paper's equations, padding, masks, and what the encoders can express."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from torch import nn

import dcgraph as dc
from dcgraph.experiments.engine import Batch, Data, train
from dcgraph.experiments.tasks.listops.baselines import Sequence, StateTree
from dcgraph.experiments.tasks.listops.data.expressions import (
    CLOSE,
    OPERATORS,
    TOKENS,
    Expression,
    parse,
)
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of, tables_of, tensors_of
from dcgraph.experiments.tasks.listops.decoding import measure
from dcgraph.experiments.tasks.listops.model.edges import Counters, TwoLSTMs, nearest
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.model.messages import (
    MessageLayers,
    Routes,
    kept,
    messages,
    messages_by_torch,
)
from dcgraph.experiments.tasks.listops.settings import PAPER, ListOpsSettings
from dcgraph.experiments.tasks.listops.task import ListOps

TEXTS = ("[MAX 2 9 [MIN 4 7 ] 0 ]", "[MED 3 1 ]", "[MIN [MAX 1 2 ] [MED 8 [MAX 0 5 ] 3 ] ]")
VARIANTS = {
    "paper": PAPER,
    "counters": replace(
        PAPER,
        encoder="ternary",
        parents="operators",
        earlier=True,
        senders="values",
        gate="vector",
        restart=True,
    ),
    "given": replace(PAPER, edges="given"),
    "pairs": replace(PAPER, masks="pair"),
    "always": replace(PAPER, residual="always"),
    "weighted": replace(PAPER, residual="weighted"),
    "lstm": replace(PAPER, model="lstm"),
    "states": replace(PAPER, model="states"),
    "states given": replace(PAPER, model="states", edges="given"),
    "arborescence": replace(PAPER, model="states", prior="arborescence"),
    "spanning tree": replace(PAPER, model="states", prior="spanning_tree"),
    "tree of digits": replace(PAPER, prior="arborescence"),
}
OURS = ("paper", "counters", "given", "pairs", "always", "weighted")


def batch_of(texts: tuple[str, ...]) -> Batch:
    table = tensors_of([parse(text) for text in texts])
    return {name: tensor.long() for name, tensor in table.items()}


def tree_model(name: str, seed: int = 0) -> LatentTree:
    torch.manual_seed(seed)
    model = ListOps().model(VARIANTS[name])
    assert isinstance(model, LatentTree)
    return model


def test_messages_are_the_papers() -> None:
    """m_i = sum_j A_ji relu(W2 relu(W1 [e_i; x_j] + b1) + b2), with all pairs written out."""
    torch.manual_seed(0)
    dim, tokens = 6, torch.randint(4, (3, 9))
    embedding, x = torch.randn(4, dim), torch.randn(3, 9, dim)
    first, second = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
    edges = torch.randn(3, 9, 9).softmax(-1)
    of_receiver = embedding[tokens].unsqueeze(2).expand(-1, -1, 9, -1)
    pairs = torch.cat([of_receiver, x.unsqueeze(1).expand(-1, 9, -1, -1)], -1)
    expected = torch.einsum("bji,bijd->bid", edges, second(first(pairs).relu()).relu())
    receiver = embedding @ first.weight[:, :dim].T + first.bias
    sender, routes = x @ first.weight[:, dim:].T, Routes(edges, tokens, 4)
    found = messages_by_torch(receiver, sender, second.weight, second.bias, routes)
    torch.testing.assert_close(found, expected)


def test_messages_go_to_receivers_alone() -> None:
    torch.manual_seed(0)
    given = (torch.randn(2, 4), torch.randn(1, 3, 4), torch.randn(4, 4), torch.randn(4))
    kinds = torch.tensor([[1, -1, 0]])
    received = messages(*given, Routes(torch.rand(1, 3, 3), kinds, 2))
    assert received[0, 1].eq(0).all() and received[0, 0].ne(0).any()


def test_messages_to_the_root_alone_are_those_to_all() -> None:
    """By kinds, and without them; one receiver is less than the kinds, so it is done otherwise."""
    torch.manual_seed(0)
    tokens, edges = torch.randint(4, (3, 9)), torch.rand(3, 9, 9)
    layers, x, rows = MessageLayers(5, dropout=0.0), torch.randn(3, 9, 5), torch.randn(4, 5)
    by_kind, each = Routes(edges, tokens, 4), Routes(edges)
    to_all = layers(rows, x, by_kind)
    torch.testing.assert_close(layers(rows[tokens], x, each), to_all)
    torch.testing.assert_close(layers(rows, x, by_kind.to_root()), to_all[:, :1])
    torch.testing.assert_close(layers(rows[tokens][:, :1], x, each.to_root()), to_all[:, :1])


@pytest.mark.parametrize("name", ["paper", "counters", "states"])
def test_the_answer_is_the_value_of_the_root(name: str) -> None:
    torch.manual_seed(0)
    model = ListOps().model(replace(VARIANTS[name], edges="given")).eval()
    assert isinstance(model, LatentTree | StateTree)
    batch = batch_of(TEXTS)
    given = batch["tokens"], batch["length"], batch["parents"]
    values = model.run(*given)[1]
    torch.testing.assert_close(model(*given), values[:, 0] if values.ndim == 3 else values)


def test_masks_of_pairs_change_nothing_but_dropout() -> None:
    batch = batch_of(TEXTS)
    given = batch["tokens"], batch["length"], batch["parents"]
    answers = [tree_model(name).eval()(*given) for name in ("paper", "pairs")]
    assert tree_model("pairs").masks == "pair"
    torch.testing.assert_close(*answers)


def test_dropout_has_its_mean_and_is_shared_by_a_kind() -> None:
    torch.manual_seed(0)
    dim = 5
    # Positive inputs and an identity as W: without ReLUs in the way, dropout keeps the mean.
    given = (torch.rand(2, dim), torch.rand(1, 4, dim), torch.eye(dim), torch.zeros(dim))
    routes = Routes(torch.ones(1, 4, 4), torch.tensor([[0, 0, 1, 1]]), 2)
    draws = torch.stack([messages(*given, routes, dropout=0.3) for _ in range(3000)])
    whole = messages(*given, routes)
    torch.testing.assert_close(draws.mean(0), whole, rtol=0.05, atol=0.0)
    assert torch.equal(draws[:, 0, 0], draws[:, 0, 1]) and not torch.equal(
        draws[:, 0, 0], draws[:, 0, 2]
    )


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.93])
def test_units_are_kept_with_their_probability(dropout: float) -> None:
    torch.manual_seed(0)
    mask = kept((7, 51, 333), dropout, torch.device("cpu"))
    assert mask.shape == (7, 51, 333)
    error = float(mask.double().mean()) - (1 - dropout)
    assert abs(error) < 4 * (dropout * (1 - dropout) / mask.numel()) ** 0.5
    together = float((mask[..., 1:] & mask[..., :-1]).double().mean())
    assert together == pytest.approx((1 - dropout) ** 2, abs=0.01), "and independently"


@pytest.mark.parametrize("name", OURS)
def test_padding_changes_nothing(name: str) -> None:
    model = tree_model(name).eval()
    together = batch_of(TEXTS)
    edges, values = model.run(together["tokens"], together["length"], together["parents"])
    for row, text in enumerate(TEXTS):
        alone = batch_of((text,))
        length = int(alone["length"])
        own_edges, own_values = model.run(alone["tokens"], alone["length"], alone["parents"])
        start = (
            0 if model.edges.earlier or model.edges.encode is None else 1
        )  # the paper's root is random
        assert torch.equal(edges[row, start:length, :length], own_edges[0, start:])
        assert edges[row, length:].eq(0).all(), "padding sends nothing"
        torch.testing.assert_close(values[row, :length], own_values[0])


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


@pytest.mark.parametrize("name", ["paper", "counters"])
@pytest.mark.parametrize("training", [True, False])
def test_every_token_has_one_parent_among_those_allowed(name: str, training: bool) -> None:
    model = tree_model(name).train(training)
    batch = batch_of(TEXTS)
    tokens, lengths = batch["tokens"], batch["length"]
    edges = model.edges(tokens, lengths)
    place = torch.arange(tokens.shape[1])
    sends = place < lengths.unsqueeze(1)
    if model.edges.earlier:
        sends = sends & (place > 0)
        assert edges.triu().eq(0).all(), "a parent stands before its child"
    if model.edges.senders == "values":
        sends = sends & (tokens != CLOSE)
    torch.testing.assert_close(edges.sum(-1), sends.float())
    if name == "counters":
        operator = torch.isin(tokens, torch.tensor(list(OPERATORS)))
        assert edges.sum(1)[~operator].eq(0).all()
    assert edges.transpose(1, 2)[place.expand_as(tokens) >= lengths.unsqueeze(1)].eq(0).all()


def test_the_given_tree_is_taken() -> None:
    batch = batch_of(TEXTS)
    edges = tree_model("given").edges(batch["tokens"], batch["length"], batch["parents"])
    has = batch["parents"] >= 0
    assert torch.equal(edges.argmax(-1)[has], batch["parents"][has])
    assert torch.equal(edges.sum(-1), has.float())


@pytest.mark.parametrize("name", ["paper", "states"])
def test_the_first_layer_of_messages_starts_as_one_of_both_inputs(name: str) -> None:
    model = ListOps().model(VARIANTS[name])
    assert isinstance(model, LatentTree | StateTree)
    bound = 1 / 120**0.5
    for layer in (model.message.of_receiver, model.message.of_sender):
        assert 0.98 * bound < float(layer.weight.detach().abs().max()) <= bound


@pytest.mark.parametrize("name", ["paper", "counters", "arborescence", "states", "lstm"])
def test_padding_changes_no_gradient(name: str) -> None:
    """In training mode, with nothing random left: beta = 0, alpha = 1, no dropout."""
    settings = replace(VARIANTS[name], dropout=0.0)
    torch.manual_seed(0)
    model = ListOps().model(settings)
    if name != "lstm":
        dc.Dials(tau=1.0, beta=0.0, alpha=1.0).attach(model)
    gradients = []
    for width in (10, 15):
        (table,) = tables_of([parse("[MIN 1 [MAX 2 8 ] 4 4 ]")])
        padded = {
            key: nn.functional.pad(value, (0, width - 12), value=-1 if key != "tokens" else 0)
            if value.ndim > 1
            else value
            for key, value in table.items()
        }
        loss = ListOps().loss(model, inputs_of(padded)).sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_nearest_is_the_first_match_going_back() -> None:
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
        counters.moves[list(OPERATORS), 0] = 1.0
        counters.moves[CLOSE, 0] = -1.0
        counters.distance[0] = 1.0
        counters.sharpness.fill_(40.0)
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


def test_counters_come_back_to_where_they_were() -> None:
    encoder = Counters(2)
    with torch.no_grad():
        encoder.moves.fill_(0.1)
        encoder.moves[:4, 0] = torch.tensor([-1.2, 0.9, 1.0, 0.9])
        encoder.moves[:4, 1] = 0.0
    moves = encoder.eval().table()
    assert moves[:4, 0].tolist() == pytest.approx([-1.0, 1.0, 1.0, 1.0])
    assert (moves[4:, 0] == 0).all() and moves[4:, 1].tolist() == pytest.approx([0.1] * 10)
    assert encoder.train().table() is encoder.moves
    with torch.no_grad():
        encoder.moves.zero_()
    assert (encoder.eval().table() == 0).all()


def test_a_value_that_restarts_comes_from_the_children_alone() -> None:
    """Of a chain of operators, each round gives the value one level up; the state before does not
    matter."""
    batch = batch_of(("[MAX [MIN [MED 4 7 ] ] ]",))
    for restart in (True, False):
        torch.manual_seed(0)
        settings = replace(VARIANTS["given"], restart=restart, parents="operators", earlier=True)
        model = ListOps().model(settings).eval()
        assert isinstance(model, LatentTree)
        runs = [
            model.run(batch["tokens"], batch["length"], batch["parents"], rounds)[1]
            for rounds in (5, 6, 9)
        ]
        settled = all(torch.equal(runs[0], run) for run in runs)
        assert settled == restart


def test_two_lstms_give_products_of_their_states() -> None:
    torch.manual_seed(0)
    encoder = TwoLSTMs(8)
    tokens = torch.randint(len(TOKENS), (2, 5))
    q, k = encoder.lstms(tokens)
    torch.testing.assert_close(encoder(tokens)[1, 3, 2], (q[1, 3] * k[1, 2]).sum())


def test_the_probe_sees_every_round() -> None:
    model = tree_model("counters")
    batch = batch_of(TEXTS)
    report = dc.probe(model, lambda: ListOps().loss(model, inputs_of(batch)).sum())
    names = [row.name for row in report.readings]
    rounds = [f"round {k}" for k in range(1, 5)]
    assert [name for name in names if name.startswith(("emb", "round"))] == ["embedding", *rounds]
    assert names.count("value") == 4 and names.count("edges.choice") == 1
    assert all(row.gradient is not None and row.gradient > 0 for row in report.readings)


def inputs_of(batch: Batch) -> Batch:
    return ListOps().inputs(PAPER, {}, batch, training=False)


@pytest.fixture(scope="module")
def small_data() -> Data:
    """A few short expressions in tables of two widths."""
    drawn = distinct(distribution_of(1), 60, Random(3)) + distinct(
        distribution_of(2), 60, Random(4)
    )
    tables = tables_of(drawn)
    assert [t["tokens"].shape[1] for t in tables[:2]] == [7, 12]
    return Data(dict.fromkeys(("train", "validation", "test"), tables[:2]), "small")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains(name: str, small_data: Data) -> None:
    settings = replace(VARIANTS[name], epochs=1, batch=20, moves=2, lr=1e-3)
    replicas = [replace(settings, seed=seed) for seed in range(2)]
    outcome = train(ListOps(), replicas, small_data)
    assert outcome.stopped_at == [None, None]
    # All weights have moved, the encoder's among them.
    torch.manual_seed(0)
    start = dict(ListOps().model(settings).named_parameters())
    end = dict(outcome.population.replica(0).named_parameters())
    assert set(end) == set(start)
    for part, value in end.items():
        assert not torch.equal(value, start[part]), part


def test_measures_are_ratios_over_all_edges_and_operators(small_data: Data) -> None:
    model = tree_model("given").eval()
    with torch.no_grad():  # every value is 3
        for parameter in model.value.parameters():
            parameter.zero_()
        assert isinstance(model.value.g, nn.Sequential)
        first, _, last = model.value.g
        assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
        first.bias.fill_(1.0)
        last.weight[3].fill_(1.0)
    found = measure(model, small_data, "test", rounds=7)
    assert found["edge"] == 1.0
    labels = torch.cat([table["label"] for table in small_data.tables("test")])
    assert found["task"] == pytest.approx(float((labels == 3).float().mean()))
    operators = torch.tensor(list(OPERATORS))
    inner = [
        table["values"][(table["parents"] >= 0) & torch.isin(table["tokens"], operators)]
        for table in small_data.tables("test")
    ]
    assert found["inter"] == pytest.approx(float((torch.cat(inner) == 3).float().mean()))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds=0"):
        ListOpsSettings(rounds=0)
    with pytest.raises(ValueError, match=r"dropout=1\.0"):
        ListOpsSettings(dropout=1.0)
    with pytest.raises(ValueError, match="add --earlier"):
        ListOpsSettings(parents="operators")
    with pytest.raises(ValueError, match="add --earlier"):
        ListOpsSettings(senders="values")
    with pytest.raises(ValueError, match="only looks back"):
        ListOpsSettings(encoder="ternary")
    with pytest.raises(ValueError, match="has no direction"):
        ListOpsSettings(prior="spanning_tree")
    with pytest.raises(ValueError, match="no rule for parents"):
        ListOpsSettings(prior="arborescence", earlier=True)
