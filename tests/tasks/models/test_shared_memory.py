"""Parameters that share memory, which a loop moves together and a study would not."""

import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from tests.tasks.toys import blobs


def put(layer, name, values, **given):
    setattr(layer, name, nn.Parameter(values, **given))


def halved(net):
    flat = torch.randn(18)
    put(net.first, "weight", flat[:9].view(3, 3))
    put(net.last, "weight", flat[9:].view(3, 3))


def in_columns(net):
    both = torch.randn(3, 6)
    put(net.first, "weight", both[:, ::2])
    put(net.last, "weight", both[:, 1::2])


def frozen_first(net):
    net.first.weight.requires_grad_(False)
    put(net.last, "weight", net.first.weight.data)


def fixed(net):
    net.register_buffer("table", torch.randn(3))
    net.register_buffer("again", net.table[:2])


WAYS = {
    "transposed": lambda net: put(net.last, "weight", net.first.weight.t()),
    "data": lambda net: put(net.last, "weight", net.first.weight.data),
    "row": lambda net: put(net.last, "bias", net.first.weight.data[1]),
    "buffer": lambda net: net.register_buffer("kept", net.first.weight.detach()),
    "frozen": lambda net: put(net, "kept", net.first.weight.data, requires_grad=False),
    "frozen first": frozen_first,
    "one": lambda net: setattr(net.last, "weight", net.first.weight),
    "one in a buffer": lambda net: net.register_buffer("kept", net.first.weight),
    "copy": lambda net: put(net.last, "weight", net.first.weight.t().clone()),
    "halves": halved,
    "columns": in_columns,
    "fixed": fixed,
}


class Net(nn.Module):
    """Two layers, the parameters of which are made in several ways."""

    def __init__(self, how):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        WAYS[how](self)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def posed(how):
    model = {"factory": f"{__name__}:Net", "kwargs": {"how": how}}
    return pose(parse_model(model), "auto", blobs())


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("transposed", "'last.weight' that shares that of 'first.weight'"),
        ("data", "'last.weight' that shares that of 'first.weight'"),
        ("row", "'last.bias' that shares that of 'first.weight'"),
        ("buffer", "'kept' that shares that of 'first.weight'"),
        ("frozen", "'kept' that shares that of 'first.weight'"),
        ("frozen first", "'first.weight' that shares that of 'last.weight'"),
    ],
)
def test_parameters_that_share_memory_are_refused(how, names):
    with pytest.raises(InputError) as raised:
        posed(how)
    assert names in str(raised.value)


@pytest.mark.parametrize(
    "how", ["one", "one in a buffer", "copy", "halves", "columns", "fixed"]
)
def test_what_shares_no_trained_entry_is_taken(how):
    size = posed(how).network.num_parameters
    assert size == (15 if how == "one" else 24)
