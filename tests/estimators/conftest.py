import pytest
import torch


@pytest.fixture(autouse=True)
def the_same_numbers() -> None:
    """Each test draws the same, whatever ran before it in its process."""
    torch.manual_seed(0)
