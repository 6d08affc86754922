"""Normal crossings."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import dense_hessian, sample_losses
from tests.tasks.models.examples import build

SPEC = {"kind": "normal_crossing", "powers": [[1, 2], [1]]}


def losses(weights, inputs, targets):
    net = build(SPEC, (1,), 2)
    return sample_losses("sse")(net.outputs(weights, inputs), targets)


def test_the_loss_is_the_sum_of_products_of_even_powers():
    w = torch.tensor([[3.0, -2.0, 5.0]], dtype=torch.float64)
    x, y = torch.ones(1, 1, 1).double(), torch.zeros(1, 1, 2).double()
    assert losses(w, x, y).item() == pytest.approx(3**2 * 2**4 + 5**2)


def test_derivatives_are_finite_where_weights_are_zero():
    H = dense_hessian(
        losses, torch.zeros(3).double(), torch.ones(2, 1).double(), torch.zeros(2, 2)
    )
    torch.testing.assert_close(H, torch.diag(torch.tensor([0.0, 0.0, 2.0]).double()))


def test_other_data_are_refused():
    with pytest.raises(InputError, match="2 outputs for normal_crossing, got 1 and 3"):
        build(SPEC, (1,), 3)
