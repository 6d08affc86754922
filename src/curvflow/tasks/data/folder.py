"""Images of a folder."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.folder import FolderParams, listing
from curvflow.schemas.kinds.shared.datasets import split
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.datasets.modifications import each_once, modified
from curvflow.tasks.registry import Machine, computes

# Of images whose size only their files tell, for an estimate of memory.
USUAL = (3, 64, 64)

# Forms of 16 bits per channel; BGR;16 has 16 for all three.
DEEP = re.compile(r"(?!BGR)\w+;16[BLN]?")


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory.

    The bytes of the pixels twice, as decoded and as parted; three times float32, as
    computed, as permuted and as written.
    """
    params = cast("FolderParams", member.params)
    return len(member.files["path"]) * math.prod(params.shape or USUAL) * (2 + 3 * 4)


@computes("data.folder", member_bytes=member_bytes)
def folder(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Decode images, bring them to one size, and modify them as asked.

    Args:
        members: the parameters, and the files by their paths in the folder.
        machine: not used.

    Returns:
        The data sets, in the order of paths unless the seed splits them. Inputs are
        (N, channels, height, width) unless flattened, labels the numbers of the sorted
        folders, whose names are there too.

    Raises:
        InputError: a file is no image, or images differ in size.
    """
    return each_once(members, _folder)


def _folder(member: Member) -> Outcome:
    params = cast("FolderParams", member.params)
    files = member.files["path"]
    images = listing(files)
    both = [*images.train, *images.test]
    pixels = _pixels(params, files, [name for name, _ in both])
    labels = np.array([label for _, label in both], dtype=np.int64)
    if num_test := round(params.test_fraction * len(both)):
        arrays = {"inputs": pixels, "targets": labels}
        parts = split(arrays, shuffled(len(both), params.seed), num_test)
    else:
        (x, x_test), (y, y_test) = (
            np.split(array, [len(images.train)]) for array in (pixels, labels)
        )
        parts = {
            "inputs": x,
            "targets": y,
            "test_inputs": x_test,
            "test_targets": y_test,
        }
    classes = len(images.classes)
    made = modified(parts, params, num_classes=classes, dtype=np.float32)
    if params.targets == "given":
        kept = range(classes) if params.classes is None else params.classes
        made["class_names"] = np.array([images.classes[label] for label in kept])
    return Outcome(made)


def _pixels(
    params: FolderParams, files: Mapping[str, Array], names: Sequence[str]
) -> Array:
    """Return all images, (N, channels, height, width), bytes."""
    first = _decoded(params, files[names[0]], names[0])
    pixels = np.empty((len(names), *first.shape), np.uint8)
    pixels[0] = first
    for number, name in enumerate(names[1:], start=1):
        image = _decoded(params, files[name], name)
        if image.shape != first.shape:
            sizes = [f"{s[1]}x{s[2]}" for s in (first.shape, image.shape)]
            raise InputError(
                f"size: expected images of one size, {sizes[0]} as {names[0]}, got "
                f"{sizes[1]} of {name}. Give the size that all are brought to."
            )
        pixels[number] = image
    return pixels


def _decoded(params: FolderParams, content: Array, name: str) -> Array:
    """Return one image, (channels, height, width), bytes."""
    try:
        with Image.open(io.BytesIO(content.tobytes())) as opened:
            _check_depth(opened, name)
            opened.load()
            upright = ImageOps.exif_transpose(opened)
            image = _coloured(params, upright)
    except InputError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        # Of a file that is none it only names the object in memory.
        is_none = isinstance(error, UnidentifiedImageError)
        why = "which is none" if is_none else f"which cannot be read: {error}"
        raise InputError(
            f"path: expected an image, got {name}, {why}. Mend it, or take it out of "
            "the folder."
        ) from error
    if params.shape is not None:
        height, width = params.shape[1:]
        to, bilinear = (width, height), Image.Resampling.BILINEAR
        if params.fit == "crop":
            image = ImageOps.fit(image, to, method=bilinear)
        else:
            image = image.resize(to, bilinear)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _check_depth(image: ImageFile.ImageFile, name: str) -> None:
    """Refuse more than 8 bits per channel, of which Pillow keeps 8 of coloured images.

    Raises:
        InputError: it has more.
    """
    # Until the image is loaded, its tiles have the form of its bytes in the file.
    arguments = [tile.args for tile in image.tile]
    forms = [str(a[0]) for a in arguments if isinstance(a, tuple) and a]
    forms += [a for a in arguments if isinstance(a, str)]
    deep = next(filter(DEEP.fullmatch, forms), None)
    if deep is None and not image.mode.startswith(("I", "F")):
        return
    raise InputError(
        f"path: expected images of 8 bits per channel, got {name} in mode "
        f"{deep or image.mode}. Convert it, or take data.array."
    )


def _coloured(params: FolderParams, image: Image.Image) -> Image.Image:
    """Return an image in the colours requested, whatever is transparent."""
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # a palette may have transparent colours
    return image.convert("RGB" if params.colours == "rgb" else "L")
