"""What is said of a scheduler that answers no more."""

from __future__ import annotations

from typing import NoReturn

from distributed.client import ClosedClientError

from curvflow.errors import ClusterError

# What a client raises that has lost its scheduler.
LOST = (OSError, AttributeError, ClosedClientError)


def give_up(address: str) -> NoReturn:
    """Say that a scheduler is lost.

    Args:
        address: of the scheduler.

    Raises:
        ClusterError: always.
    """
    raise ClusterError(
        f"{address}: expected the scheduler to answer, got no connection. "
        "What is finished is kept: start it again, and run again."
    )
