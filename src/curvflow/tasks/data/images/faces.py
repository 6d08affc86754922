"""Photographs of faces, turned and scaled at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, grid_sample

from curvflow.schemas.kinds.data.images.faces import FacesParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets import images
from curvflow.tasks.datasets.modifications import each_once
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes

# Values of a photograph along each side of a pixel, of which it is the mean.
FINE = 3


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory.

    That of any set of images; the bytes that these are made from, a second time while
    they are put together; and the places and values of one photograph's images.
    """
    params = cast("FacesParams", member.params)
    count = params.num_labels * 10 * params.pairs
    pixels = params.size**2
    values = params.pairs * pixels * FINE**2
    return images.member_bytes(member) + 2 * count * pixels + 8 * 8 * values


@computes("data.faces", member_bytes=member_bytes)
def faces(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Make images of photographs, each turned and scaled by separate draws.

    More people begin with the images of fewer.

    Args:
        members: people, draws and modifications, and the arrays of the files.
        machine: not used.

    Returns:
        The data sets; inputs are (N, 1, size, size) unless flattened, all images of a
        photograph after one another, labels are people.

    Reference:
        Samaria and Harter (1994), doi:10.1109/ACV.1994.341300, for the photographs;
        Hinton and Salakhutdinov (2006), doi:10.1126/science.1127647, who turned these
        by up to 90 degrees and scaled them by 1.4 to 1.8, from files of 64 x 64 pixels.
    """
    return each_once(members, _faces)


def _faces(member: Member) -> Outcome:
    params = cast("FacesParams", member.params)
    photographs, labels = (member.files["originals"][k] for k in ("inputs", "targets"))
    of_train = (labels < params.people).nonzero()[0]
    used = (labels < params.num_labels).nonzero()[0]
    generator = stream(params.seed, "data.faces")
    draws = torch.rand(
        (len(used), params.pairs, 2), generator=generator, dtype=torch.float64
    )
    angles_NP = math.pi / 180 * params.rotation * (2 * draws[..., 0] - 1)
    least, largest = params.scale
    scales_NP = least + (largest - least) * draws[..., 1]
    whole = torch.cat(
        [
            turned(torch.as_tensor(photographs[photo, 0]), angles, scales, params.size)
            for photo, angles, scales in zip(used, angles_NP, scales_NP, strict=True)
        ]
    ).numpy()[:, None]
    people = labels[used].repeat(params.pairs)
    count = len(of_train) * params.pairs
    arrays: dict[str, Array] = {
        "inputs": whole[:count],
        "targets": people[:count],
        "test_inputs": whole[count:],
        "test_targets": people[count:],
    }
    return images.changed_images(member, arrays)


def turned(photograph: Tensor, angles_P: Tensor, scales_P: Tensor, size: int) -> Tensor:
    """Turn the central square of a photograph, and bring it to a number of pixels.

    Results are whole levels, which no processor's last bits enter.

    Args:
        photograph: uint8 (height, width); beyond its edges it goes on as at them.
        angles_P: by which the square is turned, radians.
        scales_P: the square's side is the photograph's shorter one divided by these.
        size: of the results, pixels.

    Returns:
        Images, uint8 (P, size, size).
    """
    height, width = photograph.shape
    fine = size * FINE
    steps_K = (torch.arange(fine, dtype=torch.float64) + 0.5) / fine - 0.5
    sides_P = min(height, width) / scales_P
    # Distances from the centre, in pixels; the grid has the edges at -1 and 1.
    along_PK = sides_P[:, None] * steps_K
    cos, sin = angles_P.cos()[:, None, None], angles_P.sin()[:, None, None]
    across, down = along_PK[:, None, :], along_PK[:, :, None]
    x_PKK, y_PKK = cos * across - sin * down, sin * across + cos * down
    grid = torch.stack([x_PKK * (2 / width), y_PKK * (2 / height)], dim=-1)
    values = grid_sample(
        photograph.double().expand(len(grid), 1, -1, -1),
        grid,
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )
    return avg_pool2d(values, FINE).squeeze(1).round().byte()
