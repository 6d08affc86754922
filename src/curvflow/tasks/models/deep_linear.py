"""Deep linear networks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.tasks.networks.layers import dense_layers
from curvflow.tasks.networks.network import Network


def build(spec: DeepLinear, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build a product of matrices.

    Args:
        spec: widths.
        input_shape: of one sample; flattened.
        num_outputs: width of the last layer, C.

    Returns:
        The network.

    Reference:
        Aoyagi and Watanabe (2005), doi:10.1016/j.neunet.2005.03.014, for one hidden
        layer; Aoyagi (2024), doi:10.1016/j.neunet.2024.106132, for more.
    """
    widths = [prod(input_shape), *spec.hidden, num_outputs]
    return dense_layers(widths, lambda x: x, bias=False)
