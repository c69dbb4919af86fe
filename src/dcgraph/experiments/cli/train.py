"""``dcgraph train``: a model, or a population of them."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

from ..._arguments import closest, shown
from ..engine.errors import DataError, Interrupted, shortened
from ..engine.files import check_inside, read_json, write_json
from ..engine.jobs import Job, file_name, labels, replica_names
from ..engine.memory import keep_freed_memory
from ..engine.metrics import layout, mean_and_std, spread
from ..engine.records import Record, read_probes, read_record
from ..engine.settings import Settings, expand, from_dict, parse_sweep
from .parsing import Argument, CommandError, parse, visible
from .progress import combined, count, show_progress, write_curves
from .tasks import task_named

if TYPE_CHECKING:
    import torch

    from ..engine.loop import Callbacks
    from ..engine.panels import Remark
    from ..engine.ranks import Ranks
    from ..engine.task import AnyTask


def train(task: str, /, *words: str) -> None:
    """Train a model or a population of them.

    `dcgraph train TASK --help` shows the settings.
    A task of your own is module:Class.

    Args:
        task: the task.
    """
    loaded = task_named(task)
    options, settings, chosen, preset = read(loaded, f"dcgraph train {task}", words, Options)
    left_open = loaded.open_settings.get(preset, ())
    try:
        sweeps = [parse_sweep(text, settings) for text in options.sweep]
        replicas = expand(settings, sweeps, options.seeds, options.draws, settings.seed)
        if options.at_once < 0:
            raise ValueError(f"at-once={options.at_once}, but a population has at least 1 replica.")
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    swept = (options.seeds, options.sweep, options.draws) != (1, (), 0)
    if options.resume and (swept or settings != loaded.presets[preset]):
        raise CommandError("with --resume the settings come from the run; leave the others out.", 2)
    if left_open and not options.resume:
        chosen |= {sweep.name for sweep in sweeps}
        try:
            replicas = [loaded.fitted(one, chosen, options.data_dir) for one in replicas]
        except (ValueError, DataError) as error:
            raise CommandError(str(error), 2) from error
    try:
        _run(loaded, replicas, options, shlex.join(["dcgraph", "train", task, *words]))
    except (Interrupted, KeyboardInterrupt) as stop:
        again = shlex.join(["dcgraph", "train", task, "--out", str(options.out), "--resume"])
        begun = (options.out / "run.json").exists()
        raise CommandError(
            f"interrupted; go on with: {again}" if begun else "interrupted; nothing has begun.",
            getattr(stop, "exit_code", 130),
        ) from None


def option(default: Any, help: str) -> Any:
    """A dataclass field, so that a call as the default is in order (RUF009)."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `train` takes beside the settings of the task."""

    preset: str = option("", "starting point of the settings")
    seeds: int = option(1, "replicas of each setting")
    sweep: tuple[str, ...] = option((), "lists (tau=1,2,4) and ranges (lr=1e-4..1e-2:log)")
    draws: int = option(0, "random draws from the ranges")
    out: Path = option(Path("runs"), "folder of the run: records/, models/")  # noqa: RUF009
    resume: bool = option(False, "go on with the run in that folder")
    device: str = option("auto", "auto, cpu or cuda")
    data_dir: Path | None = option(  # noqa: RUF009
        None, "folder of the data; else $DCGRAPH_DATA, cache, download"
    )
    at_once: int = option(0, "replicas in one population; 0: as many as fit")
    divide: Literal["replicas", "batch", "codebook"] = option(
        "replicas",
        "what ranks that torchrun has started divide: replicas, each batch, or rows of a codebook",
    )
    tensorboard: bool = option(False, "write curves for TensorBoard too")


K = TypeVar("K")


def read(
    task: AnyTask, prog: str, words: Sequence[str], kind: type[K]
) -> tuple[K, Settings, set[str], str]:
    """Options and settings from words: also which open settings they have, and the preset.

    Args:
        task: whose settings they are.
        prog: the command, as it is called.
        words: the command line after that.
        kind: a dataclass of options like :class:`Options`, with a preset and a folder ``out``.
    """
    given = _given(words, task)
    preset = _preset_of(given, task)
    verb = prog.split()[1]
    what = "Train" if verb == "train" else "Search for settings of"
    about = f"{what} the task {task.name}. Defaults are those of preset {preset!r}."
    values = parse(_arguments(task, preset, given, kind, verb), prog, words, about)
    options = kind(**{name: values.pop(name) for name in get_type_hints(kind)})
    left_open = task.open_settings.get(preset, ())
    chosen = {name for name in left_open if values[name] is not None}
    base = asdict(task.presets[preset])
    try:
        settings = task.settings(
            **{name: base[name] if value is None else value for name, value in values.items()}
        )
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    return options, settings, chosen, preset


