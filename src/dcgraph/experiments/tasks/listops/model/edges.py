"""Guessing the parse tree: who is whose parent, and the encoders that score pairs of tokens."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....._arguments import check_choice
from .....functional import one_hot
from .....nodes import Categorical
from .....structures import TreeEdges
from ..data.expressions import CLOSE, OPERATORS, TOKENS
from .lstm import TokenLSTM

Parents = Literal["tokens", "operators"]
Senders = Literal["tokens", "values"]
Structure = Literal["one_parent", "arborescence", "spanning_tree"]


class Edges(nn.Module):
    """Edges [batch, child, parent] of expressions: relaxed in training, hard in eval mode.

    A row belongs to a child; it is 0 where a token sends nothing, as padding never does.

    Args:
        encode: from tokens to scores of parents, [batch, child, parent]; None: the tree is given.
        parents: who can be a parent: all "tokens", or only "operators". Needs ``earlier``.
        silent_root: whether the root sends nothing, and no token is its own parent. If not, as in
            the paper's code, a token may be its own parent, and the root's is random.
        earlier: whether a parent must stand before its child; so ``silent_root`` holds too.
        senders: who sends to its parent: all "tokens"; or those with "values", which closing
            brackets are not. Needs ``earlier``.
        structure: "one_parent" lets each token choose by itself, as the paper; the others choose a
            whole tree, rooted in the first token, or without direction, in which case the edges
            are symmetric.
        estimator: of the gradient of "one_parent", see :class:`Categorical`.
    """

    received: Tensor  # the tokens that can be a parent
    kind_of_token: Tensor  # which of these a token is, -1 for none

    def __init__(
        self,
        encode: nn.Module | None,
        *,
        parents: Parents = "tokens",
        silent_root: bool = False,
        earlier: bool = False,
        senders: Senders = "tokens",
        structure: Structure = "one_parent",
        estimator: str = "gumbel_softmax",
    ) -> None:
        super().__init__()
        check_choice("parents", parents, get_args(Parents))
        check_choice("senders", senders, get_args(Senders))
        check_choice("structure", structure, get_args(Structure))
        self.encode, self.structure, self.senders = encode, structure, senders
        self.earlier, self.silent_root = earlier, silent_root or earlier
        self.choice: Categorical | None = None
        if encode is not None:
            one_parent = structure == "one_parent"
            self.choice = Categorical(estimator=estimator) if one_parent else TreeEdges(structure)
        received = range(len(TOKENS)) if parents == "tokens" else list(OPERATORS)
        kinds = torch.full((len(TOKENS),), -1)
        kinds[list(received)] = torch.arange(len(received))
        self.register_buffer("received", torch.tensor(list(received)), persistent=False)
        self.register_buffer("kind_of_token", kinds, persistent=False)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length length"]:
        """``parents`` is the tree, for a model that is given it."""
        length = tokens.shape[1]
        place = torch.arange(length, device=tokens.device)
        used = place < lengths.unsqueeze(1)
        if self.encode is None or self.choice is None:
            assert parents is not None, "without an encoder the tree is needed"
            return F.one_hot(parents.clamp(min=0), length) * (parents >= 0).float().unsqueeze(-1)
        scores: Tensor = self.encode(tokens)
        if isinstance(self.choice, TreeEdges):
            return self.choice(scores, rows=used)
        if not self.silent_root:
            # As in the paper's code, where the root has no scores of its own.
            scores = scores * (place > 0).to(scores.dtype).unsqueeze(-1)
            free: Tensor = self.choice(scores, mask=used.unsqueeze(1))
            return free * used.unsqueeze(-1)
        child = place.unsqueeze(-1)
        if self.earlier:
            mask = (self.kinds(tokens).unsqueeze(1) >= 0) & (place < child)
        else:
            mask = used.unsqueeze(1) & (place != child)
        sends = used & (place > 0)
        if self.senders == "values":
            sends = sends & (tokens != CLOSE)
        # A row that sends nothing may choose anything: an empty choice would be an error.
        chosen: Tensor = self.choice(scores, mask=mask | ~sends.unsqueeze(-1))
        return chosen * sends.unsqueeze(-1)

    def kinds(self, tokens: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """Which of the tokens that can be a parent each one is; -1 for none."""
        return self.kind_of_token[tokens]


class TwoLSTMs(nn.Module):
    """The paper's encoder: score_ij = q_i k_j, where q and k are the states of two LSTMs."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.lstms = TokenLSTM(len(TOKENS), dim, lstms=2)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length length"]:
        q, k = self.lstms(tokens)
        scores: Tensor = q @ k.mT
        return scores


