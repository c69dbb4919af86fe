"""The paper's model: read each image as a symbol, then add the symbols."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .....nodes import Discrete, Residual, Similarity, named_nodes
from .....residual import Gate
from .convolution import ConvPoolReLU


class LeNet(nn.Module):
    """Two convolutions and an MLP: images [N, 28, 28] to vectors [N, last width]."""

    def __init__(self, width: int, *widths: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(ConvPoolReLU(1, 6, 5), ConvPoolReLU(6, 16, 5))
        self.mlp = mlp(width, *widths)

    def forward(self, images: Float[Tensor, "n h w"]) -> Float[Tensor, "n width"]:
        batch_last = images.permute(1, 2, 0).contiguous().unsqueeze(0)
        features = self.convolutions(batch_last).flatten(0, 2)
        vectors: Tensor = self.mlp(features.T)
        return vectors


class Flat(nn.Module):
    """An MLP on the pixels, for the small images."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.mlp = mlp(*widths)

    def forward(self, images: Float[Tensor, "n h w"]) -> Float[Tensor, "n width"]:
        vectors: Tensor = self.mlp(images.flatten(1))
        return vectors


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width, following in itertools.pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Adder(nn.Module):
    """x_i = f(encode(image_i)); then add_1, f, add_2, f, ..., add_last; one codebook for all f.

    The rows of the codebook stand for numbers: those read from the images, the sums on the way and
    the answer. Which row stands for which number is learned.

    With ``symbols`` there are two codebooks of so many rows, one for the images and one for the
    sums on the way, and a linear layer answers. With more rows than numbers two numbers need not
    meet in a row, from which they hardly part again. With ``sums="answers"`` the sums on the way
    choose among the answers: the second codebook has a row for each number, and classifies the
    result too.

    Fewer images than ``summands`` can be added as well.

    Args:
        encoder: from images [N, h, w] to vectors [N, dim].
        dim: width of the vectors.
        numbers: how many numbers there are, 0 to the largest sum.
        summands: how many images are added.
        gate: whether one draw of the DropRes gate is shared by a "batch" of images (the paper's
            code: one for all first images, one for all second ones) or each "example" has its own.
        relu: whether the addition layers end in a ReLU, as in the paper.
        small_codebook: whether its rows start in U(-1/sqrt(dim), 1/sqrt(dim)), else in N(0, 1).
        symbols: rows of each of two codebooks; 0: one codebook, with a row for each number.
        sums: whether the sums on the way have rows of their "own", or choose among the "answers".
        adder: whether "each" addition has layers of its own, or those of all are "shared".
        init_std, similarity, residual, estimator: of all nodes, see :class:`Discrete`.
        prunable: whether rows that stand for no answers can be pruned.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        numbers: int,
        summands: int,
        *,
        gate: str = "batch",
        relu: bool = True,
        small_codebook: bool = False,
        symbols: int = 0,
        sums: Literal["own", "answers"] = "own",
        adder: Literal["each", "shared"] = "each",
        init_std: float = 1.0,
        similarity: Similarity = "product",
        residual: Residual = "drop",
        estimator: str = "gumbel_softmax",
        prunable: bool = False,
    ) -> None:
        super().__init__()
        self.encode = encoder
        # Vectors are stacked as [summands, batch, dim], so that one gate for a batch of images is
        # one for the first dimension.
        shared: Gate = "example" if gate == "batch" else "vector"
        choice = partial(
            Discrete, dim, gate=shared, init_std=init_std, similarity=similarity,
            residual=residual, estimator=estimator,
        )  # fmt: skip
        self.symbol = choice(symbols or numbers, prunable=prunable and symbols > 0)
        self.sum: Discrete | None = None
        if symbols and sums == "answers":
            self.sum = choice(numbers)
        elif symbols and summands > 2:
            self.sum = choice(symbols, prunable=prunable)
        self.answer = nn.Linear(dim, numbers) if symbols and sums == "own" else None
        hidden, adders = 2 * dim, summands - 1 if adder == "each" else 1
        self.add = nn.ModuleList(mlp(2 * dim, hidden, dim) for _ in range(adders))
        self.relu = relu
        if small_codebook:
            for _, node in named_nodes(self):
                assert isinstance(node, Discrete)
                nn.init.uniform_(node.codebook, -1 / math.sqrt(dim), 1 / math.sqrt(dim))

    @property
    def of_sums(self) -> Discrete:
        """The node that makes a symbol of each sum on the way."""
        return self.symbol if self.sum is None else self.sum

    def forward(
        self, images: Float[Tensor, "batch summands h w"]
    ) -> Float[Tensor, "batch numbers"]:
        total, *others = _choose(self.symbol, self.encoded(images))
        for step, other in enumerate(others):
            if step > 0:
                (total,) = _choose(self.of_sums, total.unsqueeze(0))
            total = self._add(step, total, other)
        return self._answer(total)

    def encoded(
        self, images: Float[Tensor, "batch summands h w"]
    ) -> Float[Tensor, "summands batch dim"]:
        stacked = images.transpose(0, 1)
        vectors: Tensor = self.encode(stacked.flatten(0, 1))
        by_summand: Tensor = vectors.unflatten(0, stacked.shape[:2])
        return by_summand

    def read(self, images: Float[Tensor, "n h w"]) -> Int[Tensor, " n"]:
        """The symbol of each image."""
        symbols: Tensor = self.symbol.logits(self.encode(images)).argmax(-1)
        return symbols

    def compute(self, symbols: Int[Tensor, "n summands"]) -> Int[Tensor, "n additions"]:
        """The symbol after each addition, from symbols already read; the last is the answer."""
        total, *others = self.symbol.codebook[symbols].unbind(1)
        results = []
        for step, other in enumerate(others[:-1]):
            result = self.of_sums.logits(self._add(step, total, other)).argmax(-1)
            results.append(result)
            total = self.of_sums.codebook[result]
        answer = self._answer(self._add(len(others) - 1, total, others[-1])).argmax(-1)
        return torch.stack([*results, answer], -1)

    def _answer(self, total: Tensor) -> Tensor:
        answer = self.of_sums.logits if self.answer is None else self.answer
        logits: Tensor = answer(total)
        return logits

    def _add(self, step: int, left: Tensor, right: Tensor) -> Tensor:
        add = self.add[min(step, len(self.add) - 1)]
        total: Tensor = add(torch.cat([left, right], -1))
        return total.relu() if self.relu else total


def _choose(
    node: Discrete, vectors: Float[Tensor, "summands batch dim"]
) -> Float[Tensor, "summands batch dim"]:
    """What the node makes of them; where it needs the loss, with the examples in front."""
    if not node.categorical.needs_loss:
        return node(vectors)
    return node(vectors.transpose(0, 1)).transpose(0, 1)
