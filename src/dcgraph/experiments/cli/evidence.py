"""``dcgraph reproduce``, ``table`` and ``figure``: the paper's numbers and pictures."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..._arguments import closest
from ..engine.settings import populations
from .parsing import CommandError

if TYPE_CHECKING:
    from ..engine.runs import Job
    from ..engine.settings import Settings
    from ..engine.tables import Table
    from ..engine.task import Task

with suppress(ModuleNotFoundError):  # an extra; main() says so where it is missing
    import tyro


def reproduce(
    names: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")],
    /,
    *,
    rows: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT")] = (),
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results"),
    data_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None,
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto",
    dry: bool = False,
) -> None:
    """Run what is missing of a table, and show it.

    What was cut off goes on. Of several tables, runs that are alike train together.

    The end is a page beside the records, reports/NAME.html.

    NAME is one of
      addition             MNIST addition, the paper's table
      addition-lr          ours at the learning rates the paper tried
      addition-ablation    ours without parts of the method
      addition-chain       the same for three summands, a chain
      annealing            three ways to set tau and beta, behind three figures
      listops              ListOps, the paper's table
      listops-ablation     ListOps without parts of the method
      listops-masks        ListOps with the paper's dropout, and with ours
      paths                path queries, the paper's table
      paths-extrapolation  the same, trained on shorter paths
      paths-small          trained on short paths of a small graph, on a CPU
      paths-small-beam     the same runs, with several entities followed at once
      paths-small-back     the same runs, with steps that also look back
      paths-noise          law and scale of the noise of the hops
      paths-short          dropout, and how often triples are trained on
      paths-search         the paper's search for dropout and L2
      fb15k-237            path queries on FB15k-237, by length
      fb15k-237-beam       the same runs, with several entities followed at once

    Args:
        names: the table, or several.
        rows: only rows with one of these names, or with this text in their names.
        results: folder of the records.
        data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        device: auto, cpu, cuda.
        dry: only say what would run.
    """
    from ..engine.memory import keep_freed_memory
    from ..engine.runs import finished_record, perform
    from ..engine.tables import as_text
    from ..tasks import get_task
    from .progress import watch_population
    from .tasks import choose_device

    if not names:
        raise CommandError("which table? See dcgraph reproduce --help.", 2)
    chosen = [_table(name) for name in names]
    if len({table.task for table in chosen}) > 1:
        raise CommandError("tables of different tasks have no runs in common; one at a time.", 2)
    row_of = _wanted(chosen, results, rows)
    everything = list(row_of)
    missing = [job for job in everything if finished_record(job) is None]
    title = ", ".join(names)
    _say(f"{title}: {len(everything)} runs, {len(everything) - len(missing)} have a record.")
    rows_to_run = {job.settings: row_of[job] for job in missing}
    for group in populations(list(rows_to_run)):
        size = "1 replica" if len(group) == 1 else f"{len(group)} replicas as one population"
        of_rows = ", ".join(map(repr, dict.fromkeys(rows_to_run[one] for one in group)))
        _say(f"  to run: {of_rows}; {size}, {_how_long(group, everything)}.")
    work = results / f".{'-'.join(names)}"
    if any(work.glob("*.pt")):
        _say(f"  What was cut off before goes on from its checkpoint in {work}.")
    if dry:
        return
    on = choose_device(device)
    if on.type == "cpu":
        keep_freed_memory()
    task = get_task(chosen[0].task)
    for _ in perform(task, everything, work, device=on, data_dir=data_dir, watch=watch_population):
        pass
    for table in chosen:
        _say("")
        _say(as_text(table, results))
        _say(f"Report: {_write_page(table, task, results)}.")


def _wanted(tables: Sequence[Table], results: Path, rows: Sequence[str]) -> dict[Job, str]:
    """What the rows need, with their names; a row that is in two tables is run once."""
    from ..engine.tables import jobs

    wanted = [
        (name, job)
        for table in tables
        for name, of_row in jobs(table, results).items()
        for job in of_row
    ]
    names = list(dict(wanted))
    chosen = {name for text in rows for name in _named(names, text)} if rows else names
    once = {job.record: (job, name) for name, job in reversed(wanted) if name in chosen}
    return dict(reversed(once.values()))  # with their names in the first table


def _named(names: Sequence[str], text: str) -> Sequence[str]:
    """The row of this name; without one, those that have the text in their names."""
    found = [name for name in names if name == text] or [name for name in names if text in name]
    if not found:
        known = ", ".join(map(repr, names))
        raise CommandError(f"no row has {text!r} in its name; there are {known}.", 2)
    return found


def _write_page(table: Table, task: Task, results: Path) -> Path:
    """The page of all runs of a table. Their models are not kept, so it shows none at work."""
    from ..engine.records import read_record
    from ..engine.runs import label
    from ..engine.tables import jobs
    from ..report import Replica, write_report

    shown = []
    for row, wanted in jobs(table, results).items():
        settings = [job.settings for job in wanted]
        for job in wanted:
            if not job.record.exists():  # of a row that was not asked for
                continue
            differences = label(job.settings, settings)  # of a row with several settings
            group = row if differences == "default" else f"{row}, {differences}"
            shown.append(Replica(group, read_record(job.record)))
    page = results / "reports" / f"{table.name}.html"
    command = f"dcgraph reproduce {table.name}"
    write_report(page, task, shown, title=table.title.rstrip("."), command=command)
    return page


def _table(name: str, ending: str | None = None) -> Table:
    from ..engine.tables import part
    from ..tasks import get_table

    try:
        whole = get_table(name)
        return whole if ending is None else part(whole, ending)
    except ValueError as error:
        raise CommandError(str(error), 2) from None


def _how_long(group: Sequence[Settings], everything: Sequence[Job]) -> str:
    """What a population of this structure took before, by the records there are."""
    from ..engine.runs import finished_record

    for job in everything:
        if job.settings.structure() == group[0].structure() and (record := finished_record(job)):
            size, hardware = record["population"]["size"], record["hardware"]
            return f"{size} took {record['seconds']:.0f} s before on {hardware}"
    return "never run here before"


def table(
    name: Annotated[str, tyro.conf.arg(metavar="NAME")],
    /,
    *,
    part: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None,
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results"),
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Show a table beside the paper's numbers.

    NAME as for reproduce.

    Args:
        name: the table.
        part: only columns whose names end so, as sample or argmax of listops.
        results: folder of the records.
        json_: print a list of cells instead: row, column, mean, std, seeds, paper.
    """
    from ..engine.tables import as_json, as_text

    chosen = _table(name, part)
    cells = as_json(chosen, results)
    if not any(cell["seeds"] for cell in cells):
        raise CommandError(
            f"{str(results)!r} has no records of {name!r}; choose --results, "
            f"or run: dcgraph reproduce {name}"
        )
    _say(json.dumps(cells, indent=1) if json_ else as_text(chosen, results))