class Counters(nn.Module):
    r"""Counters in place of a memory: they carry to inputs of any length.

    Every token moves each counter by a learned amount; c_i is what the tokens before i add up to.
    A token j matches as a parent of i, the better the closer their counters are to a learned
    distance:

    .. math::
        m_{ij} = b_{t_i t_j} - \sum_k w_k (c_{ik} - c_{jk} - d_k)^2

    The parent is the *nearest* match: going back from i, the first token that is accepted, each
    with probability :math:`\sigma(m_{ij})`:

    .. math::
        p_{ij} = \sigma(m_{ij}) \prod_{j < l < i} (1 - \sigma(m_{il}))

    The score is log p_ij; without ``nearest`` it is m_ij. The first token is accepted by all that
    come to it, so the p_ij of a token add up to 1: else all matches could become improbable and
    compete as scores do, and then the nearest one need not win. (A bracket's depth is such a
    counter, +1 for an operator and -1 for ], and the parent is the nearest operator one level up;
    but this has to be found.)

    Args:
        counters: how many.
        nearest: whether the parent is the nearest match; if not, the best one.
        ternary: whether in eval mode every token moves a counter by -g, 0 or g, see
            :func:`ternary`.
        spread: of the initial increments.
    """

    def __init__(
        self,
        counters: int = 4,
        *,
        nearest: bool = True,
        ternary: bool = True,
        spread: float = 0.3,
    ) -> None:
        super().__init__()
        self.nearest, self.ternary = nearest, ternary
        self.increments = nn.Parameter(spread * torch.randn(len(TOKENS), counters))
        self.distance = nn.Parameter(torch.zeros(counters))
        self.scale = nn.Parameter(torch.zeros(counters))
        self.bias = nn.Parameter(torch.zeros(len(TOKENS), len(TOKENS)))

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length length"]:
        token = one_hot(tokens, len(TOKENS))
        increments = token @ self.table()
        before = increments.cumsum(1) - increments
        apart = before.unsqueeze(2) - before.unsqueeze(1) - self.distance
        match = token @ self.bias @ token.mT - apart.square() @ F.softplus(self.scale)
        return nearest(match) if self.nearest else match

    def table(self) -> Float[Tensor, "tokens counters"]:
        """By how much each token moves each counter."""
        return ternary(self.increments) if self.ternary and not self.training else self.increments


def ternary(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Each column as -g, 0 and g: what is more than half of its largest, by the mean size of these.

    A counter that moves so returns to where it was, however long the input.

    >>> ternary(torch.tensor([[-1.1], [0.9], [0.1]]))
    tensor([[-1.],
            [ 1.],
            [ 0.]])
    """
    size = x.abs()
    large = size > 0.5 * size.amax(0)
    g = (size * large).sum(0) / large.sum(0).clamp(min=1)
    return x.sign() * large * g


def nearest(
    match: Float[Tensor, "batch length length"],
) -> Float[Tensor, "batch length length"]:
    r"""log p_ij that j is the nearest match before i, from logits of single matches.

    The first token matches where no other one does.

    >>> nearest(torch.tensor([[[0.0, 0, 0], [-50, 0, 0], [50, 50, 0]]]))[0].exp().tril(-1).round()
    tensor([[0., 0., 0.],
            [1., 0., 0.],
            [0., 1., 0.]])
    """
    length = match.shape[-1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=match.device).tril(-1)
    refused = F.logsigmoid(-match).masked_fill(~earlier, 0.0)
    between = refused.sum(-1, keepdim=True) - refused.cumsum(-1)
    first = torch.arange(length, device=match.device) == 0
    return F.logsigmoid(match).masked_fill(first, 0.0) + between
