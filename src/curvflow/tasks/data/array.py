"""The user's own arrays."""

from __future__ import annotations

from typing import cast

from curvflow.schemas.kinds.data.array import ArrayParams, select
from curvflow.schemas.kinds.shared.datasets import dataset_as, split
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.array")
def array(member: Member, machine: Machine) -> Outcome:
    """Check the arrays of the user's files and split them where asked.

    Args:
        member: the parameters and the files' arrays.
        machine: not used.

    Returns:
        The data set; without a split, samples keep their order.

    Raises:
        InputError: the arrays are no data set.
    """
    params = cast("ArrayParams", member.params)
    arrays = select(params, member.files)
    whole = dataset_as(params, arrays)
    if num_test := round(params.test_fraction * len(whole["inputs"])):
        order = shuffled(len(whole["inputs"]), params.seed)
        parts = split(whole, order, num_test)
        whole = {**whole, **parts}
    return Outcome(whole)
