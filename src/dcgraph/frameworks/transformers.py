"""Dials in the Trainer of transformers: a callback that attaches, steps and saves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError(
        "dcgraph.frameworks.transformers needs transformers, which is not installed; "
        "run: pip install transformers"
    ) from error

from ..dials import Dials
from ._settings import (
    MakeDials,
    check,
    made_for,
    resume,
    settings_of,
    values_to_log,
    with_settings,
)

__all__ = ["DialsCallback"]


class DialsCallback(TrainerCallback, ExportableState):
    """Attaches dials to the model of a Trainer, steps them with the optimizer, and saves them.

    - Attached when training starts.
    - Stepped once per step of the optimizer: accumulated batches and skipped steps do not count.
    - Saved in ``trainer_state.json`` of every checkpoint, as data, and restored by
      ``train(resume_from_checkpoint=...)``. The Trainer itself restores random numbers and the
      order of the data, so the run goes on bit for bit.

    Args:
        dials: dials, or a function that makes them of the model and the number of optimizer steps
            in the whole run, when training starts. A resumed run keeps what was made at first.
        log: whether tau, beta and alpha are put into the logs, as dials/tau and so on. Callbacks
            that were added before this one have then already reported theirs.

    .. code-block:: python

        dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.01), alpha=dc.linear(0, 1, 100))
        trainer = Trainer(model, args, train_dataset=data, callbacks=[DialsCallback(dials)])
    """

    def __init__(
        self, dials: Dials | MakeDials | Mapping[str, Any] | None = None, *, log: bool = False
    ) -> None:
        if dials is None:
            raise ValueError(
                "dials is None; pass dcgraph.Dials. (restore_callback_states_from_checkpoint "
                "cannot make dials whose schedules are functions of your own; leave it False, for "
                "this callback restores itself without it.)"
            )
        if isinstance(dials, Mapping):  # from trainer_state.json
            dials = with_settings(dials)
        check(dials)
        self._given: Dials | MakeDials = dials
        self._dials = dials if isinstance(dials, Dials) else None
        self._log = log

    @property
    def dials(self) -> Dials:
        """The dials; those of a function exist from the start of training on."""
        if self._dials is None:
            raise RuntimeError("the dials are made when train() starts; ask for them afterwards.")
        return self._dials

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **others: Any,
    ) -> None:
        assert model is not None
        saved = self._saved_in(state)
        settings = saved.get("args", {}).get("dials")
        self._dials = made_for(self._dials or self._given, model, state.max_steps, settings)
        self._dials.attach(model)
        if state.global_step:
            resume(self._dials, saved.get("attributes", {}).get("position"))
            callbacks: Any = state.stateful_callbacks  # of a checkpoint that may know of no dials,
            callbacks.setdefault(type(self).__name__, self.state())  # where the Trainer cannot save

    def _saved_in(self, state: TrainerState) -> dict[str, Any]:
        callbacks: Any = state.stateful_callbacks or {}
        found = callbacks.get(type(self).__name__, {}) if state.global_step else {}
        if isinstance(found, list):
            raise ValueError(
                f"the checkpoint has {len(found)} callbacks {type(self).__name__}, whose states "
                "cannot be kept apart; use one, or give each a subclass of its own."
            )
        return dict(found)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        if not getattr(others.get("optimizer"), "step_was_skipped", False):
            self.dials.step()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **others: Any,
    ) -> None:
        if self._log and self._dials is not None and logs is not None:
            values = values_to_log(self._dials)
            logs.update(values)
            state.log_history[-1].update(values)

    def state(self) -> dict[str, Any]:
        """What the Trainer writes into a checkpoint."""
        if self._dials is None:
            return {"args": {}, "attributes": {}}
        settings = settings_of(self._dials)
        arguments = {} if settings is None else {"dials": settings, "log": self._log}
        return {"args": arguments, "attributes": {"position": self._dials.state_dict()}}
