"""From the records of a run, and its models where they were kept, to one page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from jinja2 import Environment, FunctionLoader, StrictUndefined
from torch import Tensor

from ..engine.files import write_atomically
from ..engine.models import load_model
from ..engine.panels import Examples, Remark
from ..engine.task import AnyTask
from .curves import categories_of, chains_of, curves_of, dials_of
from .groups import Group, Replica, grouped, keys, leading, readable
from .numbers import facts_of, settings_of, stopped_of, summary_of

_SHOWN = 6  # groups with pictures of their own; all are in the table and in the curves
_AT_WORK = 2  # groups whose best model is shown at work


def write_report(
    path: Path,
    task: AnyTask,
    replicas: Sequence[Replica],
    *,
    title: str,
    command: str,
    remarks: Sequence[Remark] = (),
    data_dir: Path | None = None,
) -> None:
    """Write the page of a run.

    Args:
        path: the file.
        task: what was trained; it shows a model at work, if the replicas have one.
        replicas: all of the run, in the order in which their groups are to be named.
        title: the heading.
        command: how to repeat the run.
        remarks: what the task says of the best model.
        data_dir: where the data are, as for training.
    """
    groups = grouped(task, replicas)
    with_nodes = [group for group in groups if group.has_nodes()]
    probed = [group for group in groups if any(replica.probes for replica in group.replicas)]
    shown = leading(probed, _SHOWN)
    content = {
        "title": title,
        "command": command,
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "groups": keys(groups),
        "hidden": len(probed) - len(shown),
        "facts": facts_of(groups),
        "remarks": remarks,
        "summary": summary_of(groups),
        "stopped": stopped_of(replicas),
        "curves": [curves_of(some) for some in readable(groups)],
        "dials": [dials_of(some) for some in readable(with_nodes)],
        "chains": chains_of(shown),
        "categories": [
            picture
            for group in shown
            for picture in categories_of(group, task.categories(group.settings))
        ],
        "panels": [
            panel for group in leading(groups, _AT_WORK) for panel in _panels(group, task, data_dir)
        ],
        "settings": settings_of(groups),
    }
    write_page(path, "page.html", content)


def write_page(path: Path, template: str, content: Mapping[str, Any]) -> None:
    """Fill a template of this package."""
    # Whatever comes from a record or a task is escaped; only our own SVG is not.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        loader=FunctionLoader(lambda name: (files(__package__) / name).read_text()),
    )
    environment.filters["data_uri"] = data_uri
    text = environment.get_template(template).render(content)
    page = text.encode(errors="replace")  # a command may have what is no character
    write_atomically(path, lambda draft: draft.write_bytes(page))


def _panels(group: Group, task: AnyTask, data_dir: Path | None) -> list[dict[str, Any]]:
    """What the task shows of the group's best model."""
    best = group.best()
    if best.model is None:
        return []
    model, settings = load_model(best.model, task)
    data = task.data(settings, data_dir)
    return [
        {
            "group": group.name,
            "seed": best.record.seed,
            "kind": "examples" if isinstance(panel, Examples) else "grid",
            "shown": panel,
        }
        for panel in task.panels(model, settings, data)
    ]


def data_uri(image: Shaped[Tensor, "height width"]) -> str:
    """A small grey PNG inside the page: 0 is white, the image's largest value black."""
    from PIL import Image  # an extra, which only pages with pictures need

    largest = float(image.max()) or 1.0
    grey = (255 - image.double() * (255 / largest)).round().clamp(0, 255).to(torch.uint8)
    height, width = grey.shape
    file = io.BytesIO()
    picture = Image.frombytes("L", (width, height), bytes(grey.flatten().tolist()))
    picture.save(file, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
