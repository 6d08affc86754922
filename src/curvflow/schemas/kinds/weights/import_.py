"""Declaration of `weights.import`, and the check of the user's file while planning."""

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
from curvflow.schemas.params import Neutral, NotInKey, SourceFile


class ImportParams(ImportedParams):
    """One file, the network that its arrays belong to, and what they are called."""

    repo: Annotated[str | None, Neutral(None), SourceFile()] = Field(
        None,
        pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$",
        description="in place of path, a HuggingFace repository in the cache on this "
        "machine; nothing is downloaded",
    )
    # Its commit, and the content of the files there, enter the key.
    revision: Annotated[str, NotInKey()] = Field(
        "main", description="branch, tag or commit of repo"
    )

    @field_validator("revision")
    @classmethod
    def _stays_in_the_repository(cls, revision: str) -> str:
        parts = revision.split("/")
        if not all(re.fullmatch(r"\w[\w.-]*", part) for part in parts):
            raise ValueError(
                f"expected a branch, a tag or a commit, got '{revision}'. Write its "
                "name alone."
            )
        return revision

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.path is None) == (self.repo is None):
            got = "none" if self.path is None else "both"
            raise ValueError(f"expected path or repo, got {got}. Name one of them.")
        return self


def check(params: ImportParams, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Refuse a file that holds no weights, before anything is computed.

    Args:
        params: names of the arrays.
        files: arrays per path field.

    Raises:
        InputError: the file is a single array, an array is not of finite numbers, or
            one that `names` names is not there.
    """
    for field, arrays in files.items():
        check_arrays(params, arrays, field)


KIND = Kind(
    name="weights.import",
    version=1,
    summary="Weights trained elsewhere, from a file with an array per tensor.",
    params=ImportParams,
    returns=Weights,
    outputs=(
        Variable(
            "final_train_loss", "training loss at these weights", (), units="loss"
        ),
        Variable(
            "final_test_loss",
            "test loss at these weights; NaN without test samples",
            (),
            units="loss",
        ),
        Variable("num_parameters", "number of parameters, D", dtype="int64"),
        Variable(
            "weights",
            "parameters as one vector, in the order of `network`",
            ("parameter",),
            units="parameter",
            bulk=True,
        ),
        Variable("network", "the function and its loss, as JSON", (), "str", bulk=True),
    ),
    main=("final_train_loss", "final_test_loss"),
    inputs={"data": Input(Data)},
    check=check,
    vectorised=False,
    loads={"model.module": "curvflow.tasks.models"},
    carries=("model", "loss"),
)

EXPLANATION = Explanation(
    formula="w = the arrays of the file, in the order of the model's parameters",
    source="none: the weights are the user's",
    cost="one pass over the training and the test data, for the losses",
    example="""\
study: example
stages:
  digits: {use: data.digits}
  brought: {use: weights.import, path: net.npz, data: digits,
            model: {kind: mlp, hidden: [32]}}
  norms: {use: probe.norms, weights: brought}
""",
    page="how-to/checkpoints.md",
    units=LOSS_UNITS,
)
