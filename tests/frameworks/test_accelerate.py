"""accelerate needs no callback: dials are registered for its checkpoints as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import dcgraph as dc
from models import Adder


class Run:
    def __init__(self) -> None:
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        a, b = torch.randn(2, 48, 6, generator=generator)
        total = torch.randint(5, (48,), generator=generator)
        loader: Any = DataLoader(TensorDataset(a, b, total), 8, shuffle=True)
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = Adder()
        dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.1), alpha=dc.linear(0, 1, 10), every=2)
        self.dials = dials.attach(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.accelerator.register_for_checkpointing(self.dials)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for a, b, total in self.loader:
                with self.accelerator.accumulate(self.model):
                    self.accelerator.backward(F.cross_entropy(self.model(a, b), total))
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    stepped = not self.accelerator.optimizer_step_was_skipped
                    if self.accelerator.sync_gradients and stepped:
                        self.dials.step()

    def weights(self) -> Tensor:
        return torch.nn.utils.parameters_to_vector(self.model.parameters()).detach()


def test_a_resumed_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole = Run()
    whole.train(4)
    assert whole.dials.state_dict() == {"calls": 12, "every": 2}, "3 steps in an epoch of 6 batches"
    first = Run()
    first.train(2)
    first.accelerator.save_state(str(tmp_path))
    second = Run()
    torch.manual_seed(99)
    second.accelerator.load_state(str(tmp_path))
    assert second.dials.state_dict() == {"calls": 6, "every": 2}
    second.train(2)
    assert torch.equal(second.weights(), whole.weights())
    assert second.dials.values() == whole.dials.values()
    model: Any = second.accelerator.unwrap_model(second.model)
    assert model.symbol.beta == whole.model.symbol.beta != 0
