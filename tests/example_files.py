"""The files that examples of kinds read: those of several here, others by their tests.

A kind whose example reads a file of its own has a function `example_files` in the file
of its tests, which writes it into a folder.
"""

from importlib import import_module
from pathlib import Path

import numpy as np
from PIL import Image

TESTS = Path(__file__).parent
STORY = "The cat sat on a mat.\n\nA dog ran.\n\n"


def write(folder):
    """Write each of them into a folder."""
    for module in of_own_kinds():
        import_module(module).example_files(folder)
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(20, 3)), np.arange(20) % 2
    arrays = {"inputs": inputs, "targets": targets, "patient": np.arange(20) // 3}
    np.savez(folder / "measured.npz", **arrays)
    shapes = {"1": (32, 64), "2": (10, 32)}
    layers = {f"layer{n}.weight": draw.normal(size=s) for n, s in shapes.items()}
    biases = {f"layer{n}.bias": np.zeros(s[0]) for n, s in shapes.items()}
    np.savez(folder / "net.npz", **layers, **biases)
    watched = {"step": np.arange(3), "sharpness": np.arange(3.0), "identity": "{}"}
    np.savez(folder / "monitor.npz", **watched)
    (folder / "runs" / "net").mkdir(parents=True)
    for step in (10, 20):
        tensors = {name: step * array for name, array in (layers | biases).items()}
        np.savez(folder / "runs" / "net" / f"step_{step}.npz", **tensors)
    (folder / "story.txt").write_text(STORY * 20, encoding="utf-8")
    for number in range(16):
        place = folder / "pets" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, size=(9, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")


def of_own_kinds():
    """Return the test modules of tasks that write files of an example."""
    return [
        ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for path in sorted((TESTS / "tasks").rglob("test_*.py"))
        if "\ndef example_files(folder" in path.read_text(encoding="utf-8")
    ]
