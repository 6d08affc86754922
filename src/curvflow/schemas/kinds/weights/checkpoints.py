"""Declaration of `weights.checkpoints`, and the check of its files while planning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.imported import ImportedParams, check_arrays
from curvflow.schemas.losses import LOSS_UNITS
from curvflow.schemas.nodes import Array, Data, Weights
from curvflow.schemas.params import Ints, NotInKey, SourceFile


class CheckpointsParams(ImportedParams):
    """A folder, which of its checkpoints are taken, and the network they are of."""

    path: Annotated[str, SourceFile()] = Field(
        description="folder of checkpoints: a file each, .npz, .safetensors, .pt, "
        ".pth, .ckpt or .bin, or a folder each, with model.safetensors or "
        "pytorch_model.bin"
    )
    # What is chosen enters the key as the content of its files, by step.
    step: Annotated[str | None, NotInKey()] = Field(
        None,
        description="regular expression whose group is the step in the name of a "
        "checkpoint; null takes the number after step, iteration, iter, checkpoint, "
        "ckpt or epoch, the first of these that is there, or a name that is a number",
    )
    steps: Annotated[Ints | None, NotInKey()] = Field(
        None, min_length=1, description="steps taken; null takes all that are there"
    )
    every: Annotated[int | None, NotInKey()] = Field(
        None, ge=1, description="take the steps that are multiples of this"
    )

    @field_validator("step")
    @classmethod
    def _has_one_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(
                f"expected a regular expression, got '{pattern}' ({error}). Correct it."
            ) from None
        if groups != 1:
            raise ValueError(
                f"expected a regular expression with one group, got '{pattern}' with "
                rf"{groups}. Write the digits of the step as (\d+)."
            )
        return pattern

    @model_validator(mode="after")
    def _chooses_once(self) -> Self:
        if self.steps is not None and self.every is not None:
            raise ValueError("steps cannot be combined with every. Remove one of them.")
        return self


def check(params: CheckpointsParams, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Refuse checkpoints that hold no weights, before anything is computed.

    Args:
        params: names of the arrays.
        files: arrays per checkpoint.

    Raises:
        InputError: a file is a single array, an array is not of finite numbers, or one
            that `names` names is not there.
    """
    for source, arrays in files.items():
        check_arrays(params, arrays, source)


def _along(name: str, description: str, units: str, dtype: str = "float64") -> Variable:
    return Variable(name, description, ("epoch",), dtype, units=units, series=True)


KIND = Kind(
    name="weights.checkpoints",
    version=1,
    summary="Weights trained elsewhere, along training, from a folder of checkpoints.",
    params=CheckpointsParams,
    returns=Weights,
    outputs=(
        _along("epoch", "steps of the checkpoints, from their names", "step", "int64"),
        _along("train_loss", "training loss at the weights of each step", "loss"),
        _along(
            "test_loss",
            "test loss at the weights of each step; NaN without test samples",
            "loss",
        ),
        Variable("final_train_loss", "training loss at the last step", units="loss"),
        Variable(
            "final_test_loss",
            "test loss at the last step; NaN without test samples",
            units="loss",
        ),
        Variable("num_parameters", "number of parameters, D", dtype="int64"),
        Variable(
            "checkpoint",
            "steps whose weights are kept",
            ("checkpoint",),
            dtype="int64",
            units="step",
            bulk=True,
        ),
        Variable(
            "weights",
            "parameters as one vector, in the order of `network`, and behind them "
            "statistics such as a batch norm's",
            ("checkpoint", "parameter"),
            units="parameter",
            bulk=True,
            sliced="checkpoint",
        ),
        Variable("network", "the function and its loss, as JSON", (), "str", bulk=True),
    ),
    inputs={"data": Input(Data)},
    checkpoints=lambda params: None,
    check=check,
    vectorised=False,
    loads={"model.module": "curvflow.tasks.models"},
    carries=("model", "loss"),
)

EXPLANATION = Explanation(
    formula="w(t) = the arrays of step t, in the order of the model's parameters",
    source="none: the weights are the user's",
    cost="one pass over the training and the test data for each checkpoint",
    example="""\
study: example
stages:
  digits: {use: data.digits}
  brought: {use: weights.checkpoints, path: runs/net, data: digits,
            model: {kind: mlp, hidden: [32]}}
  norms: {use: probe.norms, weights: brought, at: all}
""",
    page="how-to/checkpoints.md#a-folder-of-checkpoints",
    units={"steps": "step", "every": "step", **LOSS_UNITS},
)
