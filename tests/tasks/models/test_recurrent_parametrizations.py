"""Recurrent layers whose weights are computed by a parametrization with a state."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from tests.tasks.toys import blobs, train_all, train_member


class Net(nn.Module):
    """A recurrent layer over numbers one by one, some weights of which are normed."""

    def __init__(self, layer, names=("weight_hh_l0",)):
        super().__init__()
        self.steps, self.last = (
            getattr(nn, layer)(1, 2, batch_first=True),
            nn.Linear(2, 3),
        )
        for name in names:
            spectral_norm(self.steps, name)

    def forward(self, x):
        return self.last(self.steps(x.unsqueeze(-1))[0][:, -1])


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("names", [["weight_hh_l0"], ["weight_ih_l0", "weight_hh_l0"]])
def test_a_spectral_norm_moves_as_in_a_loop_of_ones_own(layer, names):
    kwargs = {"layer": layer, "names": names}
    how = {"model": {"factory": f"{__name__}:Net", "kwargs": kwargs}, "epochs": 3}
    how |= {"rule": {"rule": "sgd", "lr": 0.1}, "checkpoints": {"every": 3}}
    fits = train_all([train_member(blobs(), seed=s, **how) for s in (0, 1)])
    (alone,) = train_all([train_member(blobs(), seed=1, **how)])
    first, last = map(torch.as_tensor, alone.arrays["weights"])
    np.testing.assert_allclose(fits[1].arrays["weights"][-1], last, rtol=1e-9)

    net = Net(**kwargs).double()
    tensors = [*net.parameters(), *net.buffers()]
    with torch.no_grad():
        for tensor, part in zip(
            tensors, first.split([t.numel() for t in tensors]), strict=True
        ):
            tensor.copy_(part.view_as(tensor))
    x, y = (torch.as_tensor(blobs()[name]) for name in ("inputs", "targets"))
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), y.long()).backward()
        steps.step()
    found = torch.cat([t.detach().flatten() for t in tensors])
    torch.testing.assert_close(found, last, rtol=1e-9, atol=1e-11)
