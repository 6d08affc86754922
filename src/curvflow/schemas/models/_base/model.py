"""Base of the specifications of models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, PositiveInt

from curvflow.schemas.kinds.shared.networks import Glorot, Init
from curvflow.schemas.params import Params

Activation = Literal["relu", "tanh", "gelu", "sigmoid", "identity"]
Pooling = Literal["avg", "max"]
Widths = Annotated[tuple[PositiveInt, ...], Field(strict=False)]
T = TypeVar("T", bound=tuple[Any, ...])


def _some(values: T) -> T:
    if not values:
        raise ValueError("expected one entry or more, got none. Add one.")
    return values


# One or more; a length in the schema would be reported with a wrong entry once again.
Some = AfterValidator(_some)
SomeWidths = Annotated[Widths, Some]


class Model(Params):
    """Base of the models; each narrows `kind` to a literal equal to its file's name.

    Attributes:
        fits_values: whether it can be trained on values rather than labels.
        takes_tokens: a sample may be integers, and may have a label for each token.
        is_tried: only calls show whether it takes integers.
    """

    fits_values: ClassVar[bool] = True
    takes_tokens: ClassVar[bool] = False
    is_tried: ClassVar[bool] = False

    kind: str
    init: Init | None = Field(
        Glorot(glorot=1.0), description="law of the initial weights"
    )

    @property
    def module(self) -> str:
        """The place below `schemas/models/`, as `sequences.gru`.

        Its function has the same below `tasks/models/`.
        """
        return type(self).__module__.removeprefix("curvflow.schemas.models.")

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors; none if only building it shows."""
        return ()

    def misfits(
        self, shape: tuple[int, ...], tokens: int | None, outputs: int | None
    ) -> Iterator[tuple[str, str]]:
        """Yield the faults of samples for this model, and the remedies.

        Args:
            shape: of the inputs of one sample.
            tokens: labels of one sample; None for one target.
            outputs: of a sample, or of each token; None where it is not known.
        """
        yield from ()


def weights_of(layers: Iterable[str], *, bias: bool = True) -> tuple[str, ...]:
    """Return the names of the tensors of layers.

    Args:
        layers: their names, in order.
        bias: whether they have one.
    """
    kinds = ("weight", "bias") if bias else ("weight",)
    return tuple(f"{layer}.{kind}" for layer in layers for kind in kinds)


def dense_sizes(widths: Sequence[int], *, bias: bool = True) -> dict[str, int]:
    """Return the sizes of the tensors of dense layers.

    Args:
        widths: from the inputs to the outputs.
        bias: whether layers have one.
    """
    sizes = {}
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        sizes[f"layer{number}.weight"] = before * after
        if bias:
            sizes[f"layer{number}.bias"] = after
    return sizes
