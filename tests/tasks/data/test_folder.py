"""Images of a folder."""

import io
import random
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.data.folder import FolderParams
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.folder"


def encoded(pixels, form="PNG", **options):
    """Return the file of an image (height, width) or (height, width, 3)."""
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, form, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def node(files, **params):
    return replace(member(KIND, {"path": "pets", **params}), files={"path": files})


def made(files, **params):
    planned = node(files, **params)
    find_kind(KIND).check(planned.params, planned.files)
    (outcome,) = compute(KIND, [planned])
    assert_declared(KIND, outcome)
    samples = find_kind(KIND).samples_in_files(planned.params, planned.files)
    assert samples.shape in (None, outcome.arrays["inputs"].shape[1:])
    targets = outcome.arrays["targets"]
    labels = targets.ndim == 1 and outcome.arrays["num_classes"]
    assert samples.outputs == (labels or targets.shape[1])
    return outcome.arrays


def flat(level, size=(4, 4)):
    return np.full((*size, 3), level, np.uint8)


def random_folder(draw):
    """Return images by path, the files, and whether there are parts."""
    parts = draw.choice([["train/", "test/"], ["train/"], [""]])
    classes = draw.sample(["cat", "dog", "Emu", "ox 2", "Ünze"], draw.randint(2, 4))
    rng = np.random.default_rng(draw.randint(0, 99))
    images = {}
    for part in parts:
        # The test part may lack a class.
        for label in classes[part == "test/" :]:
            for _ in range(draw.randint(1, 4)):
                name = f"{part}{label}/{draw.randint(0, 10**6)}.png"
                images[name] = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return images, sorted(classes)


@pytest.mark.parametrize("seed", range(20))
def test_random_folders_become_their_pixels_and_classes(seed):
    draw = random.Random(seed)
    images, classes = random_folder(draw)
    names = list(images)
    draw.shuffle(names)
    arrays = made({name: encoded(images[name]) for name in names})
    assert arrays["class_names"].tolist() == classes
    for part, prefix in (("train", ""), ("test", "test_")):
        kept = [n for n in sorted(images) if n.startswith(part) or not n.count("/") - 1]
        kept = [n for n in kept if part == "train" or n.count("/") == 2]
        pixels = np.array([images[n] for n in kept]).reshape(-1, 5, 7, 3)
        np.testing.assert_allclose(
            arrays[f"{prefix}inputs"], pixels.transpose(0, 3, 1, 2) / 255, rtol=1e-6
        )
        labels = [classes.index(n.split("/")[-2]) for n in kept]
        assert arrays[f"{prefix}targets"].tolist() == labels
    assert arrays["inputs"].dtype == np.float32


def levels(count=10):
    """Return images each of one grey level, which tells it."""
    return {f"{'ab'[n % 2]}/{n}.png": encoded(flat(n)) for n in range(count)}


def test_a_share_is_held_out_by_the_seed():
    first, again, other = (
        made(levels(), test_fraction=0.3, normalise="none", seed=s) for s in (1, 1, 2)
    )
    train, test = (first[f"{p}inputs"][:, 0, 0, 0].tolist() for p in ("", "test_"))
    assert len(test) == 3
    assert sorted(train + test) == list(range(10))
    assert [n % 2 for n in train] == first["targets"].tolist()
    np.testing.assert_array_equal(first["inputs"], again["inputs"])
    assert not np.array_equal(first["inputs"], other["inputs"])


def striped():
    """Return an image of 4 rows and 8 columns, whose numbers are its levels."""
    return np.repeat(np.arange(8, dtype=np.uint8)[None, :, None], 4, 0).repeat(3, 2)


def test_crop_keeps_the_centre_of_another_shape():
    files = {"a/0.png": encoded(striped()), "b/0.png": encoded(flat(9))}
    inputs = made(files, size=4, normalise="none")["inputs"]
    assert inputs[0, 0].tolist() == [[2, 3, 4, 5]] * 4
    assert (inputs[1] == 9).all()


def test_stretch_keeps_all_of_another_shape():
    half = np.concatenate([flat(0, (4, 8)), flat(200, (4, 8))], axis=1)
    files = {"a/0.png": encoded(half), "b/0.png": encoded(flat(9))}
    inputs = made(files, size=[6, 4], fit="stretch", normalise="none")["inputs"]
    assert inputs.shape == (2, 3, 6, 4)
    row = inputs[0, 0, 3]
    assert (row + row[::-1] == 200).all()
    assert row[0] < 40 < 160 < row[3]
    np.testing.assert_array_equal(
        inputs[0], inputs[0, :1, :1].repeat(6, 1).repeat(3, 0)
    )


def test_grey_is_the_weighted_mean_of_the_colours():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    files = {"a/0.png": encoded(pixels), "b/0.png": encoded(pixels[..., 0])}
    inputs = made(files, colours="grey", normalise="none")["inputs"]
    assert inputs.shape == (2, 1, 4, 4)
    luma = pixels @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(inputs[0, 0], luma, atol=0.51)
    np.testing.assert_array_equal(inputs[1, 0], pixels[..., 0])


def test_images_of_other_forms_are_colours_too():
    grey, palette = Image.fromarray(flat(70)[..., 0]), Image.fromarray(flat(70))
    files = {
        "a/0.png": encoded(grey),
        "a/1.png": encoded(palette.quantize(2), transparency=0),
        "b/0.png": encoded(grey.convert("RGBA")),
        "b/1.jpg": encoded(grey, "JPEG", quality=95),
        "b/2.gif": encoded(palette, "GIF"),
    }
    inputs = made(files, normalise="none")["inputs"]
    np.testing.assert_allclose(inputs, 70, atol=1)


