"""The callback for PyTorch Lightning."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as lightning
import torch
import torch.nn.functional as F
from pytorch_lightning import callbacks, loggers
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import dcgraph as dc
from dcgraph.frameworks.lightning import DialsCallback
from models import Adder

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Module(lightning.LightningModule):
    """Draws at every step: noise, gates, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Adder()

    def training_step(self, batch: Any, index: int) -> Tensor:
        a, b, total = batch
        return F.cross_entropy(self.model(F.dropout(a, 0.1), b), total)

    def test_step(self, batch: Any, index: int) -> None:
        self.model(*batch[:2])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def loader(shuffle: bool = True) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 48, 6, generator=generator)
    return DataLoader(
        TensorDataset(a, b, torch.randint(5, (48,), generator=generator)), 8, shuffle=shuffle
    )


def make_dials() -> dc.Dials:
    return dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.1), alpha=dc.linear(0, 1, 10), every=2)


def fit(
    folder: Path,
    callback: DialsCallback,
    epochs: int,
    resume: Path | None = None,
    data: DataLoader[Any] | None = None,
    **options: Any,
) -> tuple[Module, lightning.Trainer]:
    torch.manual_seed(0)
    module = options.pop("module", None) or Module()
    trainer = lightning.Trainer(
        max_epochs=epochs, callbacks=[*options.pop("before", []), callback],
        default_root_dir=folder, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False,
        **{"logger": False, "enable_checkpointing": False, **options},
    )  # fmt: skip
    trainer.fit(module, data or loader(), ckpt_path=resume)
    return module, trainer


def weights(module: torch.nn.Module) -> Tensor:
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_resumed_run_goes_on_to_the_bit(tmp_path: Path, accumulate: int) -> None:
    options: dict[str, Any] = {"accumulate_grad_batches": accumulate}
    whole, first, second = (DialsCallback(make_dials()) for _ in range(3))
    expected, trainer = fit(tmp_path, whole, 4, **options)
    steps = trainer.global_step
    assert steps == (24 if accumulate == 1 else 8), "6 batches are 2 steps of 4 and 2"
    assert whole.dials.schedule_steps == steps // 2
    _, trainer = fit(tmp_path, first, 2, **options)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, _ = fit(tmp_path, second, 4, tmp_path / "half.ckpt", **options)
    assert torch.equal(weights(resumed), weights(expected))
    assert second.dials.state_dict() == whole.dials.state_dict()
    assert resumed.model.symbol.beta == expected.model.symbol.beta != 0
    careless = DialsCallback(make_dials(), random_state=False)
    other, _ = fit(tmp_path, careless, 4, tmp_path / "half.ckpt", **options)
    assert not torch.equal(weights(other), weights(expected)), "this test can fail"


def test_a_checkpoint_within_an_epoch_keeps_noise_and_dials(tmp_path: Path) -> None:
    """The order of the data is the data loader's business; here all batches are one."""

    class Steady(Module):
        def training_step(self, batch: Any, index: int) -> Tensor:
            return super().training_step(loader().dataset[:8], index)

    whole, second = DialsCallback(make_dials()), DialsCallback(make_dials())
    saver = callbacks.ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=4, save_top_k=-1)
    options: dict[str, Any] = {"data": loader(shuffle=False)}
    expected, _ = fit(
        tmp_path, whole, 1, module=Steady(), before=[saver], enable_checkpointing=True, **options
    )
    resumed, _ = fit(tmp_path, second, 1, tmp_path / "step=4.ckpt", module=Steady(), **options)
    assert torch.equal(weights(resumed), weights(expected))
    assert second.dials.state_dict() == whole.dials.state_dict() == {"calls": 6, "every": 2}


def test_dials_are_made_for_the_length_of_the_run_and_kept(tmp_path: Path) -> None:
    calls = []

    def make(model: torch.nn.Module, steps: int) -> dc.Dials:
        assert isinstance(model, Module)
        calls.append(steps)
        a, b = torch.randn(2, 8, 6)
        return dc.Dials.recommended(model, lambda: model.model(a, b), steps, verbose=False)

    first = DialsCallback(make)
    with pytest.raises(RuntimeError, match="made when fit"):
        _ = first.dials
    module, trainer = fit(tmp_path, first, 2)
    assert calls == [12] and first.dials.every == 1 and first.dials.schedule_steps == 12
    trainer.save_checkpoint(tmp_path / "made.ckpt")
    with torch.no_grad():
        module.model.symbol.codebook.mul_(50)  # with these logits, tau would be another
    second = DialsCallback(make)
    again, _ = fit(tmp_path, second, 3, tmp_path / "made.ckpt")
    assert calls == [12], "a resumed run keeps what it was started with"
    assert second.dials.at(5) == first.dials.at(5) and second.dials.schedule_steps == 18
    assert again.model.symbol.tau == first.dials.values()["tau"]
    with pytest.warns(UserWarning, match=r"trained with Dials\(tau=.*goes on with other settings"):
        fit(tmp_path, DialsCallback(dc.Dials(tau=3.0)), 3, tmp_path / "made.ckpt")


