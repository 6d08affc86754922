"""Modules that write into their inputs, which a loop over copies does not notice."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from curvflow import Monitor, ggn, hessian
from curvflow.testing import assert_operator_is, dense_ggn, dense_hessian
from tests.tasks.toys import (
    blobs,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

HOWS = ("scaled", "centred", "cut", "zeroed", "viewed", "training", "none")


class Writing(nn.Module):
    """Two layers, in front of which inputs are changed in place."""

    def __init__(self, how="none", *, copies=False):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)
        self.how, self.copies = how, copies

    def forward(self, x):
        x = x.clone() if self.copies else x
        if self.how == "scaled" or (self.how == "training" and self.training):
            x *= 0.5
        elif self.how == "centred":
            x -= x.mean(1, keepdim=True)
        elif self.how == "cut":
            x.clamp_(-0.3, 0.3)
        elif self.how == "zeroed":
            x[:, 0] = 0
        elif self.how == "viewed":
            x.flatten()[:: x.shape[1]].neg_()
        return self.last(self.first(x).tanh())


def trained(**kwargs):
    model = {"factory": f"{__name__}:Writing", "kwargs": kwargs}
    return train_all([train_member(blobs(), model=model, seed=s) for s in (0, 1)])


@pytest.mark.parametrize("how", HOWS)
def test_a_study_computes_what_a_module_that_copies_its_inputs_does(how):
    data = blobs()
    before = data["inputs"].copy()
    for ours, theirs in zip(
        trained(how=how), trained(how=how, copies=True), strict=True
    ):
        for name in ("weights", "train_loss", "test_loss"):
            assert torch.equal(
                torch.as_tensor(ours.arrays[name]), torch.as_tensor(theirs.arrays[name])
            )
        matrices = [
            matrix_of(
                member(
                    "probe.trace", {"operator": op}, weights=weights_of(fit), data=data
                )
            )
            for op in ("hessian", "ggn")
            for fit in (ours, theirs)
        ]
        torch.testing.assert_close(matrices[::2], matrices[1::2], rtol=0, atol=0)
    assert (data["inputs"] == before).all()


def problem(how):
    torch.manual_seed(len(how))
    module = Writing(how).double().eval()
    return module, torch.randn(7, 3).double(), torch.arange(7) % 3


@pytest.mark.parametrize("how", HOWS)
def test_the_library_leaves_data_as_they_are(how):
    module, x, y = problem(how)
    before = x.clone()
    copying = Writing(how, copies=True).double().eval()
    copying.load_state_dict(module.state_dict())
    H = dense_hessian(copying, F.cross_entropy, x, y)
    G = dense_ggn(copying, F.cross_entropy, x, y)
    for _ in range(2):
        assert_operator_is(hessian(module, nn.CrossEntropyLoss(), (x, y)), H)
        assert_operator_is(ggn(module, nn.CrossEntropyLoss(), (x, y)), G)
    monitor = Monitor(module, nn.CrossEntropyLoss(), (x, y), budget=None)
    monitor.measure()
    assert monitor.to_xarray().sharpness.item() == pytest.approx(
        torch.linalg.eigvalsh(H)[-1].item(), rel=1e-3
    )
    assert torch.equal(x, before)
