"""A monitor as a callback of trainers, and its numbers sent to trackers.

Lightning's Trainer and Hugging Face's call it; TensorBoard, Weights & Biases and MLflow
receive numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from curvflow.errors import InputError, RequestError


class Monitored(Protocol):
    """Interface of a monitor that a callback needs."""

    def step(self, loss: Any = None, *, step: int | None = None) -> bool:
        """Note a step."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""


class _StepLosses:
    """Losses of the batches that a trainer has put together into its next step."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, step: int) -> None:
        """Take the number of the last step."""
        self._step = step
        self._losses: list[Any] = []

    def add(self, loss: Any, step: int) -> bool:
        """Note the loss of a batch, and return whether it was the last of a step."""
        if loss is not None:
            self._losses.append(loss)
        return step != self._step

    def mean(self) -> Any:
        """Return the mean loss of the step; None if no batch had one."""
        return sum(self._losses) / len(self._losses) if self._losses else None


def lightning_callback(monitor: Monitored, name: str = "") -> Any:
    """Return a callback that measures after steps, and is kept in checkpoints.

    Args:
        monitor: whose steps are the trainer's.
        name: in checkpoints, behind that of the class.

    Returns:
        An instance of a subclass of Lightning's `Callback`.

    Raises:
        RequestError: Lightning is not installed.
    """
    base = _framework("lightning.pytorch", "pytorch_lightning").Callback
    losses = _StepLosses()

    def on_train_batch_end(
        self: Any, trainer: Any, pl_module: Any, outputs: Any, *batch: Any
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:  # Lightning divides those that it accumulates
            loss = loss * trainer.accumulate_grad_batches
        if losses.add(loss, step := trainer.global_step):
            if trainer.is_global_zero:
                monitor.step(losses.mean(), step=step)
            losses.begin(step)

    key = f"MonitorCallback.{name}" if name else "MonitorCallback"
    return type(
        "MonitorCallback",
        (base,),
        {
            "__doc__": "Measures curvature after steps of training. A trainer with "
            "several needs a name for each: monitor.lightning(name).",
            "state_key": property(lambda self: key),
            "on_train_start": lambda self, trainer, _: losses.begin(
                trainer.global_step
            ),
            "on_train_batch_end": on_train_batch_end,
            "state_dict": lambda self: monitor.state_dict(),
            "load_state_dict": lambda self, state: monitor.load_state_dict(state),
        },
    )()


def hf_callback(monitor: Monitored) -> Any:
    """Return a callback that measures after steps.

    Args:
        monitor: whose steps are the trainer's.

    Returns:
        An instance of a subclass of transformers' `TrainerCallback`.

    Raises:
        RequestError: transformers is not installed.
    """
    base = _framework("transformers").TrainerCallback

    def on_step_end(
        self: Any, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            monitor.step(step=state.global_step)

    return type(
        "MonitorCallback",
        (base,),
        {
            "__doc__": "Measures curvature after steps of training.",
            "on_step_end": on_step_end,
        },
    )()


def _framework(*names: str) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    package = names[0].partition(".")[0]
    raise RequestError(
        f"callback: expected {package} installed, got none. Install it with: pip "
        f"install {package}."
    )


# From names with numbers, and the step, to nothing.
Send = Callable[[Mapping[str, float], int], None]

BY_NAME = ("wandb", "mlflow")


def senders(log_to: Any, folder: str) -> list[Send]:
    """Return what sends numbers to each place that the user names.

    Args:
        folder: first part of the names, before a slash.
        log_to: None; `wandb` or `mlflow`, of which the active run is taken; an object
            with the method `add_scalar` of TensorBoard's SummaryWriter, `log_metrics`
            of MLflow and of Lightning's loggers, or `define_metric` or `log` of a run
            of Weights & Biases; or several of these.

    Returns:
        Functions of numbers by name and the step.

    Raises:
        InputError: it is none of these.
        RequestError: a library that is named is not installed.
    """
    if log_to is None:
        return []
    several = log_to if isinstance(log_to, list | tuple) else [log_to]
    return [_sender(each, folder) for each in several]


def _sender(place: Any, folder: str) -> Send:
    if isinstance(place, str):
        place = _tracker(place)
    if hasattr(place, "add_scalar"):
        return lambda numbers, step: _scalars(place, numbers, step)
    if hasattr(place, "log_metrics"):
        return lambda numbers, step: place.log_metrics(dict(numbers), step=step)
    if hasattr(place, "define_metric"):
        return partial(_along_axis, place, folder)
    if hasattr(place, "log"):
        return lambda numbers, step: place.log(dict(numbers), step=step)
    raise InputError(
        "log_to: expected wandb, mlflow, or an object with add_scalar, log_metrics or "
        f"log, got {type(place).__name__}. Pass a SummaryWriter or a run."
    )


def _scalars(writer: Any, numbers: Mapping[str, float], step: int) -> None:
    for name, number in numbers.items():
        writer.add_scalar(name, number, global_step=step)


def _along_axis(run: Any, folder: str, numbers: Mapping[str, float], step: int) -> None:
    """Log to Weights & Biases over the steps of the loop.

    Its steps count calls of `log`. Numbers of a step before the present count are
    dropped, and those of a step behind it move the user's own on.
    """
    axis = f"{folder}/step"
    run.define_metric(f"{folder}/*", step_metric=axis)
    run.log({**numbers, axis: step})


def _tracker(name: str) -> Any:
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


def scalars(
    row: Mapping[str, Any], layers: Sequence[str], folder: str
) -> dict[str, float]:
    """Return the finite numbers of a measurement, under names to be sent.

    Args:
        row: the measurement.
        layers: names of the parameter tensors.
        folder: first part of the names, before a slash.
    """
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if name == "layer_update_ratio":
            pairs = zip(layers, value, strict=True)
            # Beside no number of that name: for MLflow it is a folder.
            numbers |= {f"{name}/{layer}": float(v) for layer, v in pairs}
        elif isinstance(value, bool | int | float) and not name.endswith("step"):
            numbers[name] = float(value)
    return {f"{folder}/{n}": v for n, v in numbers.items() if math.isfinite(v)}
