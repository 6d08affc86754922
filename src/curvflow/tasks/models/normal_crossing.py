"""Normal crossings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.schemas.models.normal_crossing import NormalCrossing
from curvflow.tasks.networks.checks import check_single_input
from curvflow.tasks.networks.network import ForwardPass, Layout, Network


def build(
    spec: NormalCrossing, input_shape: Sequence[int], num_outputs: int
) -> Network:
    """Build f(x)_i = x prod_j w_ij^k_ij.

    Args:
        spec: the powers k.
        input_shape: of one sample; one number.
        num_outputs: as many as products.

    Returns:
        The network. For x = 1 and targets 0 the sse of a sample is the sum of
        prod_j w_ij^(2 k_ij).

    Raises:
        InputError: the data have more than one input, or not an output per product.

    Reference:
        Watanabe (2009), Algebraic Geometry and Statistical Learning Theory: the form
        that a loss takes after its singularities are resolved.
    """
    size = len(spec.powers)
    check_single_input("normal_crossing", input_shape, num_outputs, size)
    names = tuple(f"product{number}.weight" for number in range(1, size + 1))

    def forward(forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        products = [
            _product(forward_pass.tensors[name], powers)
            for name, powers in zip(names, spec.powers, strict=True)
        ]
        return inputs.flatten(2) * torch.stack(products, dim=1).unsqueeze(1)

    shapes = tuple((1, len(powers)) for powers in spec.powers)
    return Network(Layout(names, shapes), forward, size + 1, has_paths=False)


def _product(weight_M1J: Tensor, powers: Sequence[int]) -> Tensor:
    # Not by `prod`, whose derivatives at zero branch on the numbers.
    product_M = torch.ones_like(weight_M1J[:, 0, 0])
    for factor_M, power in zip(weight_M1J[:, 0].unbind(1), powers, strict=True):
        product_M = product_M * factor_M**power
    return product_M
