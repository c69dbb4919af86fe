"""The figures: numbers against closed forms and sampling, pictures drawn from the numbers alone."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import colors, image
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments import figures
from dcgraph.experiments.engine import Data
from dcgraph.experiments.engine.datasets import DataError, locate
from dcgraph.experiments.figures import addition_table, lead, saturation, simplex, style
from dcgraph.experiments.tasks.addition import commands, images, lists
from dcgraph.experiments.tasks.addition.model import Adder
from dcgraph.experiments.tasks.addition.task import Addition, AdditionSettings

LOGITS = torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64).log()

# Pairs with the same tau / beta, and with the same tau or beta: mixing them up shows.
TEMPERATURES = [(2.0, 1.0), (1.0, 0.5), (1.0, 1.0), (0.5, 1.0), (1.0, 2.0), (3, 4)]


def quadrature(tau: float, beta: float, steps: int = 900) -> tuple[Tensor, Tensor]:
    """Points of the simplex and their probability under log_density.

    The grid is even in u, z = softmax(u, 0): there the density is smooth and decays at a rate of
    tau / beta, while it diverges at the corners in z. The Jacobian is the product of the z_i.
    """
    reach = 25 * beta / tau
    u = torch.linspace(-reach, reach, steps, dtype=torch.float64)
    coordinates = torch.cartesian_prod(u, u)
    log_z = torch.cat([coordinates, torch.zeros(len(coordinates), 1)], -1).log_softmax(-1)
    log_p = simplex.log_density(log_z.exp(), LOGITS, tau, beta) + log_z.sum(-1)
    return log_z.exp(), log_p.exp() * (u[1] - u[0]) ** 2


def regions(z: Tensor) -> Tensor:
    """Membership in seven regions: each corner's third, nearly discrete, even, two halves."""
    largest = z.amax(-1, keepdim=True)
    others = [largest > 0.9, largest < 0.5, z[:, :1] > 2 * z[:, 2:], z[:, 1:2] > 0.2]
    return torch.cat([z == largest, *others], -1).double()


@pytest.mark.parametrize(("tau", "beta"), TEMPERATURES)
def test_density_is_that_of_the_samples(tau: float, beta: float) -> None:
    points, probability = quadrature(tau, beta)
    assert probability.sum().item() == pytest.approx(1, abs=1e-6)
    generator = torch.Generator().manual_seed(0)
    draws = 200_000
    z = dc.gumbel_softmax(LOGITS.expand(draws, -1), tau, beta=beta, generator=generator)
    expected, seen = probability @ regions(points), regions(z).mean(0)
    # Five standard errors, and as much again for the steps of the grid at the regions' borders.
    assert (expected - seen).abs().max().item() < 10 * 0.5 / math.sqrt(draws)


