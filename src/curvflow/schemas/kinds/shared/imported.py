"""Parameters and checks of networks that another program has trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from curvflow.errors import InputError, nearest
from curvflow.schemas.losses import LossSpec
from curvflow.schemas.models import ModelSpec
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Neutral, Params, SourceFile


class ImportedParams(Params):
    """Files, the network that their arrays belong to, and what these are called."""

    path: Annotated[str | None, SourceFile()] = Field(
        None,
        description="file of named arrays, such as a state_dict: .npz, .safetensors, "
        "or .pt, .pth, .ckpt, .bin of torch.save; or a folder with model.safetensors "
        "or pytorch_model.bin",
    )
    model: ModelSpec = Field(description="the network: a kind, or a factory's module")
    loss: LossSpec = Field(
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


def check_arrays(
    params: ImportedParams, arrays: Mapping[str, Array], source: str
) -> None:
    """Refuse arrays that are no weights, before anything is computed.

    Args:
        params: names of the arrays.
        arrays: of one network.
        source: the parameter that names their file, for messages.

    Raises:
        InputError: they are a single array, one is not of finite numbers, or one that
            `names` names is not there.
    """
    if set(arrays) == {"array"} and "array" not in params.names.values():
        raise InputError(
            f"{source}: expected a file of named arrays, got a single array. Write it "
            "by np.savez, a name for each tensor."
        )
    prefix = whole_prefix(params.prefix or "", arrays)
    if prefix and not any(name.startswith(prefix) for name in arrays):
        known = next(iter(arrays), "none")
        raise InputError(
            f"prefix: expected the beginning of names such as {known}, got '{prefix}'. "
            "Correct it, or remove prefix."
        )
    for name, array in arrays.items():
        # Infinity may be in a mask, or beside the network; none is taken for weights.
        if not name.startswith(prefix) or array.dtype.kind not in "fiub":
            continue
        if np.isnan(array).any():
            raise InputError(
                f"{source}: expected finite numbers, got NaN in the array '{name}'. "
                "Take weights that have not diverged."
            )
    for tensor, name in params.names.items():
        starts = prefixes(arrays, [name])
        if not (starts if params.prefix is None else prefix in starts):
            raise InputError(
                f"names.{tensor}: expected an array of the file, got '{name}'. "
                f"{nearest(name, arrays)}"
            )


def whole_prefix(prefix: str, arrays: Mapping[str, Array]) -> str:
    """Return a prefix with the point behind it, if names have one there.

    Args:
        prefix: as it was given.
        arrays: of the file.
    """
    whole = f"{prefix}."
    lacks = bool(prefix) and any(name.startswith(whole) for name in arrays)
    return whole if lacks else prefix


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
