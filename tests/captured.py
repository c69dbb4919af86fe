"""A captured training step, for the tests on a GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import dcgraph as dc


def losses_of_captured_steps(node: dc.Discrete, rows: int, rate: float = 20) -> list[float]:
    """Of a node whose codebook learns to give random targets, by 60 replays of one step."""
    u, target = (torch.randn(rows, node.dim, device="cuda") for _ in range(2))

    def step() -> Tensor:
        loss = F.mse_loss(node(u), target)
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    node.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(60):
        graph.replay()
        with torch.no_grad():
            assert node.codebook.grad is not None
            node.codebook.sub_(rate * node.codebook.grad)
        losses.append(loss.item())
    return losses
