"""The LSTM written out against torch's own, and its kernel against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dcgraph.experiments.tasks.listops.model.lstm import TokenLSTM, lstm, lstm_by_steps
from dcgraph.population import Population

kernel = pytest.importorskip(
    "dcgraph.experiments.tasks.listops.kernels.lstm", reason="the kernels need Triton"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

States = Callable[[Tensor, Tensor], Tensor]


def inputs(
    length: int, lstms: int, batch: int, dim: int, *replicas: int, device: str = DEVICE
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(length * batch * dim)
    gates = torch.randn(*replicas, length, lstms, batch, 4 * dim, device=device)
    recurrent = torch.randn(*replicas, lstms, 4 * dim, dim, device=device) / dim**0.5
    return gates.requires_grad_(), recurrent.requires_grad_()


def with_gradients(states: States, gates: Tensor, recurrent: Tensor) -> list[Tensor]:
    """The states and the gradients of a weighted sum of them."""
    out = states(gates, recurrent)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(out.shape, generator=generator).to(out)
    total = (out * weights).sum()
    # One step alone does not reach the recurrent weights.
    gradients = torch.autograd.grad(total, (gates, recurrent), materialize_grads=True)
    return [out.detach(), *gradients]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("dim", [5, 60])
@pytest.mark.parametrize("length", [1, 7])
def test_the_reference_equals_the_lstm_of_torch(dim: int, length: int) -> None:
    torch.manual_seed(0)
    theirs = nn.LSTM(dim, dim)
    weights = dict(theirs.named_parameters())
    x = torch.randn(length, 4, dim)
    probe = torch.randn(length, 4, dim)
    gates = x @ weights["weight_ih_l0"].mT + weights["bias_ih_l0"] + weights["bias_hh_l0"]
    ours = lstm_by_steps(gates.unsqueeze(1), weights["weight_hh_l0"].unsqueeze(0)).squeeze(1)
    expected, _ = theirs(x)
    torch.testing.assert_close(ours, expected)
    gradients = [
        torch.autograd.grad((out * probe).sum(), list(weights.values()), materialize_grads=True)
        for out in (ours, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_gradients_of_the_reference() -> None:
    gates, recurrent = (value.detach().double() for value in inputs(3, 2, 2, 3, device="cpu"))
    leaves = (gates.requires_grad_(), recurrent.requires_grad_())
    assert torch.autograd.gradcheck(lstm_by_steps, leaves)


# Part of a tile, one row, several tiles; dims that fill their power of two or do not.
@pytest.mark.parametrize(
    "shape", [(7, 2, 3, 60), (1, 1, 1, 7), (5, 2, 1, 7), (2, 1, 100, 60), (3, 2, 16, 64)]
)
def test_kernel_equals_its_reference(shape: tuple[int, int, int, int]) -> None:
    leaves = inputs(*shape)
    found = with_gradients(kernel.lstm_states, *leaves)
    assert_same(found, with_gradients(lstm_by_steps, *leaves))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # a GPU has infinity without
def test_small_and_large_gates() -> None:
    """Where tanh loses digits, and where exp overflows."""
    for scale in (1e-3, 300.0):
        gates, recurrent = inputs(4, 1, 3, 7)
        leaves = (gates.detach() * scale).requires_grad_(), recurrent
        found = with_gradients(kernel.lstm_states, *leaves)
        assert_same(found, with_gradients(lstm_by_steps, *leaves))


def test_views_of_any_strides() -> None:
    gates, recurrent = inputs(3, 2, 5, 7)
    weights = torch.randn(5, 2, 7, 3, device=DEVICE)

    def through_copies(leaf: Tensor, own: Tensor, order: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The same numbers in another order of memory."""
        inverse = torch.tensor(order).argsort().tolist()
        view = leaf.permute(order).contiguous().permute(inverse)
        matrix = own.mT.contiguous().mT
        assert not view.is_contiguous() and not matrix.is_contiguous()
        return view, matrix

    expected = (lstm_by_steps(gates, recurrent).permute(2, 1, 3, 0) * weights).sum()
    wanted = list(torch.autograd.grad(expected, (gates, recurrent)))
    for order in ((0, 2, 1, 3), (3, 2, 1, 0)):
        states = kernel.lstm_states(*through_copies(gates, recurrent, order))
        total = (states.permute(2, 1, 3, 0) * weights).sum()
        assert_same(list(torch.autograd.grad(total, (gates, recurrent))), wanted)


# Both mapped, as in a population; one of them shared by the replicas.
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (2, 1)])
def test_replicas(in_dims: tuple[int | None, int | None]) -> None:
    stacked = inputs(3, 2, 3, 7, 3)
    leaves = [
        (value[0] if dim is None else value.movedim(0, dim)).detach().requires_grad_()
        for value, dim in zip(stacked, in_dims, strict=True)
    ]

    def mapped(states: States) -> list[Tensor]:
        population = torch.vmap(states, in_dims, randomness="different")
        return with_gradients(population, leaves[0], leaves[1])

    assert_same(mapped(kernel.lstm_states), mapped(lstm_by_steps))


def test_replicas_of_replicas() -> None:
    leaves = inputs(2, 2, 3, 7, 2, 3)
    found = with_gradients(torch.vmap(torch.vmap(kernel.lstm_states)), *leaves)
    assert_same(found, with_gradients(torch.vmap(torch.vmap(lstm_by_steps)), *leaves))


def test_gradient_inside_vmap() -> None:
    leaves = [leaf.detach() for leaf in inputs(3, 2, 3, 7, 3)]

    def gradients(states: States) -> list[Tensor]:
        def loss(gates: Tensor, recurrent: Tensor) -> Tensor:
            return states(gates, recurrent).square().sum()

        return list(torch.vmap(torch.func.grad(loss, (0, 1)))(*leaves))

    assert_same(gradients(kernel.lstm_states), gradients(lstm_by_steps))


