"""The implementations that recompute, as torch operators: gradients, vmap and torch.compile."""

from typing import Any

import torch
from torch import Tensor

from ..kernels._operators import differentiable, in_front
from . import _blocks as blocks
from . import _blockwise as blockwise
from ._problem import Found, Implementation, Problem

_TENSORS = 9  # the fields of a Problem that are tensors or None; noisy follows


def scan(p: Problem, implementation: Implementation, *, mixes: bool, chooses: bool) -> Found:
    """Go over the codebook once: the value, log-sum-exp, argmax and maximum of a, for every row.

    There is a value if it ``mixes``: the mixture or, if it ``chooses`` as well or the problem has
    an index, the row of that index. There is an index only if it ``chooses``. Where there is a
    target, the log-sum-exp is less a[target].

    Value and log-sum-exp have derivatives in query, codebook, tau and beta, but no second ones.
    """
    fields = (p.query, p.codebook, p.tau, p.beta, p.keys, p.noise, p.mask, p.target, p.index)
    run = differentiable(_Scan, _forward)
    learns = torch.is_grad_enabled()  # under vmap no tensor says whether it requires a gradient
    value, lse, index, top, *_ = run(*fields, p.noisy, implementation, mixes, chooses, learns)
    return value, lse, index, top


@torch.library.custom_op("dcgraph::scan_codebook", mutates_args=())
def _forward(
    query: Tensor,
    codebook: Tensor,
    tau: Tensor,
    beta: Tensor,
    keys: Tensor,
    noise: Tensor | None,
    mask: Tensor | None,
    target: Tensor | None,
    index: Tensor | None,
    noisy: bool,
    implementation: str,
    mixes: bool,
    chooses: bool,
    learns: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    p = Problem(query, codebook, tau, beta, keys, noise, mask, target, index, noisy)
    if implementation == "streaming":
        from ..kernels import _codebook_stream as streaming  # imports Triton

        mixture, lse, best, top = streaming.forward(p, mixes=mixes, chooses=chooses)
        entries, bases = mixture.new_empty(0), lse.new_empty(0)
    else:
        mixture, lse, best, top, kept = blockwise.forward(
            p, mixes=mixes, chooses=chooses, learns=learns
        )
        entries, bases = kept.entries, kept.bases
    if target is not None:
        lse = lse - _at_target(p, target)
    if not (mixes and _is_hard(p, chooses)):
        value = mixture.to(query.dtype)
        exact = mixture if _is_apart(p, mixes, chooses) else mixture.new_empty(0)
        return value, lse, best, top, exact, entries, bases
    chosen = best if index is None else index.clone()
    row = p.codes(chosen.clamp(min=0)).to(query.dtype)
    row = row.masked_fill(chosen.unsqueeze(-1) < 0, 0.0)
    return row, lse, chosen, top, mixture, entries, bases


def _is_hard(p: Problem, chooses: bool) -> bool:
    """Whether the value is a row of the codebook."""
    return chooses or p.index is not None


def _is_apart(p: Problem, mixes: bool, chooses: bool) -> bool:
    """Whether the mixture that the backward pass needs is not the value: that is a row of the
    codebook, or rounded, and a rounded one would leave more of <v, C - m> than there is."""
    return mixes and (_is_hard(p, chooses) or p.query.dtype != p.compute_dtype)


def _at_target(p: Problem, target: Tensor) -> Tensor:
    """a[target], as exact as the sum of the products in one row is."""
    a: Tensor = blockwise.steps(p).logits_at(p, target)
    if p.mask is not None:
        allowed = p.mask.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        a = a.masked_fill(~allowed, -torch.inf)
    return a


@torch.library.custom_op("dcgraph::scan_codebook_backward", mutates_args=())
def _backward(
    of_value: Tensor | None,
    of_lse: Tensor | None,
    value: Tensor,
    lse: Tensor,
    entries: Tensor,
    bases: Tensor,
    query: Tensor,
    codebook: Tensor,
    tau: Tensor,
    beta: Tensor,
    keys: Tensor,
    noise: Tensor | None,
    mask: Tensor | None,
    target: Tensor | None,
    index: Tensor | None,
    noisy: bool,
    implementation: str,
    learns_dials: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of ``entries`` the room above the weights is written to, which nobody reads before that."""
    p = Problem(query, codebook, tau, beta, keys, noise, mask, target, index, noisy)
    if target is not None:
        lse = lse + _at_target(p, target)
    if implementation == "streaming" and not learns_dials:
        from ..kernels import _codebook_stream_backward as streaming  # imports Triton

        d_query, d_codebook = streaming.backward(p, value, lse, of_value, of_lse)
        d_tau, d_beta = lse.new_empty(0), lse.new_empty(0)
    else:
        kept = blocks.Kept(entries.data, bases)  # autograd need not know of the room in it
        d_query, d_codebook, d_tau, d_beta = blockwise.backward(
            p, value, lse, of_value, of_lse, kept, learns_dials
        )
    if index is not None and of_value is not None:
        add_to_chosen(index, of_value, d_codebook)
    return d_query, d_codebook, d_tau, d_beta


def add_to_chosen(index: Tensor, of_mixture: Tensor, d_codebook: Tensor) -> None:
    """dC_j += v of the rows that chose j."""
    at = index.clamp(min=0)
    values = of_mixture.to(d_codebook.dtype) * (index >= 0).unsqueeze(-1)
    n = d_codebook.shape[1]
    base = torch.arange(len(index), device=index.device).unsqueeze(-1) * n
    d_codebook.view(-1, d_codebook.shape[-1]).index_add_(
        0, (at + base).flatten(), values.flatten(0, 1)
    )


@_forward.register_fake
def _(query: Tensor, *others: Any) -> tuple[Tensor, ...]:
    p = Problem(query, *others[:9])
    implementation, mixes, chooses, learns = others[9:]
    value = query.new_empty(*query.shape[:2], query.shape[2] if mixes else 0)
    of_rows = query.new_empty(query.shape[:2], dtype=p.compute_dtype)
    made = implementation == "streaming" or blocks.makes_mixture(p, mixes, chooses, learns)
    mixture = of_rows.new_empty(*query.shape[:2], query.shape[2] if made else 0)
    shapes: Any = (0, 0) if implementation == "streaming" else blocks.kept_shapes(p, mixes, learns)
    dtype = query.dtype if implementation == "streaming" else blocks.kept_dtype(p, mixes)
    return (
        value,
        torch.empty_like(of_rows),
        torch.empty_like(of_rows, dtype=torch.int64),
        torch.empty_like(of_rows),
        mixture if _is_apart(p, mixes, chooses) else mixture.new_empty(0),
        query.new_empty(shapes[0], dtype=dtype),
        query.new_empty(shapes[1], dtype=p.compute_dtype),
    )


@_backward.register_fake
def _(
    of_value: Any, of_lse: Any, value: Tensor, lse: Tensor, entries: Any, bases: Any,
    query: Tensor, codebook: Tensor, *others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    learns_dials = others[-1]
    return (
        torch.empty_like(query, memory_format=torch.contiguous_format),
        torch.empty_like(codebook, memory_format=torch.contiguous_format),
        torch.empty_like(lse) if learns_dials else lse.new_empty(0),
        torch.empty_like(lse) if learns_dials else lse.new_empty(0),
    )


def _joined(value: Tensor | None, dim: int | None, size: int, into: int) -> Tensor | None:
    """The mapped dimension joins the groups (into 0) or the rows (into 1)."""
    if value is None:
        return None
    first = in_front(value, dim, size)
    return first.flatten(0, 1) if into == 0 else first.movedim(0, 1).flatten(1, 2)


@_forward.register_vmap
def _(info: Any, in_dims: Any, *arguments: Any) -> Any:
    """Replicas that share a codebook are more rows of it; others are more groups.

    Where replicas are rows, no weights are kept, for in the backward pass they are groups: each has
    a gradient of its own.
    """
    size, options = info.batch_size, list(arguments[_TENSORS:])
    shared = in_dims[1] is None
    into = 1 if shared else 0
    joined = [
        value if shared and place == 1 else _joined(value, dim, size, into)
        for place, (value, dim) in enumerate(zip(arguments[:_TENSORS], in_dims, strict=False))
    ]
    options[-1] = options[-1] and not shared
    found = _forward(*joined, *options)

    def apart(value: Tensor) -> Any:
        return value.unflatten(into, (size, value.shape[into] // size)).movedim(into, 0)

    empty = [value.ndim == 1 for value in found]
    out = (value if none else apart(value) for value, none in zip(found, empty, strict=True))
    return tuple(out), tuple(None if none else 0 for none in empty)


@_backward.register_vmap
def _(info: Any, in_dims: Any, *arguments: Any) -> Any:
    """Replicas are groups. Weights that no replica has of its own, as under jacrev, are no use."""
    size, tensors, given, dims = info.batch_size, 6 + _TENSORS, list(arguments), list(in_dims)
    if dims[4] is None:
        given[4:6], dims[4:6] = [value.new_empty(size, 0) for value in given[4:6]], [0, 0]
    pairs = zip(given[:tensors], dims, strict=False)
    joined = [_joined(value, dim, size, 0) for value, dim in pairs]
    d_query, d_codebook, *dials = _backward(*joined, *given[tensors:])

    def apart(value: Tensor) -> Any:
        return value.unflatten(0, (size, value.shape[0] // size))

    if arguments[-1]:
        return (apart(d_query), apart(d_codebook), *map(apart, dials)), (0, 0, 0, 0)
    return (apart(d_query), apart(d_codebook), *dials), (0, 0, None, None)


class _Scan(torch.autograd.Function):
    """The derivative of the forward operator is the backward operator."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _forward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        value, lse, index, top, mixture, entries, bases = output
        ctx.mark_non_differentiable(index, top, mixture, entries, bases)
        ctx.set_materialize_grads(False)
        hard = inputs[-3] and (inputs[-2] or inputs[8] is not None)
        tensors = list(inputs[:_TENSORS])
        tensors[8] = index if hard else None
        ctx.save_for_backward(
            value if mixture.ndim == 1 else mixture, lse, entries, bases, *tensors
        )
        ctx.options = inputs[_TENSORS : _TENSORS + 2]

    @staticmethod
    def backward(ctx: Any, of_value: Any, of_lse: Any, *_: Any) -> tuple[Any, ...]:
        learns = bool(ctx.needs_input_grad[2] or ctx.needs_input_grad[3])
        run = differentiable(_ScanBackward, _backward)
        found = run(of_value, of_lse, *ctx.saved_tensors, *ctx.options, learns)
        of_dials = found[2:] if learns else (None, None)
        return (*found[:2], *of_dials, *[None] * 10)


class _ScanBackward(torch.autograd.Function):
    """Only there to say that this is the last derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _backward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> None:
        raise RuntimeError(
            "over so large a codebook there is no second derivative; "
            "for that use gumbel_softmax(query @ codebook.T) @ codebook."
        )


for _function, _operator in ((_Scan, _forward), (_ScanBackward, _backward)):
    _operator.register_autograd(_function.backward, setup_context=_function.setup_context)