def _given(words: Sequence[str], task: AnyTask) -> dict[str, str]:
    """The settings and the preset that the words give, before anything else is known."""
    names = {f.name: "--" + f.name.replace("_", "-") for f in dataclasses.fields(task.settings)}
    names["preset"] = "--preset"
    given = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        for name, option in names.items():
            if word == option:
                given[name] = following
            elif word.startswith(f"{option}="):
                given[name] = word.partition("=")[2]
    return given


def _preset_of(given: Mapping[str, str], task: AnyTask) -> str:
    """The preset decides what the defaults are, so it is looked for before all else."""
    chosen = given.get("preset") or task.preset_for(given)
    if chosen not in task.presets:
        raise CommandError(f"unknown preset {shown(chosen)}; {closest(chosen, task.presets)}", 2)
    return chosen


def _arguments(
    task: AnyTask, preset: str, given: Mapping[str, str], options: Any, verb: str
) -> list[Argument]:
    """All options, then all settings: one flag each."""
    left_open = task.open_settings.get(preset, ())
    run = file_name(("" if verb == "train" else f"{verb}-") + task.run_name(preset, given))
    defaults = {
        "preset": preset,
        "out": Path("runs") / run,
        **asdict(task.presets[preset]),
        **dict.fromkeys(left_open),
    }
    arguments = []
    for kind in (options, task.settings):
        types = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            help = field.metadata.get("help", "")
            if field.name == "preset":
                help += f": {', '.join(task.presets)}"
            if field.name in left_open:
                help += " (default: fitted to the data)"
            arguments.append(
                Argument(
                    field.name,
                    types[field.name],
                    defaults.get(field.name, field.default),
                    help,
                    can_be_negated=kind is not options,
                )
            )
    return arguments


def choose_device(name: str) -> torch.device:
    """auto is a GPU, if there is one."""
    import torch  # start-up time

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CommandError(f"unknown device {shown(name)}; use auto, cpu or cuda.", 2) from None
    if device.type not in ("cpu", "cuda"):
        raise CommandError(f"device {name!r} cannot train a population; use auto, cpu or cuda.", 2)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CommandError("torch sees no CUDA device here; use --device cpu.", 2)
    return device


def device_of_rank(name: str, ranks: Ranks) -> torch.device:
    """The same, and of several GPUs the one of this rank."""
    import torch  # start-up time

    device = choose_device(name)
    if ranks.world > 1 and device.type == "cuda" and ":" not in name:
        device = torch.device("cuda", ranks.place % torch.cuda.device_count())
        torch.cuda.set_device(device)
    return device


def _run(task: AnyTask, replicas: Sequence[Settings], options: Options, command: str) -> None:
    from ..engine.ranks import started_ranks  # start-up time: torch

    with started_ranks(options.divide) as ranks:
        jobs, command = _train(task, replicas, options, command, ranks)
    if not ranks.is_main:
        return
    print(visible(results_of(jobs)))
    remarks = _remarks(task, jobs, options)
    for remark in remarks:
        print(visible(f"Warning: {remark.text}" if remark.warning else remark.text))
    folders = f"Records: {options.out / 'records'}. Models: {options.out / 'models'}."
    print(folders, flush=True)
    _write_page(task, jobs, remarks, options, command)


def _train(
    task: AnyTask,
    replicas: Sequence[Settings],
    options: Options,
    command: str,
    ranks: Ranks,
) -> tuple[list[Job], str]:
    """Until all of the jobs have their files; these jobs, and the command that began the run."""
    from ..engine.ranks import was_restarted  # start-up time: torch
    from ..engine.runs import perform  # start-up time: torch

    device = ranks.by_each(lambda: device_of_rank(options.device, ranks))
    plan, work = options.out / "run.json", options.out / "checkpoints"
    records, models = options.out / "records", options.out / "models"
    missing = [folder for folder in (options.out, *options.out.parents) if not folder.exists()]

    # On other machines ranks may have been started again without being counted.
    goes_on = any(ranks.everyones(options.resume or was_restarted()))

    def begin() -> tuple[Sequence[Settings], str]:
        check_inside(options.out, records, models, work, options.out / "tensorboard")
        if options.resume:
            return _planned(task, plan)
        if goes_on and plan.exists():
            begun = _planned(task, plan)
            if begun[1] == command:  # else it is another run
                return begun
        _write_plan(plan, task, replicas, command)
        return replicas, command

    replicas, command = ranks.by_main(begin)
    if device.type == "cpu":
        keep_freed_memory()
    names = dict(zip(replicas, replica_names(replicas), strict=True))
    jobs = [
        Job(settings, records / f"{name}.json", models / f"{name}.safetensors")
        for settings, name in names.items()
    ]
    if ranks.is_main:
        place = f"{device}" if ranks.world == 1 else f"{ranks.world} ranks, {device.type}"
        line = f"{count(len(jobs))} of {task.name} on {place}; the run is in {options.out}."
        print(line, flush=True)

    def callbacks(population: Sequence[Settings]) -> Callbacks:
        shown = show_progress(population)
        if not options.tensorboard:
            return shown
        own = [names[settings] for settings in population]
        return combined(shown, write_curves(options.out / "tensorboard", own))

    try:
        for _ in perform(
            task,
            jobs,
            work,
            device=device,
            data_dir=options.data_dir,
            at_once=options.at_once or None,
            callbacks=callbacks,
            ranks=ranks,
        ):
            pass
    except (ValueError, DataError) as error:  # settings that do not fit the data, or no data
        begun = options.resume or not ranks.is_main or list(work.glob("*.pt"))
        if not begun:
            shutil.rmtree(work, ignore_errors=True)
            plan.unlink()  # nothing has begun: the corrected command may use the folder
            with suppress(OSError):  # which is no longer there, unless something else is in it
                for folder in missing:
                    folder.rmdir()
        raise CommandError(str(error), 2) from error
    return jobs, command


