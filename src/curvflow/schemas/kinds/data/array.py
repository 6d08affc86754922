"""Declaration of `data.array`, and the check of the user's files while planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from curvflow.errors import InputError, nearest
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import (
    OUTPUTS,
    TargetParams,
    check_split,
    dataset_as,
    has_labels,
    latest,
)
from curvflow.schemas.kinds.shared.several_inputs import (
    SEVERAL_INPUTS,
    InputArrays,
    argument_names,
    array_names,
)
from curvflow.schemas.nodes import Array, Data
from curvflow.schemas.params import Neutral, NotInKey, SourceFile

# The name under which the single array of a `.npy` file arrives.
WHOLE = "array"


class ArrayParams(TargetParams):
    """Files and names of the arrays, and their split."""

    path: Annotated[str, SourceFile(rows_above="rows_above")] = Field(
        description="file with named arrays, .npz, .nc, .pt or .safetensors, or zarr "
        "folder of them, or .npy file of the inputs"
    )
    targets_path: Annotated[str | None, SourceFile()] = Field(
        None, description=".npy file of the targets, with a .npy file of inputs"
    )
    inputs: InputArrays = Field(
        "inputs",
        description="array of the training inputs; of several inputs a list of their "
        "arrays, or the array of each argument of the module's forward",
    )
    targets: str = Field("targets", description="array of the training targets")
    test_inputs: InputArrays | None = Field(
        None, description="array of the test inputs, or those of several, likewise"
    )
    test_targets: str | None = Field(None, description="array of the test targets")
    test_fraction: float = Field(
        0.0, ge=0, lt=1, description="share held out where there are no test arrays"
    )
    group: Annotated[str | None, Neutral(None)] = Field(
        None,
        description="array with the group of each sample: whole groups are held out",
    )
    time: Annotated[str | None, Neutral(None)] = Field(
        None,
        description="array with the time of each sample: the latest are held out, none "
        "at random",
    )
    seed: int = Field(0, ge=0, description="seed of the split")
    rows_above: Annotated[int, NotInKey()] = Field(
        1 << 30,
        ge=0,
        description="size of inputs in a .npy or .nc file or a zarr folder above which "
        "they stay on disk, and rows are read when they are needed; results have the "
        "same bits",
    )

    @model_validator(mode="after")
    def _one_test_set(self) -> ArrayParams:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise ValueError(
                "expected test_inputs and test_targets together, got one. Name both "
                "or neither."
            )
        if self.test_inputs is not None and self.test_fraction:
            raise ValueError(
                "test_inputs and test_targets cannot be combined with test_fraction. "
                "Remove one of them."
            )
        return self

    @model_validator(mode="after")
    def _one_split(self) -> ArrayParams:
        check_split(self.group, self.time, self.test_fraction)
        return self

    @property
    def by(self) -> str | None:
        """Name of the array that samples are split by."""
        return self.group or self.time


def select(
    params: ArrayParams, files: Mapping[str, Mapping[str, Array]]
) -> dict[str, Array | dict[str, Array]]:
    """Take the named arrays out of the files.

    Args:
        params: names of the arrays.
        files: arrays per path field.

    Returns:
        `inputs`, `targets` and, where named, `test_inputs` and `test_targets`; several
        inputs by name.

    Raises:
        InputError: an array of that name is not there.
    """
    if set(files["path"]) == {WHOLE}:
        return _select_whole(params, files)
    if "targets_path" in files:
        raise InputError(
            "targets_path: a second file cannot be combined with a .npz file. "
            "Put the targets into the .npz, or give the inputs as .npy."
        )
    names = {
        "inputs": params.inputs,
        "targets": params.targets,
        "test_inputs": params.test_inputs,
        "test_targets": params.test_targets,
    }
    several = argument_names(params.inputs)
    return {
        role: _inputs(files["path"], role, given, several)
        if several and role.endswith("inputs")
        else _named(files["path"], role, str(given))
        for role, given in names.items()
        if given
    }


def _inputs(
    file: Mapping[str, Array], role: str, spec: InputArrays, several: tuple[str, ...]
) -> dict[str, Array]:
    names = array_names(spec, several)
    return {name: _named(file, role, array) for name, array in names.items()}


def _named(file: Mapping[str, Array], role: str, name: str) -> Array:
    if name not in file:
        if not file:
            raise InputError(
                f"{role}: expected the array '{name}' in the file, got no arrays. "
                "Name the folder or file that does, of a zarr group its own folder."
            )
        raise InputError(
            f"{role}: expected an array of the file, got '{name}'. "
            f"{nearest(name, file)}"
        )
    return file[name]


def _select_whole(
    params: ArrayParams, files: Mapping[str, Mapping[str, Array]]
) -> dict[str, Array | dict[str, Array]]:
    second = files.get("targets_path")
    if several := argument_names(params.inputs):
        raise InputError(
            f"inputs: expected one input of a .npy file, got {', '.join(several)}. Put "
            "the arrays into one .npz."
        )
    if second is None or set(second) != {WHOLE}:
        got = "none" if second is None else "an archive"
        raise InputError(
            f"targets_path: expected a .npy file with a .npy file of inputs, "
            f"got {got}. Give the targets, or put both arrays into one .npz."
        )
    return {"inputs": files["path"][WHOLE], "targets": second[WHOLE]}


def check(params: ArrayParams, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Refuse files that are no data set, before anything is computed.

    Args:
        params: names of the arrays.
        files: arrays per path field.

    Raises:
        InputError: an array is missing, or shapes, types or labels do not fit.
    """
    arrays = dataset_as(params, select(params, files))
    by, held_out = split_by(params, files), num_test(params, arrays["inputs"])
    if by is not None and not held_out:
        raise InputError(
            f"test_fraction: expected a sample to hold out, got {params.test_fraction} "
            f"of {len(by)}. Raise it, or remove {'group' if params.group else 'time'}."
        )
    if by is not None and params.time is not None:
        held_out = int(latest(by, held_out).sum())
    if len(arrays["inputs"]) - held_out < 2:
        raise InputError(
            f"test_fraction: expected at least 2 samples left for training, got "
            f"{len(arrays['inputs']) - held_out} of {len(arrays['inputs'])}. Lower it."
        )
    if by is not None and params.group is not None and len(np.unique(by)) < 2:
        raise InputError(
            "group: expected at least 2 groups to split, got 1. Name another array, "
            "or remove group."
        )


