"""``dcgraph search``: settings of a task, searched with Optuna."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..engine.errors import DataError
from ..engine.memory import keep_freed_memory
from ..engine.settings import Settings, parse_sweep
from ..tasks import TASKS
from .parsing import CommandError, visible
from .progress import close_bars, show_progress
from .tasks import task_named
from .train import choose_device, option, read

if TYPE_CHECKING:
    import optuna

    from ..engine.task import AnyTask


def search(
    task: str = "",
    /,
    *words: str,
    report: bool = False,
    storage: str | None = None,
    study: str | None = None,
    out: Path = Path("runs/search"),
) -> None:
    """Search for the settings of a task, with Optuna.

    Trials are trained some at a time, as one population. Killed and begun again,
    the same command goes on; several at a time share the work.
    `dcgraph search TASK --help` shows what can be set.

    Args:
        task: the task, as for train; it can be left out with --report.
        report: draw the study: no training.
        storage: database of the study (default: study.db in --out).
        study: its name (default: the only one there).
        out: folder of the search.
    """
    if not task:
        if not report:
            raise CommandError("which TASK? See: dcgraph search --help", 2)
        _draw(storage or _file_in(out), study, out)
        return
    loaded = task_named(task)
    options, settings, chosen, preset = read(loaded, f"dcgraph search {task}", words, Options)
    where = options.storage or _file_in(options.out)
    name = options.study or options.out.name
    if options.report:
        _draw(where, name, options.out)
        return
    for count, least in (("trials", 1), ("seeds", 1), ("at_once", 1), ("grace", 4)):
        if (given := getattr(options, count) or 0) < least:
            flag = count.replace("_", "-")
            raise CommandError(f"{flag}={given}, but at least {least} is needed: --{flag} N", 2)
    try:
        _work(loaded, settings, chosen, preset, options, where, name, [task, *words])
    except (ValueError, DataError) as error:
        raise CommandError(str(error), 2) from error


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `search` takes beside the settings of the task, which no sweep may name."""

    preset: str = option("", "starting point of the settings")
    sweep: tuple[str, ...] = option((), "what to search: lr=1e-4..1e-2:log tau=1,2,4 dropres=0,1")
    trials: int | None = option(None, "how many, of all workers together")
    storage: str | None = option(None, "sqlite:///FILE or postgresql://...; else study.db in --out")
    study: str | None = option(None, "its name there; else that of the folder")
    at_once: int = option(8, "trials in one population")
    seeds: int = option(1, "replicas of each trial, whose mean counts")
    sampler: Literal["tpe", "random"] = option("tpe", "how new trials are drawn")
    pruner: Literal["median", "halving", "none"] = option(
        "median", "which trials end early; halving: successive halving"
    )
    grace: int = option(120, "seconds after which a silent worker is taken for dead")
    out: Path = option(Path("runs"), "folder of the search: records/, report.html")  # noqa: RUF009
    report: bool = option(False, "draw the study: no training")
    device: str = option("auto", "auto, cpu or cuda")
    data_dir: Path | None = option(  # noqa: RUF009
        None, "folder of the data; else $DCGRAPH_DATA, cache, download"
    )


def _file_in(out: Path) -> str:
    return f"sqlite:///{out / 'study.db'}"


