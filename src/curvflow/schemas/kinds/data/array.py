"""Declaration of `data.array`, and the check of the user's files while planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from curvflow.errors import InputError, nearest
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import (
    OUTPUTS,
    TargetParams,
    dataset_as,
    has_labels,
)
from curvflow.schemas.kinds.shared.several_inputs import (
    SEVERAL_INPUTS,
    InputArrays,
    argument_names,
    array_names,
)
from curvflow.schemas.nodes import Array, Data
from curvflow.schemas.params import SourceFile

# The name under which the single array of a `.npy` file arrives.
WHOLE = "array"


class ArrayParams(TargetParams):
    """Files and names of the arrays, and their split."""

    path: Annotated[str, SourceFile()] = Field(
        description="file with named arrays, .npz, .pt or .safetensors, or .npy file "
        "of the inputs"
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
    seed: int = Field(0, ge=0, description="seed of the split")

    @model_validator(mode="after")
    def _one_test_set(self) -> ArrayParams:
        if (self.test_inputs is None) != (self.test_targets is None):
            raise ValueError("expected test_inputs and test_targets together, got one")
        if self.test_inputs is not None and self.test_fraction:
            raise ValueError(
                "expected test arrays or a test_fraction, got both. Remove one."
            )
        return self


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
    held_out = round(params.test_fraction * len(arrays["inputs"]))
    if len(arrays["inputs"]) - held_out < 2:
        raise InputError(
            f"test_fraction: expected at least 2 samples left for training, got "
            f"{len(arrays['inputs']) - held_out} of {len(arrays['inputs'])}. Lower it."
        )


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
    version=1,
    summary="The user's own arrays, from a .npz file or two .npy files.",
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
        "out round(test_fraction · N)"
    ),
    source="none: the data are the user's",
    cost="none: the file is read once, and by its content",
    example="""\
study: example
stages:
  mine: {use: data.array, path: measured.npz, test_fraction: 0.2}
""",
    page="how-to/own-data.md#arrays-in-a-file",
)
