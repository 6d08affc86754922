"""The digits of scikit-learn as images, for `studies/resnet.yaml`."""

import numpy as np
from sklearn.datasets import load_digits


def images(num_train: int, num_test: int, seed: int = 0):
    """Return images of one channel and 8 by 8 pixels, their labels, and those for tests."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    inputs = (digits.images[order, None] / 16).astype("float32")
    targets = digits.target[order].astype("int64")
    train, test = slice(num_train), slice(num_train, num_train + num_test)
    return inputs[train], targets[train], inputs[test], targets[test]
