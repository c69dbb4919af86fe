"""torch's recurrent layers, step by step: torch.func.vmap cannot run those of cuDNN."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..noise import dropout

State = tuple[Tensor, ...]
"""h of an RNN and a GRU, h and c of an LSTM."""


class Loop(nn.RNNBase):
    """One step after the other, in operations that map over replicas."""

    states = 1

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.proj_size:
            raise ValueError(f"proj_size={self.proj_size} is not supported in a population.")

    def advance(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        """The next state, from what the input says and the state before."""
        raise NotImplementedError

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """As that of the layer of torch; no packed sequences."""
        if not isinstance(input, Tensor):
            raise TypeError(
                f"the input is a {type(input).__name__}, but a population takes padded sequences; "
                "pass a tensor."
            )
        batched = input.ndim == 3
        sequence = input.transpose(0, 1) if batched and self.batch_first else input
        first = self._first_state(sequence, hx)
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(2 if self.bidirectional else 1):
                state = tuple(part[len(last)] for part in first)
                output, state = self._run(sequence, state, layer, direction == 1)
                outputs.append(output)
                last.append(state)
            sequence = torch.cat(outputs, -1)
            if layer + 1 < self.num_layers:
                sequence = dropout(sequence, self.dropout, self.training)
        output = sequence.transpose(0, 1) if batched and self.batch_first else sequence
        final = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return output, final if self.states > 1 else final[0]

    def _first_state(self, sequence: Tensor, hx: Any) -> State:
        if hx is not None:
            return (hx,) if self.states == 1 else cast(State, tuple(hx))
        count = self.num_layers * (2 if self.bidirectional else 1)
        zeros = sequence.new_zeros(count, *sequence.shape[1:-1], self.hidden_size)
        return (zeros,) * self.states

    def _run(
        self, sequence: Tensor, state: State, layer: int, reverse: bool
    ) -> tuple[Tensor, State]:
        suffix = f"l{layer}_reverse" if reverse else f"l{layer}"
        weights = (getattr(self, f"{kind}_{suffix}") for kind in ("weight_ih", "weight_hh"))
        biases = (
            getattr(self, f"{kind}_{suffix}") if self.bias else None
            for kind in ("bias_ih", "bias_hh")
        )
        (of_input, of_state), (bias_of_input, bias_of_state) = weights, biases
        gates = F.linear(sequence, of_input, bias_of_input).unbind(0)
        outputs = []
        for now in reversed(gates) if reverse else gates:
            state = self.advance(now, state, of_state, bias_of_state)
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if reverse else outputs), state


class RNN(Loop, nn.RNN):  # type: ignore[misc]  # one forward for both of its overloads
    """:class:`torch.nn.RNN` for populations: the same arguments and parameters."""

    def advance(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        total = gates + F.linear(state[0], weight, bias)
        return (torch.tanh(total) if self.nonlinearity == "tanh" else torch.relu(total),)


class GRU(Loop, nn.GRU):  # type: ignore[misc]
    """:class:`torch.nn.GRU` for populations: the same arguments and parameters."""

    def advance(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        (before,) = state
        reset, update, new = gates.chunk(3, -1)
        reset_h, update_h, new_h = F.linear(before, weight, bias).chunk(3, -1)
        share = torch.sigmoid(update + update_h)
        candidate = torch.tanh(new + torch.sigmoid(reset + reset_h) * new_h)
        return (torch.lerp(candidate, before, share),)


class LSTM(Loop, nn.LSTM):  # type: ignore[misc]
    """:class:`torch.nn.LSTM` for populations: the same arguments and parameters."""

    states = 2

    def advance(self, gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        h, c = state
        write, keep, value, read = (gates + F.linear(h, weight, bias)).chunk(4, -1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(write) * torch.tanh(value)
        return torch.sigmoid(read) * torch.tanh(c), c
