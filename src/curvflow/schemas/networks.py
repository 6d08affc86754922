"""What is known of a model's network before it is built, told beside its specification.

No method of the specification tells it, as it is no code that computes a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Literal

from curvflow.schemas.models import AnyModel, model_name

Sees = Literal["row", "image", "unknown"]


def sees(model: AnyModel) -> Sees:
    """Return what a network takes of a sample.

    Args:
        model: its specification, in whose file `SEES` says it.

    Returns:
        A row of numbers, whatever their shape; an image of channels, height and width;
        or what only the module of the user's own tells.
    """
    found: Sees = getattr(_file(model), "SEES", "row")
    return found


def tensor_sizes(model: AnyModel, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors of a network.

    Args:
        model: its specification, in whose file the function of this name tells them.
        inputs: numbers of a sample.
        outputs: classes, or values of a target.

    Returns:
        Sizes by name; none if only building the network tells.
    """
    tell = getattr(_file(model), "tensor_sizes", None)
    sizes: Mapping[str, int] = tell(model, inputs, outputs) if tell else {}
    return sizes


def _file(model: AnyModel) -> ModuleType:
    return import_module(f"curvflow.schemas.models.{model_name(model)}")
