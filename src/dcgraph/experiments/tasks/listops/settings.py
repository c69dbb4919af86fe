"""Settings of ListOps, and the presets. No torch: tables are rendered without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...engine.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class ListOpsSettings(Settings):
    """Settings of the ListOps task."""

    model: Literal["tree", "states", "lstm", "nearest_operator"] = setting(
        "tree", "the paper's; or the same without digits as states; or an LSTM; or a rule"
    )
    expressions: Literal["all", "short"] = setting(
        "all", "data: all sets; or 12,000 expressions of up to 3 levels and 19 tokens, for a CPU"
    )
    edges: Literal["learned", "given"] = setting("learned", "whether the parse tree is given")
    encoder: Literal["lstm", "counters", "nearest", "ternary"] = setting(
        "lstm",
        "what scores the edges; lstm: two LSTMs; counters: learned counters; nearest: counters, "
        "parent is the nearest match; ternary: nearest, with increments of -g, 0 or g at test",
    )
    prior: Literal["one_parent", "arborescence", "spanning_tree"] = setting(
        "one_parent", "a parent for each token; or a tree, with or without direction"
    )
    parents: Literal["tokens", "operators"] = setting("tokens", "who can be a parent")
    silent_root: bool = setting(
        False, "the root sends nothing, and no token is its own parent; earlier implies it"
    )
    earlier: bool = setting(False, "a parent stands before its child, and the root sends nothing")
    senders: Literal["tokens", "values"] = setting(
        "tokens", "who sends to its parent: all tokens, or all but closing brackets"
    )
    rounds: int = setting(5, "rounds of messages")
    restart: bool = setting(False, "a token's value comes only from its children's")
    residual: Literal["drop", "always", "weighted"] = setting("drop", "kind of residual")
    gate: Literal["call", "example", "vector"] = setting("call", "what shares a draw of the gate")
    dim: int = setting(60, "width of the states")
    dropout: float = setting(0.1, "dropout of the messages")
    masks: Literal["token", "pair"] = setting(
        "token", "what has a dropout mask: a sender and the token it sends to, or each pair"
    )
    decode: Literal["argmax", "sample"] = setting(
        "sample", "how the nodes choose where the best weights are chosen"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rounds", "dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}, but at least 1 is needed.")
        if not self.earlier and self.edges == "learned":
            if self.parents == "operators":
                raise ValueError("parents='operators' needs earlier; add --earlier.")
            if self.senders == "values":
                raise ValueError("senders='values' needs earlier; add --earlier.")
            if self.encoder != "lstm":
                raise ValueError(f"encoder={self.encoder!r} only looks back; add --earlier.")
        if self.prior != "one_parent" and (
            self.silent_root or self.earlier or self.parents != "tokens"
        ):
            raise ValueError(
                f"prior={self.prior!r} has no rule for parents; leave out silent_root, earlier and "
                "parents."
            )
        if self.prior != "one_parent" and self.estimator != "gumbel_softmax":
            raise ValueError(
                f"estimator={self.estimator!r} is for choices of one category; use --prior "
                "one_parent, or leave it out."
            )
        if self.estimator in _REFUSED:
            raise ValueError(f"estimator={self.estimator!r} {_REFUSED[self.estimator]}")
        if self.prior == "spanning_tree" and self.model == "tree":
            raise ValueError("prior='spanning_tree' has no direction; use --model states.")
        if self.model == "nearest_operator" and self.epochs:
            raise ValueError("model='nearest_operator' has nothing to train; add --epochs 0.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}, but a share lies in [0, 1).")


_REFUSED = {
    "relax": "learns weights for a number of categories that is known; a parent is one of as many "
    "tokens as there are.",
    "rotation": "turns gradients between vectors of one codebook; a value is chosen by a network, "
    "and a parent by another vector.",
    "topk_sparsemax": "would run the network 2^(all choices of an expression) times.",
    "enumeration": "would run the network categories^(all choices of an expression) times.",
}

PAPER = ListOpsSettings(epochs=100, batch=100, schedule_steps=10, evaluations=1, lr=5e-4)
BEST = replace(
    PAPER, epochs=20, lr=2e-3, decay=0.4, average=0.998, tau=2.0, gamma=0.02, alpha_step=0.01,
    encoder="ternary", parents="operators", earlier=True, senders="values", restart=True,
    gate="vector", dropout=0.0, decode="argmax",
)  # fmt: skip
COMPARED = replace(  # estimators, in seconds
    BEST, expressions="short", rounds=3, epochs=1, batch=16, schedule_steps=100, evaluations=4,
    lr=1e-2, decay=0.5, average=0.0, tau=1.0, gamma=0.02, alpha_step=0.03, dim=32,
)  # fmt: skip
