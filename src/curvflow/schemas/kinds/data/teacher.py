"""Declaration of `data.teacher`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params

Law = Literal["normal", "uniform", "sphere", "signs"]
Activation = Literal["relu", "tanh", "gelu", "sigmoid", "identity"]


class TeacherParams(Params):
    """The law of the inputs, and the network that says what their targets are."""

    inputs: Law = Field(
        "normal",
        description="law of the inputs, each with variance 1: normal, N(0, 1); "
        "uniform on +-sqrt(3); sphere, of radius sqrt(dim); signs, -1 or 1",
    )
    dim: int = Field(16, ge=1, description="inputs of a sample")
    hidden: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = Field(
        (32,), description="widths of the teacher's hidden layers; none is linear"
    )
    activation: Activation = Field("tanh", description="between the teacher's layers")
    weight_scale: float = Field(
        1.0,
        gt=0,
        description="the teacher's weights are N(0, weight_scale^2 / inputs of the "
        "layer)",
    )
    bias_scale: float = Field(
        0.0, ge=0, description="standard deviation of its biases; 0 has none"
    )
    outputs: int = Field(1, ge=1, description="outputs of the teacher, C")
    labels: Literal["values", "class"] = Field(
        "values",
        description="targets: values, the outputs; class, the number of the largest",
    )
    noise: float = Field(
        0.0, ge=0, description="standard deviation of what is added to the outputs"
    )
    num_train: int = Field(1000, ge=2, description="training samples")
    num_test: int = Field(200, ge=0, description="test samples")
    teacher_seed: int = Field(0, ge=0, description="seed of the teacher's weights")
    seed: int = Field(0, ge=0, description="seed of the samples and their noise")

    @model_validator(mode="after")
    def _classes_to_tell_apart(self) -> TeacherParams:
        if self.labels == "class" and self.outputs < 2:
            raise ValueError(
                f"expected outputs of at least 2 for labels: class, got "
                f"{self.outputs}. Raise outputs, or take labels: values."
            )
        return self


def known_samples(params: TeacherParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    targets: Literal["labels", "values"] = (
        "labels" if params.labels == "class" else "values"
    )
    return Samples((params.dim,), targets, params.outputs)


KIND = Kind(
    name="data.teacher",
    version=1,
    summary="Inputs of a named law, and what a network drawn at random says of them.",
    params=TeacherParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed", "teacher_seed"),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "y = f(x) + noise · N(0, 1), f a network with weights N(0, weight_scale² / "
        "inputs of the layer)"
    ),
    source="none: the formula is the definition",
    cost="none: arrays are drawn once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  taught: {use: data.teacher, dim: 16, hidden: [32], noise: 0.1,
           seed: "${seed}"}
""",
    page="data.md#teacher",
    units={"weight_scale": "1", "bias_scale": "parameter", "noise": "as the outputs"},
)
