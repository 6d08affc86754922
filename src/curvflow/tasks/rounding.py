"""Numbers that come out the same on every machine."""

from __future__ import annotations

from torch import Tensor

from curvflow.schemas.nodes import Array


def single(values: Tensor) -> Array:
    """Round to single precision, so that no processor's last bits enter a digest.

    Sums, sines and the like in double precision differ between processors in their
    last bits; the keys of all that is computed from a data set hold its digest.

    Args:
        values: in double precision.

    Returns:
        The rounded values as float64.
    """
    return values.float().double().numpy()
