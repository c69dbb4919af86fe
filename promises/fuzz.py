"""Fuzz: damaged input for every parser and loader; what may come out is a value or one line.

python promises/fuzz.py --minutes 10; `make fuzz` does the same. Valid texts, files and nested
values are damaged from a seed (see damage.py) and read. The property: the reader gives a value that
can be used, or raises one of our errors with one line of text; it takes neither long nor much
memory, writes nothing outside of its folder, and starts no other program.

A failure is printed with its target and seed; --target and --seed repeat it.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import lzma
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for the task that is made for tests

import dcgraph as dc
from damage import TEXTS, VALUES, Damage
from dcgraph.experiments import cli
from dcgraph.experiments.cli.parsing import CommandError, visible
from dcgraph.experiments.engine import Interrupted, checkpoint, loop, models, resume, runs
from dcgraph.experiments.engine.errors import CheckpointError, DataError, ModelError, RecordError
from dcgraph.experiments.engine.jobs import Job, file_name, replica_names
from dcgraph.experiments.engine.metrics import layout
from dcgraph.experiments.engine.ranks import ONE_RANK
from dcgraph.experiments.engine.records import read_probes, read_record, write_probes
from dcgraph.experiments.engine.settings import dials_of, expand, from_dict, parse_sweep
from dcgraph.experiments.tasks import get_task
from dcgraph.experiments.tasks.addition.data.images import read_idx
from dcgraph.experiments.tasks.addition.data.lists import read_pairs
from dcgraph.experiments.tasks.listops.data import expressions
from dcgraph.experiments.tasks.paths.data import disk_cached, load, read_queries, write_queries
from dcgraph.experiments.tasks.paths.data.graph import query_of
from dcgraph.experiments.tasks.paths.data.walks import sample
from parity import DATA, QUICK, TASK, Parity
from promised import markdown, write
from small_graphs import random_graph

command: Any = sys.modules["dcgraph.experiments.cli.train"]  # cli.train is the function in it

SECONDS = 10.0  # of the processor, of a case
MEMORY = 1 << 29  # bytes of a case
LINE = 2000  # characters of an error

Case = Callable[[Damage, Path], None]


@dataclass(frozen=True)
class Target:
    """A reader: what prepares its valid input gives what tries one damaged case of it."""

    prepare: Callable[[Path], Case]
    errors: tuple[type[Exception], ...]
    weight: float = 1.0  # how many of the cases are its; the slow ones have fewer


# Path queries


def graphs(home: Path) -> Case:
    graph = random_graph(12, 3, 90, seed=0)
    lines = {
        split: "".join(
            f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}\n"
            for h, r, t in triples.tolist()
        )
        for split, triples in graph.triples.items()
    }
    files = {
        "train.txt": lines["train"],
        "valid.txt": lines["validation"],
        "test.txt": lines["test"],
        "entities.txt": "".join(f"{name}\n" for name in graph.entities),
        "relations.txt": "".join(f"{name}\n" for name in graph.relations),
        "paths/train.txt": "e1\tr0,**r1\te2\ne3\tr2\te4\n",
        "paths/valid.txt": "e1\tr0,r1\te2\n",
        "paths/test.txt": "e5\t**r2\te2\n",
    }

    def case(damage: Damage, folder: Path) -> None:
        chosen = {damage.choice(list(files)) for _ in range(damage.choice((0, 1, 1, 2)))}
        for name, content in files.items():
            if damage.chance(0.03):
                continue
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            raw = damage.file(content) if name in chosen else content.encode()
            if damage.chance(0.1):
                path, raw = path.with_name(f"{path.name}.gz"), gzip.compress(raw, 1)
                raw = damage.binary(raw) if damage.chance(0.5) else raw
            path.write_bytes(raw)
        data = load(str(folder), cache=folder / "cache")
        if data.fingerprint and "test" in data.splits:
            visible(str(data.graph.entities[0]))

    return case


def query_texts(home: Path) -> Case:
    graph = random_graph(12, 3, 90, seed=0)
    path = home / "queries.txt"
    write_queries(path, sample(graph, 0)["test"], graph)
    text = "".join(path.read_text().splitlines(keepends=True)[:20])

    def case(damage: Damage, folder: Path) -> None:
        file = folder / "queries.txt"
        raw = damage.file(text)
        if damage.chance(0.2):
            file, raw = folder / "queries.txt.gz", damage.binary(gzip.compress(raw, 1))
        file.write_bytes(raw)
        assert sum(map(len, read_queries(file, graph))) > 0

    return case


def query_arrays(home: Path) -> Case:
    graph = random_graph(12, 3, 90, seed=0)
    arrays = {
        "source": np.array([0, 1, 2]),
        "path": np.array([[0, 1], [2, -1], [5, 5]]),
        "target": np.array([3, 4, 5]),
    }

    def case(damage: Damage, folder: Path) -> None:
        content = {name: array.copy() for name, array in arrays.items()}
        name = damage.choice(list(content))
        kind = damage.choice(("i1", "i8", ">i4", "f8", "u8", "O", "U3", "M8[s]", "b1"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match damage.rng.randrange(5):
                case 0:
                    content[name] = content[name].astype(kind)
                case 1:
                    content[name] = content[name].reshape(damage.choice(((-1, 1), (1, -1), (-1,))))
                case 2:
                    content[name].flat[0] = damage.choice((-2, -1, 6, 12, 10**9, -(2**63)))
                case 3:
                    content.pop(name)
                case _:
                    content[name] = content[name][: damage.choice((0, 1, 2))]
        packed = io.BytesIO()
        pack = np.savez_compressed if damage.chance(0.5) else np.savez
        pack(packed, allow_pickle=True, **content)
        raw = packed.getvalue()
        if damage.chance(0.4):
            raw = damage.binary(raw)
        elif damage.chance(0.3):
            raw = _large_header(damage)
        (folder / "queries.npz").write_bytes(raw)
        assert sum(map(len, read_queries(folder / "queries.npz", graph))) > 0

    return case


def _large_header(damage: Damage) -> bytes:
    """Arrays that say to be much larger than they are."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("source", "path", "target"):
            shape = damage.choice(((10**12,), (10**9, 2), (3,), (3, 10**9), (2**62, 2**62), (-1,)))
            kind = damage.choice(("<i8", "|O", "<V900000000", "<i4"))
            header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
            header = header.ljust(damage.choice((118, 60_000))) + "\n"
            version, size = (b"\x01\x00", 2) if damage.chance(0.5) else (b"\x02\x00", 4)
            start = b"\x93NUMPY" + version + len(header).to_bytes(size, "little")
            archive.writestr(f"{name}.npy", start + header.encode() + b"\0" * 100)
    return packed.getvalue()


