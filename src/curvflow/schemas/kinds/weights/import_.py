"""Declaration of `weights.import`, and the check of the user's file while planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from curvflow.errors import InputError, nearest
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.train import Loss
from curvflow.schemas.models import ModelSpec
from curvflow.schemas.nodes import Array, Data, Weights
from curvflow.schemas.params import Neutral, Params, SourceFile


class ImportParams(Params):
    """The file, the network that its arrays belong to, and what they are called."""

    path: Annotated[str, SourceFile()] = Field(
        description="file of named arrays, such as a state_dict: .npz, .safetensors, "
        "or .pt, .pth, .ckpt, .bin of torch.save"
    )
    model: ModelSpec = Field(description="the network: a kind, or a factory's module")
    loss: Loss = Field(
        "auto",
        description="that it was trained with, as of `train`; probes take its "
        "curvature",
    )
    names: dict[str, str] = Field(
        default_factory=dict,
        description="of a tensor of the network, that of its array, where they differ",
    )
    prefix: Annotated[str | None, Neutral(None)] = Field(
        None,
        description="what the names of its arrays begin with, such as "
        "state_dict.model.; null takes the one under which the network is found",
    )


def check(params: ImportParams, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Refuse a file that holds no weights, before anything is computed.

    Args:
        params: names of the arrays.
        files: arrays per path field.

    Raises:
        InputError: the file is a single array, an array is not of finite numbers, or
            one that `names` names is not there.
    """
    arrays = files["path"]
    if set(arrays) == {"array"} and "array" not in params.names.values():
        raise InputError(
            "path: expected a file of named arrays, got a single array. Write it by "
            "np.savez, a name for each tensor."
        )
    prefix = params.prefix or ""
    if prefix and not any(name.startswith(prefix) for name in arrays):
        known = next(iter(arrays), "none")
        raise InputError(
            f"prefix: expected the beginning of names such as {known}, got '{prefix}'"
        )
    for name, array in arrays.items():
        if not name.startswith(prefix):
            continue
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InputError(
                f"path: expected finite numbers, got others in the array '{name}'"
            )
    for tensor, name in params.names.items():
        starts = prefixes(arrays, [name])
        if not (starts if params.prefix is None else prefix in starts):
            raise InputError(
                f"names.{tensor}: expected an array of the file, got '{name}'. "
                f"{nearest(name, arrays)}"
            )


def prefixes(arrays: Mapping[str, Array], names: Sequence[str]) -> list[str]:
    """Return what precedes all of these names in a file, in whole parts.

    Args:
        arrays: of the file.
        names: at least one.
    """
    first = names[0]
    starts = dict.fromkeys(n.removesuffix(first) for n in arrays if n.endswith(first))
    return [
        start
        for start in starts
        if (not start or start.endswith("."))
        and all(start + name in arrays for name in names)
    ]


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
    loads={"model.kind": "curvflow.tasks.models"},
    carries=("model",),
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
)
