"""Shapes and targets of a data set's samples, as far as planning knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from curvflow.schemas.kind import Kind, ParamProblem, Samples
from curvflow.schemas.params import Params
from curvflow.schemas.words import counted


def known_samples(kind: Kind, params: Params, taken: Samples) -> Samples:
    """Return the form of the samples that a data stage returns, as far as known."""
    return kind.known_samples(params, taken) if kind.known_samples else Samples()


def describe_inputs(shape: tuple[int, ...]) -> str:
    """Return the shape of a sample as text, `2 inputs` or `1x28x28 inputs`."""
    if len(shape) == 1:
        return counted(shape[0], "input")
    return f"{'x'.join(map(str, shape))} inputs"


def describe_outputs(
    targets: Literal["labels", "values"], outputs: int, before: str = ""
) -> str:
    """Return targets as text, `labels of 3 classes` or `1 value per target`."""
    if targets == "values":
        return f"{before}{counted(outputs, 'value')} per target"
    return f"labels of {before}{outputs} class{'es' if outputs != 1 else ''}"


def num_training(data: Any) -> int | None:
    """Return the number of training samples, or None where planning cannot know it."""
    if (drawn := getattr(data, "num_train", None)) is not None:
        return int(drawn)
    if getattr(data, "original", None) is not None:
        return int(data.counts[0])
    if (whole := getattr(data, "num_samples", None)) is not None:
        return int(whole) - int(getattr(data, "num_test", 0))
    return None


def too_few_for_batches(
    params: Any, name: str, data: Any, *, least: int = 1
) -> Iterator[ParamProblem]:
    """Yield a message if the data do not give as many batches as are wanted.

    Args:
        params: with `batch_size` and `num_batches`, both maybe None.
        name: of the stage that returns the data.
        data: its parameters.
        least: batches that are needed.
    """
    count, size = num_training(data), params.batch_size or 1
    if count is None or count < least:
        return
    most, of = count // size, f"of the {count} samples of '{name}'"
    if most < least:
        message = f"expected at most {count // least} {of}, got {size}"
        yield ("batch_size",), message, "Lower it."
    elif (params.num_batches or least) > most:
        message = f"expected at most {most} batches of {size} {of}, got "
        message += str(params.num_batches)
        yield ("num_batches",), message, "Lower it, or batch_size."


def too_few(params: Any, name: str, data: Any) -> Iterator[ParamProblem]:
    """Yield a message if a batch is larger than the training data."""
    count, batch = num_training(data), params.batch_size
    if count is not None and batch is not None and batch > count:
        message = f"expected at most the {count} samples of '{name}', got {batch}"
        yield ("batch_size",), message, "Lower it."
