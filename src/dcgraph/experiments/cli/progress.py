"""How training shows its progress: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import engine  # whose names are loaded at their first use: start-up time
from ..engine.metrics import Metric, measured_as
from ..engine.settings import Settings

if TYPE_CHECKING:
    from ..engine import Callbacks, Evaluation

_LINES = 20  # at most, where there is no terminal


_open_bars: list[Any] = []


def close_bars() -> None:
    """Leave the line of a bar that was cut short, so that the next word begins a new one."""
    while _open_bars:
        _open_bars.pop().close()


def show_progress(replicas: Sequence[Settings]) -> Callbacks:
    """Progress with loss, metrics and the time left, on stderr; quiet when that is no terminal."""
    return _bar(len(replicas)) if sys.stderr.isatty() else _lines(len(replicas))


def combined(*all_of_them: Callbacks) -> Callbacks:
    """One that calls several; what any of them prunes is pruned."""

    def call(name: str) -> Callable[..., Any]:
        def call_all(*news: object) -> list[int]:
            answers = [getattr(callbacks, name)(*news) for callbacks in all_of_them]
            return [replica for answer in answers for replica in answer or ()]

        return call_all

    return engine.Callbacks(*(call(one.name) for one in fields(engine.Callbacks)))


def write_curves(folder: Path, names: Sequence[str]) -> Callbacks:
    """Learning curves for TensorBoard: a run for each replica in ``folder``."""
    import tensorboard  # noqa: F401  (an extra; torch's own complaint does not name the package)
    from torch.utils.tensorboard import SummaryWriter

    writers = [SummaryWriter(str(folder / name)) for name in names]

    def evaluation(new: Evaluation) -> None:
        for index, writer in enumerate(writers):
            for name, values in _numbers(new).items():
                if (value := values[index]) is not None:
                    writer.add_scalar(name, value, new.step)
            writer.flush()

    return engine.Callbacks(evaluation=evaluation)


def summary(new: Evaluation) -> str:
    """Means over the replicas that are still running."""
    means = {name: [v for v in values if v is not None] for name, values in _numbers(new).items()}
    return ", ".join(f"{n} {sum(v) / len(v):.4g}" for n, v in means.items() if v) or "none running"


def _numbers(new: Evaluation) -> dict[str, list[float | None]]:
    """By names for people: loss, accuracy (argmax), ..."""
    return {"loss": new.loss, **{_short(metric): v for metric, v in new.metrics.items()}}


def _short(metric: Metric) -> str:
    return f"{metric.name} ({how})" if (how := measured_as(metric)) else metric.name


def _stopped(settings: Settings, step: int) -> str:
    return f"seed {settings.seed} stopped at step {step:,}: its loss or gradient was not finite."


def _bar(replicas: int) -> Callbacks:
    from tqdm import tqdm  # an extra

    bar = tqdm(unit="step", dynamic_ncols=True, desc=count(replicas))
    _open_bars.append(bar)

    def progress(step: int, steps: int) -> None:
        bar.total = steps
        if bar.n == 0:  # a resumed run begins where it stopped
            bar.initial = bar.n = step
        bar.update(step - bar.n)
        if step == steps:
            close_bars()

    return engine.Callbacks(
        progress,
        lambda new: bar.set_postfix_str(summary(new)),
        lambda settings, step: bar.write(_stopped(settings, step), file=sys.stderr),
    )


def _lines(replicas: int) -> Callbacks:
    began = time.monotonic()
    first: int | None = None
    shown = 0

    def progress(step: int, steps: int) -> None:
        nonlocal first, shown
        first = step if first is None else first
        if step > first and step * _LINES // steps > shown:
            shown = step * _LINES // steps
            elapsed = time.monotonic() - began
            left = elapsed / (step - first) * (steps - step)
            _print(f"{count(replicas)}: step {step:,} of {steps:,}, {_time(left)} left{latest()}")

    evaluations: list[Evaluation] = []

    def latest() -> str:
        """What was found since the last line; nothing is said twice."""
        if not evaluations:
            return ""
        new = evaluations[-1]
        evaluations.clear()
        return f", at step {new.step:,}: {summary(new)}"

    return engine.Callbacks(
        progress, evaluations.append, lambda settings, step: _print(_stopped(settings, step))
    )


def count(replicas: int) -> str:
    """In words."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
