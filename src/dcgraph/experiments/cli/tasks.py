"""Commands on a task: ``dcgraph train``, ``evaluate``, ``predict`` and ``data``."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import torch

from ..._arguments import closest
from ..engine import Interrupted, Settings, Task, Watch
from ..engine.files import write_json
from .parsing import CommandError, parse_options, with_metavars

if TYPE_CHECKING:
    from ..engine.runs import Job

with suppress(ModuleNotFoundError):  # an extra; main() says so where it is missing
    import tyro


def train(task: Annotated[str, tyro.conf.arg(metavar="TASK")], /) -> None:
    """Train a model or a population of them.

    `dcgraph train TASK --help` shows the settings.

    TASK is one of
      addition  read two or three digits and add them
      listops   learn to parse nested expressions and to compute their values
      paths     follow relations through a knowledge graph, entity by entity

    or module:Class, a task of your own.

    Args:
        task: the task.
    """


def evaluate(task: Annotated[str, tyro.conf.arg(metavar="TASK")], /) -> None:
    """Measure a trained model; prints JSON.

    Args:
        task: the task, as for train; `evaluate TASK --help` shows the options.
    """


def predict(task: Annotated[str, tyro.conf.arg(metavar="TASK")], /) -> None:
    """Show what a trained model reads and computes.

    Args:
        task: the task, as for train; `predict TASK --help` shows the options.
    """


def data(task: Annotated[str, tyro.conf.arg(metavar="TASK")], /) -> None:
    """Find, fetch or make the data of a task.

    Args:
        task: the task, as for train; `data TASK --help` shows the options.
    """


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `train` takes beside the settings of the task."""

    preset: str = ""  # its help names the presets of the task
    seeds: int = dataclasses.field(default=1, metadata={"help": "replicas of each setting"})
    sweep: tuple[str, ...] = dataclasses.field(
        default=(), metadata={"help": "lists (tau=1,2,4) and ranges (lr=1e-4..1e-2:log)"}
    )
    draws: int = dataclasses.field(default=0, metadata={"help": "random draws from the ranges"})
    out: Path = dataclasses.field(
        default=Path("runs"), metadata={"help": "folder of the run: records/, models/"}
    )
    resume: bool = dataclasses.field(
        default=False, metadata={"help": "go on with the run in that folder"}
    )
    device: str = dataclasses.field(default="auto", metadata={"help": "auto, cpu or cuda"})
    data_dir: Path | None = dataclasses.field(
        default=None, metadata={"help": "folder of the data; else $DCGRAPH_DATA, cache, download"}
    )
    at_once: int = dataclasses.field(
        default=0, metadata={"help": "replicas in one population; 0: as many as fit"}
    )
    tensorboard: bool = dataclasses.field(
        default=False, metadata={"help": "write curves for TensorBoard too"}
    )


def of_task(command: str, name: str, arguments: Sequence[str]) -> None:
    """Run a command on a task, with the options that this task has for it."""
    from ..tasks import get_task

    sys.path.insert(0, str(Path.cwd()))  # for module:Class in the current folder
    try:
        task = get_task(name)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    if command == "train":
        _train(task, name, arguments)
        return
    commands = task.commands()
    if command not in commands:
        has = ", ".join(["train", *commands])
        raise CommandError(f"task {name!r} has no command {command!r}; it has: {has}.", 2)
    said = parse_options(with_metavars(commands[command]), f"dcgraph {command} {name}", arguments)
    for text in [said] if isinstance(said, str) else said:
        print(text, flush=True)


