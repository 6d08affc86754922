"""Modules of several inputs, called by name or by place, without a wrapper."""

from collections import UserDict
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import curvflow
from curvflow.tasks.numerics.derivatives.calls import arguments

LLC = {
    "sampling_method": "sgld", "lr": 1e-3, "localization": 10.0, "nbeta": 5.0,
    "batch_size": 4, "num_chains": 2, "num_draws": 8, "num_steps_bw_draws": 1,
    "num_burnin_steps": 2, "calibrate": "none",
}  # fmt: skip


@dataclass
class Output:
    """Outputs of several parts, as other packages return them."""

    logits: Tensor
    hidden: Tensor


class Reader(nn.Module):
    """The masked mean of embeddings, and a head."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, input_ids, attention_mask=None, labels=None):
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        weights = attention_mask.to(self.head.weight)[..., None]
        rows = torch.tanh(self.table(input_ids)) * weights
        mean = rows.sum(1) / weights.sum(1)
        return Output(self.head(mean), mean)


class Wrapper(nn.Module):
    """The same, which takes one tensor that holds both."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, both):
        return self.of(both[:, 0], both[:, 1]).logits


def case():
    torch.manual_seed(0)
    ids = torch.randint(5, (12, 4))
    mask = (torch.arange(4) < torch.randint(1, 5, (12, 1))).long()
    return Reader().double(), ids, mask, torch.arange(12) % 2


def forms(ids, mask, y):
    named = {"input_ids": ids, "attention_mask": mask}
    halves = (slice(0, 5), slice(5, 12))
    return {
        "mapping": (named, y),
        "tokenizer's": (UserDict(named), y),
        "tuple": ((ids, mask), y),
        "named": {"inputs": named, "targets": y},
        "flat": {**named, "targets": y},
        "list": [({k: v[h] for k, v in named.items()}, y[h]) for h in halves],
    }


@pytest.mark.parametrize(
    "make",
    [
        partial(curvflow.hessian, order="forward_over_reverse"),
        curvflow.ggn,
        partial(curvflow.fisher, kind="empirical"),
    ],
    ids=["hessian", "ggn", "fisher"],
)
def test_operators_take_several_inputs_in_any_form(make):
    net, ids, mask, y = case()
    twin = make(Wrapper(net), "cross_entropy", (torch.stack([ids, mask], 1), y))
    v = torch.ones(twin.shape[0], dtype=torch.float64)
    plain = make(net, "cross_entropy", (ids, y)) @ v
    assert not torch.allclose(plain, twin @ v)
    for name, data in forms(ids, mask, y).items():
        got = make(net, "cross_entropy", data) @ v
        torch.testing.assert_close(got, twin @ v, rtol=0, atol=1e-12, msg=name)


def test_batches_of_vectors_take_samples_of_several_inputs():
    net, ids, mask, y = case()
    how = {"probes_per": "batch", "batch_size": 4, "num_probes": 4}
    one = curvflow.hessian(
        Wrapper(net), "cross_entropy", (torch.stack([ids, mask], 1), y)
    )
    several = curvflow.hessian(net, "cross_entropy", forms(ids, mask, y)["mapping"])
    assert several.trace(**how).value == pytest.approx(
        one.trace(**how).value, rel=1e-10
    )


def test_chains_take_several_inputs():
    net, ids, mask, y = case()
    both = torch.stack([ids, mask], 1)
    expected = curvflow.llc(Wrapper(net), "cross_entropy", (both, y), **LLC)
    for name in ("mapping", "tuple", "flat"):
        fit = curvflow.llc(net, "cross_entropy", forms(ids, mask, y)[name], **LLC)
        np.testing.assert_allclose(fit.loss_trace, expected.loss_trace, rtol=1e-10)


def test_a_monitor_takes_several_inputs():
    net, ids, mask, y = case()
    one = curvflow.Monitor(
        Wrapper(net), "cross_entropy", (torch.stack([ids, mask], 1), y),
        every=1, budget=None,
    )  # fmt: skip
    several = curvflow.Monitor(
        net, "cross_entropy", forms(ids, mask, y)["list"], every=1, budget=None
    )
    for monitor in (one, several):
        assert monitor.step()
    for name in ("sharpness", "trace"):
        got, expected = (m.to_xarray()[name].item() for m in (several, one))
        assert got == pytest.approx(expected, rel=1e-6)


class Alone(nn.Module):
    """A module that takes what it is given as one."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, batch):
        return self.head(batch["x"])


def test_one_input_stays_one_and_targets_reach_no_module():
    alone, x = Alone(), torch.ones(3, 2)
    assert arguments(alone, ({"x": x}, x)) == (({"x": x},), {})
    assert arguments(alone, {"x": x, "targets": x}) == (({"x": x, "targets": x},), {})
    assert arguments(Reader(), (x, x)) == ((x,), {})
    parallel = nn.DataParallel(Reader())
    assert arguments(parallel, ((x, x), x)) == ((x, x), {})
    assert arguments(nn.DataParallel(alone), ({"x": x}, x)) == (({"x": x},), {})


def test_labels_that_are_no_targets_are_left_to_the_loss():
    net, ids, mask, y = case()
    flat = {"input_ids": ids, "attention_mask": mask, "labels": y}

    def loss(outputs, batch):
        return F.cross_entropy(outputs, batch["labels"])

    got = curvflow.hessian(net, loss, flat)
    twin = curvflow.hessian(net, "cross_entropy", ((ids, mask), y))
    v = torch.ones(twin.shape[0], dtype=torch.float64)
    torch.testing.assert_close(got @ v, twin @ v, rtol=0, atol=1e-12)
    with pytest.raises(curvflow.CurvflowError, match="expected 'targets' in a batch"):
        curvflow.hessian(net, "cross_entropy", flat)
