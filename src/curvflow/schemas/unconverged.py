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
        description="of values whose verdict is not converged, such as those of chains "
        "that drift: count says in a column how many there are; exclude leaves them "
        "out as well, as if they were not finite"
    ),
]


def unconverged(description: str, dim: str = "quantity", name: str = "") -> Variable:
    """Declare the column that counts them; only tables of what is judged have it."""
    return Variable(
        name or "unconverged", description, (dim,), dtype="int64", optional=True
    )