def choose_device(name: str) -> torch.device:
    """auto is a GPU, if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CommandError(f"unknown device {name!r}; use auto, cpu or cuda.", 2) from None
    if device.type not in ("cpu", "cuda"):
        raise CommandError(f"device {name!r} cannot train a population; use auto, cpu or cuda.", 2)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CommandError("torch sees no CUDA device here; use --device cpu.", 2)
    return device


def _train(task: Task, name: str, arguments: Sequence[str]) -> None:
    preset = _preset_in(arguments, task)
    parsed = parse_options(_flags(task, preset), f"dcgraph train {name}", arguments)
    values = {f.name: getattr(parsed, f.name) for f in dataclasses.fields(parsed)}
    options = Options(**{f.name: values.pop(f.name) for f in dataclasses.fields(Options)})
    try:
        settings = task.settings(**values)
        replicas = _replicas(settings, options)
        if options.at_once < 0:
            raise ValueError(f"at-once={options.at_once}, but a population has at least 1 replica.")
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    swept = (options.seeds, options.sweep, options.draws) != (1, (), 0)
    if options.resume and (swept or settings != task.presets[preset]):
        raise CommandError("with --resume the settings come from the run; leave the others out.", 2)
    try:
        _run(task, replicas, options, shlex.join(["dcgraph", "train", name, *arguments]))
    except Interrupted:
        raise CommandError(
            f"interrupted; go on with: dcgraph train {name} --out {options.out} --resume", 130
        ) from None


def _replicas(settings: Settings, options: Options) -> list[Settings]:
    from ..engine.settings import expand, parse_sweep

    sweeps = [parse_sweep(text, settings) for text in options.sweep]
    return expand(settings, sweeps, options.seeds, options.draws, settings.seed)


def _preset_in(arguments: Sequence[str], task: Task) -> str:
    """The preset decides what the defaults are, so it is looked for before all else."""
    chosen = next(iter(task.presets))
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == "--preset":
            chosen = following
        elif word.startswith("--preset="):
            chosen = word.partition("=")[2]
    if chosen not in task.presets:
        raise CommandError(f"unknown preset {chosen!r}; {closest(chosen, task.presets)}", 2)
    return chosen


_METAVARS: dict[Any, str] = {
    int: "N",
    float: "X",
    str: "NAME",
    Path: "DIR",
    Path | None: "DIR",
    tuple[str, ...]: "NAME=...",
}


def _flags(task: Task, preset: str) -> type:
    """One flat dataclass of all options and settings, for the parser: one flag each."""
    flags: list[Any] = []
    out = Path("runs") / f"{task.name}-{preset}"
    defaults = {"preset": preset, "out": out, **asdict(task.presets[preset])}
    for kind in (Options, task.settings):
        types = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            help = field.metadata.get("help", "")
            if field.name == "preset":
                help = f"starting point of the settings: {', '.join(task.presets)}"
            kind_of_value = types[field.name]
            metavar = _METAVARS.get(kind_of_value)
            marks = [tyro.conf.arg(help=help, metavar=metavar)]
            if field.name == "sweep":
                marks.append(tyro.conf.UseAppendAction)
            if kind is Options:
                marks.append(tyro.conf.FlagCreatePairsOff)
            described: Any = Annotated[kind_of_value, *marks]
            default = defaults.get(field.name, field.default)
            flags.append((field.name, described, dataclasses.field(default=default)))
    made = dataclasses.make_dataclass(task.name, flags, frozen=True, kw_only=True)
    made.__doc__ = f"Train the task {task.name}. Defaults are those of preset {preset!r}."
    return made


def _run(task: Task, replicas: Sequence[Settings], options: Options, command: str) -> None:
    from ..engine.datasets import DataError
    from ..engine.memory import keep_freed_memory
    from ..engine.runs import Job, perform, replica_name
    from .progress import combined, count, watch_population
    from .results import results_of

    device = choose_device(options.device)
    plan = options.out / "run.json"
    if options.resume:
        replicas, command = _planned(task, plan)
    elif plan.exists():
        raise CommandError(
            f"{str(options.out)!r} holds a run; go on with --resume, or choose another --out."
        )
    else:
        try:
            everyone = [asdict(replica) for replica in replicas]
            content = {"task": task.name, "command": command, "replicas": everyone}
            write_json(plan, content, indent=1)
        except OSError as error:
            reason = error.strerror
            raise CommandError(f"cannot write into {str(options.out)!r}: {reason}.") from error
    if device.type == "cpu":
        keep_freed_memory()
    records, models = options.out / "records", options.out / "models"
    jobs = []
    for settings in replicas:
        name = replica_name(settings, replicas)
        jobs.append(Job(settings, records / f"{name}.json", models / f"{name}.safetensors"))
    print(
        f"{count(len(jobs))} of {task.name} on {device}; the run is in {options.out}.", flush=True
    )

    def watch(population: Sequence[Settings]) -> Watch:
        shown = watch_population(population)
        if not options.tensorboard:
            return shown
        from .tensorboard import write_curves

        names = [replica_name(settings, replicas) for settings in population]
        return combined(shown, write_curves(options.out / "tensorboard", names))

    work = options.out / "checkpoints"
    try:
        for _ in perform(
            task,
            jobs,
            work,
            device=device,
            data_dir=options.data_dir,
            at_once=options.at_once or None,
            watch=watch,
        ):
            pass
    except (ValueError, DataError) as error:  # settings that do not fit the data, or no data
        if not options.resume and not list(work.glob("*.pt")):
            shutil.rmtree(work, ignore_errors=True)
            plan.unlink()  # nothing has begun: the corrected command may use the folder
        raise CommandError(str(error), 2) from error
    print(results_of(task, jobs, replicas))
    print(f"Records: {records}. Models: {models}.", flush=True)
    _write_page(task, jobs, replicas, options, command)


def _write_page(
    task: Task,
    jobs: Sequence[Job],
    replicas: Sequence[Settings],
    options: Options,
    command: str,
) -> None:
    from ..engine.records import read_record
    from ..engine.runs import label
    from ..report import Replica, write_report

    page = options.out / "report.html"
    named = [label(job.settings, replicas) for job in jobs]
    shown = [
        Replica(name.replace("_", " "), read_record(job.record), job.model)
        for name, job in zip(named, jobs, strict=True)
    ]
    title = f"dcgraph: {task.name}, {options.out.resolve().name}"
    try:
        write_report(page, task, shown, title=title, command=command, data_dir=options.data_dir)
    except Exception as error:  # such as one in the exhibits of somebody's task
        raise CommandError(
            f"records and models are complete, but the report failed: {type(error).__name__}: "
            f"{error}; mended, the same command with --resume writes it."
        ) from error
    print(f"Report: {page}.", flush=True)


def _planned(task: Task, plan: Path) -> tuple[list[Settings], str]:
    """The replicas of a run that was begun before, and the command that began it."""
    from ..engine.settings import from_dict

    if not plan.exists():
        raise CommandError(f"there is no run in {str(plan.parent)!r} to go on with.")
    try:
        stored = json.loads(plan.read_text())
        if stored["task"] != task.name:
            raise CommandError(f"the run in {str(plan.parent)!r} is of task {stored['task']!r}.")
        replicas = [from_dict(task.settings, values) for values in stored["replicas"]]
        command = f"dcgraph train {task.name} (the command itself was not kept)"
        return replicas, str(stored.get("command", command))  # older runs did not keep it
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{str(plan)!r} is damaged ({error}); delete the folder, or choose another --out."
        ) from error
