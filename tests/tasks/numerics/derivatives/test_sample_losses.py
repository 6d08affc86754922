"""Losses of single samples."""

import pytest
import torch
from torch.nn import functional

from curvflow.tasks.numerics import sample_losses
from curvflow.tasks.numerics.derivatives.batches import (
    fused_label_losses,
    label_losses,
)

OUTPUTS = torch.randn(
    2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
)
LABELS = torch.tensor([[0, 2, 1, 1, 0]])
VALUES = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(1, 5, 3)


def test_cross_entropy_is_that_of_torch():
    result = sample_losses("cross_entropy")(OUTPUTS, LABELS)
    for model in range(2):
        expected = functional.cross_entropy(OUTPUTS[model], LABELS[0], reduction="none")
        torch.testing.assert_close(result[model], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("name", "factor"), [("mse", 1), ("sse", 3)])
def test_squared_errors_are_those_of_torch(name, factor):
    result = sample_losses(name)(OUTPUTS, VALUES)
    expected = functional.mse_loss(
        OUTPUTS, VALUES.expand(2, 5, 3), reduction="none"
    ).mean(-1)
    torch.testing.assert_close(result, factor * expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 9), (1, 9, 4)])
def test_fused_losses_of_labels_have_the_bits_of_plain_ones(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(*shape, 11, generator=generator, dtype=dtype)
    labels = torch.randint(11, shape, generator=generator)
    along = torch.rand(shape, generator=generator, dtype=dtype)
    found = []
    for losses in (fused_label_losses, label_losses):
        leaf = logits.clone().requires_grad_()
        values = losses(leaf, labels)
        found.append((values, *torch.autograd.grad(values, leaf, along)))
    for fused, plain in zip(*found, strict=True):
        assert torch.equal(fused, plain)
