"""What the page on searches says of the paper's random search, and of its speed."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from pathlib import Path

from dcgraph.experiments.cli.search import Options
from dcgraph.experiments.cli.train import read
from dcgraph.experiments.engine.settings import parse_sweep
from dcgraph.experiments.engine.studies import space_of
from dcgraph.experiments.tasks.paths.search import SEARCH
from dcgraph.experiments.tasks.paths.task import Paths

PAGE = (Path(__file__).parents[1] / "searching.md").read_text()


def test_the_random_search_of_the_paper_is_that_of_its_table() -> None:
    (command,) = re.findall(r"^dcgraph search paths .*?(?=^```)", PAGE, flags=re.M | re.S)
    words = shlex.split(command.replace("\\\n", ""))[3:]
    options, settings, _, _ = read(Paths(), "dcgraph search paths", words, Options)
    assert (options.sampler, options.pruner, options.trials) == ("random", "none", len(SEARCH.rows))
    space = space_of([parse_sweep(text, settings) for text in options.sweep], settings)
    for row in SEARCH.rows:
        (run,) = row.runs
        drawn, mine = asdict(run.settings), asdict(settings)
        assert {name for name in drawn if drawn[name] != mine[name]} <= space.keys()
        for name, distribution in space.items():
            assert distribution._contains(distribution.to_internal_repr(drawn[name])), name
