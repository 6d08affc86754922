"""Specifications of losses: by name, with settings, or a function of the user's own.

A loss whose settings are all at their defaults is its name alone, so that both ways to
write it are one. Names and defaults are those of `torch.nn.functional`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    Tag,
    field_validator,
)

from curvflow.schemas.kinds.shared.networks import Factory
from curvflow.schemas.params import Params

# The label that stands for none, as torch has it.
IGNORED = -100

LossName = Literal[
    "auto",
    "cross_entropy",
    "mse",
    "sse",
    "bce",
    "huber",
    "poisson",
    "gaussian",
    "mixture_bernoulli",
]
Reduction = Literal["mean", "sum"]

# Those of labels alone, and those of values alone; the others take either.
OF_LABELS = ("cross_entropy",)
OF_VALUES = ("mse", "sse", "huber", "poisson", "gaussian")

# Those that take labels of two classes, as one value of 0 or 1.
OF_TWO_CLASSES = ("bce", "mixture_bernoulli")


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
    class_weights: Annotated[
        tuple[NonNegativeFloat, ...] | None, Field(strict=False)
    ] = Field(None, description="weight of each class, C of them; null for 1 each")

    @field_validator("class_weights")
    @classmethod
    def _some_count(
        cls, class_weights: tuple[float, ...] | None
    ) -> tuple[float, ...] | None:
        if class_weights is not None and not any(class_weights):
            raise ValueError("expected a weight above 0, got none. Raise one.")
        return class_weights


class Huber(Params):
    """Squares of small differences, magnitudes of large ones; mean over outputs."""

    kind: Literal["huber"] = "huber"
    delta: float = Field(1.0, gt=0, description="difference at which both meet")


def _reduction() -> Any:
    return Field(
        "mean", description="of the losses of a sample's values: their mean, or sum"
    )


class Bce(Params):
    """Binary cross entropy of the logistic function of each output."""

    kind: Literal["bce"] = "bce"
    reduction: Reduction = _reduction()


class Poisson(Params):
    """Counts, by the logarithms of their rates."""

    kind: Literal["poisson"] = "poisson"
    reduction: Reduction = _reduction()


class Gaussian(Params):
    """Normal values, by their means, and then the logarithms of their variances."""

    kind: Literal["gaussian"] = "gaussian"
    reduction: Reduction = _reduction()


class MixtureBernoulli(Params):
    """A mixture of independent values 0 and 1.

    By the logits of the weights of its components, and then those of each component's
    values.
    """

    kind: Literal["mixture_bernoulli"] = "mixture_bernoulli"
    components: int = Field(
        2, ge=1, description="components K, of K (P + 1) outputs for P values"
    )


class OwnLoss(Factory):
    """A function of outputs and targets, or what makes one from the arguments."""

    num_outputs: int | None = Field(
        None,
        ge=1,
        description="outputs of the network that it takes, C; null for one of each "
        "class or value",
    )


Named = CrossEntropy | Huber | Bce | Poisson | Gaussian | MixtureBernoulli
WITH_SETTINGS: dict[str, type[Named]] = {
    "cross_entropy": CrossEntropy,
    "huber": Huber,
    "bce": Bce,
    "poisson": Poisson,
    "gaussian": Gaussian,
    "mixture_bernoulli": MixtureBernoulli,
}
AnyLoss = LossName | Named | OwnLoss


def _form(value: object) -> str:
    if isinstance(value, OwnLoss) or (
        isinstance(value, Mapping) and "factory" in value
    ):
        return "factory"
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if isinstance(value, Params):
        kind = getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in WITH_SETTINGS else "name"


def _shortest(loss: Any) -> Any:
    kind = getattr(loss, "kind", None)
    return kind if kind in WITH_SETTINGS and loss == WITH_SETTINGS[kind]() else loss


def _has_settings(value: object) -> object:
    """Return what may be a loss.

    Raises:
        ValueError: it is settings of no loss that has some.
    """
    if not isinstance(value, Mapping) or _form(value) != "name":
        return value
    kind = value.get("kind")
    if isinstance(kind, str) and kind in get_args(LossName):
        raise ValueError(
            f"loss {kind} cannot be combined with settings. Write loss: {kind}."
        )
    got = f"kind {kind!r}" if "kind" in value else f"{', '.join(map(str, value))}"
    raise ValueError(
        f"expected settings with factory or kind, of {', '.join(WITH_SETTINGS)}, got "
        f"{got or 'none'}. Write {{kind: huber, delta: 1}}, for example, or a name."
    )


# As a problem's text has it, with all settings.
FullLoss = Annotated[
    Annotated[LossName, Tag("name")]
    | Annotated[CrossEntropy, Tag("cross_entropy")]
    | Annotated[Huber, Tag("huber")]
    | Annotated[Bce, Tag("bce")]
    | Annotated[Poisson, Tag("poisson")]
    | Annotated[Gaussian, Tag("gaussian")]
    | Annotated[MixtureBernoulli, Tag("mixture_bernoulli")]
    | Annotated[OwnLoss, Tag("factory")],
    Discriminator(_form),
    BeforeValidator(_has_settings),
]
LossSpec = Annotated[FullLoss, AfterValidator(_shortest)]

# Units of the parameters within `loss`.
LOSS_UNITS = {
    "loss.label_smoothing": "1",
    "loss.ignore_index": "1",
    "loss.class_weights": "1",
    "loss.delta": "target",
    "loss.components": "component",
    "loss.num_outputs": "1",
}


def has_likelihood(loss: AnyLoss) -> bool:
    """Return whether a loss is that of a law from which labels can be drawn.

    Args:
        loss: by name or with its settings; a function of the user's own is of none.
    """
    given = with_settings(loss)
    if isinstance(given, CrossEntropy):  # smoothed or weighed by class it is of none
        return not given.label_smoothing and given.class_weights is None
    return not isinstance(given, Huber | OwnLoss)


def with_settings(loss: AnyLoss) -> AnyLoss:
    """Return a loss with all its settings, but the plain cross entropy as its name."""
    if isinstance(loss, str) and loss != "cross_entropy" and loss in WITH_SETTINGS:
        return WITH_SETTINGS[loss]()
    return loss


def num_outputs(loss: AnyLoss, targets: Literal["labels", "values"], size: int) -> int:
    """Return the outputs that a network of this loss has for a sample, or a token.

    Args:
        loss: the loss.
        targets: of the data.
        size: number of classes, or of the values of one target.
    """
    loss, name = with_settings(loss), loss_name(loss)
    if isinstance(loss, OwnLoss):
        return loss.num_outputs or size
    values = 1 if targets == "labels" and name in OF_TWO_CLASSES else size
    if isinstance(loss, Gaussian):
        return 2 * values
    if isinstance(loss, MixtureBernoulli):
        return loss.components * (values + 1)
    return values


def misfit(
    loss: AnyLoss, targets: Literal["labels", "values"], size: int
) -> tuple[str, str, str] | None:
    """Return what of a loss does not fit targets: where, a message, what to do.

    Args:
        loss: the loss.
        targets: of the data.
        size: number of classes, or of the values of one target.
    """
    if targets == "values":
        return None
    name, weights = loss_name(loss), getattr(loss, "class_weights", None)
    if weights is not None and len(weights) != size:
        message = f"expected one for each of the {size} classes, got {len(weights)}"
        return ".class_weights", message, "Give as many."
    if name in OF_TWO_CLASSES and size != 2:
        message = f"expected labels of 2 classes for {name}, got {size}"
        hint = "Take cross_entropy, or data.modify with labels: one_hot."
        return "", message, hint
    return None


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
