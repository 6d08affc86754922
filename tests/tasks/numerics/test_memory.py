import pytest
import torch

from curvflow.tasks.numerics import hessian
from curvflow.tasks.numerics.memory import unwritten


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 0)])
def test_memory_has_the_shape_and_precision_asked_for(dtype, shape):
    found = unwritten(*shape, like=torch.zeros(1, dtype=dtype))
    assert (found.dtype, found.shape) == (dtype, shape)
    assert found.is_contiguous()
    assert (found.fill_(2) == 2).all()


def test_a_module_in_bfloat16_is_multiplied_in_every_order():
    module = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
    x = torch.eye(3, dtype=torch.bfloat16)
    columns = torch.eye(4, 2, dtype=torch.bfloat16)
    products = [
        hessian(module, "mse", (x, x[:, :1]), order=order) @ columns
        for order in ("reverse_over_reverse", "retained")
    ]
    assert torch.equal(*products)
    assert products[0][0, 0].item() == pytest.approx(2 / 3, rel=1e-2)
