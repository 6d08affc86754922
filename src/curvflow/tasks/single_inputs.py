"""What models of a single input and fixed outputs can be built for."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from curvflow.errors import InputError


def check_single_input(
    kind: str, input_shape: Sequence[int], num_outputs: int, expected: int
) -> None:
    """Refuse data that a model of one input cannot be fitted to.

    Args:
        kind: of the model.
        input_shape: of one sample.
        num_outputs: that the data have.
        expected: outputs that the model has.

    Raises:
        InputError: there is more than one input, or another number of outputs.
    """
    if (inputs := prod(input_shape)) != 1 or num_outputs != expected:
        raise InputError(
            f"model: expected 1 input and {expected} outputs for {kind}, got {inputs} "
            f"and {num_outputs}. Take data.known_answer with this model."
        )
