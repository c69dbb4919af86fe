"""The callback for the Trainer of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

import dcgraph as dc
from dcgraph.frameworks.transformers import DialsCallback
from models import Adder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch")


class Model(nn.Module):
    """As a Trainer wants it: the loss comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Adder()

    def forward(self, a: Tensor, b: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.model(F.dropout(a, 0.1, self.training), b)
        return F.cross_entropy(scores, labels), scores


def data() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "a": torch.randn(6, generator=generator),
            "b": torch.randn(6, generator=generator),
            "labels": torch.randint(5, (), generator=generator),
        }
        for _ in range(48)
    ]


def make_dials() -> dc.Dials:
    return dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.1), alpha=dc.linear(0, 1, 10), every=2)


def train(
    folder: Path, callback: DialsCallback, steps: int, resume: Path | None = None, **options: Any
) -> Model:
    torch.manual_seed(0)
    model = Model()
    arguments = TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=8, learning_rate=0.01,
        lr_scheduler_type="constant", save_strategy="steps", save_steps=5, report_to=[],
        disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
        **{"logging_strategy": "no", **options},
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=data(), callbacks=[callback])
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return model


def weights(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_run_goes_on_to_the_bit(tmp_path: Path, accumulate: int) -> None:
    """From the middle of an epoch, which has 6 batches."""
    options: dict[str, Any] = {"gradient_accumulation_steps": accumulate}
    whole, second = DialsCallback(make_dials()), DialsCallback(make_dials())
    expected = train(tmp_path / "whole", whole, 10, **options)
    half = tmp_path / "whole/checkpoint-5"
    resumed = train(tmp_path / "second", second, 10, half, **options)
    assert torch.equal(weights(resumed), weights(expected))
    assert second.dials.state_dict() == whole.dials.state_dict() == {"calls": 10, "every": 2}
    assert resumed.model.symbol.beta == expected.model.symbol.beta != 0
    saved = json.loads((half / "trainer_state.json").read_text())["stateful_callbacks"]
    assert saved["DialsCallback"]["attributes"] == {"position": {"calls": 5, "every": 2}}
    assert saved["DialsCallback"]["args"]["dials"]["beta"] == ["temp_match", 2.0, 0.1]


def test_the_trainer_can_rebuild_the_callback(tmp_path: Path) -> None:
    expected = train(tmp_path / "whole", DialsCallback(make_dials()), 10)
    half = tmp_path / "whole/checkpoint-5"
    given = DialsCallback(dc.Dials(tau=7.0))  # is replaced
    resumed = train(
        tmp_path / "second", given, 10, half, restore_callback_states_from_checkpoint=True
    )
    assert torch.equal(weights(resumed), weights(expected))


def test_dials_are_made_for_the_length_of_the_run_and_kept(tmp_path: Path) -> None:
    calls = []

    def make(model: nn.Module, steps: int) -> dc.Dials:
        calls.append(steps)
        return dc.Dials(tau=2.0 * len(calls), alpha=dc.linear(0, 1, steps), every=1)

    first, second = DialsCallback(make), DialsCallback(make)
    with pytest.raises(RuntimeError, match="made when train"):
        _ = first.dials
    train(tmp_path / "first", first, 10)
    train(tmp_path / "second", second, 20, tmp_path / "first/checkpoint-10")
    assert calls == [10], "a resumed run keeps what it was started with"
    assert second.dials.at(4) == first.dials.at(4) and second.dials.schedule_steps == 20


def test_schedules_of_ones_own_are_kept_by_the_program(tmp_path: Path) -> None:
    def own() -> dc.Dials:
        return dc.Dials(alpha=lambda t: min(1.0, t / 20))

    train(tmp_path / "first", DialsCallback(own()), 5)
    half = tmp_path / "first/checkpoint-5"
    second = DialsCallback(own())
    train(tmp_path / "second", second, 10, half)
    assert second.dials.values()["alpha"] == 0.5
    with pytest.raises(ValueError, match=r"dials is None; .* leave it False"):
        train(tmp_path, second, 10, half, restore_callback_states_from_checkpoint=True)


def test_dials_are_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = DialsCallback(make_dials(), log=True)
    train(tmp_path, callback, 4, logging_strategy="steps", logging_steps=1)
    rows = json.loads((tmp_path / "checkpoint-4/trainer_state.json").read_text())["log_history"]
    assert [row["dials/alpha"] for row in rows] == pytest.approx([0.0, 0.1, 0.1, 0.2])


def test_what_cannot_be_resumed_is_said(tmp_path: Path) -> None:
    class Silent(DialsCallback):
        """Under another name in the checkpoint."""

    train(tmp_path / "first", Silent(make_dials()), 5)
    half = tmp_path / "first/checkpoint-5"
    with pytest.raises(ValueError, match=r"saved without dials; .* dials\.seek\(step\)"):
        train(tmp_path / "second", DialsCallback(make_dials()), 10, half)
    there = DialsCallback(dials := make_dials())
    dials.seek(5)
    train(tmp_path / "second", there, 10, half)
    assert there.dials.state_dict()["calls"] == 10
    state = json.loads((half / "trainer_state.json").read_text())
    own = state["stateful_callbacks"].pop("Silent")
    state["stateful_callbacks"]["DialsCallback"] = [own, own]
    (half / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="has 2 callbacks DialsCallback"):
        train(tmp_path / "second", DialsCallback(make_dials()), 10, half)
    own["args"]["dials"]["beta"] = ["__import__", "os"]
    state["stateful_callbacks"]["DialsCallback"] = own
    (half / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="no settings of dials: there is no schedule '__import__'"):
        train(tmp_path / "second", DialsCallback(lambda model, steps: make_dials()), 10, half)
