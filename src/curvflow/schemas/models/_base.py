"""Base of the specifications of models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        raise ValueError("expected one entry or more, got none")
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
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors; none if only building it tells."""
        return ()


Readout = Literal["first", "last", "mean", "tokens"]


class SequenceModel(Model):
    """Base of the models of rows of tokens, integers (T,) or vectors (T, F)."""

    takes_tokens: ClassVar[bool] = True

    vocabulary: PositiveInt | None = Field(
        None,
        description="number of different tokens that inputs may name; null for the "
        "number of labels, where each token has one; none where inputs are vectors",
    )
    readout: Literal["auto", "first", "last", "mean", "tokens"] = Field(
        "auto",
        description="what outputs are computed from: one token, the mean of all, or "
        "each by itself, for labels of tokens",
    )
    bias: bool = Field(True, description="whether layers have a bias")
    dropout: float = Field(0.0, ge=0, lt=1, description="share left out at each step")

    @property
    def reads(self) -> Readout:
        """The readout of samples with one target."""
        return "last" if self.readout == "auto" else self.readout

    def readout_for(self, tokens: int | None) -> Readout:
        """Return the readout of samples with so many labels each, None for one target.

        Args:
            tokens: labels of one sample.
        """
        if self.readout == "auto" and tokens is not None:
            return "tokens"
        return self.reads

    def misfit(
        self, shape: tuple[int, ...], tokens: int | None
    ) -> tuple[str, str] | None:
        """Return what is wrong with samples for this model, and what to do.

        Args:
            shape: of the inputs of one sample.
            tokens: labels of one sample; None for one target.
        """
        if len(shape) not in (1, 2):
            return (
                f"expected rows of tokens, or of vectors, for {self.kind}, got inputs "
                f"of shape {shape}",
                "Take a model of images, or reshape them to (tokens, features).",
            )
        if tokens is None and self.readout == "tokens":
            return (
                "expected a label for each token with readout tokens, got one target a "
                "sample",
                "Take readout last or mean.",
            )
        if tokens is not None and self.readout not in ("auto", "tokens"):
            return (
                f"expected one target a sample with readout {self.readout}, got the "
                f"labels of {tokens} tokens",
                "Take readout auto, or one label for each sample.",
            )
        if tokens not in (None, shape[0]):
            return (
                f"expected a label for each of {shape[0]} tokens, got {tokens}",
                "Take as many labels as tokens, or a module of your own.",
            )
        return None


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
