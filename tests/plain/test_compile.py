"""torch.compile(fullgraph=True) of the functions, the nodes and a population.

The tests in this folder run without the run-time shape checks of the others.
"""

from __future__ import annotations

import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.residual import Gate
from models import Adder
from statistics_of_fit import chi_square_p, kolmogorov_p

pytestmark = [
    pytest.mark.skipif(
        not any(map(shutil.which, ("c++", "g++", "clang++"))),
        reason="torch.compile needs a C++ compiler",
    ),
    # torch's own: the compiler warns about its internals.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::UserWarning:torch"),
]


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    """The tests compile the same methods, of which torch keeps eight versions at most."""
    torch.compiler.reset()


def test_relaxation_equals_eager_given_the_noise() -> None:
    theta = torch.randn(6, 9, requires_grad=True)
    noise, tau, beta = dc.gumbel([6, 9]), torch.tensor(2.0), torch.tensor(0.7)

    def relaxed(theta: Tensor) -> Tensor:
        return dc.gumbel_softmax(theta, tau, beta=beta, noise=noise)

    compiled = torch.compile(relaxed, fullgraph=True)
    torch.testing.assert_close(compiled(theta), relaxed(theta))
    weights = torch.randn(6, 9)
    gradients = [
        torch.autograd.grad((f(theta) * weights).sum(), theta) for f in (compiled, relaxed)
    ]
    torch.testing.assert_close(*gradients)


def test_compiled_noise_is_gumbel_with_a_fine_tail() -> None:
    torch.manual_seed(0)
    draw = torch.compile(lambda: dc.gumbel([2_000_000]), fullgraph=True)
    noise = draw()
    assert noise.isfinite().all()
    assert kolmogorov_p(torch.exp(-torch.exp(-noise[:100_000].double()))) > 1e-4
    assert len(noise.topk(2000).values.unique()) > 1980


def test_no_ties_among_ten_million_categories_compiled() -> None:
    torch.manual_seed(1)
    draw = torch.compile(lambda: dc.gumbel([10_000_000]), fullgraph=True)
    for _ in range(8):
        noise = draw()
        assert (noise == noise.max()).sum() == 1


def test_compiled_samples_follow_softmax_of_theta_over_beta() -> None:
    torch.manual_seed(2)
    theta = torch.tensor([1.0, -0.5, 0.3, 2.0])
    draw = torch.compile(lambda t: dc.sample(t, beta=2.0), fullgraph=True)
    counts = draw(theta.expand(200_000, -1)).bincount(minlength=4)
    assert chi_square_p(counts, (theta / 2.0).softmax(-1)) > 1e-4


def test_empty_row_gives_zeros() -> None:
    theta = torch.randn(3, 4)
    mask = torch.tensor([[True], [False], [True]]).expand(3, 4)
    z = torch.compile(lambda t, m: dc.gumbel_softmax(t, mask=m), fullgraph=True)(theta, mask)
    assert (z[1] == 0).all()
    torch.testing.assert_close(z.sum(-1), torch.tensor([1.0, 0.0, 1.0]))
    index = torch.compile(lambda t, m: dc.sample(t, mask=m), fullgraph=True)(theta, mask)
    assert index[1] == -1


@pytest.mark.parametrize("estimator", sorted(dc.estimators.ESTIMATORS))
def test_node_compiles_and_sees_its_dials_change(estimator: str) -> None:
    model = dc.Discrete(6, 4, estimator=estimator)
    compiled = torch.compile(model, fullgraph=True)
    dials = dc.Dials(tau=2.0, beta=0.0, alpha=dc.linear(0, 1, 1)).attach(model)
    u = torch.randn(5, 6)
    with_residual = compiled(u)
    dials.step()
    torch.testing.assert_close(with_residual - compiled(u), u)
    model.eval()
    torch.testing.assert_close(compiled(u), model(u))


def test_batches_of_several_sizes() -> None:
    node = dc.Discrete(6, 4, gate="example")
    dc.Dials(tau=2.0, beta=0.5, alpha=0.5).attach(node)
    compiled = torch.compile(node, fullgraph=True)
    for rows in (8, 8, 3, 5):
        assert compiled(torch.randn(rows, 6)).shape == (rows, 6)


