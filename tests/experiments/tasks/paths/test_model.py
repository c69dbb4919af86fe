"""Models of path queries: their formulas by explicit loops, and what ours does at every hop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import dcgraph as dc
from dcgraph._checks import unchecked
from dcgraph.experiments.tasks.paths.baselines import (
    LONGEST,
    ROP,
    Bilinear,
    CoKE,
    DistMult,
    Layer,
    PathRNN,
    TransE,
)
from dcgraph.experiments.tasks.paths.model import (
    ComplEx,
    DiscreteComplEx,
    PathModel,
    Shape,
)
from dcgraph.experiments.tasks.paths.operators import complex_product
from dcgraph.population import Population
from path_models import MODELS

SHAPE = Shape(entities=7, relations=6, width=8)


def some_queries(count: int, hops: int, shape: Shape = SHAPE) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(hops)
    source, target = torch.randint(shape.entities, (2, count), generator=draw).int()
    path = torch.randint(shape.relations, (count, hops), generator=draw).int()
    return source, path, target


def as_complex(vector: Tensor) -> Tensor:
    real, imaginary = vector.chunk(2, -1)
    return torch.complex(real, imaginary)


def by_hand(model: PathModel, source: int, path: list[int], candidate: int) -> Tensor:
    """The score of one entity, as the literature writes it."""
    s, o = model.entities[source], model.entities[candidate]
    if isinstance(model, DiscreteComplEx):
        for relation in path[:-1]:
            product = as_complex(s) * as_complex(model.relations[relation])
            scores = [(product * as_complex(e).conj()).sum().real for e in model.entities]
            s = model.entities[int(torch.stack(scores).argmax())]
        path = path[-1:]
    if isinstance(model, ComplEx):
        product = as_complex(s)
        for relation in path:
            product = product * as_complex(model.relations[relation])
        return (product * as_complex(o).conj()).sum().real
    if isinstance(model, TransE):
        for relation in path:
            s = s + model.relations[relation]
        return -((s - o) ** 2).sum()
    for relation in path:
        r = model.relations[relation]
        if isinstance(model, DistMult):
            s = s * r
        elif isinstance(model, Bilinear):
            s = r.T @ s
        elif isinstance(model, PathRNN):
            s = torch.tanh(model.state(s) + model.input.weight @ r)
        elif isinstance(model, ROP):
            reset, update = model.gates(torch.cat([s, r])).sigmoid().chunk(2)
            new = torch.tanh(model.proposal(torch.cat([reset * s, r])))
            s = model.prediction(update * s + (1 - update) * new)
    return (s * o).sum()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "coke"])
@pytest.mark.parametrize("hops", [1, 3])
@torch.no_grad()
def test_scores_are_the_formulas(name: str, hops: int) -> None:
    torch.manual_seed(0)
    model = MODELS[name](SHAPE).eval()
    source, path, _ = some_queries(4, hops)
    scores = model(source, path)
    for row in range(4):
        expected = torch.stack(
            [by_hand(model, int(source[row]), path[row].tolist(), e) for e in range(7)]
        )
        found = scores[row]
        if name == "transe":  # the same for all entities may be left out
            expected, found = expected - expected.mean(), found - found.mean()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_among_the_top_1_noise_has_no_say() -> None:
    torch.manual_seed(0)
    model = DiscreteComplEx(SHAPE, top_k=1)  # noise of scale 1, no residual
    source, path, _ = some_queries(16, 3)
    there = model.eval().query(source, path)
    torch.testing.assert_close(model.train().query(source, path), there)
    model.top_k = 2
    drawn = torch.stack([model.query(source, path) for _ in range(20)])
    assert (drawn - there).abs().amax() > 0.1  # now it has


@torch.no_grad()
def test_the_transformer_is_torchs_own() -> None:
    torch.manual_seed(0)
    model = CoKE(SHAPE, layers=1, heads=2).eval()
    (layer,) = model.layers
    assert isinstance(layer, Layer)
    theirs = nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True).eval()
    pairs: dict[str, nn.Module] = {
        "self_attn.in_proj_": layer.attend, "self_attn.out_proj.": layer.join,
        "linear1.": layer.first, "linear2.": layer.second,
        "norm1.": layer.attended, "norm2.": layer.done,
    }  # fmt: skip
    weights = {
        f"{name}{k}": v for name, part in pairs.items() for k, v in part.state_dict().items()
    }
    theirs.load_state_dict(weights)
    words = torch.randn(3, 5, 8)
    torch.testing.assert_close(layer(words), theirs(words), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="reads 10 at most"):
        model(*some_queries(2, LONGEST + 1)[:2])


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_one_versus_all_and_trains_everything(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name](SHAPE).eval()
    source, path, target = some_queries(5, 2)
    expected = F.cross_entropy(model(source, path), target.long(), reduction="none")
    torch.testing.assert_close(model.loss(source, path, target), expected, atol=1e-5, rtol=1e-5)
    model.train()
    model.loss(source, path, target).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()


@pytest.mark.parametrize("entities", [7, 4100])
@pytest.mark.parametrize("name", MODELS)
def test_no_step_of_training_waits_for_a_number(name: str, entities: int) -> None:
    """A GPU cannot record one that does; some gradients of torch look for zeros, for example."""
    shape = replace(SHAPE, entities=entities, l2_entities=0.1, relation_dropout=0.1)
    model = MODELS[name](shape).train()
    source, path, target = some_queries(5, 3)
    with unchecked(), profile(activities=[ProfilerActivity.CPU]) as step:
        model.loss(source, path, target).sum().backward()
    done = {event.key for event in step.key_averages()}
    assert "aten::mul" in done and not done & {"aten::item", "aten::nonzero"}


def test_the_gradient_reaches_the_entities_through_the_hops() -> None:
    """Also one that is neither source nor target, and no candidate of the loss."""
    torch.manual_seed(0)
    model = DiscreteComplEx(SHAPE)
    dc.Dials(tau=2.0, beta=0.0, alpha=1.0).attach(model)
    source, path, _ = some_queries(5, 3)
    query = model.query(source, path)
    (gradient,) = torch.autograd.grad(query.square().sum(), model.entities)
    assert (gradient.abs().sum(1) > 0).all()


def test_dropres_adds_the_vector_before_the_relation() -> None:
    torch.manual_seed(0)
    model = DiscreteComplEx(SHAPE)
    source, path, _ = some_queries(5, 2)
    s, (r, last) = model.entities[source.long()], model.relations[path.long()].unbind(1)
    u = complex_product(s, r)
    mixture = dc.gumbel_softmax(u @ model.entities.T, 4.0, beta=0.0) @ model.entities
    for alpha, expected in ((0.0, mixture + s), (1.0, mixture)):
        dc.Dials(tau=4.0, beta=0.0, alpha=alpha).attach(model)
        torch.testing.assert_close(model.query(source, path), complex_product(expected, last))


@torch.no_grad()
def test_dropout_is_where_the_paper_has_it() -> None:
    """Of the source at first, of relations, of the candidates; the codebook of hops is whole."""
    torch.manual_seed(0)
    source, path, target = some_queries(2000, 1)
    plain = ComplEx(replace(SHAPE, subject_dropout=0.5))
    plain.relations.fill_(1.0)
    re, im = plain.query(source, path).chunk(2, -1)  # (re + i im)(1 + i)
    zeros = float(((re + im) == 0).float().mean())
    assert zeros == pytest.approx(0.5, abs=0.03)
    seen: list[Tensor] = []
    ours = DiscreteComplEx(
        replace(SHAPE, subject_dropout=0.5, object_dropout=0.9, relation_dropout=0.5)
    )
    ours.hop.register_forward_pre_hook(
        lambda node, args, kwargs: seen.append(kwargs["codebook"]), with_kwargs=True
    )
    ours.loss(source, path.repeat(1, 2), target)
    assert torch.equal(seen[0], ours.entities)
    dropped = DistMult(replace(SHAPE, relation_dropout=0.5))
    dropped.entities.fill_(1.0)
    zeros = float((dropped.query(source, path) == 0).float().mean())
    assert zeros == pytest.approx(0.5, abs=0.03)
    objects = ComplEx(replace(SHAPE, object_dropout=0.5))
    losses = torch.stack([objects.loss(source, path, target).mean() for _ in range(2)])
    assert losses[0] != losses[1]
    assert torch.equal(objects.query(source, path), objects.query(source, path))
    for model in (plain, ours, dropped, objects):
        model.eval()
        assert torch.equal(model(source, path), model(source, path))


def test_the_penalty_is_the_l2_of_what_a_query_uses() -> None:
    torch.manual_seed(0)
    bare, model = ComplEx(SHAPE), ComplEx(replace(SHAPE, l2_entities=0.1, l2_relations=0.01))
    model.load_state_dict(bare.state_dict())
    source, path, target = some_queries(3, 2)
    extra = model.loss(source, path, target) - bare.loss(source, path, target)
    for row in range(3):
        s, o = (model.entities[int(k)] for k in (source[row], target[row]))
        along = sum(model.relations[int(k)].square().sum() for k in path[row])
        expected = 0.1 * (s.square().sum() + o.square().sum()) + 0.01 * along
        torch.testing.assert_close(extra[row], expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(
        model.eval().loss(source, path, target), bare.eval().loss(source, path, target)
    )


@pytest.mark.parametrize(("name", "entities"), [*((n, 7) for n in MODELS), ("discrete", 4100)])
def test_a_population_of_models_is_each_of_them(name: str, entities: int) -> None:
    """With a large codebook too, for which hops and loss never see all scores."""
    shape = replace(SHAPE, entities=entities)
    population = Population(lambda: MODELS[name](shape), [0, 1], torch.device("cpu"))
    if name == "discrete":
        dc.Dials.constant(population, tau=4.0, beta=0.0, alpha=1.0)
    source, path, target = some_queries(5, 3, shape)
    population.train(name != "coke")
    losses = population.map(lambda model, *query: model.loss(*query).sum(), source, path, target)
    losses.sum().backward()
    for replica in range(2):
        model = population.replica(replica)
        assert isinstance(model, PathModel)
        loss = model.loss(source, path, target).sum()
        torch.testing.assert_close(losses[replica], loss, atol=1e-4, rtol=1e-4)
        loss.backward()
        for own, stacked in zip(model.parameters(), population.parameters(), strict=True):
            if own.grad is not None:
                assert stacked.grad is not None
                size = float(own.grad.norm())
                assert float(stacked.grad[replica].norm()) == pytest.approx(size, rel=1e-3)


@pytest.mark.parametrize("entities", [7, 4100])
def test_products_in_bfloat16_are_near_and_weights_stay_float32(entities: int) -> None:
    torch.manual_seed(0)
    shape = replace(SHAPE, entities=entities)
    exact, rough = DiscreteComplEx(shape), DiscreteComplEx(replace(shape, precision="bf16"))
    rough.load_state_dict(exact.state_dict())
    source, path, target = some_queries(6, 3, shape)
    for model in (exact, rough):
        dc.Dials(tau=4.0, beta=0.0, alpha=1.0).attach(model)
    losses = [model.loss(source, path, target) for model in (exact, rough)]
    torch.testing.assert_close(losses[0], losses[1], atol=0.1, rtol=0.05)
    losses[1].sum().backward()
    assert rough.entities.grad is not None and rough.entities.grad.dtype == torch.float32
    report = dc.probe(rough, lambda: rough.loss(source, path, target).sum())
    assert [reading.categories for reading in report.readings] == [entities] * 2
    rough.eval(), exact.eval()
    assert torch.equal(rough(source, path), exact(source, path))
