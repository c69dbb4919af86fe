"""A compiled model and autocast in a trainer, with the callback."""

from __future__ import annotations

from typing import Any

import pytest
import pytorch_lightning as lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import dcgraph as dc
from dcgraph.frameworks.lightning import DialsCallback
from models import Adder

pytestmark = pytest.mark.filterwarnings("ignore")  # the trainer's and the compiler's


class Module(lightning.LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.dtypes = model, set[torch.dtype]()

    def training_step(self, batch: Any, index: int) -> Tensor:
        a, b, total = batch
        scores = self.model(a, b)
        self.dtypes.add(scores.dtype)
        return F.cross_entropy(scores, total)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fit(model: nn.Module, dials: dc.Dials, **options: Any) -> Module:
    torch.manual_seed(0)
    data = TensorDataset(*torch.randn(2, 48, 6), torch.randint(5, (48,)))
    module = Module(model)
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[DialsCallback(dials)], accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        **options,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, 8))
    return module


def test_a_compiled_model_sees_the_dials_change_and_is_compiled_once() -> None:
    torch.compiler.reset()
    model = Adder()
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    dials = dc.Dials(tau=dc.linear(1, 9, 10), beta=0.0, alpha=0.0)
    with torch._dynamo.config.patch(error_on_recompile=True):
        fit(compiled, dials)
        a, b = torch.randn(2, 8, 6)
        found = compiled(a, b)
    assert model.symbol.tau == 9.0 and dials.schedule_steps == 12
    torch.testing.assert_close(found, model(a, b))
    dials.seek(0)
    assert not torch.allclose(found, model(a, b)), "tau matters"


def test_a_compiled_training_step_of_a_plain_loop() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, (a, b), total = Adder(), torch.randn(2, 8, 6), torch.randint(5, (8,))
    dials = dc.Dials(tau=dc.linear(1, 9, 10), beta=dc.linear(0, 1, 10), alpha=dc.linear(0, 1, 10))
    dials.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend="aot_eager")
    def step() -> Tensor:
        loss = F.cross_entropy(model(a, b), total)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    for _ in range(12):
        assert step().isfinite()
        dials.step()
    node = model.symbol
    assert [node.tau, node.beta, node.alpha] == [9.0, 1.0, 1.0]


def test_autocast_in_a_trainer() -> None:
    def dials() -> dc.Dials:
        return dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.1), alpha=dc.linear(0, 1, 10))

    torch.manual_seed(1)
    module = fit(Adder(), dials(), precision="bf16-mixed")
    assert module.dtypes == {torch.bfloat16}
    model: Any = module.model
    assert model.symbol.tau.dtype == torch.float32 and model.symbol.alpha == 1.0
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    whole = fit(Adder(), dials(), precision="bf16-true")
    own: Any = whole.model
    assert own.symbol.codebook.dtype == torch.bfloat16 and own.symbol.alpha.dtype == torch.float32