def population_gradient(population: Population, tokens: Tensor) -> list[Tensor]:
    """Losses and their gradient, as the training step computes them."""

    def loss(model: nn.Module, own: Tensor) -> Tensor:
        states: Tensor = model(own)
        return (states[0] @ states[1].mT).square().mean()

    losses = population.map(loss, tokens, in_dims=0)
    return [losses.detach(), *torch.autograd.grad(losses.sum(), tuple(population.parameters()))]


def test_population(monkeypatch: pytest.MonkeyPatch) -> None:
    population = Population(lambda: TokenLSTM(5, 7, lstms=2), [0, 1, 2], torch.device(DEVICE))
    tokens = torch.randint(5, (3, 4, 6), device=DEVICE)
    used = "dcgraph.experiments.tasks.listops.model.lstm.lstm"
    monkeypatch.setattr(used, lstm_by_steps)
    expected = population_gradient(population, tokens)
    monkeypatch.setattr(used, kernel.lstm_states)
    assert_same(population_gradient(population, tokens), expected)


def test_a_diverging_replica_does_not_change_others() -> None:
    gates, recurrent = inputs(3, 2, 3, 7, 2)
    with torch.no_grad():
        recurrent[1, 0, 0, 0] = torch.nan
    states, of_gates, of_weights = with_gradients(torch.vmap(kernel.lstm_states), gates, recurrent)
    for value in (states, of_gates, of_weights):
        assert value[0].isfinite().all()
    assert states[1, 1:, 0].isnan().any() and of_weights[1, 0].isnan().any()


def test_nothing_is_kept_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    gates, recurrent = inputs(3, 2, 3, 7)
    sizes = []
    new_states = kernel._new_states

    def noted(gates: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        states, kept = new_states(gates, recurrent, keep)
        sizes.append(kept.numel())
        return states, kept

    monkeypatch.setattr(kernel, "_new_states", noted)
    expected = kernel.lstm_states(gates, recurrent)
    with torch.no_grad():
        assert torch.equal(kernel.lstm_states(gates, recurrent), expected)
        replicas = torch.vmap(kernel.lstm_states)(gates.unsqueeze(0), recurrent.unsqueeze(0))
        assert torch.equal(replicas[0], expected)
    assert sizes == [3 * 2 * 3 * 7 * 5, 0, 0]


def test_no_rows() -> None:
    gates, recurrent = inputs(3, 2, 0, 7)
    states, of_gates, of_weights = with_gradients(kernel.lstm_states, gates, recurrent)
    assert states.shape == (3, 2, 0, 7) and of_gates.shape == gates.shape
    assert (of_weights == 0).all()


def test_second_derivative_is_refused() -> None:
    gates, recurrent = inputs(2, 1, 3, 7)
    states = kernel.lstm_states(gates, recurrent)
    (first,) = torch.autograd.grad(states.square().sum(), gates, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(first.square().sum(), gates)


def test_operators_keep_their_promises() -> None:
    """No input is changed, and shapes and strides are what the compiler is told."""
    gates, recurrent = (leaf.detach() for leaf in inputs(2, 2, 3, 7))
    stacked = gates.movedim(0, 1).unsqueeze(0), recurrent.unsqueeze(0)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    for keep in (False, True):
        torch.library.opcheck(kernel._states_forward, (*stacked, keep), test_utils=checks)
    states, kept = kernel._states_forward(*stacked, True)
    arguments = (torch.randn_like(states), stacked[1], states, kept)
    torch.library.opcheck(kernel._states_backward, arguments, test_utils=checks)


# torch's own: the compiler warns about its internals.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::UserWarning:torch")
def test_compiled_replicas() -> None:
    leaves = inputs(2, 2, 3, 7, 2)
    mapped = torch.vmap(kernel.lstm_states)
    compiled = torch.compile(mapped, backend="aot_eager", fullgraph=True)
    assert_same(with_gradients(compiled, *leaves), with_gradients(mapped, *leaves))


def test_the_reference_does_what_the_kernel_does_not() -> None:
    for dtype, device, dim in ((torch.float64, DEVICE, 7), (torch.float32, DEVICE, 65)):
        gates, recurrent = (v.detach().to(dtype) for v in inputs(2, 1, 3, dim, device=device))
        assert torch.equal(lstm(gates, recurrent), lstm_by_steps(gates, recurrent))


@needs_gpu
@pytest.mark.parametrize("shape", [(50, 6, 100, 60), (7, 1, 33, 64), (1, 1, 1, 5)])
def test_cuda_uses_the_kernel(shape: tuple[int, int, int, int]) -> None:
    leaves = inputs(*shape)
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact = [v.float() for v in with_gradients(lstm_by_steps, doubles[0], doubles[1])]
    found = with_gradients(lstm, *leaves)
    assert_same(found, exact)
    if kernel.fits(shape[-1], torch.device(DEVICE)):
        assert torch.equal(found[0], kernel.lstm_states(*leaves))


@needs_gpu
def test_captured_population_step() -> None:
    device = torch.device("cuda")
    population = Population(lambda: TokenLSTM(14, 60, lstms=2), [0, 1, 2], device)
    tokens = torch.randint(14, (3, 100, 7), device=device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        population_gradient(population, tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = population_gradient(population, tokens)
    for _ in range(2):  # the replay sees what has changed
        for parameter in population.parameters():
            parameter.detach().add_(0.1 * torch.randn_like(parameter))
        tokens.copy_(torch.randint(14, tokens.shape, device=device))
        graph.replay()
        assert_same(found, population_gradient(population, tokens))