def _work(
    task: AnyTask,
    settings: Settings,
    chosen: set[str],
    preset: str,
    options: Options,
    where: str,
    name: str,
    words: Sequence[str],
) -> None:
    from ..engine.search import Search, search  # start-up time: torch, Optuna
    from ..engine.studies import Storage

    sweeps = [parse_sweep(text, settings) for text in options.sweep]
    named = chosen | {sweep.name for sweep in sweeps}
    left_open = bool(task.open_settings.get(preset))
    device = choose_device(options.device)
    if device.type == "cpu":
        keep_freed_memory()
    plan = Search(
        task=task,
        settings=settings,
        sweeps=sweeps,
        seeds=options.seeds,
        sampler=options.sampler,
        pruner=options.pruner,
        fit=(lambda one: task.fitted(one, named, options.data_dir))
        if left_open
        else (lambda one: one),
        trials=options.trials or 0,
        at_once=options.at_once,
    )
    with closing(Storage(where, options.grace)) as storage:
        print(
            visible(
                f"Searching {', '.join(s.name for s in sweeps)} of {task.name} on {device}: "
                f"study {name} in {storage.name}."
            ),
            flush=True,
        )
        study = search(
            plan,
            storage,
            name,
            options.out,
            device=device,
            data_dir=options.data_dir,
            callbacks=show_progress,
            say=_say,
        )
        print(visible(_result(study, task, preset, settings)))
        again = shlex.join(_without_password(["dcgraph", "search", *words]))
        best = _command_of_best(study, task, preset, settings)
        page = _write_page(study, options.out, [again, *([best] if best else [])])
        print(f"Records: {options.out / 'records'}. Report: {page}.", flush=True)


def _say(line: str) -> None:
    close_bars()  # a population that was pruned as a whole leaves its own
    print(visible(line), flush=True)


def _result(study: optuna.Study, task: AnyTask, preset: str, settings: Settings) -> str:
    """The best trial, and the command that trains its settings."""
    from ..engine.studies import latest, ranked  # start-up time: Optuna

    trials = latest(study)
    pruned = sum(trial.state.name == "PRUNED" for trial in trials)
    counted = f"{len(trials)} trials, {pruned} of them pruned"
    finished = ranked(trials)
    if not finished:
        return f"{counted}. None was trained to the end."
    number, best = finished[0]
    said = ", ".join(f"{name} {_short(value)}" for name, value in best.params.items())
    command = _command_of_best(study, task, preset, settings)
    return f"{counted}. Best: trial {number}, {best.value:.4f} with {said}.\nTo train it: {command}"


def _command_of_best(
    study: optuna.Study, task: AnyTask, preset: str, settings: Settings
) -> str | None:
    """What is given are the settings that are not those of the preset."""
    from ..engine.studies import latest, ranked, settings_with  # start-up time: Optuna

    if not (finished := ranked(latest(study))):
        return None
    words = ["dcgraph", "train", _word_of(task), "--preset", preset]
    default = asdict(task.presets[preset])
    for name, value in asdict(settings_with(settings, finished[0][1].params)).items():
        flag = name.replace("_", "-")
        if value == default[name]:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def _word_of(task: AnyTask) -> str:
    """A task on the command line."""
    return task.name if task.name in TASKS else f"{type(task).__module__}:{type(task).__name__}"


def _without_password(words: Sequence[str]) -> list[str]:
    from ..engine.studies import hidden  # start-up time: Optuna

    return [hidden(word) if "://" in word else word for word in words]


def _draw(where: str, name: str | None, out: Path) -> None:
    """The page of a study that need not be finished; without a name, of the only one."""
    from ..engine.studies import Storage, about_of  # start-up time: Optuna

    if where == _file_in(out) and not (out / "study.db").exists():
        raise CommandError(f"there is no study in {str(out)!r}; choose --out, or --storage.")
    with closing(Storage(where, grace=120)) as storage, storage.answers():
        known = storage.names()
        if not name and len(known) != 1:
            listed = ", ".join(known) or "none"
            raise CommandError(
                f"which study of {storage.name!r}? There are: {listed}; --study NAME"
            )
        study = storage.study(name or known[0])
        again = ["dcgraph", "search", "--report", "--storage", storage.name]
        again += ["--study", study.study_name, "--out", str(out)]
        if not about_of(study):
            raise CommandError(f"study {study.study_name!r} is of another program.")
        print(f"Report: {_write_page(study, out, [shlex.join(again)])}.", flush=True)


def _write_page(study: optuna.Study, out: Path, commands: Sequence[str]) -> Path:
    from ..report.search import write_search_report  # start-up time: torch and jinja2

    page = out / "report.html"
    write_search_report(page, study, commands)
    return page


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