def query_words(home: Path) -> Case:
    graph = random_graph(80, 3, 90, seed=0)

    def case(damage: Damage, folder: Path) -> None:
        query_of(graph, damage.text("e1"), damage.text("r0,**r1,r2"))

    return case


# Images and lists


def idx_files(home: Path) -> Case:
    images = bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4)) + bytes(range(32))

    def case(damage: Damage, folder: Path) -> None:
        raw = damage.binary(images) if damage.chance(0.7) else images
        packed = gzip.compress(raw, 1)
        if damage.chance(0.005):
            packed = bomb(gzip.compress)
        packed = damage.binary(packed) if damage.chance(0.5) else packed
        found = read_idx(packed, "images", damage.choice((1, 2, 3)))
        assert found.numel() > 0

    return case


_BOMB: dict[Any, bytes] = {}


def bomb(compress: Callable[[bytes], bytes]) -> bytes:
    """A small file that inflates to one larger than a case may take."""
    if compress not in _BOMB:
        part = compress(bytes(1 << 20))
        _BOMB[compress] = part * (
            MEMORY + MEMORY // 8 >> 20
        )  # gzip and xz files may follow each other
    return _BOMB[compress]


def gzip_bombs(home: Path) -> Case:
    graph = random_graph(12, 3, 90, seed=0)

    def case(damage: Damage, folder: Path) -> None:
        raw = bomb(gzip.compress)
        if damage.chance(0.5):
            (folder / "train.txt.gz").write_bytes(raw)
            (folder / "test.txt").write_text("a\tr\tb\n")
            load(str(folder), cache=folder / "cache")
        else:
            (folder / "queries.txt.gz").write_bytes(raw)
            read_queries(folder / "queries.txt.gz", graph)

    return case