def test_only_steps_of_the_optimizer_count(tmp_path: Path) -> None:
    class Manual(Module):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> Any:
            own: Any = self.optimizers()
            first, second = own
            self.manual_backward(super().training_step(batch, index))
            if index % 3 == 0:
                first.step()  # the others were skipped
            second.step()
            self.zero_grad()

        def configure_optimizers(self) -> Any:
            parts = self.model.symbol, self.model.add
            return [torch.optim.SGD(part.parameters(), 0.1) for part in parts]

    for optimizer, steps in ((0, 4), (1, 12)):
        callback = DialsCallback(make_dials(), optimizer=optimizer)
        fit(tmp_path, callback, 2, module=Manual())
        assert callback.dials.state_dict()["calls"] == steps
        callback.dials.step()
    with pytest.raises(ValueError, match="optimizer=2, but the trainer has 2"):
        fit(tmp_path, DialsCallback(make_dials(), optimizer=2), 2, module=Manual())


def test_a_second_fit_goes_on_and_a_test_changes_nothing(tmp_path: Path) -> None:
    callback = DialsCallback(make_dials())
    module, trainer = fit(tmp_path, callback, 1)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, loader())
    assert callback.dials.state_dict()["calls"] == 12, "stepped by one hook only"
    trainer.test(module, loader(), ckpt_path=tmp_path / "one.ckpt", verbose=False)
    assert callback.dials.state_dict()["calls"] == 12
    assert not module.model.training or callback.dials.values()["beta"] > 0
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader())
    assert callback.dials.state_dict()["calls"] == 18


def test_dials_are_logged(tmp_path: Path) -> None:
    class Kept(loggers.Logger):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[dict[str, float]] = []

        name, version = "kept", "0"

        def log_hyperparams(self, *arguments: Any, **named: Any) -> None: ...

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.rows.append(metrics)

    kept = Kept()
    fit(tmp_path, DialsCallback(make_dials(), log=True), 2, logger=kept, log_every_n_steps=1)
    alphas = [row["dials/alpha"] for row in kept.rows]
    assert alphas == pytest.approx([(step // 2) / 10 for step in range(1, 13)])
    assert {"dials/tau", "dials/beta"} <= set(kept.rows[-1])


class Late(Module):
    def __init__(self) -> None:
        lightning.LightningModule.__init__(self)
        self.model: Any = None

    def configure_model(self) -> None:
        if self.model is None:
            self.model = Adder()


def test_a_module_that_is_built_late_and_a_callback_that_is_copied(tmp_path: Path) -> None:
    callback = DialsCallback(make_dials())
    module, _ = fit(tmp_path, callback, 1, module=Late())
    assert module.model.symbol.alpha == pytest.approx(0.3)
    again = copy.deepcopy(callback)
    assert again.dials.values() == callback.dials.values()
    again.dials.step()
    assert callback.dials.state_dict()["calls"] == 6


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"the function made a float; let it return dcgraph\.Dials"):
        fit(tmp_path, DialsCallback(lambda model, steps: 0.5), 1)  # type: ignore[arg-type,return-value]
    _, trainer = fit(tmp_path, DialsCallback(dc.Dials(alpha=lambda t: 0.5)), 1)
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    trainer.callbacks = []  # type: ignore[attr-defined]
    trainer.save_checkpoint(tmp_path / "none.ckpt")
    with pytest.raises(ValueError, match="the checkpoint was saved without dials"):
        fit(tmp_path, DialsCallback(make_dials()), 2, tmp_path / "none.ckpt")
    with pytest.raises(ValueError, match=r"counts 0 optimizer steps, .* largest number of steps"):
        fit(tmp_path, DialsCallback(lambda model, steps: make_dials()), -1)
    with pytest.raises(ValueError, match="saved with every=1, but these dials have every=2"):
        fit(tmp_path, DialsCallback(make_dials()), 2, tmp_path / "own.ckpt")


def test_before_fit_there_is_nothing_to_save_and_the_random_state_may_stay_out() -> None:
    assert DialsCallback(lambda model, steps: dc.Dials()).state_dict() == {}
    kept = DialsCallback(dc.Dials(), random_state=False).state_dict()
    assert kept["dials"] == dc.Dials().state_dict() and "random" not in kept
