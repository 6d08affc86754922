"""Make tables and figures anew of results that are there, and compute nothing else."""

from __future__ import annotations

from collections import Counter

from curvflow.errors import RequestError
from curvflow.flows.plan import Plan
from curvflow.schemas.nodes import Figure, Table


def is_analysis(plan: Plan) -> bool:
    """Return whether a plan makes tables and figures, and computes nothing else."""
    return not _others(plan)


def refuse_computing(plan: Plan) -> None:
    """Refuse a plan that does more than make tables and figures.

    Args:
        plan: the nodes against the store.

    Raises:
        RequestError: anything else would have to run, or might.
    """
    if missing := _others(plan):
        listed = ", ".join(f"{count} of {stage}" for stage, count in missing.items())
        raise RequestError(
            "--reanalyse: expected all results but tables and figures to be there, got "
            f"nodes to compute: {listed}. Run without --reanalyse, or undo the change: "
            "`curvflow why` names it."
        )


def _others(plan: Plan) -> Counter[str]:
    """Count the open nodes of other stages."""
    return Counter(
        node.stage
        for node in plan.graph
        if node.state != "cached" and not issubclass(node.kind.returns, Table | Figure)
    )
