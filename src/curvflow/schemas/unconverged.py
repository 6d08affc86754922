"""What tables do with values that say of themselves that they are not converged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.params import Neutral
from curvflow.schemas.variables import Variable

Unconverged = Annotated[
    Literal["count", "exclude"],
    Neutral("count"),
    Field(
        description="of values that are not converged, such as those of chains that "
        "drift, or of too few iterations: count says in a column how many there are; "
        "exclude leaves them out as well, as if they were not finite"
    ),
]

# What verdicts say of values that can be relied on, and of others that give no reason.
CONVERGED, UNCONVERGED = "converged", "unconverged"

# The columns of tables that hold how many there are.
COUNTS = (UNCONVERGED, f"candidate_{UNCONVERGED}")


def unconverged(
    description: str, dim: str = "quantity", name: str = COUNTS[0]
) -> Variable:
    """Declare the column that counts them; only tables of what is judged have it."""
    return Variable(name, description, (dim,), dtype="int64", optional=True)