def num_test(params: ArrayParams, inputs: Array) -> int:
    """Return how many samples are to be held out."""
    return round(params.test_fraction * len(inputs))


def split_by(
    params: ArrayParams, files: Mapping[str, Mapping[str, Array]]
) -> Array | None:
    """Return the group or the time of each sample, (N,); None if there is neither.

    Args:
        params: names of the arrays.
        files: arrays per path field.

    Raises:
        InputError: the array is not there, or is not one entry for each sample that
            can be distinguished or put in order.
    """
    if params.by is None:
        return None
    role, kinds = ("group", "biufSU") if params.group else ("time", "iufM")
    if set(files["path"]) == {WHOLE}:
        raise InputError(
            f"{role} cannot be combined with a .npy file, which has no other array. "
            "Put the arrays into one .npz."
        )
    by = _named(files["path"], role, params.by)
    samples = len(select(params, files)["targets"])
    if by.shape != (samples,):
        raise InputError(
            f"{role}: expected one entry for each of the {samples} samples, got an "
            f"array of shape {by.shape}. Name an array of that shape."
        )
    if by.dtype.kind not in kinds:
        known = "numbers or texts" if params.group else "numbers or dates"
        raise InputError(f"{role}: expected {known}, got dtype {by.dtype}. Convert it.")
    if by.dtype.kind in "fM" and (missing := int(np.isnan(by).sum())):
        raise InputError(
            f"{role}: expected an entry everywhere, got {missing} missing. Fill them "
            "in, or leave those samples out."
        )
    return by


def samples_of(
    params: ArrayParams, files: Mapping[str, Mapping[str, Array]]
) -> Samples:
    """Return the form of the samples that are in the files.

    Args:
        params: names of the arrays.
        files: arrays per path field.

    Raises:
        InputError: they are no data set.
    """
    arrays = dataset_as(params, select(params, files))
    shape, targets = arrays["inputs"].shape[1:], arrays["targets"]
    if has_labels(targets):
        tokens = targets.shape[1] if targets.ndim == 2 else None
        return Samples(shape, "labels", int(arrays["num_classes"]), tokens)
    return Samples(shape, "values", targets.shape[1])


KIND = Kind(
    name="data.array",
    version=2,
    summary="The user's own arrays, from one file or zarr folder, or two .npy files.",
    params=ArrayParams,
    returns=Data,
    outputs=(*OUTPUTS, SEVERAL_INPUTS),
    varying=("seed",),
    check=check,
    samples_in_files=samples_of,
)

EXPLANATION = Explanation(
    formula=(
        "inputs and targets as they are in the file; of N samples the seed holds "
        "out round(test_fraction · N), whole groups as near to that as can be, or "
        "the latest"
    ),
    source="none: the data are the user's",
    cost="none: the file is read once, and by its content",
    example="""\
study: example
stages:
  mine: {use: data.array, path: measured.npz, test_fraction: 0.2}
  apart:
    {use: data.array, path: measured.npz, test_fraction: 0.2, group: patient}
""",
    page="how-to/own-data.md#arrays-in-a-file",
    units={"rows_above": "byte"},
)
