"""Numbers of a monitor sent to TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from curvflow.errors import InputError, RequestError

# From names with numbers, and the step, to nothing.
Send = Callable[[Mapping[str, float], int], None]

BY_NAME = ("wandb", "mlflow")
PREFIX = "monitor/"


def senders(log_to: Any) -> list[Send]:
    """Return what sends numbers to each place that the user names.

    Args:
        log_to: None; `wandb` or `mlflow`, of which the active run is taken; an object
            with the method `add_scalar` of TensorBoard's SummaryWriter, `log_metrics`
            of MLflow and of Lightning's loggers, or `log` of a run of Weights &
            Biases; or several of these.

    Returns:
        Functions of numbers by name and the step.

    Raises:
        InputError: it is none of these.
        RequestError: a library that is named is not installed.
    """
    if log_to is None:
        return []
    several = log_to if isinstance(log_to, list | tuple) else [log_to]
    return [_sender(each) for each in several]


def _sender(place: Any) -> Send:
    if isinstance(place, str):
        place = _imported(place)
    if hasattr(place, "add_scalar"):
        return lambda numbers, step: _scalars(place, numbers, step)
    if hasattr(place, "log_metrics"):
        return lambda numbers, step: place.log_metrics(dict(numbers), step=step)
    if hasattr(place, "log"):
        return lambda numbers, step: place.log(dict(numbers), step=step)
    raise InputError(
        "log_to: expected wandb, mlflow, or an object with add_scalar, log_metrics or "
        f"log, got {type(place).__name__}. Pass a SummaryWriter or a run."
    )


def _scalars(writer: Any, numbers: Mapping[str, float], step: int) -> None:
    for name, number in numbers.items():
        writer.add_scalar(name, number, global_step=step)


def _imported(name: str) -> Any:
    if name not in BY_NAME:
        raise InputError(
            f"log_to: expected {' or '.join(BY_NAME)}, or an object, got {name}. Pass "
            "a SummaryWriter for TensorBoard."
        )
    try:
        return import_module(name)
    except ImportError as error:
        raise RequestError(
            f"log_to: expected {name} installed, got none. Install it with: pip "
            f"install {name}."
        ) from error


def scalars(row: Mapping[str, Any], layers: Sequence[str]) -> dict[str, float]:
    """Return the finite numbers of a measurement, under names to be sent.

    Args:
        row: the measurement.
        layers: names of the parameter tensors.
    """
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if name == "layer_update_ratio":
            pairs = zip(layers, value, strict=True)
            numbers |= {f"update_ratio/{layer}": float(v) for layer, v in pairs}
        elif isinstance(value, bool | int | float) and not name.endswith("step"):
            numbers[name] = float(value)
    return {PREFIX + n: v for n, v in numbers.items() if math.isfinite(v)}
