"""Parameters that share memory, which a loop moves together and a study would not."""

import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from tests.tasks.toys import blobs


class Net(nn.Module):
    """Three layers, the parameters of which are made in several ways."""

    def __init__(self, how):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        if how == "transposed":
            self.last.weight = nn.Parameter(self.first.weight.t())
        elif how == "data":
            self.last.weight.data = self.first.weight.data
        elif how == "row":
            self.last.bias = nn.Parameter(self.first.weight.data[1])
        elif how == "buffer":
            self.register_buffer("kept", self.first.weight.detach())
        elif how == "frozen":
            self.kept = nn.Parameter(self.first.weight.data, requires_grad=False)
        elif how == "frozen first":
            self.first.weight.requires_grad_(False)
            self.last.weight = nn.Parameter(self.first.weight.data)
        elif how == "one":
            self.last.weight = self.first.weight
        elif how == "copy":
            self.last.weight = nn.Parameter(self.first.weight.t().clone())
        elif how == "halves":
            flat = torch.randn(18)
            self.first.weight = nn.Parameter(flat[:9].view(3, 3))
            self.last.weight = nn.Parameter(flat[9:].view(3, 3))
        elif how == "columns":
            both = torch.randn(3, 6)
            self.first.weight = nn.Parameter(both[:, ::2])
            self.last.weight = nn.Parameter(both[:, 1::2])
        elif how == "fixed":
            self.register_buffer("table", torch.randn(3))
            self.register_buffer("again", self.table[:2])

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


@pytest.mark.parametrize("how", ["one", "copy", "halves", "columns", "fixed"])
def test_what_shares_no_trained_entry_is_taken(how):
    size = posed(how).network.num_parameters
    assert size == (15 if how == "one" else 24)
