"""Specifications of losses: by name, with settings, or a function of the user's own.

A loss whose settings are all at their defaults is its name alone, so that both ways to
write it are one. Names and defaults are those of `torch.nn.functional`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, PositiveFloat, Tag

from curvflow.schemas.kinds.shared.networks import Factory
from curvflow.schemas.params import Params

# The label that stands for none, as torch has it.
IGNORED = -100

LossName = Literal["auto", "cross_entropy", "mse", "sse", "bce", "huber", "poisson"]

# Those of labels alone, and those of values alone; the others take either.
OF_LABELS = ("cross_entropy",)
OF_VALUES = ("mse", "sse", "huber", "poisson")


class CrossEntropy(Params):
    """Cross entropy of labels, the mean over those that count."""

    kind: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of each label spread over all classes"
    )
    ignore_index: int = Field(
        IGNORED,
        description="a class whose terms do not count, as those of label -100 never do",
    )
    class_weights: Annotated[tuple[PositiveFloat, ...] | None, Field(strict=False)] = (
        Field(None, description="weight of each class, C of them; null for 1 each")
    )


class Huber(Params):
    """Squares of small differences, magnitudes of large ones; mean over outputs."""

    kind: Literal["huber"] = "huber"
    delta: float = Field(1.0, gt=0, description="difference at which both meet")


class OwnLoss(Factory):
    """A function of outputs and targets, or what makes one from the arguments."""

    num_outputs: int | None = Field(
        None,
        ge=1,
        description="outputs of the network that it takes, C; null for one of each "
        "class or value",
    )


WITH_SETTINGS = {"cross_entropy": CrossEntropy, "huber": Huber}
AnyLoss = LossName | CrossEntropy | Huber | OwnLoss


def _form(value: object) -> str:
    if isinstance(value, OwnLoss) or (
        isinstance(value, Mapping) and "factory" in value
    ):
        return "factory"
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if isinstance(value, Params):
        kind = getattr(value, "kind", None)
    return str(kind) if kind in WITH_SETTINGS else "name"


def _shortest(loss: Any) -> Any:
    kind = getattr(loss, "kind", None)
    return kind if kind in WITH_SETTINGS and loss == WITH_SETTINGS[kind]() else loss


# As a problem's text has it, with all settings.
FullLoss = Annotated[
    Annotated[LossName, Tag("name")]
    | Annotated[CrossEntropy, Tag("cross_entropy")]
    | Annotated[Huber, Tag("huber")]
    | Annotated[OwnLoss, Tag("factory")],
    Discriminator(_form),
]
LossSpec = Annotated[FullLoss, AfterValidator(_shortest)]

# Units of the parameters within `loss`.
LOSS_UNITS = {
    "loss.label_smoothing": "1",
    "loss.ignore_index": "1",
    "loss.class_weights": "1",
    "loss.delta": "target",
    "loss.num_outputs": "1",
}


def loss_name(loss: AnyLoss) -> str:
    """Return the name of a loss, for messages."""
    if isinstance(loss, str):
        return loss
    return loss.factory if isinstance(loss, OwnLoss) else loss.kind


def takes(loss: AnyLoss) -> str | None:
    """Return `labels` or `values` if a loss takes these alone, else None."""
    name = loss_name(loss)
    if name in OF_LABELS:
        return "labels"
    return "values" if name in OF_VALUES else None
