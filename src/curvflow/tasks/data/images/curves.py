"""Pictures of curves through three random points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.data.images.curves import CurvesParams
from curvflow.schemas.kinds.shared.datasets import dataset_of
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.modifications import each_once
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes

# A curve leaves the box of its points by at most an eighth of it: with this margin no
# line of usual width is cut off.
MARGIN = 0.15
# Of a curve; its distance from them is below a thousandth of the picture.
SEGMENTS = 32
TOGETHER = 4  # pictures drawn at once, whose distances fit into a cache


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory.

    Inputs and targets, as computed and as written; and the distances of the pictures
    that are drawn together, with what they are computed from.
    """
    params = cast("CurvesParams", member.params)
    pixels, count = params.size**2, params.num_train + params.num_test
    rows = min(TOGETHER, count)
    return pixels * (count * 2 * (4 + 8) + rows * SEGMENTS * 8 * 8)


@computes("data.curves", member_bytes=member_bytes)
def curves(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Draw quadratic curves through three points each with a soft pen.

    Training and test pictures have separate streams, and more of them begin with
    the same.

    Args:
        members: numbers of pictures, their size, pen and seed.
        machine: not used.

    Returns:
        The data sets; inputs have shape (N, 1, size, size), in [0, 1], and targets are
        their rows.

    Reference:
        Hinton and Salakhutdinov (2006), doi:10.1126/science.1127647, whose CURVES these
        are like: that file has another law of the points, and another pen.
    """
    return each_once(members, _curves)


def _curves(member: Member) -> Outcome:
    params = cast("CurvesParams", member.params)
    arrays: dict[str, Array] = {}
    for name, count in (("", params.num_train), ("test_", params.num_test)):
        generator = stream(params.seed, f"data.curves {name or 'train'}")
        points = torch.rand((count, 3, 2), generator=generator, dtype=torch.float64)
        pictures = drawn(MARGIN + (1 - 2 * MARGIN) * points, params.size, params.pen)
        arrays[f"{name}inputs"] = pictures.unsqueeze(1).numpy()
        arrays[f"{name}targets"] = pictures.flatten(1).double().numpy()
    return Outcome(dataset_of(np.float32, 0, **arrays))


def drawn(points_N32: Tensor, size: int, pen: float) -> Tensor:
    """Draw curves by the distance of each pixel's centre from them.

    Only sums, products and roots are taken, and the result is rounded to single
    precision, so that pictures are the same on every machine.

    Args:
        points_N32: x and y of the three points, 0 to 1 from the top left corner.
        size: of a picture, pixels.
        pen: width of the line at half of its intensity, pixels.

    Returns:
        Pictures (N, size, size), float32 in [0, 1].
    """
    pictures = torch.empty(len(points_N32), size, size)
    for start in range(0, len(points_N32), TOGETHER):
        lines = size * _curve(points_N32[start : start + TOGETHER])
        far = _distances(lines, size)
        pictures[start : start + TOGETHER] = (0.5 + pen / 2 - far).clamp(0, 1).float()
    return pictures


def _curve(points_N32: Tensor) -> Tensor:
    """Return the corners of the segments, (N, segments + 1, 2)."""
    t_K = torch.arange(SEGMENTS + 1, dtype=torch.float64) / SEGMENTS
    weights = (1 - t_K) * (1 - 2 * t_K), 4 * t_K * (1 - t_K), t_K * (2 * t_K - 1)
    first, second, third = points_N32[:, :, None].unbind(1)
    along_K1 = [weight[:, None] for weight in weights]
    return along_K1[0] * first + along_K1[1] * second + along_K1[2] * third


def _distances(corners_NK2: Tensor, size: int) -> Tensor:
    """Return how far each pixel's centre is from the nearest segment, (N, P, P)."""
    begin, step = corners_NK2[:, :-1], corners_NK2.diff(dim=1)
    x, y = (begin[:, None, None, :, axis] for axis in (0, 1))
    dx, dy = (step[:, None, None, :, axis] for axis in (0, 1))
    centres_P = torch.arange(size, dtype=torch.float64) + 0.5
    from_x = centres_P[None, None, :, None] - x
    from_y = centres_P[None, :, None, None] - y
    # Of two points that coincide either is the nearest.
    square = (dx * dx + dy * dy).clamp_min(torch.finfo(torch.float64).tiny)
    place = ((from_x * dx + from_y * dy) / square).clamp(0, 1)
    off_x, off_y = from_x - place * dx, from_y - place * dy
    return (off_x * off_x + off_y * off_y).amin(-1).sqrt()
