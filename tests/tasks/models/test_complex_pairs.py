"""Modules that take pairs of real numbers for complex ones, as state spaces do."""

import numpy as np
import pytest
import torch
from torch import nn

import curvflow
from curvflow.testing import assert_operator_is, dense_hessian
from tests.tasks.toys import (
    as_data,
    blobs,
    compute,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)


class Spectral(nn.Module):
    """A product with complex weights, behind an odd number of real ones."""

    def __init__(self, how, odd=1):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(odd))
        self.pairs, self.last = nn.Parameter(torch.randn(3, 2)), nn.Linear(3, 3)
        self.how = how

    def forward(self, x):
        if self.how == "pairs":
            factors = torch.view_as_complex(self.pairs)
        else:
            factors = torch.complex(*self.pairs.unbind(-1))
        seen = torch.fft.fft(x) * factors
        return self.last(torch.tanh(torch.fft.ifft(seen).real + self.shift.sum()))


def fits(how, odd, seeds=(0, 1)):
    model = {"factory": f"{__name__}:Spectral", "kwargs": {"how": how, "odd": odd}}
    return train_all([train_member(blobs(), model=model, seed=s) for s in seeds])


@pytest.mark.parametrize("odd", [1, 2])
def test_a_study_computes_what_the_parts_give(odd):
    for seeds in ((0, 1), (1,)):
        for ours, theirs in zip(
            fits("pairs", odd, seeds), fits("parts", odd, seeds), strict=True
        ):
            np.testing.assert_allclose(
                ours.arrays["weights"], theirs.arrays["weights"], rtol=1e-10
            )
            matrices = [
                matrix_of(
                    member("probe.trace", {}, weights=weights_of(f), data=blobs())
                )
                for f in (ours, theirs)
            ]
            torch.testing.assert_close(*matrices, rtol=1e-9, atol=1e-11)


def test_the_library_computes_what_the_parts_give():
    torch.manual_seed(0)
    net, parts = Spectral("pairs").double(), Spectral("parts").double()
    parts.load_state_dict(net.state_dict())
    x, y = torch.randn(9, 3).double(), torch.arange(9) % 3
    twin = dense_hessian(parts, nn.functional.cross_entropy, x, y)
    assert_operator_is(curvflow.hessian(net, "cross_entropy", (x, y)), twin)
    chains = {
        "calibrate": "none",
        "sampling_method": "sgld",
        "lr": 1e-3,
        "localization": 1.0,
        "num_burnin_steps": 3,
        "num_draws": 8,
        "num_steps_bw_draws": 1,
    }
    ours, theirs = (
        curvflow.llc(n, "cross_entropy", (x, y), **chains).loss_trace
        for n in (net, parts)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


class Viewing(nn.Module):
    """Views of one of two inputs, which are numbers without gaps as in a loader."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, first, pairs):
        sizes = torch.view_as_complex(pairs).abs()
        return self.last(torch.cat([first.view(-1).view(-1, 1), sizes], 1))


def rows_of_inputs():
    draw = np.random.default_rng(0)
    several = {
        "first": draw.normal(size=(12, 1)),
        "pairs": draw.normal(size=(12, 3, 2)),
    }
    return several, np.arange(12) % 3


def test_inputs_side_by_side_are_each_in_a_memory_of_its_own():
    params = {"factory": f"{__name__}:rows_of_inputs"}
    (made,) = compute("data.factory", [member("data.factory", params)])
    data, model = as_data(made.arrays), {"factory": f"{__name__}:Viewing"}
    for seeds in ((0, 1), (0,)):
        members = [train_member(data, model=model, seed=s, batch_size=5) for s in seeds]
        for fit in train_all(members):
            assert np.isfinite(fit.arrays["train_loss"]).all()
