"""A monitor in training knows a loss again in the next program."""

from functools import partial

import pytest
import torch
from torch import nn

from curvflow.tasks.monitor.training_probes import loss_name


class Smoothed:
    """A loss that is no function, and has no text of its own."""

    def __init__(self, smoothing=0.0):
        self.smoothing = smoothing

    def __call__(self, outputs, targets):
        return nn.functional.cross_entropy(
            outputs, targets, label_smoothing=self.smoothing
        )


def half(outputs, targets, *, factor=0.5, reduce=None):
    return factor * reduce(outputs - targets)


HERE = f"{__name__}."


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        ("mse", "mse"),
        (nn.MSELoss(), "MSELoss()"),
        (half, f"{HERE}half"),
        (Smoothed(), f"{HERE}Smoothed"),
        (Smoothed().__call__, f"{HERE}Smoothed.__call__"),
        (partial(half, factor=2.0), f"{HERE}half(factor=2.0)"),
        (
            partial(half, torch.ones(3), reduce=Smoothed(), factor=None),
            f"{HERE}half(Tensor, factor=None, reduce={HERE}Smoothed)",
        ),
        (partial(Smoothed(0.1)), f"{HERE}Smoothed()"),
        (
            partial(partial(half, factor=1), reduce=half),
            f"{HERE}half(factor=1, reduce={HERE}half)",
        ),
    ],
)
def test_the_name_of_a_loss_is_the_same_in_every_program(loss, name):
    assert loss_name(loss) == name
