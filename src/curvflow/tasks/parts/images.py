"""What a network for images may be given."""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.errors import InputError


def check_images(model: str, input_shape: Sequence[int]) -> None:
    """Refuse what is no image.

    Args:
        model: its name, for the message.
        input_shape: of one sample.

    Raises:
        InputError: it is not (channels, height, width).
    """
    if len(input_shape) != 3:
        raise InputError(
            f"model: expected images of shape (channels, height, width) for {model}, "
            f"got inputs of shape {tuple(input_shape)}. Take images that are not "
            "flattened, or a dense model."
        )
