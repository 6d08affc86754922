"""Numbers of a monitor as labelled data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from curvflow.schemas.kinds.monitor.read import IDENTITY, KIND
from curvflow.schemas.nodes import Array

# As tables have it, whose module the library does without.
CONVERGED = "converged"


def with_flags(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of a monitor with a flag for each verdict of a coefficient."""
    if (verdicts := arrays.get("llc_verdict")) is None:
        return dict(arrays)
    return {**arrays, "llc_converged": np.asarray(verdicts == CONVERGED)}


def dataset_of(arrays: Mapping[str, Array]) -> xr.Dataset:
    """Return the variables of a monitor with dimensions, units and descriptions.

    Args:
        arrays: by the names of `monitor.read`, with the identity as JSON.

    Returns:
        A dataset over `step`, `layer` and `llc_step`.
    """
    arrays = with_flags(arrays)
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    for each in KIND.outputs:
        if each.name in arrays:
            attrs = {"units": each.units, "description": each.description}
            array = np.asarray(arrays[each.name])
            if each.dtype == "str":  # zarr has no text of a fixed length
                array = array.astype(object)
            labelled = (each.dims, array, attrs)
            is_label = each.dims == (each.name,)
            (coordinates if is_label else variables)[each.name] = labelled
    identity = json.loads(str(arrays[IDENTITY]))
    settings = json.dumps(identity["probes"], sort_keys=True)
    return xr.Dataset(
        variables,
        coordinates,
        attrs={"kind": KIND.name, "probes": settings, "seed": identity["seed"]},
    )