def test_an_image_stands_as_its_camera_was_held():
    file = io.BytesIO()
    image, exif = Image.fromarray(striped()), Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    image.save(file, "PNG", exif=exif)
    files = {"a/0.png": np.frombuffer(file.getvalue(), np.uint8)}
    files["b/0.png"] = encoded(flat(9, (8, 4)))
    inputs = made(files, normalise="none")["inputs"]
    assert inputs[0, 0, :, 0].tolist() == list(range(8))


def test_classes_that_are_kept_bring_their_names():
    files = {f"{c}/{n}.png": encoded(flat(n)) for c in "abc" for n in range(3)}
    arrays = made(files, classes=[2, 0])
    assert arrays["class_names"].tolist() == ["c", "a"]
    assert arrays["targets"].tolist() == [1, 1, 1, 0, 0, 0]
    assert "class_names" not in made(files, targets="inputs", size=4)


@pytest.mark.parametrize(
    ("names", "params", "message"),
    [
        ([], {}, "got none that end in .png"),
        (["a.png", "b/1.png"], {}, "as class/name or .*, got a.png. Move it"),
        (
            [f"{part}/{c}/1.png" for part in ("test", "train", "val") for c in "ab"],
            {},
            "as class/name or .*, got val/a/1.png. Move it",
        ),
        (["Test/a/1.png", "train/a/1.png"], {}, "got Test/a/1.png. Move it"),
        (["train/a/1.png", "train/b/c/1.png"], {}, "got train/b/c/1.png. Move it"),
        (["train/1.png", "train/a/1.png"], {}, "got train/1.png. Move it"),
        (["a/b/1.png", "a/c/1.png"], {}, "got a/b/1.png"),
        (["train/a/1.png", "val/a/1.png"], {}, "got val/a/1.png"),
        (["train/a/b/1.png", "train/a/c/1.png"], {}, "got train/a/b/1.png"),
        (["a/1.png", "a/2.png"], {}, "at least 2 classes, got 1"),
        (["test/a/1.png", "test/b/2.png"], {}, "at least 2 classes, got 0"),
        (
            ["train/a/1.png", "train/b/1.png", "test/c/1.png"],
            {},
            "classes of the folder train in test, got test/c/1.png",
        ),
        (
            ["train/a/1.png", "train/b/1.png", "test/b/1.png"],
            {"test_fraction": 0.1},
            "cannot be combined with a folder test",
        ),
        (["a/1.png", "b/2.png", "b/3.png"], {"test_fraction": 0.6}, "got 1 of 3"),
        (["a/1.png", "b/2.png"], {"classes": [0, 2]}, "labels below 2, got 2"),
    ],
)
def test_folders_that_will_not_do_are_refused_while_planning(names, params, message):
    planned = node(dict.fromkeys(names, np.zeros(0, np.uint8)), **params)
    with pytest.raises(InputError, match=message):
        find_kind(KIND).check(planned.params, planned.files)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros(3, np.uint8), "got b/1.png, which is none. Mend it"),
        (encoded(np.zeros((32, 32, 3), np.uint8))[:60], "expected an image, got b/1"),
        (encoded(np.zeros((4, 4), np.uint16)), "8 bits per channel, got b/1.png"),
        (encoded(flat(1, (4, 5))), "one size, 4x4 as a/1.png, got 4x5 of b/1.png"),
    ],
)
def test_files_that_are_no_images_of_the_size_are_refused(content, message):
    with pytest.raises(InputError, match=message):
        made({"a/1.png": encoded(flat(0)), "b/1.png": content})


def deep(depth, colour):
    """Return a PNG file of 4 x 4 pixels, which Pillow writes of 8 bits alone."""
    size = {0: 1, 2: 3, 4: 2, 6: 4}[colour] * depth // 8 * 4
    head = struct.pack(">IIBBBBB", 4, 4, depth, colour, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(range(size))) * 4)
    parts = ((b"IHDR", head), (b"IDAT", rows), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data))
        + name
        + data
        + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    ]
    return np.frombuffer(b"\x89PNG\r\n\x1a\n" + b"".join(chunks), np.uint8)


@pytest.mark.parametrize("colour", [0, 2, 4, 6], ids=["grey", "rgb", "la", "rgba"])
def test_images_of_16_bits_are_refused_of_all_colours(colour):
    assert made({"a/1.png": deep(8, colour), "b/1.png": deep(8, colour)})
    files = {"a/1.png": deep(8, colour), "b/1.png": deep(16, colour)}
    with pytest.raises(
        InputError, match=r"8 bits per channel, got b/1.png in mode \w+;16B"
    ):
        made(files)


def test_images_of_16_bits_for_a_pixel_have_fewer_for_a_channel():
    head = struct.pack("<IiiHHIIiiII", 40, 4, 4, 1, 16, 0, 32, 0, 0, 0, 0)
    bmp = b"BM" + struct.pack("<IHHI", 54 + 32, 0, 0, 54) + head + bytes(range(32))
    content = np.frombuffer(bmp, np.uint8)
    assert made({"a/1.bmp": content, "b/1.bmp": content})


def test_a_crop_beyond_the_image_is_refused():
    with pytest.raises(ValidationError, match="at most 8 pixels, got 9"):
        FolderParams(path="pets", size=(8, 10), crop=9)
