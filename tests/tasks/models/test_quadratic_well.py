"""Quadratic wells."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import dense_hessian, sample_losses
from tests.tasks.models.examples import build

EIGENVALUES = [3.0, 1.0, 0.01]


def losses(weights, inputs, targets):
    net = build({"kind": "quadratic_well", "eigenvalues": EIGENVALUES}, (1,), 3)
    return sample_losses("sse")(net.outputs(weights, inputs), targets)


def test_the_loss_is_half_the_weighted_sum_of_squares():
    w = torch.tensor([[2.0, -1.0, 5.0]], dtype=torch.float64)
    x, y = torch.ones(1, 1, 1).double(), torch.zeros(1, 1, 3).double()
    assert losses(w, x, y).item() == pytest.approx(0.5 * (3 * 4 + 1 + 0.01 * 25))


def test_the_hessian_has_the_eigenvalues_given():
    H = dense_hessian(
        losses, torch.ones(3).double(), torch.ones(2, 1).double(), torch.zeros(2, 3)
    )
    torch.testing.assert_close(H, torch.diag(torch.tensor(EIGENVALUES).double()))


@pytest.mark.parametrize(("shape", "outputs"), [((2,), 3), ((1,), 2)])
def test_other_data_are_refused(shape, outputs):
    message = f"expected 1 input and 3 outputs for quadratic_well, got {shape[0]} and"
    with pytest.raises(InputError, match=message):
        build({"kind": "quadratic_well", "eigenvalues": EIGENVALUES}, shape, outputs)
