"""Small files in the forms of the published ones, and a catalogue that knows them."""

import gzip
import hashlib
import io
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.decoders import (
    FACES,
    TEST_BATCH,
    TRAIN_BATCHES,
    decode_rows,
)
from curvflow.flows.published.find import DataSet, Layout
from tests.published import TEST_LABELS, TRAIN_LABELS


def images(count: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int, num_classes: int) -> np.ndarray:
    """Every class as often as the others, in no simple order."""
    return (np.arange(count) * 7 % num_classes).astype(np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.tobytes()


def idx_contents(seed: int = 0, train: int = 60, test: int = 20) -> dict[str, bytes]:
    arrays = {
        "train-images": images(train, (28, 28), seed),
        "train-labels": labels(train, 10),
        "t10k-images": images(test, (28, 28), seed + 1),
        "t10k-labels": labels(test, 10),
    }
    return {part: idx_bytes(array) for part, array in arrays.items()}


def ten_contents(each: int = 20) -> dict[str, bytes]:
    names = (*TRAIN_BATCHES, TEST_BATCH)
    return {
        f"{name}.bin": rows(images(each, (3072,), seed), labels(each, 10)[:, None])
        for seed, name in enumerate(names)
    }


def hundred_contents() -> dict[str, bytes]:
    fine = labels(100, 100)
    both = np.stack([fine // 5, fine], axis=1)
    return {
        "train.bin": rows(images(100, (3072,), 0), both),
        "test.bin": rows(images(100, (3072,), 1), both),
    }


@cache
def faces_contents() -> dict[str, bytes]:
    """Photographs without the bytes 10 and 13; every third file is damaged."""
    pixels = np.random.default_rng(5).integers(16, 256, (400, 112, 92), dtype=np.uint8)
    contents = {}
    for number, (name, photograph) in enumerate(zip(FACES, pixels, strict=True)):
        content = b"P5\n92 112\n255\n" + photograph.tobytes()
        damaged = content.replace(b"\n", b"\r\n")
        contents[name] = content if number % 3 else damaged
    return contents


def rows(pixels: np.ndarray, marks: np.ndarray) -> bytes:
    return np.concatenate([marks, pixels], axis=1).tobytes()


CONTENTS: dict[str, Callable[[], dict[str, bytes]]] = {
    "mnist": idx_contents,
    "fashion_mnist": lambda: idx_contents(seed=2),
    "cifar10": ten_contents,
    "cifar100": hundred_contents,
    "faces": faces_contents,
}


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def knowing(data_set: DataSet, number: int, contents) -> DataSet:
    """Return an entry one of whose layouts has the checksums of other contents."""
    layouts = list(data_set.layouts)
    sums = {part: md5(contents[part]) for part in layouts[number].md5}
    layouts[number] = replace(layouts[number], md5=sums)
    if layouts[number].pixels is not None:
        inputs = layouts[number].decode(contents)["inputs"]
        layouts[number] = replace(layouts[number], pixels=md5(inputs.tobytes()))
    return replace(data_set, layouts=tuple(layouts))


def write(folder: Path, layout: Layout, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in contents.items():
        path = folder / layout.names(part)[0]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def write_zipped(folder: Path, layout: Layout, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in contents.items():
        packed = gzip.compress(content, compresslevel=1)
        (folder / f"{layout.names(part)[0]}.gz").write_bytes(packed)


def write_all(folder: Path) -> dict[str, DataSet]:
    """Write every data set small; return the catalogue in which they are right."""
    known = {}
    for name, made in CONTENTS.items():
        contents = made()
        write(folder / name, CATALOGUE[name].layouts[0], contents)
        known[name] = knowing(CATALOGUE[name], 0, contents)
    return known


def pictures(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Turn CIFAR-10's binary batches into one picture each and two lists."""
    files, marks = {}, {}
    for name, content in contents.items():
        batch, classes = decode_rows(content, labels=1)
        picture = batch.transpose(0, 2, 3, 1).reshape(len(batch), 1024, 3)
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG")
        stem = name.removesuffix(".bin")
        files[f"{stem}.png"], marks[stem] = file.getvalue(), classes.tolist()
    train = [label for name in TRAIN_BATCHES for label in marks[name]]
    files[TRAIN_LABELS] = json.dumps(train).encode()
    files[TEST_LABELS] = json.dumps(marks[TEST_BATCH]).encode()
    return files
