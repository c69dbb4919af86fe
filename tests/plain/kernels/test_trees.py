"""The kernel of trees against its reference, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dcgraph.structures import arborescence
from dcgraph.structures._graphs import graph

trees = pytest.importorskip("dcgraph.kernels._trees", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def log_weights(*shape: int, scale: float = 1.0) -> Tensor:
    """Of random graphs; the last nodes of some are padding, and some edges are forbidden."""
    torch.manual_seed(0)
    n = shape[-1]
    scores = scale * torch.randn(*shape, n, device=DEVICE)
    used = torch.arange(n, device=DEVICE) < torch.randint(2, n + 1, (*shape[:-1], 1), device=DEVICE)
    mask = torch.rand(*shape, n, device=DEVICE) < 0.8
    mask[..., 0] = True  # so that there is a tree
    _, w = arborescence._shifted(graph(scores, mask, used))
    return w


@pytest.mark.parametrize("n", [2, 5, 19, 35])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_marginals_and_their_derivative(n: int, scale: float) -> None:
    w = log_weights(3, n, scale=scale)
    gradient = torch.randn_like(w)
    leaves = w.clone().requires_grad_(), w.double().requires_grad_()
    found, exact = trees.marginals(leaves[0]), arborescence.marginals_by_torch(leaves[1])
    (d_found,) = torch.autograd.grad(found, leaves[0], gradient)
    (d_exact,) = torch.autograd.grad(exact, leaves[1], gradient.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(d_found.double(), d_exact, rtol=1e-3, atol=1e-4)


def test_a_graph_of_only_a_root_has_no_edges() -> None:
    assert trees.marginals(torch.zeros(3, 1, 1, device=DEVICE)).eq(0).all()


def test_replicas_are_more_graphs() -> None:
    w, gradient = log_weights(2, 3, 7), torch.randn(2, 3, 7, 7, device=DEVICE)

    def pulled_back(w: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        mu, back, *_ = torch.func.vjp(trees.marginals, w)
        return mu, back(gradient)[0]

    together = torch.func.vmap(pulled_back)(w, gradient)
    for replica in range(2):
        alone = pulled_back(w[replica], gradient[replica])
        for found, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(found[replica], expected)


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU")
@pytest.mark.parametrize("name", ["arborescence", "spanning_tree"])
def test_a_structure_takes_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    structure = getattr(__import__("dcgraph.structures", fromlist=[name]), name)
    scores = torch.randn(4, 3, 20, 20, device=DEVICE)
    used = torch.arange(20, device=DEVICE) < torch.randint(2, 21, (4, 3, 1), device=DEVICE)
    by_kernel = structure.marginals(scores, used=used)
    monkeypatch.setattr(arborescence, "_has_kernel", lambda _: False)
    torch.testing.assert_close(by_kernel, structure.marginals(scores, used=used))
