"""Dense layers as parts."""

from __future__ import annotations

from curvflow.tasks.layers import dense
from curvflow.tasks.parts.part import Part, Placed, Shape


def dense_part(name: str, out: int, *, bias: bool = True) -> Part:
    """Make a dense layer.

    Args:
        name: of the layer.
        out: number of its units.
        bias: whether it has one.

    Returns:
        The part, from samples (in,) to (out,); the weight has shape (out, in).
    """

    def place(shape: Shape) -> Placed:
        (width,) = shape
        tensors: dict[str, Shape] = {f"{name}.weight": (out, width)}
        if bias:
            tensors[f"{name}.bias"] = (out,)
        return Placed(lambda p, x: dense(p, name, x), (out,), tensors, kept=out)

    return place
