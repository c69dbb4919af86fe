"""torch.export and ONNX of models in eval mode, for any size of batch, run and compared."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import dcgraph as dc
from statistics_of_fit import chi_square_p

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:torch"
)

SMALL, LARGE = 7, 5000


class Masked(nn.Module):
    def __init__(self, categories: int, **options: Any) -> None:
        super().__init__()
        self.node = dc.Discrete(6, categories, **options)

    def forward(self, u: Tensor, mask: Tensor) -> Tensor:
        return self.node(u, mask=mask)


class Padded(Masked):
    def forward(self, u: Tensor, rows: Tensor) -> Tensor:
        return self.node(u, rows=rows, fill="zero")


class Gates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits, self.choice = nn.Linear(6, 5), dc.Categorical()
        self.around = dc.DropRes("replace", gate="element")

    def forward(self, u: Tensor) -> Tensor:
        z = self.choice(self.logits(u))
        return self.around(z, torch.full_like(z, 0.5))


class Given(nn.Module):
    """Two steps in a row, in groups, over rows of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.node = nn.Embedding(12, 6), dc.Discrete(6, 9, codebook="given")

    def forward(self, u: Tensor) -> Tensor:
        codebook = self.tokens.weight[3:]
        return self.node(self.node(u, codebook=codebook) + u, codebook=codebook)


class Tree(nn.Module):
    def __init__(self, structure: str) -> None:
        super().__init__()
        self.edges = dc.structures.TreeEdges(structure)

    def forward(self, scores: Tensor) -> Tensor:
        return self.edges(scores)


def mask(categories: int) -> Tensor:
    open_ = torch.rand(5, categories) < 0.3
    open_[:, 0] = True
    open_[2] = False  # nothing is left: a row of zeros
    return open_


def cases() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    u, rows = torch.randn(5, 6), torch.tensor([True, False, True, True, False])
    return {
        "discrete": (dc.Discrete(6, SMALL), (u,)),
        "masked": (Masked(SMALL), (u, mask(SMALL))),
        "padded": (Padded(SMALL), (u, rows)),
        "gates": (Gates(), (u,)),
        "given": (Given(), (torch.randn(5, 3, 6),)),
        "large": (dc.Discrete(6, LARGE), (u,)),
        "large masked": (Masked(LARGE), (u, mask(LARGE))),
        "large padded": (Padded(LARGE), (u, rows)),
        **{name: (Tree(name), (torch.randn(5, 4, 4),)) for name in dc.structures.STRUCTURES},
    }


def expected(model: nn.Module, arguments: tuple[Tensor, ...]) -> Tensor:
    from dcgraph._checks import unchecked  # exported programs check nothing either

    with unchecked():
        found: Tensor = model(*arguments)
    return found


