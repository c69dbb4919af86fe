"""How many small faults in the core the tests notice: the mutation score.

python promises/mutation.py; `make mutation` does the same. Each mutant of a module (see mutants.py)
is tried by the tests that reach its lines, the fastest first, until one fails. The score is the
share of mutants that make a test fail, or never end. Those that change nothing a test could see are
listed with a reason in equivalent.json, and those that need a GPU in the same way; they are counted
apart.

The tests are collected once. Each mutant is then put into the functions of a forked process, which
takes milliseconds; only code that runs on import needs a process that imports everything anew.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib
import importlib.machinery
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from mutants import Mutant, mutants_of
from promised import ROOT, write

CORE = ("functional", "noise", "nodes", "residual", "dials", "schedules", "_checks")
WITHOUT = ("tests/experiments", "tests/plain/experiments", "tests/plain/kernels")
WITHOUT_CODE = ("src/dcgraph/experiments", "src/dcgraph/kernels")
LONGEST_TEST = 4.0  # seconds, without a mutant
AT_ONCE = 10.0  # seconds of tests of a mutant, at most
AT_ONCE_ON_IMPORT = 2.0  # where everything is imported, too
SECONDS = 120.0  # of the processor, after which a mutant never ends
MEMORY = 8 << 30  # bytes that it may take
KILLED, SURVIVED, TOO_LONG, NO_TEST, BROKEN = "killed", "survived", "too long", "no test", "broken"
ARGUMENTS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestWarning"]


def source_of(module: str) -> Path:
    return ROOT / "src" / "dcgraph" / f"{module}.py"


# Which tests reach which lines


def record_lines(folder: Path) -> None:
    """Run the tests of the library once, in this process; keep seconds and lines of each."""
    import coverage

    data = folder / "lines"
    taken: dict[str, float] = {}
    failed: list[str] = []

    class Clock:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            taken[report.nodeid] = taken.get(report.nodeid, 0.0) + report.duration
            if report.failed:
                failed.append(report.nodeid)

    config = folder / "coverage.ini"
    includes = ",".join(str(source_of(module)) for module in CORE)
    config.write_text(f"[run]\ndata_file = {data}\ninclude = {includes}\n")
    words = [*ARGUMENTS, "--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report="]
    pytest.main([*words, *_collected()], plugins=[Clock()])
    for test in failed:  # they are about the shape checks, which are off here
        taken.pop(test, None)
    _say_all(failed)
    found = coverage.CoverageData(str(data))
    found.read()
    lines = {
        module: {
            line: sorted({context.split("|")[0] for context in contexts if context})
            for line, contexts in found.contexts_by_lineno(str(source_of(module))).items()
        }
        for module in CORE
    }
    (folder / "lines.json").write_text(json.dumps({"seconds": taken, "lines": lines}))


def _say_all(failed: Sequence[str]) -> None:
    for test in failed:
        os.write(2, f"left out, for it fails without the shape checks: {test}\n".encode())


def _collected() -> list[str]:
    ignored = [word for folder in (*WITHOUT, *WITHOUT_CODE) for word in ("--ignore", folder)]
    return [*ignored, "--doctest-modules", "tests", "src"]


def tests_of(mutant: Mutant, recorded: dict[str, Any]) -> list[str]:
    """Those that reach its lines, the fastest first."""
    lines = recorded["lines"][mutant.module]
    reached = set().union(*(lines.get(str(line), ()) for line in mutant.lines))
    if not mutant.in_body:  # run on import: by everything that reaches the function or the module
        span = _span(mutant)
        reached |= set().union(*(of for line, of in lines.items() if int(line) in span))
    seconds = recorded["seconds"]
    fast = [test for test in reached if seconds.get(test, 99.0) <= LONGEST_TEST]
    chosen, total = [], 0.0
    for test in sorted(fast, key=lambda test: (seconds[test], test)):
        total += seconds[test]
        if total > (AT_ONCE if mutant.in_body else AT_ONCE_ON_IMPORT):
            break
        chosen.append(test)
    return chosen


def _span(mutant: Mutant) -> range:
    tree: ast.AST = ast.parse(source_of(mutant.module).read_bytes())
    for name in filter(None, mutant.function.split(".")):
        tree = next(n for n in ast.iter_child_nodes(tree) if getattr(n, "name", "") == name)
    last: int = getattr(tree, "end_lineno", 1 << 30)
    return range(getattr(tree, "lineno", 1), last + 1)


# A mutant in a forked process


def forked(run: Callable[[], str]) -> str:
    """What became of a mutant in a process of its own."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(reader)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            os.write(writer, run().encode())
        except BaseException:
            os.write(writer, KILLED.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return TOO_LONG if os.WTERMSIG(status) == signal.SIGPROF else KILLED
    return said or KILLED


class InFunctions:
    """Collects the tests once, then tries each mutant in a fork, with the code put in place."""

    def __init__(self, mutants: Sequence[Mutant], recorded: dict[str, Any]) -> None:
        self.mutants, self.recorded = mutants, recorded
        self.found: dict[Mutant, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.freeze()
        for number, mutant in enumerate(self.mutants):
            wanted = [items[test] for test in tests_of(mutant, self.recorded) if test in items]
            self.found[mutant] = NO_TEST
            if wanted:
                self.found[mutant] = forked(partial(_tried, mutant, wanted))
            _say(number + 1, len(self.mutants), mutant, self.found[mutant])
        return True


def _tried(mutant: Mutant, items: Sequence[pytest.Item]) -> str:
    _put_in_place(mutant)
    for item, following in zip(items, [*items[1:], None], strict=True):
        reports = _reports(item, following)
        if any(report.failed for report in reports):
            return KILLED
    return SURVIVED


def _reports(item: pytest.Item, following: pytest.Item | None) -> list[pytest.TestReport]:
    from _pytest.runner import runtestprotocol

    return runtestprotocol(item, log=False, nextitem=following)


def _put_in_place(mutant: Mutant) -> None:
    """The function of the module gets the code of the mutant; its callers notice nothing."""
    path = source_of(mutant.module)
    code = compile(mutant.applied_to(path.read_bytes()), str(path), "exec")
    *classes, name = mutant.function.split(".")
    place: Any = importlib.import_module(f"dcgraph.{mutant.module}")
    for one in classes:
        place, code = vars(place)[one], _inner(code, one)
    function = vars(place)[name]
    while not isinstance(function, FunctionType):  # a property, a cached or a decorated one
        function = getattr(function, "fget", None) or function.__wrapped__
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    function.__code__ = _inner(code, name)


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def on_import(mutants: Sequence[Mutant], recorded: dict[str, Any]) -> dict[Mutant, str]:
    """For code that runs on import: torch is imported once, everything of ours in each fork."""
    import torch  # noqa: F401  # so that no fork has to

    found = {}
    for number, mutant in enumerate(mutants):
        tests = tests_of(mutant, recorded)
        found[mutant] = forked(partial(_imported, mutant, tests)) if tests else NO_TEST
        _say(number + 1, len(mutants), mutant, found[mutant])
    return found


def _imported(mutant: Mutant, tests: Sequence[str]) -> str:
    path = source_of(mutant.module)
    changed = mutant.applied_to(path.read_bytes())
    reads = importlib.machinery.SourceFileLoader.get_data

    def get_data(self: Any, name: str) -> bytes:
        if str(path) == str(name):
            return changed
        if f"/{path.stem}." in name and name.endswith(".pyc"):
            raise OSError("the source has changed")
        return reads(self, name)

    setattr(importlib.machinery.SourceFileLoader, "get_data", get_data)  # noqa: B010
    sys.dont_write_bytecode = True
    importlib.import_module(f"dcgraph.{mutant.module}")
    code = pytest.main([*ARGUMENTS, "-x", "--doctest-modules", *tests])
    if code == pytest.ExitCode.OK:
        return SURVIVED
    return BROKEN if code == pytest.ExitCode.USAGE_ERROR else KILLED


def _say(number: int, of: int, mutant: Mutant, found: str) -> None:
    if found != KILLED or number % 50 == 0:
        line = " ".join(f"{mutant.module}.py:{mutant.line}: {mutant.name}".split())
        os.write(2, f"{number} of {of}: {found}: {line}\n".encode())


# All of them


def known() -> dict[str, dict[str, str]]:
    """Mutants that no test here can notice: equivalent ones, and those of code for a GPU."""
    stored: dict[str, dict[str, str]] = json.loads(
        (Path(__file__).parent / "equivalent.json").read_text()
    )
    return stored


def try_all(
    modules: Iterable[str], work: Path, only: str = "", in_functions: bool = False
) -> dict[Mutant, str]:
    recorded = json.loads((work / "lines.json").read_text())
    mutants = [
        mutant
        for module in modules
        for mutant in mutants_of(module, source_of(module).read_bytes())
        if only in mutant.name
    ]
    found = on_import([m for m in mutants if not (m.in_body or in_functions)], recorded)
    plugin = InFunctions([m for m in mutants if m.in_body], recorded)
    pytest.main([*ARGUMENTS, *_collected()], plugins=[plugin])
    return found | plugin.found


def outcomes(modules: Sequence[str], work: Path) -> dict[Mutant, str]:
    """Of whole modules; what was tried before is kept, by the text of the module."""
    found: dict[Mutant, str] = {}
    for module in modules:
        mutants = mutants_of(module, source_of(module).read_bytes())
        text = hashlib.sha256(source_of(module).read_bytes()).hexdigest()[:16]
        kept = work / f"{module}-{text}.json"
        if not kept.exists():
            tried = {_place(mutant): came for mutant, came in try_all([module], work).items()}
            kept.write_text(json.dumps(tried))
        stored = json.loads(kept.read_text())
        found |= {mutant: stored[_place(mutant)] for mutant in mutants}
    return found


def _place(mutant: Mutant) -> str:
    return f"{mutant.begin}: {mutant.name}"


def summary(found: dict[Mutant, str]) -> dict[str, Any]:
    """Counts by module, and the survivors by name."""
    listed = known()
    rows, survivors = {}, []
    for module in dict.fromkeys(mutant.module for mutant in found):
        counts = Counter[str]()
        for mutant, came in found.items():
            if mutant.module != module:
                continue
            noticed = came in (KILLED, TOO_LONG)
            kind = next((k for k, names in listed.items() if mutant.name in names), "")
            counts["killed" if noticed else kind or "survived"] += 1
            if not noticed and not kind:
                survivors.append(f"{mutant.name}  [line {mutant.line}, {came}]")
        rows[module] = dict(counts)
    return {"modules": rows, "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=CORE)
    parser.add_argument("--work", type=Path, help="folder of a former run, to go on with")
    parser.add_argument("--only", default="", help="mutants whose name has this in it")
    parser.add_argument("--in-functions", action="store_true", help="not what runs on import")
    parser.add_argument("--lines", action="store_true", help="only find which tests reach what")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    work = options.work or Path(tempfile.mkdtemp(prefix="dcgraph-mutation-"))
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    if options.lines:
        record_lines(work)
        return
    if not (work / "lines.json").exists():  # in a process of its own: here nothing is imported yet
        command = [sys.executable, __file__, "--lines", "--work", str(work)]
        subprocess.run(command, check=True)
    began = time.monotonic()
    if options.only or options.in_functions:
        result = summary(try_all(options.modules, work, options.only, options.in_functions))
    else:
        result = summary(outcomes(options.modules, work))
    print(json.dumps(result, indent=1))
    if tuple(options.modules) == CORE and not (options.only or options.in_functions):
        write("mutation", {**result, "seconds": round(time.monotonic() - began)})


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    rows = [["module", "mutants", "noticed", "equivalent", "only on a GPU", "missed", "score"]]
    total = Counter[str]()
    for module, counts in found["modules"].items():
        total.update(counts)
        rows.append([f"`{module}.py`", *_cells(counts)])
    return markdown([*rows, ["all", *_cells(total)]])


def _cells(counts: dict[str, int]) -> list[str]:
    killed, missed = counts.get("killed", 0), counts.get("survived", 0)
    apart = [counts.get(kind, 0) for kind in ("equivalent", "gpu")]
    score = killed / max(1, killed + missed)
    cells = [sum(counts.values()), killed, *apart, missed]
    return [*(f"{cell:,}" for cell in cells), f"{score:.1%}".replace("%", " %")]


from promised import markdown  # noqa: E402

if __name__ == "__main__":
    main()
