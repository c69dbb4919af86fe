"""What the kernels share as operators of torch."""

from typing import Any

import torch


def differentiable(function: type[torch.autograd.Function], operator: Any) -> Any:
    """Which of the two to call: torch.func differentiates a Function but no custom operator, and
    torch.compile traces through an operator but not always through a Function."""
    return operator if torch.compiler.is_compiling() else function.apply