def _write_plan(plan: Path, task: AnyTask, replicas: Sequence[Settings], command: str) -> None:
    """What is to be trained, for --resume."""
    folder = str(plan.parent)
    if plan.exists():
        raise CommandError(f"{folder!r} holds a run; go on with --resume, or choose another --out.")
    content = {
        "task": task.name,
        "command": command,
        "replicas": [asdict(replica) for replica in replicas],
    }
    try:
        write_json(plan, content, indent=1)
    except OSError as error:
        raise CommandError(f"cannot write into {folder!r}: {error.strerror}.") from error


def _planned(task: AnyTask, plan: Path) -> tuple[list[Settings], str]:
    """The replicas of a run that was begun before, and the command that began it."""
    if not plan.exists():
        raise CommandError(f"there is no run in {str(plan.parent)!r} to go on with.")
    try:
        stored = read_json(plan)
        if stored["task"] != task.name:
            raise CommandError(
                f"the run in {str(plan.parent)!r} is of task {shown(stored['task'])}."
            )
        replicas = [from_dict(task.settings, values) for values in stored["replicas"]]
        if not replicas:
            raise ValueError("no replicas")
        return replicas, str(stored["command"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{str(plan)!r} is damaged ({shortened(error)}); delete the folder, or choose "
            "another --out."
        ) from error


def results_of(jobs: Sequence[Job]) -> str:
    """What a run says at its end: mean and spread on the test set, for each setting."""
    groups: dict[str, list[Record]] = {}
    for job, label in zip(jobs, labels([job.settings for job in jobs]), strict=True):
        groups.setdefault(label, []).append(read_record(job.record))
    split = next(iter(groups.values()))[0].selection.metric.set
    lines = [f"On the test set, with the weights that were best on the {split} set:"]
    for name, records in groups.items():
        grid = layout(metric for record in records for metric in record.metrics)
        cells = {
            place: spread(*mean_and_std(r.value(metric) for r in records), "{:.4f}".format)
            for place, metric in grid.cells.items()
        }
        rows = [
            [row, *(cells.get((row, column), "") for column in grid.columns)] for row in grid.rows
        ]
        lines += [f"  {name}"] if len(groups) > 1 else []
        lines += _aligned([["", *grid.columns], *rows])
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: what is in a row to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "    "
        + "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _remarks(task: AnyTask, jobs: Sequence[Job], options: Options) -> Sequence[Remark]:
    """What the task says of the best model."""
    from ..engine.models import load_model  # start-up time: torch

    best = max(jobs, key=lambda job: read_record(job.record).score())
    assert best.model is not None
    try:
        return task.remarks(*load_model(best.model, task), options.data_dir)
    except Exception as error:  # such as one in somebody's task
        raise CommandError(
            f"records and models are complete, but what to say of them failed: "
            f"{type(error).__name__}: {error}; mended, the same command with --resume says it."
        ) from error


def _write_page(
    task: AnyTask,
    jobs: Sequence[Job],
    remarks: Sequence[Remark],
    options: Options,
    command: str,
) -> None:
    from ..report import Replica, write_report  # start-up time: torch and jinja2

    page = options.out / "report.html"
    shown = [
        Replica(
            label.replace("_", " ") or "default",
            read_record(job.record),
            read_probes(job.record),
            job.model,
        )
        for job, label in zip(jobs, labels([job.settings for job in jobs]), strict=True)
    ]
    title = f"dcgraph: {task.name}, {options.out.resolve().name}"
    try:
        write_report(
            page,
            task,
            shown,
            title=title,
            command=command,
            remarks=remarks,
            data_dir=options.data_dir,
        )
    except Exception as error:  # such as one in the panels of somebody's task
        raise CommandError(
            f"records and models are complete, but the report failed: {type(error).__name__}: "
            f"{error}; mended, the same command with --resume writes it."
        ) from error
    print(f"Report: {page}.", flush=True)
