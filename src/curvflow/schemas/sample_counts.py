"""How many training samples a data set has, as far as its parameters tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curvflow.schemas.kind import Misnomer


def num_training(data: Any) -> int | None:
    """Return the number of training samples, or None where planning cannot know it.

    Args:
        data: parameters of the stage that returns the data.
    """
    if (drawn := getattr(data, "num_train", None)) is not None:
        return int(drawn)
    if (original := getattr(data, "original", None)) is not None:
        return int(original.counts(data.classes)[0])
    if (whole := getattr(data, "num_samples", None)) is not None:
        return int(whole) - int(getattr(data, "num_test", 0))
    return None


def too_few(params: Any, name: str, data: Any) -> Iterator[Misnomer]:
    """Yield that a batch is larger than the data it is drawn from.

    Args:
        params: with `batch_size`.
        name: of the stage that returns the data.
        data: its parameters.
    """
    count, batch = num_training(data), params.batch_size
    if count is not None and batch is not None and batch > count:
        message = f"expected at most the {count} samples of '{name}', got {batch}"
        yield ("batch_size",), message, "Lower it."
