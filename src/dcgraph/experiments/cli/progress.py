"""How training shows its progress: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..engine import Evaluation, Settings, Watch

_LINES = 20  # at most, where there is no terminal


_open_bars: list[Any] = []


def close_bars() -> None:
    """Leave the line of a bar that was cut short, so that the next word begins a new one."""
    while _open_bars:
        _open_bars.pop().close()


def watch_population(replicas: Sequence[Settings]) -> Watch:
    """Progress with loss, accuracy and the time left, on stderr; quiet when that is no terminal."""
    return _bar(len(replicas)) if sys.stderr.isatty() else _lines(len(replicas))


def combined(*watches: Watch) -> Watch:
    """All of them are told."""

    def tell(name: str) -> Callable[..., None]:
        def tell_all(*news: object) -> None:
            for watch in watches:
                getattr(watch, name)(*news)

        return tell_all

    return Watch(tell("progress"), tell("evaluation"), tell("stopped"))


def summary(look: Evaluation) -> str:
    """Means over the replicas that are still running."""
    numbers = {"loss": look.loss, **look.metrics}
    means = {name: [v for v in values if v is not None] for name, values in numbers.items()}
    return ", ".join(f"{n} {sum(v) / len(v):.4g}" for n, v in means.items() if v) or "none running"


def _stopped(settings: Settings, step: int) -> str:
    return f"seed {settings.seed} stopped at step {step:,}: its loss or gradient was not finite."


def _bar(replicas: int) -> Watch:
    from tqdm import tqdm

    bar = tqdm(unit="step", dynamic_ncols=True, desc=count(replicas))
    _open_bars.append(bar)

    def progress(step: int, steps: int) -> None:
        bar.total = steps
        if bar.n == 0:  # a resumed run begins where it stopped
            bar.initial = bar.n = step
        bar.update(step - bar.n)
        if step == steps:
            close_bars()

    return Watch(
        progress,
        lambda look: bar.set_postfix_str(summary(look)),
        lambda settings, step: bar.write(_stopped(settings, step), file=sys.stderr),
    )


def _lines(replicas: int) -> Watch:
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
            _tell(f"{count(replicas)}: step {step:,} of {steps:,}, {_time(left)} left{latest()}")

    looks: list[Evaluation] = []

    def latest() -> str:
        return f", {summary(looks[-1])}" if looks else ""

    return Watch(progress, looks.append, lambda settings, step: _tell(_stopped(settings, step)))


def count(replicas: int) -> str:
    """In words."""
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
