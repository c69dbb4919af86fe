"""Hard decoding by look-up: what a model computes in eval mode, without computing its messages.

A state is always one of 14 vectors, the embedding of a token at first and that of a digit after
every round but the last. So the message from a sender to its parent, which depends on the state of
the one and the token of the other, is a row of a small table. With one parent for each token a
round is a look-up, a sum over children, and the classifier on the tokens that received something;
for all others the classifier is a table too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor, nn

from ...engine.task import Batch, Data
from .baselines import NearestOperator, StateTree
from .data.expressions import CLOSE, TOKENS, ZERO, Expression
from .model.latent_tree import LatentTree

LONGEST = 10_000
"""Tokens of an expression: edges are scored between all pairs, which takes 2 GB for so many."""

DEEPEST = LONGEST // 2
"""Rounds that the tree of any such expression can need."""

_AT_ONCE = 500  # expressions
_PAIRS = 2_000_000  # of tokens: the scores of edges are what takes memory


@dataclass(frozen=True)
class Decoded:
    """What a model decided about some expressions.

    ``parents``: the position of each token's parent, -1 where a token sends nothing. ``values``:
    the digit at each token after every round; that of padding has no meaning.
    """

    parents: Int64[Tensor, "batch length"]
    values: Int64[Tensor, "rounds batch length"]

    @property
    def answers(self) -> Int64[Tensor, " batch"]:
        return self.values[-1, :, 0]


class TreeDecoder:
    """The tables of a model in eval mode; make a new one when its weights have changed."""

    @torch.no_grad()
    def __init__(self, model: LatentTree) -> None:
        if model.training:
            raise ValueError("the model is in training mode; call model.eval() first.")
        self._model = model
        self._embedding = model.embedding.detach()
        received = model.edges.received
        layers = model.message
        receiver = layers.of_receiver(model.embedding[received])
        hidden = (receiver.unsqueeze(1) + layers.of_sender(model.embedding)).relu()
        self._messages = layers.last(hidden).relu().flatten(0, 1)  # [receivers * states, dim]
        self._logits = model.value.logits(model.embedding)  # of a token that received nothing
        self._first_row = torch.full((len(TOKENS),), -1, device=received.device)
        rows = torch.arange(0, len(self._messages), len(TOKENS), device=received.device)
        self._first_row[received] = rows

    @torch.no_grad()
    def __call__(
        self,
        tokens: Int64[Tensor, "batch length"],
        lengths: Int64[Tensor, " batch"],
        parents: Int64[Tensor, "batch length"] | None = None,
        rounds: int | None = None,
    ) -> Decoded:
        """As ``model.run``: ``parents`` is the tree, for a model that is given it."""
        return self.follow(tokens, self.choose(tokens, lengths, parents), rounds)

    @torch.no_grad()
    def choose(
        self,
        tokens: Int64[Tensor, "batch length"],
        lengths: Int64[Tensor, " batch"],
        parents: Int64[Tensor, "batch length"] | None = None,
    ) -> Int64[Tensor, "batch length"]:
        """The parent of each token, -1 for a token that sends nothing."""
        edges: Tensor = self._model.edges(tokens, lengths, parents)
        return edges.argmax(-1).masked_fill(edges.sum(-1) == 0, -1)

    @torch.no_grad()
    def follow(
        self,
        tokens: Int64[Tensor, "batch length"],
        parents: Int64[Tensor, "batch length"],
        rounds: int | None = None,
    ) -> Decoded:
        """What the model computes along given edges; -1 for a token that sends nothing."""
        rounds = self._model.rounds if rounds is None else rounds
        if rounds < 1:
            raise ValueError(f"rounds={rounds}, but at least 1 is needed.")
        batch, length = tokens.shape
        start = torch.arange(0, batch * length, length, device=tokens.device).unsqueeze(1)
        first_row = self._first_row[tokens.gather(1, parents.clamp(min=0))]
        # A parent that cannot receive gets nothing.
        senders = ((parents >= 0) & (first_row >= 0)).flatten().nonzero().flatten()
        targets, order = (parents + start).flatten()[senders].sort()
        senders = senders[order]
        receivers, children = targets.unique_consecutive(return_counts=True)
        rows, offsets = first_row.flatten()[senders], children.cumsum(0) - children
        states = first = tokens.flatten()
        values: list[Tensor] = []
        for _ in range(rounds):
            before = first if self._model.restart else states
            logits = self._logits[before]
            if len(receivers):
                messages = rows + states[senders]
                received = F.embedding_bag(messages, self._messages, offsets, mode="sum")
                x = self._embedding[before[receivers]] + received
                logits[receivers] = self._model.value.logits(x)
            if len(values) == rounds - 1:  # the last one is read, not handed on
                values.append(logits.argmax(-1))
                break
            # One call for all, so that a seed gives the draws that the model itself would make.
            _, index = self._model.value.categorical.decide(logits.view(batch, length, -1))
            assert index is not None
            values.append(index.flatten())
            states = ZERO + values[-1]
        return Decoded(parents, torch.stack(values).view(rounds, batch, length))


def levels(parents: Int64[Tensor, "batch length"]) -> Int64[Tensor, " batch"]:
    """The edges on the longest way up in each chosen tree; what runs in a loop has none.

    >>> levels(torch.tensor([[-1, 0, 1, 1, 0], [-1, 0, 3, 2, 0]]))
    tensor([2, 1])
    """
    length = parents.shape[1]
    up = parents.clone()
    up[:, 0] = -1  # the root is the end, also where it has a parent
    at = torch.arange(length, device=up.device).expand(up.shape)
    steps = torch.zeros_like(up)
    for _ in range(length):
        above = up.gather(1, at.clamp(min=0)).masked_fill(at < 0, -1)
        steps += above >= 0
        at = above
    return steps.masked_fill(at >= 0, 0).amax(1)


def check_length(expression: Expression) -> Expression:
    """The same; a ValueError for one that is too long to decode.

    >>> check_length(bytes(60_000))
    Traceback (most recent call last):
    ValueError: it has 60,000 tokens, but a model reads at most 10,000; use a shorter one.
    """
    if len(expression) > LONGEST:
        raise ValueError(
            f"it has {len(expression):,} tokens, but a model reads at most {LONGEST:,}; "
            "use a shorter one."
        )
    return expression


def at_once(length: int) -> int:
    """How many expressions of a length to decode together.

    >>> at_once(20), at_once(100), at_once(10_000)
    (500, 200, 1)
    """
    return max(1, min(_AT_ONCE, _PAIRS // length**2))


def groups(expressions: Sequence[Expression]) -> Iterator[list[int]]:
    """Which expressions to decode together: those of about the same length.

    >>> from .data.expressions import parse
    >>> list(groups([parse("[MAX 2 [MIN 4 7 ] ]"), parse("[MED 3 1 ]")]))
    [[1, 0]]
    """
    group: list[int] = []
    for k in sorted(range(len(expressions)), key=lambda k: len(expressions[k])):
        if len(group) >= at_once(len(expressions[k])):  # all are padded to the longest
            yield group
            group = []
        group.append(k)
    if group:
        yield group


# What is right of it


def measure(model: nn.Module, data: Data, split: str, rounds: int) -> dict[str, float]:
    """Accuracy of answers, precision of edges, accuracy of intermediate values, in [0, 1]."""
    counted = count(model, data.tables(split), rounds)
    return {name: right / number for name, (right, number) in counted.items() if number}


@torch.no_grad()
def count(model: nn.Module, tables: Iterable[Batch], rounds: int) -> dict[str, tuple[int, int]]:
    """How many are right, and of how many: answers, edges and intermediate values.

    By the names of the metrics that these make. Edges count for all tokens but the root and closing
    brackets; intermediate values for all operators but the root. A model whose states are no digits
    has no intermediate values, one without a tree only answers.
    """
    decoder = TreeDecoder(model) if isinstance(model, LatentTree) else None
    right: dict[str, list[Tensor]] = {}
    for table in tables:
        # A GPU takes a table at once, and is asked for no number on the way.
        size, on_cpu = len(table["label"]), table["label"].is_cpu
        step = at_once(table["tokens"].shape[1]) if on_cpu else size
        for first in range(0, size, step):
            rows = {name: tensor[first : first + step] for name, tensor in table.items()}
            for name, verdicts in _verdicts(decoder or model, rows, rounds).items():
                right.setdefault(name, []).append(verdicts)
    together = {name: torch.cat(verdicts) for name, verdicts in right.items()}
    return {name: (int(each.sum()), len(each)) for name, each in together.items()}


def _verdicts(
    model: TreeDecoder | nn.Module, rows: Batch, rounds: int
) -> dict[str, Bool[Tensor, " _"]]:
    """Whether each answer, edge and intermediate value is right."""
    tokens, parents = rows["tokens"].long(), rows["parents"].long()
    counted = (parents >= 0) & (tokens != CLOSE)
    if isinstance(model, StateTree):
        edges, answers = model.run(tokens, rows["length"], parents, rounds)
        found = edges.gather(-1, parents.clamp(min=0).unsqueeze(-1)).squeeze(-1) > 0
        return {
            "task accuracy": answers.argmax(-1) == rows["label"],
            "edge precision": found[counted],
        }
    if isinstance(model, TreeDecoder):
        decoded = model(tokens, rows["length"], parents, rounds)
        chosen, values = decoded.parents, decoded.values[-1]
    elif isinstance(model, NearestOperator):
        chosen, values = model.run(tokens)
    else:
        return {"task accuracy": model(tokens, rows["length"], parents).argmax(-1) == rows["label"]}
    return {
        "task accuracy": values[:, 0] == rows["label"],
        "edge precision": (chosen == parents)[counted],
        "intermediate accuracy": (values == rows["values"])[counted & (tokens < ZERO)],
    }
