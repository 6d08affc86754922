"""A monitor as a callback of Lightning's Trainer, and of Hugging Face's."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from curvflow.errors import RequestError


class Monitored(Protocol):
    """Interface of a monitor that a callback needs."""

    def step(self, loss: Any = None, *, step: int | None = None) -> bool:
        """Note a step."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""


def lightning_callback(monitor: Monitored) -> Any:
    """Return a callback that measures after batches, and is kept in checkpoints.

    Args:
        monitor: whose steps are the trainer's.

    Returns:
        An instance of a subclass of Lightning's `Callback`.

    Raises:
        RequestError: Lightning is not installed.
    """
    base = _imported("lightning.pytorch", "pytorch_lightning").Callback

    def on_train_batch_end(
        self: Any, trainer: Any, pl_module: Any, outputs: Any, *batch: Any
    ) -> None:
        if trainer.is_global_zero and trainer.global_step:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            monitor.step(loss, step=trainer.global_step)

    return type(
        "MonitorCallback",
        (base,),
        {
            "__doc__": "Measures curvature after batches of training.",
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
    base = _imported("transformers").TrainerCallback

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


def _imported(*names: str) -> Any:
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
