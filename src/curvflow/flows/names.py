"""How nodes are named to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from curvflow.schemas.nodes import Label


class Named(Protocol):
    """What has a stage and labels: a node, a receipt, an answer."""

    @property
    def stage(self) -> str:
        """Name of the stage."""

    @property
    def coords(self) -> Mapping[str, Label]:
        """Labels by dimension."""


def node_name(node: Named) -> str:
    """Name a node as the command line does.

    Args:
        node: with its labels.

    Returns:
        `stage[axis=value,...]`, or the stage alone if it has no dimensions.
    """
    inside = ",".join(f"{axis}={label}" for axis, label in node.coords.items())
    return f"{node.stage}[{inside}]" if inside else node.stage
