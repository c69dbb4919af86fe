"""Dials in PyTorch Lightning: a callback that attaches, steps and saves them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from ..dials import Dials
from ..noise import reseed
from ._settings import MakeDials, check, made_for, resume, settings_of, values_to_log

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback, LightningModule, Trainer
    except ImportError:  # the same under its older name
        try:
            from pytorch_lightning import Callback, LightningModule, Trainer
        except ImportError as error:
            raise ImportError(
                "dcgraph.frameworks.lightning needs PyTorch Lightning, which is not installed; "
                "run: pip install pytorch-lightning"
            ) from error

__all__ = ["DialsCallback"]


class DialsCallback(Callback):
    """Attaches dials to the LightningModule, steps them with the optimizer, and saves both.

    - Attached when ``fit`` starts, after the model was built, moved, compiled or loaded.
    - Stepped once per step of the optimizer: accumulated batches and steps that a gradient scaler
      skips do not count.
    - Saved in Lightning's checkpoints and restored by ``fit(..., ckpt_path=...)``, with the state
      of torch's random numbers on every rank, which Lightning does not save. So a run that is
      resumed at the end of an epoch goes on bit for bit. (Within an epoch that also takes a data
      loader that can be resumed.) With another number of ranks, ranks draw afresh.

    Args:
        dials: dials, or a function that makes them of the model and the number of optimizer steps
            in the whole run, when ``fit`` starts. A resumed run keeps what was made at first.
        optimizer: which of the trainer's optimizers is followed, if there are several.
        random_state: whether to save and restore torch's random numbers.
        log: whether to log tau, beta and alpha, as dials/tau and so on.

    .. code-block:: python

        def dials(model, steps):
            return dc.Dials.recommended(model, lambda: model(batch), steps=steps)

        trainer = L.Trainer(callbacks=[DialsCallback(dials)])
    """

    def __init__(
        self,
        dials: Dials | MakeDials,
        *,
        optimizer: int = 0,
        random_state: bool = True,
        log: bool = False,
    ) -> None:
        check(dials)
        self._given: Dials | MakeDials = dials
        self._dials = dials if isinstance(dials, Dials) else None
        self._optimizer = optimizer
        self._random_state = random_state
        self._log = log
        self._loaded: Mapping[str, Any] = {}
        self._device = torch.device("cpu")
        self._early = False
        self._following: Any = None

    @property
    def dials(self) -> Dials:
        """The dials; those of a function exist from the start of ``fit`` on."""
        if self._dials is None:
            raise RuntimeError("the dials are made when fit() starts; ask for them afterwards.")
        return self._dials

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._loaded = {}  # of test(ckpt_path=...), perhaps, which loads the state of callbacks too

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._device = pl_module.device
        # Before the data loader starts, for its order is drawn, too.
        self._early = self._restore_random_state()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.fit_loop.restarted_mid_epoch or not self._early:  # some strategies load late
            self._restore_random_state()
        saved = self._loaded.get("settings")
        total = 0 if self._dials is not None else trainer.estimated_stepping_batches
        steps = int(total) if math.isfinite(total) else 0
        self._dials = made_for(self._dials or self._given, pl_module, steps, saved)
        self._dials.attach(pl_module)
        if trainer.ckpt_path is not None:
            resume(self._dials, self._loaded.get("dials"))
        self._loaded = {}
        self._follow(trainer)

    def _follow(self, trainer: Trainer) -> None:
        """Step after each step of the optimizer, by a hook of torch."""
        optimizers = trainer.optimizers
        if not 0 <= self._optimizer < len(optimizers):
            raise ValueError(
                f"optimizer={self._optimizer}, but the trainer has {len(optimizers)} of them, "
                "counted from 0."
            )
        followed = optimizers[self._optimizer]
        if not isinstance(followed, Optimizer):
            raise TypeError(
                f"the trainer's optimizer is a {type(followed).__name__}, which says nothing of "
                "its steps; leave out the callback and call dials.step() in your module."
            )
        self._stop_following()
        dials = self.dials
        self._following = followed.register_step_post_hook(lambda *_: dials.step())

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.remove()
            self._following = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *arguments: Any
    ) -> None:
        if self._log:
            pl_module.log_dict(values_to_log(self.dials))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._stop_following()

    def state_dict(self) -> dict[str, Any]:
        if self._dials is None:
            return {}
        state: dict[str, Any] = {
            "dials": self._dials.state_dict(),
            "settings": settings_of(self._dials),
        }
        if self._random_state:
            state["random"] = _of_all_ranks(_random_state(self._device))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict

    def _restore_random_state(self) -> bool:
        """Whether there was one."""
        saved = self._loaded.get("random")
        if not (self._random_state and saved):
            return False
        _set_random_state(saved, self._device)
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Hooks belong to an optimizer, not to a copy."""
        return {**self.__dict__, "_following": None}


def _random_state(device: torch.device) -> list[Tensor]:
    """That of the CPU, and of the device if it is another one."""
    state = [torch.get_rng_state()]
    return [*state, torch.cuda.get_rng_state(device)] if device.type == "cuda" else state


def _set_random_state(saved: list[list[Tensor]], device: torch.device) -> None:
    """Of this rank, if there are as many ranks as there were; else each draws afresh."""
    ranks = dist.get_world_size() if _has_ranks() else 1
    rank = dist.get_rank() if _has_ranks() else 0
    own = saved[rank] if len(saved) == ranks else saved[0]
    torch.set_rng_state(own[0].cpu())
    if len(saved) != ranks:
        reseed(rank)
    elif device.type == "cuda" and len(own) > 1:
        torch.cuda.set_rng_state(own[1].cpu(), device)


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized()


def _of_all_ranks(state: list[Tensor]) -> list[list[Tensor]]:
    """Lightning asks every rank for its state, and rank 0 writes it."""
    if not _has_ranks() or dist.get_world_size() == 1:
        return [state]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, state)
    return found