def figure(
    name: Annotated[str, tyro.conf.arg(metavar="NAME")],
    /,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("figures"),
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0,
    results: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results"),
) -> None:
    """Draw a figure, with the numbers behind it as JSON.

    NAME is one of
      saturation      larger noise keeps gradients alive (Figure 2)
      simplex         what annealing tau and growing beta do
      addition-table  what the shipped model has learned of addition
      component       a discrete node in training and at test (Figure 3)
      mixing          how mix goes over a large codebook, block by block
      lead            how far ahead a category must be for noise to leave it in front
      lengths         path queries longer than those in training
      example         two sums, as the shipped model computes them (Figure 1)
      annealing       three ways to set tau and beta (Figure 4)
      annealing-runs  every run of these (Figures 7 and 8)
      category        a category that is found late (Figure 4, right)
      gradients       what reaches each round of ListOps (Figure 6)

    Args:
        name: the figure.
        out: folder for NAME.png and NAME.json.
        seed: seed of all random numbers, where there are any.
        results: folder of the records, for figures of runs.
    """
    from .. import figures

    if name not in figures.FIGURES:
        raise CommandError(f"unknown figure {name!r}; {closest(name, figures.FIGURES)}", 2)
    recipe = figures.FIGURES[name]
    _say(recipe.plan)
    start = time.perf_counter()
    try:
        picture, numbers = figures.make(name, out, seed, results)
    except OSError as error:
        blocked = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "a file is in the way" if blocked else error.strerror or error
        raise CommandError(
            f"cannot write into {str(out)!r}: {reason}; choose another folder with --out."
        ) from error
    _say(f"Wrote {picture} and {numbers} in {time.perf_counter() - start:.1f} seconds.")
    _say(f"Look: {recipe.look}")


def _say(line: str) -> None:
    print(line, flush=True)