def more(arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Another size of batch."""
    return tuple(torch.cat([one, one.flip(0)[:3]]) for one in arguments)


def dynamic(arguments: tuple[Tensor, ...]) -> Any:
    batch = Dim("batch", min=2)
    return tuple({0: batch} for _ in arguments)


@pytest.mark.parametrize("name", cases())
def test_exported_programs_decide_alike(name: str) -> None:
    model, arguments = cases()[name]
    model.eval()
    shapes = dynamic(arguments)
    program = torch.export.export(model, arguments, dynamic_shapes=shapes).module()
    for some in (arguments, more(arguments)):
        found = program(*some)
        assert torch.equal(found, expected(model, some)) and found.any()


def onnx_session(model: nn.Module, arguments: tuple[Tensor, ...], folder: Path) -> Any:
    program = torch.onnx.export(
        model.eval(), arguments, dynamo=True, dynamic_shapes=dynamic(arguments), verbose=False
    )
    assert program is not None
    program.save(str(folder / "model.onnx"))
    return onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )


def outputs(session: Any, arguments: tuple[Tensor, ...]) -> Tensor:
    names = [one.name for one in session.get_inputs()]
    given = {name: one.numpy() for name, one in zip(names, arguments, strict=True)}
    return torch.tensor(session.run(None, given)[0])


@pytest.mark.parametrize("name", ["masked", "padded", "gates", "given", "large masked", "spanning_tree"])  # fmt: skip  # noqa: E501
def test_onnx_programs_decide_alike(name: str, tmp_path: Path) -> None:
    model, arguments = cases()[name]
    session = onnx_session(model, arguments, tmp_path)
    for some in (arguments, more(arguments)):
        assert torch.equal(outputs(session, some), expected(model, some))


@pytest.mark.parametrize("categories", [4, LARGE])
def test_exported_programs_sample(categories: int, tmp_path: Path) -> None:
    """decode="sample" draws afresh in every call, from the right distribution."""
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    model = Masked(categories, decode="sample")
    with torch.no_grad():  # four possible rows, told apart by their last entry
        model.node.codebook.zero_()
        model.node.codebook[:4, 0] = probabilities.log()
        model.node.codebook[:4, 5] = torch.arange(4.0)
    mask = torch.arange(categories) < 4
    u = torch.tensor([1.0, 0, 0, 0, 0, 0])
    few, many = ((u.expand(n, 6), mask.expand(n, categories)) for n in (2, 6000))
    session = onnx_session(model, few, tmp_path)
    program = torch.export.export(model.eval(), few, dynamic_shapes=dynamic(few)).module()
    torch.manual_seed(0)
    onnxruntime.set_seed(0)
    for run in (lambda: outputs(session, many), lambda: program(*many)):
        index, again = (run()[:, 5].long() for _ in range(2))
        counts = torch.bincount(index, minlength=4)
        assert len(counts) == 4, "a masked category never comes out"
        assert chi_square_p(counts, probabilities) > 1e-4
        assert 0.4 < (index != again).float().mean() < 0.9


def test_a_wide_codebook_is_searched_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from dcgraph.codebook import _problem

    monkeypatch.setattr(_problem, "_EXPORTED", 1 << 10)
    model, arguments = cases()["large masked"]
    model.eval()
    program = torch.export.export(model, arguments, dynamic_shapes=dynamic(arguments)).module()
    assert torch.equal(program(*arguments), expected(model, arguments))


def test_functions_of_a_codebook_export() -> None:
    class Loss(nn.Module):
        def forward(self, query: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            return (
                dc.codebook.cross_entropy(query, codebook, target),
                dc.codebook.logsumexp(query, codebook),
                dc.mix(query, codebook, 2.0, beta=0.0),
            )

    codebook = torch.randn(LARGE, 6)
    arguments = torch.randn(5, 6), torch.randint(LARGE, (5,))
    program = torch.export.export(Loss(), arguments, dynamic_shapes=dynamic(arguments)).module()
    for one, other in zip(program(*more(arguments)), Loss()(*more(arguments)), strict=True):
        torch.testing.assert_close(one, other)


def test_training_mode_is_said() -> None:
    """It draws noise: hardly what anybody wants to ship."""
    for node in (dc.Discrete(6, SMALL), dc.Discrete(6, LARGE)):
        dc.Dials.constant(node)
        with pytest.warns(UserWarning, match=r"exported in training mode: .* model\.eval\(\)"):
            torch.export.export(node, (torch.randn(5, 6),))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            torch.export.export(node.eval(), (torch.randn(5, 6),))


def test_an_exported_choice_replays_noise() -> None:
    class Choice(nn.Module):
        def forward(self, query: Tensor, codebook: Tensor, noise: Tensor) -> Tensor:
            index, _ = dc.codebook.choose(query, codebook, beta=2.0, noise=noise)
            return index

    given = torch.randn(5, 4), torch.randn(30, 4), dc.gumbel([5, 30])
    found = torch.export.export(Choice(), given).module()(*given)
    assert torch.equal(found, dc.codebook.choose(*given[:2], beta=2.0, noise=given[2])[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_logits_are_not_rounded_when_exported(dtype: torch.dtype) -> None:
    class Choice(nn.Module):
        def forward(self, query: Tensor, codebook: Tensor) -> Tensor:
            return dc.codebook.choose(query, codebook, beta=0.0)[0]

    torch.manual_seed(0)
    given = (3 * torch.randn(50, 64)).to(dtype), torch.randn(5000, 64).to(dtype)
    found = torch.export.export(Choice(), given).module()(*given)
    assert torch.equal(found, (given[0].double() @ given[1].double().T).argmax(-1))
