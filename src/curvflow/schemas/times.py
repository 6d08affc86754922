"""How long results took: told of every node, and part of no result.

Times differ between equal computations, so receipts alone hold them: no digest, key,
table, figure or comparison of runs does.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from curvflow.schemas.kind import Kind
from curvflow.schemas.receipts import Receipt
from curvflow.schemas.variables import Variable

SECONDS = "seconds"


def time_variables(kind: Kind, axes: Collection[str] = ()) -> list[Variable]:
    """Return what is told of the time that the nodes of a kind took.

    Args:
        kind: of the nodes.
        axes: dimensions of their stage.

    Returns:
        `seconds`, and for a kind that goes on from fewer epochs `seconds_per_epoch`; a
        name that the results themselves use keeps that meaning alone.
    """
    found = [
        Variable(
            SECONDS,
            "share of the time of the tile that computed the node",
            units="s",
        )
    ]
    if kind.continues is not None:
        many = kind.continues.param
        one = many.removesuffix("s")
        found.append(
            Variable(
                f"{SECONDS}_per_{one}",
                f"seconds over the {many} computed in them{_begun(kind)}; NaN where "
                "the receipt does not know these, and for what diverged",
                units=f"s / {one}",
            )
        )
    taken = {*axes, *(name for v in kind.outputs for name in (v.name, *v.dims))}
    return [variable for variable in found if variable.name not in taken]


def _begun(kind: Kind) -> str:
    """Say what else the seconds of a first run hold."""
    has_beginning = kind.output("calibration_equivalents") is not None
    return ", calibration and burn-in of a first run included" if has_beginning else ""


def time_of(receipt: Receipt, variable: Variable) -> float:
    """Return what a receipt says of one of `time_variables`."""
    if variable.name == SECONDS:
        return receipt.seconds
    # A member that diverged has a share of the time of those that went on.
    if receipt.status != "ok" or not receipt.covered:
        return math.nan
    return receipt.seconds / receipt.covered
