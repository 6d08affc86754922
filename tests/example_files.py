"""The files that examples of kinds read: arrays, weights, a table, a text, images."""

import numpy as np
from PIL import Image

STORY = "The cat sat on a mat.\n\nA dog ran.\n\n"


def write(folder):
    """Write each of them into a folder."""
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
    friends = ["from,to,weight", "ann,ben,2", "ben,cleo,1", "dan,eve,1", "cleo,ann,0.5"]
    (folder / "friends.csv").write_text("\n".join(friends), encoding="utf-8")
    (folder / "story.txt").write_text(STORY * 20, encoding="utf-8")
    wines = [
        f"{n}.5,{'red' if n % 3 else 'white'},{n % 2},0.{n},{n}" for n in range(20)
    ]
    lines = ["acid,colour,quality,sugar,year", *wines]
    (folder / "wine.csv").write_text("\n".join(lines), encoding="utf-8")
    for number in range(16):
        place = folder / "pets" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, size=(9, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
