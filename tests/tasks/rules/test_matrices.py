"""Rules that see tensors as matrices: what they share."""

import torch

from curvflow.tasks.networks.network import Layout
from curvflow.tasks.rules.matrices import split

LAYOUT = Layout(
    ("conv.w", "conv.b", "norm", "head.w"), ((4, 2, 3, 3), (4,), (), (5, 4))
)


def test_every_parameter_is_of_a_matrix_or_of_the_rest():
    for left_out in ((), ("head.*",), ("*",)):
        parts = split(LAYOUT, left_out, torch.device("cpu"))
        both = torch.cat([parts.matrices, parts.others])
        assert torch.equal(both.sort().values, torch.arange(LAYOUT.size))
        assert sum(r * c for r, c in parts.shapes) == len(parts.matrices)


def test_a_convolution_has_a_row_for_each_output():
    assert split(LAYOUT, (), torch.device("cpu")).shapes == ((4, 18), (5, 4))
    assert split(LAYOUT, ("head.w",), torch.device("cpu")).shapes == ((4, 18),)
