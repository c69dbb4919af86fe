"""From the records of a run, and its models where they were kept, to one page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from ..engine.files import write_atomically
from ..engine.models import load_model
from ..engine.panels import Examples
from ..engine.task import Task
from .chain import categories_of, chain_of, probes_of
from .curves import curves_of, dials_of
from .groups import Group, Replica, best_of, grouped, keys, leading, readable
from .origin import settings_of
from .png import data_uri
from .summary import facts_of, stopped_of, summary_of

_SHOWN = 6  # groups with pictures of their own; all are in the table and in the curves
_EXHIBITED = 2  # groups whose best model is shown at work


def write_report(
    path: Path,
    task: Task,
    replicas: Sequence[Replica],
    *,
    title: str,
    command: str,
    data_dir: Path | None = None,
) -> None:
    """Write the page of a run.

    Args:
        path: the file.
        task: what was trained; it shows a model at work, if the replicas have one.
        replicas: all of the run, in the order in which their groups are to be named.
        title: the heading.
        command: how to repeat the run.
        data_dir: where the data are, as for training.
    """
    groups = grouped(task, replicas)
    with_nodes = [g for g in groups if any(probes_of(r.record) for r in g.replicas)]
    shown = leading(with_nodes, _SHOWN, task)
    content = {
        "title": title,
        "command": command,
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "groups": keys(groups),
        "hidden": len(with_nodes) - len(shown),
        "facts": facts_of(groups),
        "summary": summary_of(groups, task),
        "stopped": stopped_of(replicas),
        "curves": [curves_of(some, task) for some in readable(groups)],
        "dials": [dials_of(some) for some in readable(with_nodes)],
        "chains": [chain for group in shown if (chain := chain_of(group))],
        "categories": [picture for group in shown for picture in categories_of(group, task)],
        "exhibits": [
            exhibit
            for group in leading(groups, _EXHIBITED, task)
            for exhibit in _exhibits(group, task, data_dir)
        ],
        "settings": settings_of(groups),
    }
    # Whatever comes from a record or a task is escaped; only our own SVG is not.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["data_uri"] = data_uri
    template = environment.from_string((files(__package__) / "page.html").read_text())
    text = template.render(content)
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def _exhibits(group: Group, task: Task, data_dir: Path | None) -> list[dict[str, Any]]:
    """What the task shows of the group's best model."""
    best = best_of(group, task)
    if best.model is None:
        return []
    model, settings = load_model(best.model, task)
    data = task.data(settings, data_dir)
    return [
        {
            "group": group.name,
            "seed": best.record["settings"]["seed"],
            "kind": "examples" if isinstance(exhibit, Examples) else "grid",
            "shown": exhibit,
        }
        for exhibit in task.exhibits(model, settings, data)
    ]
