r"""The states of many small LSTMs, all steps in one kernel.

Step by step, torch launches about ten kernels for every step, each too small for a GPU. Here a
program has one LSTM and a few rows of the batch: it walks over the steps with h and c in registers
and the recurrent weights in shared memory. Forward keeps the four gates and c: more memory to
write, but to compute them again would double the products of the backward pass. Backward walks from
the last step to the first and writes the gradient of the gates; with that, the gradient of the
weights is one matrix product over all steps and rows, :math:`\sum_t \delta_t h_{t-1}^T`, left to
torch.

Inside, everything is [groups, lstms, length, batch, ...]: vmap makes each replica a group, of any
stride, so nothing is copied; and with steps and rows side by side that matrix product is one, too.

The reference of the kernels is ``tasks.listops.model.lstm.lstm_by_steps``.
"""

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .....kernels._operators import differentiable

PRECISION = "tf32x3"
"""Of the products: "tf32x3" is three products on tensor cores, and as good as float32; "tf32" is
one of them, with 3 digits; "ieee" is float32 without tensor cores."""

_ROWS, _WARPS = 16, 8  # the least that a tensor core takes, and 8 columns of a gate per warp
_DIM, _SHARED = 64, 150_000  # the largest dim, and the bytes of shared memory it needs
_SIZES = ["lstms", "length", "batch"]  # a 1 among them would not be a number to Triton
_KEPT = tl.constexpr(5)  # i, f, g, o and c


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    """The quotient loses the digits of a small x, the series those of a large one."""
    square = x * x
    series = 0.13333333 + square * (-0.053968254 + square * 0.021869489)
    series = x + x * square * (-0.33333333 + square * series)
    e = tl.exp(-2.0 * tl.abs(x))
    quotient = (1.0 - e) / (1.0 + e)
    return tl.where(square < 0.09, series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def _place(pid, lstms, batch, rows: tl.constexpr):
    """Group, LSTM and first row of a program, as int64: tensors can be larger than 2^31."""
    tiles = tl.cdiv(batch, rows)
    which = (pid // tiles).to(tl.int64)
    return which // lstms, which % lstms, (pid % tiles).to(tl.int64) * rows


@triton.jit
def _load4(source, offsets, apart, mask):
    return (
        tl.load(source + offsets, mask, 0.0),
        tl.load(source + offsets + apart, mask, 0.0),
        tl.load(source + offsets + 2 * apart, mask, 0.0),
        tl.load(source + offsets + 3 * apart, mask, 0.0),
    )


@triton.jit
def _store4(target, offsets, apart, mask, i, f, g, o):
    tl.store(target + offsets, i, mask)
    tl.store(target + offsets + apart, f, mask)
    tl.store(target + offsets + 2 * apart, g, mask)
    tl.store(target + offsets + 3 * apart, o, mask)


@triton.jit(do_not_specialize=_SIZES)
def _forward(
    gates, gates_group, gates_lstm, gates_step, gates_row,
    recurrent, recurrent_group, recurrent_lstm,
    states, kept, lstms, length, batch,
    dim: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, keep: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    group, lstm, first = _place(tl.program_id(0), lstms, batch, rows)
    gates += group * gates_group + lstm * gates_lstm + first * gates_row
    recurrent += group * recurrent_group + lstm * recurrent_lstm
    out = ((group * lstms + lstm) * length * batch + first) * dim
    states += out
    kept += out * _KEPT

    row, column = tl.arange(0, rows)[:, None], tl.arange(0, width)[None, :]
    real = (first + row < batch) & (column < dim)
    # What is beyond dim or batch starts at 0 and stays there: tanh(0) = 0 comes in at every step.
    inner = tl.arange(0, width)[:, None]
    wi, wf, wg, wo = _load4(
        recurrent, column * dim + inner, dim * dim, (column < dim) & (inner < dim)
    )
    h = tl.zeros([rows, width], tl.float32)
    c = tl.zeros([rows, width], tl.float32)
    i, f, g, o = _load4(gates, row * gates_row + column, dim, real)
    for step in range(length):
        # The next gates are on their way during the products of this step.
        gates += gates_step
        ni, nf, ng, no = _load4(gates, row * gates_row + column, dim, real & (step + 1 < length))
        i = _sigmoid(tl.dot(h, wi, i, input_precision=precision))
        f = _sigmoid(tl.dot(h, wf, f, input_precision=precision))
        g = _tanh(tl.dot(h, wg, g, input_precision=precision))
        o = _sigmoid(tl.dot(h, wo, o, input_precision=precision))
        c = f * c + i * g
        h = o * _tanh(c)
        tl.store(states + row * dim + column, h, real)
        if keep:
            offsets = row * (_KEPT * dim) + column
            _store4(kept, offsets, dim, real, i, f, g, o)
            tl.store(kept + offsets + 4 * dim, c, real)
        states += batch * dim
        kept += batch * (_KEPT * dim)
        i, f, g, o = ni, nf, ng, no


@triton.jit(do_not_specialize=_SIZES)
def _backward(
    gradient, gradient_group, gradient_lstm, gradient_step, gradient_row,
    recurrent, recurrent_group, recurrent_lstm,
    kept, out, lstms, length, batch,
    dim: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """dL/dgates of every step, from dL/dh and what the forward pass kept."""
    group, lstm, first = _place(tl.program_id(0), lstms, batch, rows)
    last = (length - 1).to(tl.int64)
    gradient += group * gradient_group + lstm * gradient_lstm + first * gradient_row
    gradient += last * gradient_step
    recurrent += group * recurrent_group + lstm * recurrent_lstm
    at = (((group * lstms + lstm) * length + last) * batch + first) * dim
    kept += at * _KEPT
    out += at * 4

    row, column = tl.arange(0, rows)[:, None], tl.arange(0, width)[None, :]
    real = (first + row < batch) & (column < dim)
    inner = tl.arange(0, width)[:, None]
    wi, wf, wg, wo = _load4(
        recurrent, inner * dim + column, dim * dim, (column < dim) & (inner < dim)
    )
    offsets = row * (_KEPT * dim) + column
    dh = tl.zeros([rows, width], tl.float32)
    dc = tl.zeros([rows, width], tl.float32)
    # As in the forward pass, what the next step needs is on its way: of c, that is the one before.
    c = tl.load(kept + offsets + 4 * dim, real, 0.0)
    cells = kept + 4 * dim - batch * (_KEPT * dim)
    before = tl.load(cells + offsets, real & (length > 1), 0.0)
    i, f, g, o = _load4(kept, offsets, dim, real)
    above = tl.load(gradient + row * gradient_row + column, real, 0.0)
    for step in range(length):
        more = real & (step + 1 < length)
        kept -= batch * (_KEPT * dim)
        gradient -= gradient_step
        cells -= batch * (_KEPT * dim)
        next_before = tl.load(cells + offsets, real & (step + 2 < length), 0.0)
        ni, nf, ng, no = _load4(kept, offsets, dim, more)
        next_above = tl.load(gradient + row * gradient_row + column, more, 0.0)
        dh += above
        tanh = _tanh(c)
        dc += dh * o * (1.0 - tanh * tanh)
        do = dh * tanh * o * (1.0 - o)
        di = dc * g * i * (1.0 - i)
        df = dc * before * f * (1.0 - f)
        dg = dc * i * (1.0 - g * g)
        dc *= f
        _store4(out, row * (4 * dim) + column, dim, real, di, df, dg, do)
        dh = tl.dot(di, wi, input_precision=precision)
        dh = tl.dot(df, wf, dh, input_precision=precision)
        dh = tl.dot(dg, wg, dh, input_precision=precision)
        dh = tl.dot(do, wo, dh, input_precision=precision)
        out -= batch * (4 * dim)
        c, before, above = before, next_before, next_above
        i, f, g, o = ni, nf, ng, no


def fits(dim: int, device: torch.device) -> bool:
    """Whether the weights of an LSTM fit into the shared memory of a GPU: the A100 has enough, and
    what came after it for data centers."""
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0)  # unknown to torch's types
    return dim <= _DIM and shared >= _SHARED


@torch.library.custom_op("dcgraph::lstm_states", mutates_args=())
def _states_forward(gates: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    gates, recurrent = _rows_together(gates), _matrices_together(recurrent)
    states, kept = _new_states(gates, recurrent, keep)
    if states.numel():
        groups, lstms, length, batch, dim = states.shape
        _forward[(groups * lstms * triton.cdiv(batch, _ROWS),)](
            *(gates, *gates.stride()[:4], recurrent, *recurrent.stride()[:2]),
            *(states, kept, lstms, length, batch),
            keep=keep, **_options(dim),
        )  # fmt: skip
    return states, kept


@torch.library.custom_op("dcgraph::lstm_backward", mutates_args=())
def _states_backward(
    gradient: Tensor, recurrent: Tensor, states: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    gradient, recurrent = _rows_together(gradient), _matrices_together(recurrent)
    states, kept = states.contiguous(), kept.contiguous()
    groups, lstms, length, batch, dim = states.shape
    of_gates = states.new_empty(groups, lstms, length, batch, 4 * dim)
    if states.numel():
        _backward[(groups * lstms * triton.cdiv(batch, _ROWS),)](
            *(gradient, *gradient.stride()[:4], recurrent, *recurrent.stride()[:2]),
            *(kept, of_gates, lstms, length, batch),
            **_options(dim),
        )
    before, after = states[:, :, :-1].flatten(2, 3), of_gates[:, :, 1:].flatten(2, 3)
    return of_gates, after.mT @ before


def _options(dim: int) -> dict[str, Any]:
    width = max(16, triton.next_power_of_2(dim))
    sizes = {"dim": dim, "width": width, "rows": _ROWS}
    return {**sizes, "precision": PRECISION, "num_warps": _WARPS, "num_stages": 1}


def _rows_together(value: Tensor) -> Tensor:
    return value if value.stride(-1) == 1 else value.contiguous()


def _matrices_together(value: Tensor) -> Tensor:
    return value if value.stride()[-2:] == (value.shape[-1], 1) else value.contiguous()


def _new_states(gates: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    shape, dim = gates.shape[:-1], recurrent.shape[-1]
    kept = _KEPT.value if keep else 0
    return gates.new_empty(*shape, dim), gates.new_empty(*shape, kept, dim)


@_states_forward.register_fake
def _(gates: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    return _new_states(gates, recurrent, keep)


@_states_backward.register_fake
def _(gradient: Tensor, recurrent: Tensor, states: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    of_gates = states.new_empty(*states.shape[:-1], 4 * states.shape[-1])
    return of_gates, recurrent.new_empty(recurrent.shape)


def _in_groups(value: Tensor, dim: int | None, size: int) -> Tensor:
    """The mapped dimension joins the groups; a view, unless vmap is inside of vmap."""
    first = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
    return first.flatten(0, 1)


def _map_over_groups(operator: Any, info: Any, in_dims: Any, *arguments: Any) -> Any:
    size = info.batch_size
    in_groups = [
        _in_groups(value, dim, size) if isinstance(value, Tensor) else value
        for value, dim in zip(arguments, in_dims, strict=True)
    ]
    first, second = operator(*in_groups)
    return (first.unflatten(0, (size, -1)), second.unflatten(0, (size, -1))), (0, 0)


for _operator in (_states_forward, _states_backward):
    _operator.register_vmap(partial(_map_over_groups, _operator))


class _States(torch.autograd.Function):
    """The derivative of the forward kernel is the backward kernel."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gates: Tensor, recurrent: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        return _states_forward(gates, recurrent, keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # no zeros as the gradient of what is kept
        ctx.save_for_backward(inputs[1], *output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, Tensor, None]:
        backward = differentiable(_StatesBackward, _states_backward)
        return *backward(gradient, *ctx.saved_tensors), None


class _StatesBackward(torch.autograd.Function):
    """Only there to say that this is the last derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        gradient: Tensor, recurrent: Tensor, states: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        return _states_backward(gradient, recurrent, states, kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError(
            "the LSTM kernel has no second derivative; use recurrent.lstm_by_steps for that."
        )


for _function, _operator in ((_States, _states_forward), (_StatesBackward, _states_backward)):
    _operator.register_autograd(_function.backward, setup_context=_function.setup_context)


def lstm_states(gates: Tensor, recurrent: Tensor) -> Tensor:
    """States [length, lstms, batch, dim] of LSTMs that start at 0, for dim up to 64.

    Args:
        gates: float32 [length, lstms, batch, 4 dim], what the inputs add to the gates i, f, g, o.
        recurrent: float32 [lstms, 4 dim, dim].

    There is a first derivative in both, none in forward mode and no second one. Without gradients
    (``torch.no_grad``) nothing is kept for the backward pass.
    """
    keep = torch.is_grad_enabled()
    run = differentiable(_States, _states_forward)
    states, _ = run(gates.movedim(0, 1).unsqueeze(0), recurrent.unsqueeze(0), keep)
    return states.squeeze(0).movedim(1, 0)