@pytest.mark.parametrize(("tau", "beta"), TEMPERATURES)
def test_density_agrees_with_torch(tau: float, beta: float) -> None:
    law = torch.distributions.RelaxedOneHotCategorical(
        torch.tensor(tau / beta, dtype=torch.float64), logits=LOGITS / beta
    )
    z = torch.rand(50, 3, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(simplex.log_density(z, LOGITS, tau, beta), law.log_prob(z))


def test_density_takes_logits_per_row() -> None:
    z = torch.rand(4, 3, dtype=torch.float64).softmax(-1)
    logits = torch.randn(4, 3, dtype=torch.float64)
    rows = [simplex.log_density(z[i], logits[i], 1, 2) for i in range(4)]
    torch.testing.assert_close(simplex.log_density(z, logits, 1, 2), torch.stack(rows))


def test_no_density_without_noise() -> None:
    with pytest.raises(ValueError, match="beta=0 has no density"):
        simplex.log_density(LOGITS.softmax(-1), LOGITS, tau=1.0, beta=0.0)
    with pytest.raises(ValueError, match="tau=0"):
        simplex.log_density(LOGITS.softmax(-1), LOGITS, tau=0.0, beta=1.0)


def test_simplex_shows_the_point_of_the_paper() -> None:
    tau_row, beta_row = simplex.compute(resolution=4)["rows"]
    weights = [weight / sum(simplex.WEIGHTS) for weight in simplex.WEIGHTS]
    for panel in tau_row["panels"]:
        assert panel["shares"] == pytest.approx(weights, abs=1e-4)
    largest = [max(panel["shares"]) for panel in beta_row["panels"]]
    assert largest == sorted(largest, reverse=True)
    point = beta_row["panels"][0]
    assert point["density"] is None
    assert point["samples"] == [pytest.approx(weights, abs=1e-3)]


def test_saturation_without_noise_is_gradient_descent() -> None:
    numbers = saturation.compute(betas=[0.0], steps=40, seeds=1)
    first, second = saturation.THETA
    expected = {}
    for step in range(1, 41):
        gradient = 1 / (1 + math.exp(first - second))
        first, second = first - 0.01 * -gradient, second - 0.01 * gradient
        expected[step] = first, second, 1 / (1 + math.exp(second - first))
    (curve,) = numbers["curves"]
    names = ("theta_1", "theta_2", "probability")
    for i, step in enumerate(numbers["steps"]):
        seen = [curve[name]["median"][i] for name in names]
        assert seen == pytest.approx(expected[step], abs=1e-3)


def test_saturation_shows_the_point_of_the_paper() -> None:
    numbers = saturation.compute(betas=[0.0, 8.0], steps=1000, seeds=16)
    calm, noisy = numbers["curves"]
    early = next(i for i, step in enumerate(numbers["steps"]) if step >= 60)
    # Early, a small beta is ahead and has less variance ...
    assert calm["theta_1"]["median"][early] > noisy["theta_1"]["high"][early]
    assert noisy["theta_1"]["low"][early] < noisy["theta_1"]["high"][early]
    # ... later the probabilities saturate, and only a large one still has gradients.
    assert calm["probability"]["median"][-1] > 0.9
    assert noisy["gradient"]["low"][-1] > 3 * calm["gradient"]["median"][-1]
    assert noisy["theta_1"]["low"][-1] > 2 * calm["theta_1"]["median"][-1]


def test_gradients_are_averaged_over_the_last_steps() -> None:
    values = torch.rand(7, 2, 3, dtype=torch.float64)
    expected = torch.stack([values[max(0, t - 2) : t + 1].mean(0) for t in range(7)])
    torch.testing.assert_close(saturation._trailing_mean(values, 3), expected)


def test_training_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        saturation.compute(steps=20, seeds=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


DIGITS = AdditionSettings(images="digits")
SYMBOLS = torch.tensor([4, 11, 0, 9, 2, 18, 7, 5, 13, 1])  # of the digits 0 to 9


class ByHand(Adder):
    """Reads the digit from the first pixel and adds as told: what a network may have learned."""

    def __init__(self, wrong: dict[tuple[int, int], int]) -> None:
        super().__init__(nn.Identity(), 4, 19, 2)
        self.wrong = wrong

    def read(self, images: Tensor) -> Tensor:
        return SYMBOLS[(16 * images[:, 0, 0]).round().long()]

    def compute(self, symbols: Tensor) -> Tensor:
        digits = (symbols.unsqueeze(-1) == SYMBOLS).long().argmax(-1)
        pairs = [(int(a), int(b)) for a, b in digits]
        return torch.tensor([[self.wrong.get(pair, sum(pair))] for pair in pairs])


def marked_images(digits: int = 10, copies: int = 3) -> Data:
    """Images of noise, the first pixel of each its label."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(digits).repeat(copies)
    pixels = torch.randint(17, (len(labels), 8, 8), dtype=torch.uint8, generator=generator)
    pixels[:, 0, 0] = labels
    pairs = torch.arange(len(labels)).view(-1, 2)
    rows = {"images": pairs, "total": labels[pairs].sum(-1)}
    return Data({"train": rows, "test": rows}, "made up", {"images": pixels, "labels": labels})


def described(seed: int, wrong: dict[tuple[int, int], int]) -> dict[str, Any]:
    return addition_table.describe(ByHand(wrong), DIGITS, marked_images(), seed)


def test_addition_table_of_a_network_that_adds() -> None:
    numbers = described(0, wrong={})
    assert numbers["symbols"] == SYMBOLS.tolist()
    assert [numbers["meaning"][symbol] for symbol in SYMBOLS] == list(range(10))
    assert sorted(numbers["meaning"])[:9] == [-1] * 9
    assert numbers["table"] == [[a + b for b in range(10)] for a in range(10)]
    assert numbers["table_accuracy"] == numbers["digit_accuracy"] == 1
    for digit, example in enumerate(numbers["examples"]):
        assert example["digit"] == example["read_as"] == example["pixels"][0][0] == digit
        assert example["symbol"] == SYMBOLS[digit]


def test_addition_table_shows_what_is_wrong() -> None:
    numbers = described(0, wrong={(2, 9): 12, (9, 9): 0})
    assert numbers["table"][2][9] == 12 and numbers["table"][9][2] == 11
    assert numbers["table"][9][9] == 0
    assert numbers["table_accuracy"] == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("changes", "error"), [({"summands": 3}, "summands=3"), ({"model": "deepproblog"}, "symbols")]
)
def test_addition_table_of_another_model(
    changes: dict[str, Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(DIGITS, **changes)
    model = Addition().model(settings)
    monkeypatch.setattr(addition_table, "load", lambda path: (model, settings))
    with pytest.raises(ValueError, match=error):
        addition_table.compute()


def wrong_share(path: Path) -> float:
    """The share of the picture in the colour of wrong cells."""
    pixels = torch.tensor(image.imread(path)[..., :3])
    colour = torch.tensor(colors.to_rgb(style.WRONG))
    return ((pixels - colour).abs().amax(-1) < 0.01).double().mean().item()


def test_addition_table_marks_wrong_cells_alone(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    shares = []
    for wrong in ({}, {(2, 9): 12}, {(2, 9): 12, (0, 0): 5, (9, 9): 0}):
        addition_table.draw(described(0, wrong), path)
        shares.append(wrong_share(path))
    none, one, three = shares
    assert none == 0 and one > 0
    assert three == pytest.approx(3 * one, rel=0.2)


def test_addition_table_of_the_shipped_model(tmp_path: Path) -> None:
    if not (files(commands.__package__) / commands.SHIPPED).is_file():
        pytest.skip(f"the package has no {commands.SHIPPED}")
    try:
        for file in (*images.MNIST, *lists.PAIRS):
            locate(replace(file, urls=()))
    except DataError as error:
        pytest.skip(str(error))
    picture, data = figures.make("addition-table", tmp_path)
    assert png_size(picture)[0] == 1440
    numbers = json.loads(data.read_text())
    assert numbers["test_images"] == 10_000
    assert numbers["digit_accuracy"] > 0.98
    assert [example["read_as"] for example in numbers["examples"]] == list(range(10))


OF_THE_PAPER = ("component", "example", "mixing")  # tested in test_figures_of_the_paper
SMALL = {
    "addition-table": lambda seed: described(seed, wrong={(3, 4): 8}),
    "lead": lambda seed: lead.compute(seed, draws=100),
    "saturation": lambda seed: saturation.compute(seed, steps=30, seeds=3),
    "simplex": lambda seed: simplex.compute(seed, resolution=8),
}


def test_every_figure_from_a_seed_has_a_small_version() -> None:
    from_seed = {name for name, recipe in figures.FIGURES.items() if not recipe.from_records}
    assert set(SMALL) == from_seed - set(OF_THE_PAPER)


@pytest.mark.parametrize("way", [replace(way, rivals=n) for way in lead.WAYS for n in (9, 2000)])
def test_the_chance_of_a_leader_is_that_of_the_librarys_noise(way: lead.Way) -> None:
    """A closed form against draws: five standard deviations of 2,000 of them."""
    torch.manual_seed(0)
    ahead = way.beta * math.log(way.rivals) / (4 if way.law == "reversed" else 1)
    theta = torch.zeros(100, way.rivals + 1)
    theta[:, 0] = ahead
    won = sum(int((dc.sample(theta, beta=way.beta, noise=way.law) == 0).sum()) for _ in range(20))
    expected = lead.chance(ahead, way)
    assert 0.1 < expected < 0.9
    assert won / 2000 == pytest.approx(expected, abs=5 * (0.25 / 2000) ** 0.5)


@pytest.mark.parametrize("name", SMALL)
def test_same_seed_same_numbers(name: str) -> None:
    torch.manual_seed(1)
    first = SMALL[name](0)
    torch.manual_seed(2)
    assert SMALL[name](0) == first
    assert SMALL[name](1) != first


@pytest.mark.parametrize("name", SMALL)
def test_draws_from_the_json_alone(name: str, tmp_path: Path) -> None:
    numbers = json.loads(json.dumps(SMALL[name](0), allow_nan=False))
    path = tmp_path / "picture"
    figures.FIGURES[name].draw(numbers, path)
    width, height = png_size(path)
    assert width == 1440  # 7.2 inches at 200 dpi
    assert 400 < height < 1000


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_a_failed_drawing_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(numbers: dict[str, Any], path: Path) -> None:
        path.write_text("half a picture")
        raise RuntimeError("out of ink")

    recipe = figures.Recipe(lambda seed: {"seed": seed}, fail, plan="", look="")
    monkeypatch.setitem(figures.FIGURES, "broken", recipe)
    (tmp_path / "broken.png").write_text("old")
    with pytest.raises(RuntimeError, match="out of ink"):
        figures.make("broken", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.png"]
    assert (tmp_path / "broken.png").read_text() == "old"