def pairs(home: Path) -> Case:
    text = "addition(0,1,3).\naddition(5, 7, 12).\n\naddition(99,3,0).\n"

    def case(damage: Damage, folder: Path) -> None:
        (folder / "pairs.txt").write_bytes(damage.file(text))
        rows, totals = read_pairs(folder / "pairs.txt", images=100, summands=2)
        assert rows.shape == (len(totals), 2)

    return case


# ListOps

_EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 [MED 1 5 [MAX 3 ] 8 ] ]"


def listops_texts(home: Path) -> Case:
    def case(damage: Damage, folder: Path) -> None:
        text = damage.text(_EXPRESSION)
        if damage.chance(0.02):
            text = damage.choice(("[MAX 1 " * 20_000, "[MIN " * 9999 + "1" + "]" * 9999))
        parsed = expressions.parse(text)
        assert expressions.parse(expressions.text_of(parsed)) == parsed

    return case


def listops_files(home: Path) -> Case:
    text = f"{_EXPRESSION}\t9\n[MED 3 1 ]\t2\n\n[MIN 4 7 ]\t4\n"

    def case(damage: Damage, folder: Path) -> None:
        (folder / "set.txt").write_bytes(damage.file(text))
        assert expressions.read(folder / "set.txt")

    return case


# Settings and the command line

_TASKS = ("addition", "listops", "paths")


def sweeps(home: Path) -> Case:
    valid = ("tau=1,2,4", "lr=1e-4..1e-2:log", "gamma=0.1..0.5", "dropres=0,1", "batch=4..64")

    def case(damage: Damage, folder: Path) -> None:
        words = [damage.choice(valid) for _ in range(damage.choice((1, 1, 2, 3)))]
        words = [damage.text(word) if damage.chance(0.6) else word for word in words]
        if damage.chance(0.3):
            numbers = ("-1.7e308", "1e-320", "0", "1e-9", "1", "1e9", "1.7e308", "1e400")
            name, low, high = (
                damage.choice(("lr", "tau", "batch")),
                *damage.rng.choices(numbers, k=2),
            )
            words.append(f"{name}={low}..{high}{damage.choice(('', ':log'))}")
        parsed = [parse_sweep(word, QUICK) for word in words]
        replicas = expand(QUICK, parsed, damage.choice((1, 2)), damage.choice((0, 1, 3)))
        _names_stay(replicas, folder)

    return case


def _names_stay(replicas: Sequence[Any], folder: Path) -> None:
    names = replica_names(replicas)
    assert len(set(names)) == len(names), "two replicas have one name"
    for name in names:
        _stays(name, folder)


def _stays(name: str, folder: Path) -> None:
    path = folder / f"{name}.json"
    assert path.resolve().parent == folder.resolve() and len(path.name.encode()) < 200, name


def settings(home: Path) -> Case:
    valid = [
        (get_task(name).settings, p) for name in _TASKS for p in get_task(name).presets.values()
    ]
    valid += [(Parity.settings, QUICK)]

    def case(damage: Damage, folder: Path) -> None:
        kind, preset = damage.choice(valid)
        made = from_dict(kind, damage.value(asdict(preset)))
        values = dials_of([made]).at(damage.choice((0, 1, 1000, 10**12)))
        assert values["tau"][0] > 0
        _names_stay(list(dict.fromkeys([made, preset])), folder)

    return case


def command_line(home: Path) -> Case:
    settings = {name: asdict(next(iter(get_task(name).presets.values()))) for name in _TASKS}

    def accept(task: object, replicas: Sequence[Any], options: Any, line: str) -> None:
        assert replicas and options.at_once >= 0
        _names_stay(replicas, home)

    def case(damage: Damage, folder: Path) -> None:
        task = damage.choice(_TASKS)
        words = ["train", task, "--out", str(folder / "run")]
        for _ in range(damage.choice((1, 1, 2, 4))):
            name = damage.choice((*settings[task], "seeds", "sweep", "draws", "device", "preset"))
            value = damage.other(settings[task].get(name, damage.choice(("1", "tau=1,2", "best"))))
            words += [f"--{name.replace('_', '-')}", str(value)[:100_000]]
        words = [damage.text(word) if damage.chance(0.03) else word for word in words]
        commands = ("table", "data", "evaluate", "predict", "figure", "reproduce --dry", "")
        if damage.chance(0.1):
            verb = damage.choice(commands).split()
            words = [*verb, damage.text(damage.choice((*_TASKS, "codebook", "lead")))[:9], "--x"]
        before, command._run = command._run, accept
        try:
            _run_main([word.replace("\0", "") for word in words])
        finally:
            command._run = before

    return case


