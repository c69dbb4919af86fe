"""What only a GPU can show: captured graphs, the samplers on CUDA, checks inside debug()."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dcgraph as dc
import ranks
import training_on_ranks
from captured import losses_of_captured_steps
from dcgraph.experiments.engine import Callbacks, Interrupted, train
from dcgraph.experiments.engine.ranks import ONE_RANK
from dcgraph.experiments.engine.settings import dials_of
from dcgraph.experiments.engine.step import Stepper
from dcgraph.population._rows import RowPopulation
from models import Adder
from parity import QUICK, Lengths, Parity
from statistics_of_fit import chi_square_p, kolmogorov_p

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    # torch's own: the compiler warns about its internals.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::UserWarning:torch"),
]


def test_captured_step_sees_dials_change_and_draws_afresh() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 4).cuda()
    dials = dc.Dials(
        tau=2.0, beta=dc.piecewise([(0, 0.0), (1, 0.0), (1, 1.0)]), alpha=dc.linear(0, 1, 1)
    )
    dials.attach(node)
    u = torch.randn(5, 6, device="cuda")
    with torch.no_grad():
        node(u)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            v = node(u)
        graph.replay()
        relaxed = (node.logits(u) / 2.0).softmax(-1) @ node.codebook
        torch.testing.assert_close(v, relaxed + u)
        dials.step()
        graph.replay()
        first = v.clone()
        graph.replay()
    assert not torch.equal(first, relaxed), "noise and no residual"
    assert not torch.equal(first, v), "each replay draws anew"


def test_captured_training_step_with_the_kernel() -> None:
    torch.manual_seed(0)
    # With a g of its own the node makes a row of all logits, however many there are.
    node = dc.Discrete(8, 5000, g=torch.nn.Linear(8, 5000), residual="none").cuda()
    dc.Dials(tau=1.0, beta=0.5).attach(node)
    losses = losses_of_captured_steps(node, rows=16, rate=3000)
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.mark.parametrize("categories", [5, 5000])
@pytest.mark.parametrize("compiled", [False, True])
def test_relaxed_rows_follow_softmax_of_theta_over_beta(categories: int, compiled: bool) -> None:
    torch.manual_seed(0)
    theta = torch.full((categories,), -torch.inf, device="cuda")
    theta[:5] = torch.tensor([1.0, -0.5, 0.3, 2.0, 0.0])

    def relax(rows: Tensor) -> Tensor:
        return dc.gumbel_softmax(rows, 3.0, beta=2.0)

    z = (torch.compile(relax, fullgraph=True) if compiled else relax)(theta.expand(50_000, -1))
    counts = z.argmax(-1).bincount(minlength=5)[:5].cpu()
    assert counts.sum() == 50_000
    assert chi_square_p(counts, (theta[:5].cpu() / 2.0).softmax(-1)) > 1e-4


@pytest.mark.parametrize("compiled", [False, True])
def test_noise(compiled: bool) -> None:
    torch.manual_seed(0)

    def draw() -> Tensor:
        return dc.gumbel([10_000_000], device="cuda")

    sampler = torch.compile(draw, fullgraph=True) if compiled else draw
    for _ in range(20):
        noise = sampler()
        assert noise.isfinite().all()
        assert (noise == noise.max()).sum() == 1
    uniform = torch.exp(-torch.exp(-noise[:100_000].double().cpu()))
    assert kolmogorov_p(uniform) > 1e-4


def test_values_are_read_inside_debug_only() -> None:
    bad = torch.full((2, 3), -torch.inf, device="cuda")
    assert (dc.gumbel_softmax(bad) == 0).all()
    with dc.debug(), pytest.raises(ValueError, match="row 0 has no category left"):
        dc.gumbel_softmax(bad)
    assert (dc.gumbel_softmax(bad) == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("categories", [50, 5000])
def test_half_precision(dtype: torch.dtype, categories: int) -> None:
    logits = torch.randn(64, categories, device="cuda").to(dtype).requires_grad_()
    z = dc.gumbel_softmax(logits, 0.1, beta=3.0)
    (gradient,) = torch.autograd.grad((z.float() * torch.randn_like(z.float())).sum(), logits)
    assert z.dtype == dtype and z.isfinite().all() and gradient.isfinite().all()


def test_probe_restores_the_cuda_generator() -> None:
    model = Adder().cuda()
    a, b = torch.randn(7, 6, device="cuda"), torch.randn(7, 6, device="cuda")
    target = torch.arange(7, device="cuda") % 5
    before = torch.cuda.get_rng_state()
    first = dc.probe(model, lambda: F.cross_entropy(model(a, b), target))
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert dc.probe(model, lambda: F.cross_entropy(model(a, b), target)) == first


@pytest.mark.parametrize(
    ("task", "compiled"), [(Parity(), False), (Parity(), True), (Lengths(), False)]
)
def test_a_captured_population_trains_as_on_the_cpu(task: Parity, compiled: bool) -> None:
    """Without noise the two differ by rounding alone; the noise itself is another on a GPU."""
    quiet = replace(QUICK, tempmatch=False, beta=0.0, dropres=False)
    replicas = [replace(quiet, seed=seed, lr=lr) for seed, lr in ((0, 1e-3), (1, 3e-3))]
    data = task.data(quiet)
    cpu = train(task, replicas, data)
    cuda = train(task, replicas, data, device="cuda", compiled=compiled)
    torch.testing.assert_close(
        cuda.population.weights.cpu(), cpu.population.weights, rtol=1e-3, atol=1e-3
    )
    assert [look.step for look in cuda.curve] == [look.step for look in cpu.curve]


def test_a_captured_step_sees_dials_move_and_draws_fresh_noise() -> None:
    task = Parity()
    replicas = [replace(QUICK, seed=0), replace(QUICK, seed=0)]
    outcome = train(task, replicas, task.data(QUICK), device="cuda")
    ((_, node),) = dc.named_nodes(outcome.population)
    assert node.beta[0] > 0  # moved while the graph was replayed
    assert not torch.equal(outcome.population.weights[0], outcome.population.weights[1])


def test_a_captured_evaluation_sees_new_weights() -> None:
    task, device = Parity(), torch.device("cuda")
    replicas = [replace(QUICK, seed=seed) for seed in range(3)]
    data = task.data(QUICK).to(device)
    population = RowPopulation(lambda: task.model(QUICK), range(3), device)
    dials_of(replicas).attach(population)
    stepper = Stepper(task, population, replicas, data, 100)
    weights = [torch.randn_like(population.weights) for _ in range(3)]
    eager = [stepper._measure_all(population, w, "test", "argmax")["accuracy"] for w in weights]
    for _ in range(2):  # at first eager, then captured, then replayed
        for own, expected in zip(weights, eager, strict=True):
            found = stepper.evaluate(own, "test", "argmax")["accuracy"]
            assert found == (expected / data.size("test")).tolist()


def test_only_a_diverging_replica_stops_on_cuda() -> None:
    task = Parity()
    outcome = train(task, [QUICK, replace(QUICK, seed=1, lr=1e30)], task.data(QUICK), device="cuda")
    assert outcome.stopped_at[0] is None and outcome.stopped_at[1] is not None
    assert outcome.population.weights[0].isfinite().all()


@pytest.mark.parametrize("task", [Parity(), Lengths()])
@pytest.mark.parametrize("stop", [7, 9])
def test_a_run_on_cuda_can_be_resumed(task: Parity, stop: int, tmp_path: Path) -> None:
    """Also near the end of an epoch, where a table has fewer batches left than a capture tries."""
    path = tmp_path / "run.pt"

    def interrupt(step: int, steps: int) -> None:
        if step >= stop:
            signal.raise_signal(signal.SIGINT)

    data = task.data(QUICK)
    with pytest.raises(Interrupted):
        train(task, [QUICK], data, device="cuda", save_to=path, callbacks=Callbacks(interrupt))
    outcome = train(task, [QUICK], data, device="cuda", save_to=path, resume=True)
    assert len(outcome.curve) == 4 and outcome.curve[-1].step == outcome.steps


@pytest.mark.parametrize("structure", ["arborescence", "spanning_tree"])
def test_sparsemap_equals_that_of_the_cpu_and_is_not_captured(structure: str) -> None:
    torch.manual_seed(0)
    theta, weights = torch.randn(4, 7, 7, requires_grad=True), torch.randn(7, 7)
    used = torch.arange(7) < torch.tensor([[7], [6], [3], [1]])
    sparsemap = dc.structures.STRUCTURES[structure].sparsemap
    found = []
    for device in ("cpu", "cuda"):
        there = theta.to(device)
        mu = sparsemap(there, None, used.to(device))
        (gradient,) = torch.autograd.grad((mu * weights.to(device)).sum(), theta)
        found.append((mu.cpu(), gradient))
    torch.testing.assert_close(*found)
    on_gpu = theta.detach().cuda()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="cannot capture"), torch.cuda.graph(graph):
        sparsemap(on_gpu)


@pytest.mark.parametrize("structure", ["arborescence", "spanning_tree"])
def test_captured_edges_of_trees_and_their_gradient(structure: str) -> None:
    torch.manual_seed(0)
    node = dc.structures.TreeEdges(structure).cuda()
    theta = torch.randn(4, 7, 7, device="cuda", requires_grad=True)
    used = torch.arange(7, device="cuda") < torch.tensor([[7], [6], [3], [1]], device="cuda")
    noise = dc.gumbel([4, 7, 7], device="cuda")

    def step() -> tuple[Tensor, Tensor]:
        edges = node(theta, rows=used, noise=noise)
        return edges.detach(), torch.autograd.grad(edges.square().sum(), theta)[0]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        theta.copy_(3 * torch.randn(4, 7, 7))
    graph.replay()
    torch.testing.assert_close(captured, step())
    module, on_cpu = dc.structures.STRUCTURES[structure], theta.detach().cpu()
    assert torch.equal(
        module.argmax(theta, None, used).cpu(), module.argmax(on_cpu, None, used.cpu())
    )


@pytest.mark.parametrize("own", [True, False])
def test_a_captured_step_of_a_users_loop_is_one_training_step(own: bool) -> None:
    """Without noise a population trains as on the CPU, from the first call on."""
    torch.manual_seed(0)
    x, target = torch.randn(40, 7, 6), torch.randint(5, (40, 7))

    def loss(model: torch.nn.Module, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(model(x, x), target)

    def train(device: str) -> tuple[list[Tensor], dc.Population]:
        population = dc.Population(Adder, range(3), device)
        dc.Dials.constant(population, tau=2.0, beta=0.0, alpha=1.0)
        rates = [1e-2, 3e-3, 1e-3] if own else 1e-2
        parameters = population.parameters()
        optimizer = (
            dc.population.Adam(parameters, rates)
            if own
            else torch.optim.Adam(parameters, 1e-2, capturable=device == "cuda")
        )

        @population.capture
        def step(x: Tensor, target: Tensor) -> Tensor:
            losses: Tensor = population.map(loss, x, target)
            losses.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            return losses.detach()

        return [step(a, b).cpu() for a, b in zip(x, target, strict=True)], population

    (on_cpu, first), (on_cuda, second) = train("cpu"), train("cuda")
    torch.testing.assert_close(on_cuda, on_cpu, rtol=1e-3, atol=1e-3)
    for here, there in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-2, atol=1e-3)


def test_a_captured_step_draws_afresh_and_sees_what_changes() -> None:
    population = dc.Population(lambda: dc.Discrete(4, 3), range(2), "cuda")
    dials = dc.Dials(tau=1.0, beta=dc.piecewise([(0, 0.0), (6, 0.0), (7, 1.0)])).attach(population)
    optimizer = dc.population.Adam(population.parameters(), 0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: float(t > 20))
    u = torch.randn(5, 4)

    @population.capture
    def step(u: Tensor) -> Tensor:
        v: Tensor = population(u)
        v.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return v.detach()

    seen = []
    for _ in range(12):
        seen.append(step(u))
        dials.step()
    assert all(torch.equal(seen[0], v) for v in seen[:7]), "no noise at first"
    assert not torch.equal(seen[-1], seen[-2]) and not torch.equal(seen[-2], seen[-3])
    optimizer.param_groups[0]["lr"].fill_(0.1)
    before = [p.clone() for p in population.parameters()]
    step(u)
    scheduler.step()
    assert not any(map(torch.equal, before, population.parameters()))


def test_batch_normalisation_of_a_population_on_cuda() -> None:
    population = dc.Population(
        lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3)), range(2),
        "cuda",
    )  # fmt: skip
    alone, x = population.replica(1), torch.randn(4, 1, 6, 6, device="cuda")
    torch.testing.assert_close(population(x)[1], alone(x), rtol=1e-3, atol=1e-3)
    for name, buffer in alone.named_buffers():
        torch.testing.assert_close(population.stacked.get_buffer(name)[1], buffer)


@pytest.mark.parametrize("world", [2, 4])
def test_training_over_ranks_that_share_a_gpu(world: int, tmp_path: Path) -> None:
    first, *_ = ranks.run(["training_on_ranks.on_one_gpu"], world, tmp_path)
    expected = training_on_ranks.trained_on(torch.device("cuda", 0), ONE_RANK)
    for divided, weights in first["training_on_ranks.on_one_gpu"].items():
        torch.testing.assert_close(weights, expected[divided])


@pytest.mark.parametrize("world", [2, 4])
def test_codebooks_divided_over_ranks_on_one_gpu(world: int, tmp_path: Path) -> None:
    """By gloo, for NCCL wants a GPU for each rank."""
    first, *others = (
        one["shards.on_one_gpu"] for one in ranks.run(["shards.on_one_gpu"], world, tmp_path)
    )
    errors = {name: value for name, value in first.items() if "torch" in name}
    assert len(errors) == 16
    for name, value in errors.items():
        assert value < (3e-2 if "bfloat16" in name else 1e-5), name
    for one in (first, *others):
        assert one["decoded"] and one["losses"] == first["losses"]
    assert first["losses"][-1] < first["losses"][0]
