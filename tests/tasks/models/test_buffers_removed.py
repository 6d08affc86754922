"""Buffers that a module's own forward removes are named, by both doors."""

import pytest
import torch
from torch import nn

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.models.factory import build


class Removing(nn.Module):
    """A mask that is applied once, and then is deleted, an attribute or None."""

    def __init__(self, how, cell=False):
        super().__init__()
        self.cell = nn.GRU(3, 3, batch_first=True) if cell else None
        self.last, self.how = nn.Linear(3, 2), how
        self.register_buffer("mask", torch.full((2,), 0.5))

    def forward(self, x):
        if self.cell is not None:
            x = self.cell(x.unsqueeze(1))[0][:, -1]
        y, mask = self.last(x), self._buffers.get("mask")
        if mask is None:
            return y
        if self.how == "None":
            self.mask = None
        else:
            del self.mask
        if self.how == "attribute":
            self.mask = mask
        return y * mask


@pytest.mark.parametrize("cell", [False, True])
@pytest.mark.parametrize("how", ["deleted", "attribute", "None"])
def test_a_study_refuses_the_module(how, cell):
    kwargs = {"how": how, "cell": cell}
    spec = parse_model({"factory": f"{__name__}:Removing", "kwargs": kwargs})
    with pytest.raises(InputError, match=r"^model: .* got 'mask' that forward removes"):
        build(spec, (3,), 2)


class RemovingParameter(nn.Linear):
    """A parameter that is deleted when it is used, beside a buffer or alone."""

    def __init__(self, beside):
        super().__init__(3, 2)
        self.scale = nn.Parameter(torch.full((2,), 0.5))
        if beside:
            self.register_buffer("mask", torch.ones(2))

    def forward(self, x):
        y = super().forward(x) * self.scale
        del self.scale
        return y


@pytest.mark.parametrize("beside", [False, True])
def test_a_parameter_is_not_taken_for_a_buffer(beside):
    kwargs = {"beside": beside}
    spec = parse_model({"factory": f"{__name__}:RemovingParameter", "kwargs": kwargs})
    assert build(spec, (3,), 2).layout.names == ("weight", "bias", "scale")


@pytest.mark.parametrize("how", ["deleted", "attribute"])
def test_the_library_refuses_the_module(how):
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
    for door in (curvflow.hessian, curvflow.ggn, curvflow.llc, curvflow.Monitor):
        with pytest.raises(InputError, match=r"^module: .* got 'mask' that forward"):
            door(Removing(how), "cross_entropy", (x, y))
