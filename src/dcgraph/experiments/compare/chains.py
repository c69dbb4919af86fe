r"""Random chains of choices whose gradient is known, to measure every gradient estimator on.

The state is a codebook row. The first is chosen by logits :math:`\theta`, each later one by logits
linear in the state before, and the loss is a function f of the last:

.. math::
    i_1 \sim \mathrm{softmax}(\theta), \qquad
    i_{t+1} \sim \mathrm{softmax}(A_t C_t[i_t]), \qquad L = \mathrm{E} f(C_T[i_T])

Its gradient with respect to theta takes O(T K^2) by the forward recursion
:math:`p_{t+1} = p_t P_t`, and is compared with what comes back through the library's own nodes.
"""

from __future__ import annotations

import math
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..._arguments import check_choice
from ..._surrogate import surrogate
from ...dials import Dials
from ...estimators import ESTIMATORS, LOSS_ESTIMATORS, VECTOR_ESTIMATORS
from ...nodes import Discrete
from ..engine.provenance import code_version, hardware
from .chains_record import (
    BATCH,
    EXACT_SUMS,
    ChainSettings,
    Loss,
    Record,
    Row,
    Steps,
    empty_record,
    key_of,
    read_chains,
    rounded,
    settings_of,
    write_chains,
)

WIDTH = 16
"""Of a state at most: with more categories than that, symbols are alike."""

_SHAKEN = 0.25  # random part of the linear maps
_CLASSES = 10  # of the classifier at the end
_ROWS = 64  # of a codebook that its scale is found with


