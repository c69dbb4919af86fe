"""Convolution, max-pooling and ReLU as one differentiable step that maps over replicas.

Written as a matrix product over image windows with the batch as the last dimension: windows are
then long contiguous runs of memory, and a replica axis makes a batched product. (torch maps a
convolution with weights of their own per replica to a grouped convolution, slower on CPU and GPU.)

The four positions that 2x2 pooling compares lie in one window, one pixel wider and higher than the
filter. So the windows are those of the pooled positions, a third of the memory that a window for
every position takes, and each filter is four rows of the matrix: itself at the four corners.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ConvPoolReLU(nn.Conv2d):
    """ReLU(maxpool2x2(conv(x))) for images x [channels, height, width, batch]: batch last."""

    def __init__(self, channels: int, filters: int, size: int) -> None:
        super().__init__(channels, filters, size)

    def forward(
        self, x: Float[Tensor, "channels height width batch"]
    ) -> Float[Tensor, "filters pooled_height pooled_width batch"]:
        size = self.kernel_size[0]
        if (x.shape[1] - size + 1) % 2 or (x.shape[2] - size + 1) % 2:
            raise ValueError(
                f"images of {x.shape[1]}x{x.shape[2]} and windows of {size}x{size} leave an odd "
                "number of positions, which 2x2 pooling would cut off."
            )
        assert self.bias is not None
        return _apply(x, self.weight, self.bias)[0]


class _ConvPoolReLU(torch.autograd.Function):
    """Shapes here have any leading dimensions ..., among them the replicas of a population."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        filters, _, size, _ = weight.shape[-4:]
        height, width = ((pixels - size + 1) // 2 for pixels in x.shape[-3:-1])
        windows, rows = _windows(x.contiguous(), size + 1), _at_corners(weight)
        scores = (rows @ windows).unflatten(-2, (2, 2, filters))
        left, right = scores.unbind(-3)
        above, below = torch.maximum(left, right).unbind(-3)
        pooled = torch.maximum(above, below).add_(bias.unsqueeze(-1)).relu_()
        pooled = pooled.unflatten(-1, (height, width, -1))
        return pooled, windows, rows, right - left, below - above

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.image_shape, ctx.weight_shape = x.shape, weight.shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, Tensor, Tensor]:
        pooled, windows, rows, lead_of_right, lead_of_below = ctx.saved_tensors
        grad = _where_positive(pooled, grad).flatten(-3)
        # Of equal scores the first wins, not all: on an empty background all are equal.
        below = _where_positive(lead_of_below, grad)
        grads = torch.stack([grad - below, below], -3)
        right = _where_positive(lead_of_right, grads)
        grads = torch.stack([grads - right, right], -3).flatten(-4, -2)
        weight_grad = _product_of_long_rows(grads, windows, pooled.shape[-3])
        x_grad = None
        if ctx.needs_input_grad[0]:
            windows_grad = rows.transpose(-1, -2) @ grads
            x_grad = _add_windows(windows_grad, ctx.image_shape, ctx.weight_shape[-1] + 1)
        return x_grad, _from_corners(weight_grad, ctx.weight_shape), grad.sum(-1)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        mapped = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs, in_dims, strict=True)
        ]
        outputs = _apply(*mapped)
        return outputs, (0,) * len(outputs)


def _apply(*inputs: Tensor) -> tuple[Tensor, ...]:
    outputs: tuple[Tensor, ...] = _ConvPoolReLU.apply(*inputs)  # type: ignore[no-untyped-call]
    return outputs


def _at_corners(weight: Tensor) -> Tensor:
    """Filters [..., F, C, size, size] at the corners of windows [..., 4 F, C * (size + 1)^2]."""
    *replicas, filters, channels, size, _ = weight.shape
    rows = weight.new_zeros(*replicas, 2, 2, filters, channels, size + 1, size + 1)
    for i in range(2):
        for j in range(2):
            rows[..., i, j, :, :, i : i + size, j : j + size] = weight
    return rows.flatten(-3).flatten(-4, -2)


def _from_corners(rows: Tensor, shape: torch.Size) -> Tensor:
    """The transpose of :func:`_at_corners`: the sum of what a filter has at the four corners."""
    filters, channels, size, _ = shape[-4:]
    rows = rows.unflatten(-1, (channels, size + 1, size + 1)).unflatten(-4, (2, 2, filters))
    rows = rows[..., 0, :, :, :, :-1, :] + rows[..., 1, :, :, :, 1:, :]
    return rows[..., 0, :, :, :, :-1] + rows[..., 1, :, :, :, 1:]


def _windows(x: Tensor, size: int) -> Tensor:
    """Every other window of images [..., C, H, W, N] as columns [..., C * size^2, h * w * N]."""
    views = x.unfold(-3, size, 2).unfold(-3, size, 2)  # [..., C, h, w, N, size, size]
    return views.movedim((-2, -1), (-5, -4)).flatten(-3).flatten(-4, -2)


def _add_windows(windows: Tensor, shape: torch.Size, size: int) -> Tensor:
    """The transpose of :func:`_windows`: every window added where it came from."""
    *_, height, width, batch = shape
    h, w = (height - size) // 2 + 1, (width - size) // 2 + 1
    windows = windows.unflatten(-2, (-1, size, size)).unflatten(-1, (h, w, batch))
    rows = windows.new_zeros(*shape[:-3], size, h, width, batch)
    for j in range(size):
        rows[..., j : j + 2 * w : 2, :] += windows[..., j, :, :, :]
    images = windows.new_zeros(shape)
    for i in range(size):
        images[..., i : i + 2 * h : 2, :, :] += rows[..., i, :, :, :]
    return images


def _where_positive(x: Tensor, grad: Tensor) -> Tensor:
    """The gradient where x > 0, else 0; on the CPU several times faster than torch.where."""
    chosen: Tensor = torch.ops.aten.threshold_backward(grad, x, 0.0)
    return chosen


def _product_of_long_rows(a: Tensor, b: Tensor, parts: int) -> Tensor:
    """a @ b^T; a GPU needs the long sum cut into parts that run side by side."""
    if a.is_cuda:
        a, b = (m.unflatten(-1, (parts, -1)).transpose(-2, -3) for m in (a, b))
        return (a @ b.transpose(-1, -2)).sum(-3)
    # On the CPU a sum along the columns is faster than along the rows of both, even with this copy.
    return (b @ a.transpose(-1, -2).contiguous()).transpose(-1, -2)
