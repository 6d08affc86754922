"""Arithmetic modulo p on tokens."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.data.modular import ModularParams
from curvflow.schemas.kinds.shared.datasets import dataset_of, split
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.modular")
def modular(member: Member, machine: Machine) -> Outcome:
    """List all pairs with the result of the operation, and draw those trained on.

    Args:
        member: modulus, operation, form of a sample, share trained on and seed.
        machine: not used.

    Returns:
        The data set; inputs are tokens (N, 3) or (N, 2), labels 0..p-1 (N,), the
        number at the position behind them. Pairs (a, b) and (b, a) are two samples.

    Reference:
        Power et al. (2022), arXiv:2201.02177: all equations of a table, of which a
        share is trained on; without their token of the operation, which is the same
        in all. Nanda et al. (2023), arXiv:2301.05217: the form (a, b, =) of inputs.
    """
    params = cast("ModularParams", member.params)
    p = params.p
    first = 1 if params.operation == "division" else 0
    a, b = (grid.ravel() for grid in np.mgrid[0:p, first:p])
    columns = [a, b, np.full_like(a, p)] if params.equals_token else [a, b]
    arrays = {
        "inputs": np.stack(columns, axis=1).astype(np.int64),
        "targets": _result(params, a, b),
    }
    order = shuffled(params.num_pairs, params.seed)
    parts = split(arrays, order, params.num_pairs - params.num_train)
    return Outcome(dataset_of(np.float64, p, **parts))


def _result(params: ModularParams, a: Array, b: Array) -> Array:
    if params.operation == "addition":
        return (a + b) % params.p
    if params.operation == "subtraction":
        return (a - b) % params.p
    if params.operation == "multiplication":
        factor = b
    else:
        inverses = [0, *(pow(n, -1, params.p) for n in range(1, params.p))]
        factor = np.array(inverses)[b]
    product: Array = a * factor % params.p
    return product
