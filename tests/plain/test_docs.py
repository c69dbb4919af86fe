"""The code in the README and the guides runs as it stands and shows what the text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc

ROOT = Path(__file__).parents[2]


def run(page: str) -> dict[str, Any]:
    """Run all Python blocks of a page, one after the other; the names they leave behind."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile("\n".join(blocks), page, "exec"), names)
    return names


def test_readme(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("README.md")
    shown = capsys.readouterr().out
    assert "soft-hard gap" in shown and "symbol[1]: " in shown
    assert names["dials"].schedule_steps == 100


def test_own_model(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        names = run("docs/own-model.md")
    finally:
        torch.set_num_threads(threads)
    shown = capsys.readouterr().out
    # Not more: where the last bits of a product differ, so do the runs.
    assert names["accuracy"](names["both"]) > 0.85
    assert "hard accuracy" in shown and "symbol[3]: " in shown


def test_chain_does_not_train(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("docs/chain-does-not-train.md")
    assert "encoding" in capsys.readouterr().out

    def ratios(report: Any) -> list[float]:
        gradients = [row.gradient for row in report.readings if row.categories]
        return [gradient / gradients[-1] for gradient in gradients]

    dying = ratios(names["without"])
    assert dying == sorted(dying) and dying[0] < 0.05
    assert min(ratios(names["with_residuals"])) > 0.5


def test_paths_data(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("docs/paths-data.md")
    assert names["result"].averages["MQ"] == 0.5, "all scores are the same"
    assert "ties: realistic" in capsys.readouterr().out


def test_paths(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("docs/paths.md")
    assert len(names["outcome"].curve) > 0
    said = capsys.readouterr().out.splitlines()
    assert (
        said[0] == "p0" and said[1].startswith("  next -> p") and "**next -> ? (1 known)" in said[3]
    )


def test_mix() -> None:
    names = run("docs/mix.md")
    assert names["node"].is_large and names["v"].shape == (16, 64)
    assert names["codebook"].grad is not None


class Encoder(nn.Linear):
    def __init__(self, dim: int) -> None:
        super().__init__(12, dim)


class MLP(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, outputs))


class Adder(nn.Module):
    def __init__(self, dim: int = 84, symbols: int = 19) -> None:
        super().__init__()
        self.encode = Encoder(dim)
        self.symbol = dc.Discrete(dim, symbols)
        self.add = MLP(2 * dim, dim)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.symbol(self.encode(a)), self.symbol(self.encode(b))
        return self.symbol.logits(self.add(torch.cat([x, y], -1)))


def test_the_example_that_the_library_was_designed_from() -> None:
    torch.manual_seed(0)
    a, b, total = torch.randn(16, 12), torch.randn(16, 12), torch.randint(19, (16,))
    loader = [(a, b, total)] * 500
    model = Adder()
    optimizer = torch.optim.Adam(model.parameters())
    dials = dc.Dials(
        tau=8.0, beta=dc.temp_match(8.0, gamma=0.008), alpha=dc.linear(0, 1, 500), every=234
    ).attach(model)

    for images_a, images_b, total in loader:
        loss = F.cross_entropy(model(images_a, images_b), total)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()
    assert dials.schedule_steps == 2 and model.symbol.alpha is not None
    assert model.symbol.alpha.item() == pytest.approx(0.004)

    report = dc.probe(model, lambda: F.cross_entropy(model(a, b), total))
    assert report.loss < 0.5, "it has learnt the batch"
    model.eval()
    with dc.trace(model) as steps:
        model(a, b)
    assert [step.index.shape for step in steps] == [(16,), (16,)]


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "benchmarks/README.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page, target)