def test_numbers_that_change_compile_a_few_times_only() -> None:
    compiles = torch._dynamo.testing.CompileCounterWithBackend("inductor")

    @torch.compile(fullgraph=True, backend=compiles)
    def relax(theta: Tensor, tau: float, beta: float) -> Tensor:
        return dc.gumbel_softmax(theta, tau, beta=beta)

    for i in range(1, 12):
        relax(torch.randn(3, 4), 1.0 + i, 0.1 * i)
    assert compiles.frame_count <= 3


def test_training_step_compiles_once_while_the_dials_move() -> None:
    torch.manual_seed(0)
    model = Adder()
    dials = dc.Dials(tau=4.0, beta=dc.temp_match(4.0, 0.1), alpha=dc.linear(0, 1, 10)).attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    a, b, target = torch.randn(9, 6), torch.randn(9, 6), torch.arange(9) % 5
    compiles = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    step = torch.compile(
        lambda: F.cross_entropy(model(a, b), target), fullgraph=True, backend=compiles
    )
    losses = []
    for _ in range(20):
        loss = step()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()
        losses.append(loss.item())
    assert compiles.frame_count == 1
    assert losses[-1] < losses[0]


def test_the_distribution_compiles() -> None:
    """In one graph, which is what could fail; Inductor has nothing special to do."""
    theta, noise = torch.randn(6, 4), dc.gumbel([6, 4])
    mask = torch.tensor([True, False, True, True])

    def terms(theta: Tensor, index: Tensor) -> list[Tensor]:
        q = dc.OneHotCategorical(theta, mask)
        divergence = torch.distributions.kl_divergence(q, q.uniform())
        return [divergence, q.entropy(), q.log_prob(index), q.rsample(tau=0.5, noise=noise)]

    index = torch.tensor([0, 2, 3, 0, 2, 3])
    compiled = torch.compile(terms, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(theta, index), terms(theta, index))


def test_padding_compiles() -> None:
    node = dc.Discrete(6, 4, gate="vector")
    dc.Dials.constant(node, tau=2.0, beta=0.0, alpha=1.0)
    u, rows = torch.randn(5, 6), torch.tensor([True, False, True, True, False])
    u[1] = torch.nan
    compiled = torch.compile(node, fullgraph=True)
    torch.testing.assert_close(compiled(u, rows=rows), node(u, rows=rows), equal_nan=True)


