"""What planning knows of the samples of a data set, as far as parameters tell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from curvflow.schemas.counted import counted
from curvflow.schemas.params import Params


@dataclass(frozen=True)
class Samples:
    """The form of a data set's samples; what is None only its arrays tell.

    Attributes:
        shape: of the inputs of one sample.
        targets: labels of classes, or values.
        outputs: number of classes, or of the values of one target.
    """

    shape: tuple[int, ...] | None = None
    targets: Literal["labels", "values"] | None = None
    outputs: int | None = None


def known_samples(params: Params, taken: Samples) -> Samples:
    """Return the form of the samples that a stage of data returns.

    What tells it is the function of this name beside its parameters, or beside those
    that they are derived from: no method, as it is no code that computes them.

    Args:
        params: its parameters.
        taken: the form of the samples that it takes, if it takes any.

    Returns:
        The form, as far as it is known.
    """
    for base in type(params).__mro__:
        tell = getattr(sys.modules[base.__module__], "known_samples", None)
        if tell is not None and base is not Params:
            found: Samples = tell(params, taken)
            return found
    return Samples()


def inputs_told(shape: tuple[int, ...]) -> str:
    """Return the shape of a sample in words, as `2 inputs` or `1x28x28 inputs`.

    Args:
        shape: of the inputs of one sample.
    """
    if len(shape) == 1:
        return counted(shape[0], "input")
    return f"{'x'.join(map(str, shape))} inputs"


def outputs_told(
    targets: Literal["labels", "values"], outputs: int, before: str = ""
) -> str:
    """Return the size of targets, as `labels of 3 classes` or `1 value per target`.

    Args:
        targets: labels of classes, or values.
        outputs: number of classes, or of the values of one target.
        before: words before the number, such as `at most `.
    """
    if targets == "values":
        return f"{before}{counted(outputs, 'value')} per target"
    return f"labels of {before}{outputs} class{'es' if outputs != 1 else ''}"
