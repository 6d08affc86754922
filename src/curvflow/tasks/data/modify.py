"""Another data set, modified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from curvflow.schemas.kinds.data.modify import ModifyParams
from curvflow.schemas.kinds.shared.several_inputs import (
    INPUT_PARTS,
    only_one_input,
)
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.modifications import each_once, modified
from curvflow.tasks.registry import Machine, computes

NAMES = ("inputs", "targets", "test_inputs", "test_targets")


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory.

    The inputs as taken, and three times in double precision: as computed, as permuted,
    and as written. As their own targets they are there twice more.
    """
    data, params = member.one("data"), cast("ModifyParams", member.params)
    size = sum(data[name].nbytes + 3 * 8 * data[name].size for name in NAMES)
    if params.targets == "inputs":
        size += sum(2 * 8 * data[name].size for name in ("inputs", "test_inputs"))
    return size


@computes("data.modify", member_bytes=member_bytes)
def modify(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Modify data sets.

    Args:
        members: `data`, and changes made to them.
        machine: not used.

    Returns:
        The data sets.

    Raises:
        InputError: one has no such class, samples, pixels or labels.
    """
    return each_once(members, _modify)


def _modify(member: Member) -> Outcome:
    params = cast("ModifyParams", member.params)
    data = member.one("data")
    classes = int(data["num_classes"])
    arrays = {name: data[name] for name in NAMES}
    for name in ("crop", "permute_pixels", "flatten", "normalise", "targets"):
        if getattr(params, name) != type(params).model_fields[name].default:
            only_one_input(data, name)
    whole = modified(arrays, params, num_classes=classes, dtype=np.float64)
    kept = {name: data[name] for name in (INPUT_PARTS,) if name in data}
    return Outcome(whole | kept)