@pytest.mark.parametrize("replicas", [1, 3])
def test_population_compiles(replicas: int) -> None:
    population = dc.Population(Adder, range(replicas))
    dc.Dials.constant(population, tau=2.0, beta=0.0, alpha=1.0)
    a, b, target = torch.randn(7, 6), torch.randn(7, 6), torch.arange(7) % 5

    def loss(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
        return F.cross_entropy(model(a, b), target)

    def losses(a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = population.map(loss, a, b)
        return result

    compiled = torch.compile(losses, fullgraph=True)
    weights = tuple(population.parameters())
    found, expected = (
        [f(a, b), *torch.autograd.grad(f(a, b).sum(), weights)] for f in (compiled, losses)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("structure", ["arborescence", "spanning_tree"])
def test_edges_of_trees_equal_eager_given_the_noise(structure: str) -> None:
    node = dc.structures.TreeEdges(structure)
    theta, noise = torch.randn(3, 5, 5, requires_grad=True), dc.gumbel([3, 5, 5])
    used = torch.arange(5) < torch.tensor([[5], [4], [2]])

    def edges(theta: Tensor) -> Tensor:
        return node(theta, rows=used, noise=noise)

    # Traced without making code of it: the steps are unrolled, and code for that takes its time.
    compiled = torch.compile(edges, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(theta), edges(theta))
    weights = torch.randn(5, 5)
    gradients = [torch.autograd.grad((f(theta) * weights).sum(), theta) for f in (compiled, edges)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("structure", ["arborescence", "spanning_tree"])
def test_compiled_code_leaves_sparsemap_to_python(structure: str) -> None:
    torch.manual_seed(0)
    node = dc.structures.TreeEdges(structure, estimator="sparsemap")
    theta, noise = torch.randn(3, 5, 5, requires_grad=True), dc.gumbel([3, 5, 5])
    weights = torch.randn(5, 5)

    def loss(theta: Tensor) -> Tensor:
        return (node(theta, noise=noise) * weights).sum()

    found = [[f(theta), *torch.autograd.grad(f(theta), theta)] for f in (loss, torch.compile(loss))]
    torch.testing.assert_close(*found)


def test_a_large_node_compiles() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(4, 5000, residual="none")
    dc.Dials(tau=2.0, beta=0.0).attach(node)
    u = torch.randn(300, 4)  # so many that no matrix is made
    compiled = torch.compile(node, fullgraph=True)
    gradients = []
    for run in (node, compiled):
        v = run(u)
        gradients.append(torch.autograd.grad(v.square().sum(), node.codebook)[0])
    torch.testing.assert_close(*gradients)
    dc.Dials(tau=2.0, beta=1.0).attach(node)
    assert not torch.equal(compiled(u), compiled(u))
    node.eval()
    assert torch.equal(torch.compile(node, fullgraph=True)(u), node(u))


def compiled_module(module: nn.Module, backend: str = "inductor") -> nn.Module:
    compiled = torch.compile(module, backend=backend)
    assert isinstance(compiled, nn.Module)
    return compiled


def test_nodes_have_the_same_names_in_a_compiled_model() -> None:
    node, choice = dc.Discrete(4, 3), dc.Categorical()
    model = nn.Sequential(node, nn.Sequential(choice))
    inner = nn.Sequential(compiled_module(node), nn.Sequential(compiled_module(choice)))
    for one in (model, compiled_module(model), inner, compiled_module(inner)):
        assert [name for name, _ in dc.named_nodes(one)] == ["0", "1.0"]
    assert [name for name, _ in dc.named_nodes(compiled_module(node))] == ["Discrete"]


def test_recommended_settings_of_a_compiled_model() -> None:
    """Its nodes are not observed in compiled code; those of the model inside are."""
    model = nn.Sequential(dc.Discrete(64, 50, init_std=3.0))
    compiled, u = compiled_module(model, "eager"), torch.randn(20, 64)
    dials = dc.Dials.recommended(compiled, lambda: model(u), steps=100, verbose=False)
    assert dials.values()["tau"] > 2
    with pytest.raises(ValueError, match="compile it afterwards"):
        dc.Dials.recommended(compiled, lambda: compiled(u), steps=100, verbose=False)


@pytest.mark.parametrize("gate", ["call", "example", "vector", "element"])
def test_dropres_with_padding_compiles(gate: Gate) -> None:
    """Where values cannot be read padding draws, too, and still keeps its value."""
    around = dc.DropRes("replace", gate=gate)
    dc.Dials.constant(around, alpha=0.5)
    rows = torch.tensor([[True, True, False], [True, False, False]])
    value, residual = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    compiled = torch.compile(around, fullgraph=True, backend="aot_eager")
    seen = torch.stack([compiled(value, residual, rows=rows) for _ in range(200)])
    assert (seen[:, ~rows] == 0).all() and ((seen == 0) | (seen == 1)).all()
    shared = seen[:, rows].flatten(1)  # two vectors of the first example, one of the second
    alike = (shared == shared[:, :1]).all(0)
    parts = {"call": [True] * 3, "example": [True, True, False], "vector": [True, False, False]}
    expected = [part for part in parts.get(gate, []) for _ in range(4)]
    assert alike.tolist() == (expected or [True] + [False] * 11)
    assert abs(shared.mean() - 0.5) < 0.15


def test_distances_and_pruned_categories_compile() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 8, similarity="distance", prunable=True, residual="replace")
    x = torch.randn(300, 6)
    dc.prune_categories(node, lambda node: node(x), share=0.12)
    assert node.kept is not None and 0 < int(node.kept.sum()) < 8
    dc.Dials.constant(node, tau=1.0, beta=1.0, alpha=1.0)
    noise = dc.gumbel([300, 8])
    compiled = torch.compile(node, fullgraph=True)
    torch.testing.assert_close(compiled(x, noise=noise), node(x, noise=noise))
    node.eval()
    assert torch.equal(compiled(x), node(x))
