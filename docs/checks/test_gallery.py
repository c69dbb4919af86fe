"""The gallery has every picture with its command, and every example with what its record says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dcgraph.experiments.figures import FIGURES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gallery.md").read_text()
CARDS = [" ".join(card.split()) for card in PAGE.split('<div class="card">')[1:]]


def card_of(text: str) -> str:
    (card,) = (card for card in CARDS if text in card)
    return card


def test_every_picture_is_there_once() -> None:
    pictures = [path.name for path in (ROOT / "docs" / "pictures").iterdir()]
    assert sorted(re.findall(r"\]\(pictures/([\w.-]+)\)", PAGE)) == sorted(pictures)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_stands_with_its_command(name: str) -> None:
    assert re.search(rf"`dcgraph figure {name}( --seed \d+)?`", card_of(f"(pictures/{name}.png)"))


def test_every_card_is_a_link_and_a_command() -> None:
    for card in CARDS:
        assert re.search(r"\*\*(\[.+?\]\(|<a href=)", card), card
        assert re.search(r"`(dcgraph|examples/)[^`]+`( </div>)+", card), card


def found(name: str) -> Any:
    record = json.loads((ROOT / "results" / "examples" / f"{name}.json").read_text())
    return record["found"]["rows"]


def per_cent(values: list[float]) -> str:
    return f"{100 * fmean(values):.0f}"


def results() -> dict[str, list[str]]:
    """What is said of each example."""
    parity = {row["model"]: row for row in found("parity_machine") if row["task"] == "parity"}
    gates = {row["setting"]: row["hard"] for row in found("logic_gates") if row["depth"] == 12}
    taus = sorted(per_cent(row["accuracy"]) for row in found("sweep_of_my_model"))
    trained = {
        (row["trainer"], row["way"]): per_cent(row["accuracy"])
        for row in found("lightning_and_ddp")
    }
    both, plain = (
        [trained[trainer, way] for trainer in ("Lightning", "DDP, 2 ranks")]
        for way in ("TempMatch and DropRes", "plain Gumbel-softmax")
    )
    vae = {name: fmean(row["test"]) for name, row in found("discrete_vae").items()}
    networks = {name: value for name, value in vae.items() if not name.startswith("no network")}
    plain_torch = vae["plain torch: F.gumbel_softmax, tau 0.5"]
    errors = {name: fmean(row["test"]) for name, row in found("vector_quantised").items()}
    nodes = [v for name, v in errors.items() if "Gumbel" in name or "straight-through" in name]
    nearest = errors["nearest row, unused rows revived"]
    return {
        "parity_machine": [
            f"{parity['both methods']['exact']} of 8 seeds are exact",
            f"GRU has {per_cent(parity['GRU']['accuracy'][-1])} per cent at 512 bits",
        ],
        "logic_gates": [
            f"has {per_cent(gates['pass-through, softmax'])} per cent of the bits, a random one "
            f"{per_cent(gates['softmax'])}."
        ],
        "sweep_of_my_model": [
            f"has {taus[-1]} per cent on average, others {taus[0]} to {taus[-2]}."
        ],
        "lightning_and_ddp": [
            f"both methods {' and '.join(both)} per cent, with plain Gumbel-softmax "
            f"{' and '.join(plain)}."
        ],
        "discrete_vae": [
            f"{max(networks.values()):.1f} nats at best, plain torch {plain_torch:.1f}."
        ],
        "vector_quantised": [f"{nearest:.1f} per cent, our best node {min(nodes):.1f}."],
    }


RESULTS = results()


def test_every_example_is_there() -> None:
    recorded = {path.stem for path in (ROOT / "results" / "examples").glob("*.json")}
    assert recorded == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_an_example_stands_with_the_result_of_its_record(name: str) -> None:
    card = card_of(f"`examples/{name}.py`")
    for claim in RESULTS[name]:
        assert claim in card
