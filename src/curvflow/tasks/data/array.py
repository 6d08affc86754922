"""The user's own arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from curvflow.schemas.kinds.data.array import ArrayParams, num_test, select, split_by
from curvflow.schemas.kinds.shared.datasets import dataset_as, parted
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.datasets.splits import parts_by_group, parts_by_time
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
    if count := num_test(params, whole["inputs"]):
        whole = {**whole, **parted(whole, *_parts(params, member, whole, count))}
    return Outcome(whole)


def _parts(
    params: ArrayParams, member: Member, whole: Mapping[str, Array], count: int
) -> tuple[Array, Array]:
    """Return the samples that are trained on and those held out."""
    by = split_by(params, member.files)
    if by is None:
        order = shuffled(len(whole["inputs"]), params.seed)
        return order[count:], order[:count]
    if params.time is not None:
        return parts_by_time(by, count)
    return parts_by_group(by, count, params.seed)