@dataclass(frozen=True)
class Function:
    """f, with mean 0 and variance 1 over the rows of the last codebook."""

    kind: Loss
    weight: Float[Tensor, "classes width"]
    shift: float = 0.0
    scale: float = 1.0

    def __call__(self, state: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        scores = state @ self.weight.to(state.dtype).T
        if self.kind == "cross_entropy":
            value = -scores.log_softmax(-1)[..., 0]
        elif self.kind == "linear":
            value = scores[..., 0]
        else:
            value = scores.square().sum(-1)
        return (value - self.shift) / self.scale


@dataclass(frozen=True)
class Weights:
    """A chain of T choices among K categories; all in float64."""

    theta: Float[Tensor, " categories"]
    codebooks: Sequence[Float[Tensor, "categories width"]]  # T of them
    maps: Sequence[Float[Tensor, "categories width"]]  # A, T - 1 of them
    f: Function

    @property
    def depth(self) -> int:
        return len(self.codebooks)


def random_weights(
    categories: int,
    depth: int,
    *,
    steps: Steps = "permute",
    loss: Loss = "cross_entropy",
    certainty: float = 0.9,
    seed: int = 0,
) -> Weights:
    """A chain in which every step matters: a step mostly permutes the symbols, or keeps them.

    Steps drawn without that care map many symbols to one (two of four maps between two symbols are
    constant), and after a few of them the true gradient is gone. So A is the codebook itself with
    its rows permuted, plus a random part, times a scale that makes the likeliest next category
    as probable as ``certainty`` in the mean.

    Args:
        steps: "permute" has a codebook of its own and another permutation for every step; "keep"
            has one codebook and none, so that the state before, which DropRes adds, says the same.
    """
    generator = torch.Generator().manual_seed(seed)
    width = min(categories, WIDTH)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    codebooks = [_unit_rows(normal(categories, width)) for _ in range(depth)]
    if steps == "keep":
        codebooks = codebooks[:1] * depth
    maps = []
    for codebook in codebooks[:-1]:
        order = torch.arange(categories)
        if steps == "permute":
            order = torch.randperm(categories, generator=generator)
        shaken = codebook + _SHAKEN * normal(categories, width) / math.sqrt(width)
        maps.append((shaken * _scale(codebook, shaken, certainty))[order])
    theta = normal(categories)
    f = Function(loss, normal(_CLASSES, width) * math.sqrt(width))
    values = f(codebooks[-1])
    f = Function(loss, f.weight, values.mean().item(), values.std(correction=0).item())
    return Weights(theta, codebooks, maps, f)


def _unit_rows(rows: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
    """Of length 1, so that each is its own best match; at right angles where there is room."""
    if len(rows) <= rows.shape[1]:
        at_right_angles: Tensor = torch.linalg.qr(rows)[0]
        return at_right_angles
    return F.normalize(rows, dim=-1)


def _scale(
    codebook: Float[Tensor, "rows width"], maps: Float[Tensor, "rows width"], certainty: float
) -> float:
    """By bisection."""
    logits = codebook[:_ROWS] @ maps.T
    low, high = 0.0, 2.0**12
    for _ in range(40):
        middle = (low + high) / 2
        if (logits * middle).softmax(-1).amax(-1).mean() < certainty:
            low = middle
        else:
            high = middle
    return high


def exact_gradient(weights: Weights, beta: float = 1.0) -> Float[Tensor, " categories"]:
    r"""The gradient of E f with respect to theta, where choices are drawn at noise scale beta.

    .. math::
        p_1 = \mathrm{softmax}(\theta / \beta), \qquad
        p_{t+1} = p_t \, \mathrm{softmax}(C_t A_t^\top / \beta), \qquad
        \mathrm{E} f = p_T \cdot f(C_T)
    """
    theta = weights.theta.clone().requires_grad_()
    p = (theta / beta).softmax(-1)
    for codebook, step in zip(weights.codebooks, weights.maps, strict=False):
        p = p @ (codebook @ step.T / beta).softmax(-1)
    (gradient,) = torch.autograd.grad(p @ weights.f(weights.codebooks[-1]), theta)
    return gradient


class Chain(nn.Module):
    """The same with nodes of the library: theta [samples, categories] in, f [samples] out.

    DropRes is around each node after the first; with alpha = 1 it does nothing.
    """

    def __init__(self, weights: Weights, estimator: str) -> None:
        super().__init__()
        categories, width = weights.codebooks[0].shape
        first = Discrete(
            categories, categories, g=nn.Identity(), width=width, residual="none",
            estimator=estimator,
        )  # fmt: skip
        later = [
            Discrete(width, categories, g=_linear(step), gate="vector", estimator=estimator)
            for step in weights.maps
        ]
        self.nodes = nn.ModuleList([first, *later])
        for node, codebook in zip((first, *later), weights.codebooks, strict=True):
            node.codebook = nn.Parameter(codebook.float(), requires_grad=False)
        self.f = weights.f

    def forward(self, theta: Float[Tensor, "samples categories"]) -> Float[Tensor, " samples"]:
        state = theta
        for node in self.nodes:
            state = node(state)
        return self.f(state)


def _linear(step: Float[Tensor, "categories width"]) -> nn.Linear:
    categories, width = step.shape
    linear = nn.Linear(width, categories, bias=False).requires_grad_(False)
    linear.weight.copy_(step)
    return linear


def estimates(
    weights: Weights,
    estimator: str,
    *,
    tau: float = 1.0,
    beta: float = 1.0,
    alpha: float = 1.0,
    samples: int = 1000,
    seed: int = 0,
) -> tuple[Float[Tensor, "samples categories"], float]:
    """Independent estimates of the gradient, from one pass, and the seconds it took."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Chain(weights, estimator)
        Dials.constant(model, tau=tau, beta=beta, alpha=alpha)
        theta = weights.theta.float().repeat(samples, 1).requires_grad_()
        start = time.perf_counter()
        surrogate(model, lambda: model(theta)).sum().backward()
        seconds = time.perf_counter() - start
    assert theta.grad is not None
    return theta.grad, seconds


def summary(
    found: Sequence[Float[Tensor, "samples categories"]],
    exact: Sequence[Float[Tensor, " categories"]],
) -> dict[str, float]:
    r"""What is to say of estimates on several chains.

    Squared errors are summed over the chains and divided by the sum of :math:`\|g\|^2`, so that
    mse = bias^2 + std^2, and a chain with hardly any gradient does not outweigh all others:

    - ``bias``: :math:`\|\mathrm{E} \hat g - g\|`, without what the finite number of estimates adds
      to its square; ``bias_error`` is the root of that, below which no bias is seen;
    - ``std``: the root of the trace of the covariance of one estimate; ``mse``;
    - ``cosine`` of one estimate to g (0 for an estimate of 0), ``cosine_50`` of the mean of 50;
      ``cosine_50_std`` over the chains;
    - ``zeros``: the share of estimates that are exactly 0; ``not_finite``: of those with NaN or
      infinity, and then nothing else is measured.
    """
    not_finite = _mean([(~one.isfinite().all(-1)).double().mean() for one in found])
    if not_finite:
        names = ("bias", "bias_error", "std", "mse", "cosine", "cosine_50", "cosine_50_std")
        return {**dict.fromkeys(names, math.nan), "zeros": math.nan, "not_finite": not_finite}
    wide = [one.double() for one in found]
    size = sum(g.square().sum().item() for g in exact)
    variance = [one.var(0).sum().item() for one in wide]
    of_mean = sum(v / len(one) for v, one in zip(variance, wide, strict=True)) / size
    pairs = list(zip(wide, exact, strict=True))
    raw = sum((one.mean(0) - g).square().sum().item() for one, g in pairs) / size
    of_means = [
        F.cosine_similarity(
            one.unflatten(0, (-1, min(BATCH, len(one)))).mean(1), g, -1, 1e-30
        ).mean()
        for one, g in pairs
    ]
    bias_squared, spread = max(0.0, raw - of_mean), sum(variance) / size
    return {
        "bias": math.sqrt(bias_squared),
        "bias_error": math.sqrt(of_mean),
        "std": math.sqrt(spread),
        "mse": bias_squared + spread,
        "cosine": _mean([F.cosine_similarity(one, g, -1, 1e-30).mean() for one, g in pairs]),
        "cosine_50": _mean(of_means),
        "cosine_50_std": statistics.pstdev(float(one) for one in of_means),
        "zeros": _mean([(one == 0).all(-1).double().mean() for one in wide]),
        "not_finite": 0.0,
    }


def _mean(values: Sequence[Tensor]) -> float:
    return statistics.fmean(float(value) for value in values)


def all_estimators() -> list[str]:
    """Every name there is."""
    return [*ESTIMATORS, *LOSS_ESTIMATORS, *VECTOR_ESTIMATORS]


_REFERENCE = "gumbel_softmax"  # whose time the others are compared with
_NEVER = {"rotation": "it needs a codebook that also makes the logits, which chains do not have"}
_MOST_LOGITS = 10_000_000  # that a call computes


def why_not(estimator: str, categories: int, depth: int) -> str | None:
    """Why an estimator is not measured on chains of a size; None if it is."""
    if estimator in _NEVER:
        return _NEVER[estimator]
    if estimator in EXACT_SUMS:
        branches = EXACT_SUMS[estimator] or categories
        if BATCH * depth * categories * branches**depth > _MOST_LOGITS:
            return f"it goes through {branches}^{depth} paths"
    return None


def run_chains(
    out: Path,
    *,
    estimators: Sequence[str] | None = None,
    settings: ChainSettings | None = None,
    progress: Callable[[str], object] = lambda line: None,
) -> Record:
    """Measure what the record in ``out`` does not have yet; returns the whole record.

    Args:
        out: the JSON file of the record, such as ``results/compare/chains.json``. It is written
            every ten seconds, so that a run that was cut off goes on.
        estimators: names; all there are by default.
        settings: what is measured; those of :class:`ChainSettings` by default.
        progress: is given a line for every size of chains.
    """
    settings = settings or ChainSettings()
    names = all_estimators() if estimators is None else list(estimators)
    for name in names:
        check_choice("estimators", name, all_estimators())
    record = read_chains(out) if out.exists() else empty_record(settings)
    if settings_of(record) != settings:
        record |= {**empty_record(settings), "rows": record["rows"], "runs": record["runs"]}
    with _one_thread():
        run = _Run(out, record, settings, names)
        todo = list(run.missing())
        for count, (categories, depth) in enumerate(todo, start=1):
            progress(f"{count}/{len(todo)}: {categories} categories, depth {depth}")
            run.measure(categories, depth)
        run.save()
    return record


@contextmanager
def _one_thread() -> Iterator[None]:
    """Times are then comparable, and most calls are too small for several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Run:
    """One call of :func:`run_chains`."""

    def __init__(
        self, out: Path, record: Record, settings: ChainSettings, names: Sequence[str]
    ) -> None:
        self.out, self.record, self.settings, self.names = out, record, settings, names
        self.done = {key_of(row) for row in record["rows"]}
        self.start = self.saved = time.perf_counter()
        self.entry: dict[str, Any] = {
            "code": code_version(),
            "torch": torch.__version__,
            "hardware": hardware(torch.device("cpu")),
            "rows": 0,
            "seconds": 0.0,
        }

    def missing(self) -> Iterator[tuple[int, int]]:
        """Sizes of which something is not measured; what never will be is noted."""
        skipped = [one for one in self.record["skipped"] if one["estimator"] not in self.names]
        sizes = [(k, depth) for k in self.settings.categories for depth in self.settings.depths]
        for name in self.names:
            if name in _NEVER:
                skipped.append(_skipped(name, None, None, _NEVER[name]))
                continue
            for k, depth in sizes:
                if reason := why_not(name, k, depth):
                    skipped.append(_skipped(name, k, depth, reason))
        self.record["skipped"] = skipped
        return (size for size in sizes if any(self._rows_to_measure(*size)))

    def _rows_to_measure(self, categories: int, depth: int) -> Iterator[Row]:
        for name in self.names:
            if why_not(name, categories, depth) is None:
                for row in self.settings.rows(name, categories, depth):
                    if key_of(row) not in self.done:
                        yield row

    def measure(self, categories: int, depth: int) -> None:
        settings = self.settings
        todo = list(self._rows_to_measure(categories, depth))
        for steps in dict.fromkeys(row["steps"] for row in todo):
            chains = [
                random_weights(
                    categories,
                    depth,
                    steps=steps,
                    loss=settings.loss,
                    certainty=settings.certainty,
                    seed=_seed(settings.seed, categories, depth, k),
                )
                for k in range(settings.chains)
            ]
            exact = [exact_gradient(weights) for weights in chains]
            self._note_target(steps, categories, depth, exact)
            self._estimates({**todo[0], "estimator": _REFERENCE}, chains[:1])  # the first is slow
            for row in todo:
                if row["steps"] == steps:
                    self._add(row, *self._estimates(row, chains), exact)

    def _estimates(
        self, row: Row, chains: Sequence[Weights]
    ) -> tuple[list[Tensor], float, float | None]:
        """Estimates on each chain, the seconds of a call, and their ratio to the reference.

        Seconds are the least of all chains, which other work on the machine changes least. The
        reference takes turns with what it is compared with; the dials do not matter for that, and
        one setting is enough. All estimators have the same random numbers.
        """
        timed = (row["tau"], row["beta"]) == self.settings.dials[0]
        found, seconds, reference = [], [], []
        for k, weights in enumerate(chains):
            seed = _seed(row["seed"], row["categories"], row["depth"], k, "noise")
            dials = {name: row[name] for name in ("tau", "beta", "alpha", "samples")}
            one, took = estimates(weights, row["estimator"], seed=seed, **dials)
            found.append(one)
            seconds.append(took)
            if timed:
                reference.append(estimates(weights, _REFERENCE, seed=seed, **dials)[1])
        return found, min(seconds), min(seconds) / min(reference) if timed else None

    def _note_target(
        self, steps: Steps, categories: int, depth: int, exact: Sequence[Tensor]
    ) -> None:
        """How large the exact gradients are, which says whether there is anything to estimate."""
        targets = self.record["targets"]
        size = {"steps": steps, "categories": categories, "depth": depth}
        if not any(size.items() <= target.items() for target in targets):
            norms = [g.norm().item() for g in exact]
            root = math.sqrt(statistics.fmean(norm**2 for norm in norms))
            norm = rounded({"norm": root, "least": min(norms), "most": max(norms)})
            targets.append(size | norm)

    def _add(
        self,
        row: Row,
        found: Sequence[Tensor],
        seconds: float,
        relative: float | None,
        exact: Sequence[Tensor],
    ) -> None:
        if not self.entry["rows"]:
            self.record["runs"].append(self.entry)
        self.entry["rows"] += 1
        measured = {**summary(found, exact), "seconds": seconds, "relative_seconds": relative}
        run = len(self.record["runs"]) - 1
        self.record["rows"].append({**row, **rounded(measured), "run": run})
        self.done.add(key_of(row))
        if time.perf_counter() - self.saved > _EVERY:
            self.save()

    def save(self) -> None:
        self.entry["seconds"] = round(time.perf_counter() - self.start, 1)
        write_chains(self.out, self.record)
        self.saved = time.perf_counter()


_EVERY = 10.0  # seconds


def _skipped(name: str, categories: int | None, depth: int | None, reason: str) -> dict[str, Any]:
    return {"estimator": name, "categories": categories, "depth": depth, "reason": reason}


def _seed(*what: object) -> int:
    """A seed for something, the same on every machine."""
    return zlib.crc32(repr(what).encode())
