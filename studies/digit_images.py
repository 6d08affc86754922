"""The digits of scikit-learn as images, for `studies/resnet.yaml`."""

import numpy as np
from sklearn.datasets import load_digits


def images(num_train: int, num_test: int, seed: int = 0):
    """Return images (n, 1, 8, 8) and their labels, then those of the test part."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    inputs = (digits.images[order, None] / 16).astype("float32")
    targets = digits.target[order].astype("int64")
    train, test = slice(num_train), slice(num_train, num_train + num_test)
    return inputs[train], targets[train], inputs[test], targets[test]