def _run_main(words: Sequence[str]) -> None:
    """The command line itself: exit code 0, or one line on stderr."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            code = cli.main(list(words))
        except SystemExit as stop:
            code = int(stop.code or 0)
    lines = [line for line in complained.getvalue().splitlines() if line.startswith("dcgraph: ")]
    if code == 0:
        return
    if code not in (1, 2) or len(lines) != 1 or "Traceback" in complained.getvalue():
        raise AssertionError(f"exit code {code}, and on stderr: {complained.getvalue()!r:.500}")
    raise CommandError(lines[0])


def predict_listops(home: Path) -> Case:
    def case(damage: Damage, folder: Path) -> None:
        text = damage.text(_EXPRESSION)[:300]
        options = damage.choice(
            ([], ["--rounds", damage.choice(TEXTS)[:50]], ["--decode", "sample"])
        )
        _run_main(["predict", "listops", text.replace("\0", ""), *options])

    return case


# What a run leaves


def plans(home: Path) -> Case:
    content = {
        "task": "parity",
        "command": "dcgraph train parity",
        "replicas": [asdict(replace(QUICK, seed=seed)) for seed in range(2)],
    }

    def case(damage: Damage, folder: Path) -> None:
        plan = folder / "run.json"
        plan.write_bytes(damage.json(content))
        replicas, line = command._planned(TASK, plan)
        _names_stay(list(dict.fromkeys(replicas)), folder)
        visible(line)

    return case


def plans_of_work(home: Path) -> Case:
    replicas = [replace(QUICK, seed=seed) for seed in range(3)]
    content = [[asdict(one) for one in replicas[:2]], [asdict(replicas[2])]]

    def case(damage: Damage, folder: Path) -> None:
        path = folder / "plan.json"
        path.write_bytes(damage.json(content))
        jobs = [Job(one, folder / f"{one.seed}.json") for one in replicas]
        planned = runs._plan(TASK, jobs, path, torch.device("cpu"), None, 2, ONE_RANK)
        assert sorted(one.seed for group in planned for one in group) == [0, 1, 2]

    return case


def checkpoints(home: Path) -> Case:
    replicas = [replace(QUICK, seed=seed) for seed in range(2)]
    path = home / "run.pt"

    def stop(step: int, steps: int) -> None:
        if step >= 8:
            signal.raise_signal(signal.SIGINT)

    with contextlib.suppress(Interrupted):
        loop.train(TASK, replicas, DATA, save_to=path, callbacks=loop.Callbacks(progress=stop))
    whole, content = path.read_bytes(), checkpoint.load(path)
    progress = json.loads(content["progress"])

    def case(damage: Damage, folder: Path) -> None:
        file = folder / "run.pt"
        if damage.chance(0.4):
            file.write_bytes(damage.binary(whole))
        else:
            torch.save(_damaged_checkpoint(damage, content, progress), file)
        run = loop._Run(TASK, replicas, DATA, torch.device("cpu"), None, None, ONE_RANK)
        resume.load(run, file)
        if damage.chance(0.2):
            warnings.simplefilter("ignore")  # weights may be NaN, and then it says so
            run.finish(None, 60.0)

    return case


def _damaged_checkpoint(damage: Damage, content: dict[str, Any], progress: Any) -> dict[str, Any]:
    changed = dict(content)
    if damage.chance(0.4):
        changed["progress"] = json.dumps(damage.value(progress))
        return changed
    place: dict[str, Any] = changed
    while True:
        key = damage.choice(list(place))
        inner = place[key]
        if not isinstance(inner, dict) or not inner:
            break
        place[key] = place = dict(inner)
    if isinstance(inner, torch.Tensor):
        place[key] = _damaged_tensor(damage, inner)
    elif damage.chance(0.2):
        del place[key]
    else:
        place[key] = damage.value(inner)
    return changed


def _damaged_tensor(damage: Damage, tensor: torch.Tensor) -> Any:
    kind = damage.choice((torch.int8, torch.float64, torch.bool, torch.complex64, torch.float16))
    match damage.rng.randrange(6):
        case 0:
            return tensor.to(kind)
        case 1:
            return tensor.flatten()[: damage.choice((0, 1, 2))]
        case 2:
            return torch.full_like(tensor, damage.choice((0, 1, 127)))
        case 3 if tensor.is_floating_point():
            return torch.full_like(tensor, damage.choice((float("nan"), float("inf"), 1e38)))
        case 4:
            return tensor.unsqueeze(0)
        case _:
            return damage.choice(VALUES)


def _finished(home: Path) -> tuple[Path, Path]:
    """A record with its probes, and a model."""
    record, model = home / "record.json", home / "model.safetensors"
    jobs = [Job(QUICK, record, model)]
    list(runs.perform(TASK, jobs, home / "work"))
    return record, model


def records(home: Path) -> Case:
    record, _ = _finished(home)
    content = json.loads(record.read_text())

    def case(damage: Damage, folder: Path) -> None:
        path = folder / "seed-0.json"
        path.write_bytes(damage.json(content))
        found = read_record(path)
        layout(found.metrics)
        assert found.score() is not None and found.steps_per_epoch >= 0
        _run_results(Job(QUICK, path))

    return case


def _run_results(job: Job) -> None:
    visible(command.results_of([job]))


def probes(home: Path) -> Case:
    record, _ = _finished(home)
    content = read_probes(record)
    plain = {str(step): readings for step, readings in content.items()}
    packed = record.with_suffix(".probes.json.xz").read_bytes()

    def case(damage: Damage, folder: Path) -> None:
        path = folder / "seed-0.json"
        raw = damage.binary(packed)
        if damage.chance(0.5):
            raw = lzma.compress(damage.json(plain), preset=0)
        if damage.chance(0.005):
            raw = bomb(lzma.compress)
        path.with_suffix(".probes.json.xz").write_bytes(raw)
        found = read_probes(path)
        if all(isinstance(readings, list) for readings in found.values()):
            write_probes(folder / "again.json", found)

    return case


def model_files(home: Path) -> Case:
    _, model = _finished(home)
    whole = model.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:begin])

    def case(damage: Damage, folder: Path) -> None:
        path = folder / "model.safetensors"
        if damage.chance(0.4):
            path.write_bytes(damage.binary(whole))
        else:
            changed = json.loads(json.dumps(header))
            if damage.chance(0.6):
                notes = changed["__metadata__"]
                name = damage.choice(list(notes))
                if name in ("settings", "calibration"):
                    notes[name] = damage.json(json.loads(notes[name])).decode(errors="replace")
                else:
                    notes[name] = damage.text(notes[name])
            else:
                changed = damage.value(changed)
            text = json.dumps(changed).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + whole[begin:])
        loaded, found = models.load_model(damage.choice((path, folder)), TASK)
        models.calibration_of(path)
        with torch.no_grad(), contextlib.suppress(ValueError):  # weights of 1e38 may overflow
            assert loaded(DATA.table("test")["bits"]).isfinite().all()
        assert found.tau > 0

    return case


def disk_caches(home: Path) -> Case:
    wanted = {"x": torch.arange(5)}
    disk_cached("x", lambda: wanted, home)
    whole = (home / "x.pt").read_bytes()

    def case(damage: Damage, folder: Path) -> None:
        (folder / "x.pt").write_bytes(damage.binary(whole))
        found = disk_cached("x", lambda: wanted, folder)
        assert isinstance(found, dict)

    return case


# The library


def dials(home: Path) -> Case:
    node: Any = dc.Discrete(4, 3)
    made = dc.Dials(tau=8.0, beta=dc.temp_match(8.0, 0.1), alpha=dc.linear(0, 1, 10), every=3)
    made.attach(node)
    state = made.state_dict()

    def case(damage: Damage, folder: Path) -> None:
        made.seek(0)
        made.load_state_dict(damage.value(state))
        assert 0 <= node.alpha.item() <= 1 and made.schedule_steps >= 0
        made.step()

    return case


def schedules(home: Path) -> Case:
    makers: dict[str, Callable[..., dc.schedules.Schedule]] = {
        "constant": dc.constant,
        "linear": dc.linear,
        "exponential": dc.exponential,
        "temp_match": dc.temp_match,
        "piecewise": dc.piecewise,
    }
    arguments: dict[str, list[Any]] = {
        "constant": [8.0],
        "linear": [0, 1, 500],
        "exponential": [8.0, 1.0, 300],
        "temp_match": [8.0, 0.008],
        "piecewise": [[(10, 0.0), (20, 1.0), (30, 0.5)]],
    }

    def case(damage: Damage, folder: Path) -> None:
        name = damage.choice(list(makers))
        schedule = makers[name](*damage.value(arguments[name]))
        dial = damage.choice(("tau", "beta", "alpha"))
        step = damage.choice((0, 1, 15, 10**6, 10**18))
        value = dc.Dials(**{dial: schedule, "every": damage.choice((1, 7))}).at(step)[dial]
        assert isinstance(value, float)
        repr(schedule)

    return case


def names(home: Path) -> Case:
    def case(damage: Damage, folder: Path) -> None:
        text = damage.text("gate-call_lr-0.001_seed-0").encode(errors="replace").decode()
        _stays(file_name(text), folder)
        shown = visible(text)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)

    return case


TARGETS = {
    "graphs": Target(graphs, (DataError, ValueError)),
    "path queries, text": Target(query_texts, (DataError,)),
    "path queries, .npz": Target(query_arrays, (DataError,)),
    "path queries, words": Target(query_words, (DataError,), 0.5),
    "files that inflate": Target(gzip_bombs, (DataError,), 0.005),
    "MNIST idx files": Target(idx_files, (DataError,)),
    "lists of pairs": Target(pairs, (DataError,)),
    "ListOps expressions": Target(listops_texts, (ValueError,)),
    "ListOps sets": Target(listops_files, (DataError,)),
    "predict listops": Target(predict_listops, (CommandError,), 0.05),
    "sweeps": Target(sweeps, (ValueError,)),
    "settings": Target(settings, (ValueError, TypeError)),
    "command line": Target(command_line, (CommandError,), 0.5),
    "run.json": Target(plans, (CommandError,)),
    "plan.json": Target(plans_of_work, ()),
    "checkpoints": Target(checkpoints, (CheckpointError,), 0.3),
    "records": Target(records, (RecordError,)),
    "probe curves": Target(probes, (RecordError,), 0.5),
    "model files": Target(model_files, (ModelError,)),
    "disk cache": Target(disk_caches, (), 0.3),
    "states of Dials": Target(dials, (ValueError, TypeError)),
    "schedules": Target(schedules, (ValueError, TypeError)),
    "names of files": Target(names, (), 0.5),
}


# Running cases


class TooLongError(BaseException):
    """The case did not end in time."""


_watched: list[Path] = []
"""The folder that a case may write to, while one runs."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event == "open":
        path, mode, flags = arguments
        if (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(mode or "") & set("wax+"):
            _check_inside(path)
    elif event in ("os.mkdir", "os.rename", "os.symlink", "os.link", "os.remove", "os.rmdir"):
        _check_inside(arguments[0])
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect"):
        raise AssertionError(f"a reader asks for {event} {arguments!r:.200}")


def _check_inside(path: Any) -> None:
    if isinstance(path, int) or path == os.devnull or "__pycache__" in os.fsdecode(path):
        return
    place = Path(os.path.realpath(os.fsdecode(path)))
    if not place.is_relative_to(_watched[-1]):
        raise AssertionError(f"a reader writes to {place}")


_audits = False


@contextlib.contextmanager
def _watching(folder: Path) -> Iterator[None]:
    global _audits
    if not _audits:
        sys.addaudithook(_audit)
        _audits = True
    _watched.append(folder.resolve())
    try:
        yield
    finally:
        _watched.pop()


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """On the memory of this process, and a signal that ends a case."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def end(number: int, frame: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, end)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


@dataclass
class Found:
    """What came of the cases of a target."""

    values: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # by message, without what was quoted
    failures: list[str] = field(default_factory=list)
    longest: float = 0.0  # seconds

    @property
    def cases(self) -> int:
        return self.values + self.errors.total() + len(self.failures)

    def add(self, other: Found) -> None:
        self.values += other.values
        self.errors.update(other.errors)
        self.failures += other.failures
        self.longest = max(self.longest, other.longest)


def run(name: str, cases: int, seed: int = 0, first: int = 0, until: float = float("inf")) -> Found:
    """So many cases of a target; those of a seed are always the same."""
    target, found = TARGETS[name], Found()
    home = Path(tempfile.mkdtemp(prefix="dcgraph-fuzz-"))
    try:
        case = target.prepare(home)
        for task in _TASKS:  # no case shall fail on what is imported late
            get_task(task)
        with _limits(), warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(first, first + cases):
                if time.monotonic() > until:
                    break
                folder = home / "case"
                folder.mkdir()
                _try(target, case, Damage(f"{name} {seed} {number}"), folder, found)
                if found.failures and not found.failures[-1].startswith("["):
                    found.failures[-1] = (
                        f"[{name}, seed {seed}, case {number}] {found.failures[-1]}"
                    )
                shutil.rmtree(folder)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return found


def _try(target: Target, case: Case, damage: Damage, folder: Path, found: Found) -> None:
    began = time.perf_counter()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with _watching(folder), warnings.catch_warnings():
            case(damage, folder)
        found.values += 1
    except target.errors as error:
        line = str(error)
        if not line.strip() or "\n" in line or len(line) > LINE:
            found.failures.append(f"not one line: {type(error).__name__}: {line!r:.400}")
        else:
            found.errors[_kind(line)] += 1
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        trace = "".join(traceback.format_exception(error)[-6:])
        found.failures.append(f"{type(error).__name__}: {error!s:.300}\n{trace[-1500:]}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    found.longest = max(found.longest, time.perf_counter() - began)


def _kind(line: str) -> str:
    """A message without names and numbers, so that kinds of messages can be counted."""
    return re.sub(r"'.*'|\".*\"|/\S+|[-+\d.]+|\b\w*[=:]\S+", "*", line, flags=re.DOTALL)[:60]


def cases_of(name: str, total: int) -> int:
    """The share of a target in so many cases."""
    weights = sum(target.weight for target in TARGETS.values())
    return max(1, -int(-total * TARGETS[name].weight // weights))


def _work(job: tuple[str, int, int, int, float]) -> tuple[str, Found]:
    torch.set_num_threads(1)
    name, cases, seed, first, until = job
    if time.monotonic() > until:
        return name, Found()
    return name, run(name, cases, seed, first, until)


def run_all(
    wanted: Sequence[str], cases: int, seed: int, until: float, rounds: int, processes: int
) -> dict[str, Found]:
    """Rounds of cases, side by side."""
    jobs = [
        (name, cases_of(name, cases), seed, turn * cases_of(name, cases), until)
        for turn in range(rounds)
        for name in wanted
    ]
    found = {name: Found() for name in wanted}
    shown: set[tuple[str, ...]] = set()  # a place that fails, once
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for name, part in pool.imap_unordered(_work, jobs):
            found[name].add(part)
            for failure in part.failures:
                where = re.findall(r'File "(\S+", line \d+)', failure)[-1:]
                if (name, *where) not in shown:
                    shown.add((name, *where))
                    print(failure, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--cases", type=int, default=10_000, help="of all targets in a round")
    parser.add_argument("--minutes", type=float, help="rounds until then, and a record")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    until = time.monotonic() + 60 * (options.minutes or float("inf"))
    rounds = 1000 if options.minutes else 1
    began = time.monotonic()
    wanted = options.target or list(TARGETS)
    found = run_all(wanted, options.cases, options.seed, until, rounds, options.processes)
    rows = {
        name: {
            "cases": one.cases,
            "values": one.values,
            "errors": one.errors.total(),
            "messages": len(one.errors),
            "failures": len(one.failures),
            "longest": round(one.longest, 2),
        }
        for name, one in found.items()
    }
    record = {"seed": options.seed, "seconds": round(time.monotonic() - began), "targets": rows}
    print(table(record))
    if options.minutes and not options.target:
        write("fuzz", record)
    if any(one.failures for one in found.values()):
        raise SystemExit(1)


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    keys = ("cases", "values", "errors", "messages", "failures")
    head = ["what is read", "cases", "gave a value", "gave an error", "kinds of errors", "failures"]
    rows = [[name, *(f"{row[key]:,}" for key in keys)] for name, row in found["targets"].items()]
    total = [f"{sum(row[key] for row in found['targets'].values()):,}" for key in keys]
    return markdown([[*head], *rows, ["all", *total]])


if __name__ == "__main__":
    main()
