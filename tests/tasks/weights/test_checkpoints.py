"""Weights trained elsewhere, along training."""

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.weights.checkpoints import check
from curvflow.schemas.nodes import Member
from tests.tasks.toys import (
    assert_declared,
    blobs,
    compute,
    make_scaled_norm,
    waves,
)

OWN = {"factory": "tests.tasks.toys:make_frozen_norm", "kwargs": {}}
STEPS = (900, 1000, 20)


def given(**params):
    kind = find_kind("weights.checkpoints")
    return kind.params.model_validate({"path": "runs", "model": OWN, **params})


def imported(states, data, **params):
    files = {f"path@{step}": arrays for step, arrays in states.items()}
    (outcome,) = compute(
        "weights.checkpoints", [Member(given(**params), {"data": [data]}, files)]
    )
    return outcome


def module_of(seed):
    """Return a net with a batch norm, whose statistics are random too."""
    torch.manual_seed(seed)
    module = make_scaled_norm().double().eval()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(0.2 + torch.rand_like(tensor))
    return module


def state(module):
    tensors = {n: t.numpy() for n, t in module.state_dict().items()}
    return {n: t for n, t in tensors.items() if t.dtype.kind == "f"}


def loss_of(module, data, prefix=""):
    x, y = (torch.as_tensor(data[prefix + n]) for n in ("inputs", "targets"))
    with torch.no_grad():
        return nn.functional.cross_entropy(module(x.double()), y.long()).item()


def test_each_step_has_the_losses_and_tensors_of_its_module():
    data = blobs()
    modules = {step: module_of(step) for step in STEPS}
    outcome = imported({n: state(m) for n, m in modules.items()}, data)
    assert_declared("weights.checkpoints", outcome)
    found, steps = outcome.arrays, sorted(STEPS)
    assert found["checkpoint"].tolist() == found["epoch"].tolist() == steps
    for prefix, name in (("", "train_loss"), ("test_", "test_loss")):
        exact = [loss_of(modules[step], data, prefix) for step in steps]
        np.testing.assert_allclose(found[name], exact, rtol=1e-12)
        assert found[f"final_{name}"] == found[name][-1]
    for step, weights_W in zip(steps, found["weights"], strict=True):
        parameters = nn.utils.parameters_to_vector(modules[step].parameters())
        count = parameters.numel()
        assert found["num_parameters"] == count
        np.testing.assert_array_equal(weights_W[:count], parameters.detach().numpy())


def test_it_is_the_import_of_each_file():
    data, states = blobs(), {step: state(module_of(step)) for step in STEPS}
    outcome = imported(states, data)
    kind = find_kind("weights.import")
    params = kind.params.model_validate({"path": "w.npz", "model": OWN})
    for row, step in enumerate(sorted(STEPS)):
        (alone,) = compute(
            "weights.import", [Member(params, {"data": [data]}, {"path": states[step]})]
        )
        np.testing.assert_array_equal(
            alone.arrays["weights"], outcome.arrays["weights"][row]
        )
        assert str(alone.arrays["network"]) == str(outcome.arrays["network"])


def test_losses_without_test_samples_and_of_sums():
    data, own = waves(), {"kind": "linear"}
    zeros = {"layer1.weight": np.zeros((2, 3)), "layer1.bias": np.zeros(2)}
    ones = zeros | {"layer1.bias": np.ones(2)}
    found = imported({1: zeros, 2: ones}, data, model=own, loss="sse").arrays
    exact = [((value - data["targets"]) ** 2).sum() for value in (0, 1)]
    np.testing.assert_allclose(found["train_loss"], exact, rtol=1e-12)
    assert np.isnan(found["test_loss"]).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"0.bias": None}, r"path@20: expected the tensor '0.bias' of shape \("),
        ({"0.bias": np.zeros(9)}, r"path@20: expected shape \(\d+,\) of .* \(9,\)"),
        ({"7.bias": np.zeros(9)}, r"path@20: expected .* got '7.bias' too"),
    ],
)
def test_a_checkpoint_of_another_network_is_named_by_its_step(change, says):
    states = {step: state(module_of(step)) for step in STEPS}
    states[20] = {k: v for k, v in (states[20] | change).items() if v is not None}
    with pytest.raises(InputError, match=says):
        imported(states, blobs())


def test_a_checkpoint_that_is_not_finite_is_refused_while_planning():
    files = {f"path@{step}": state(module_of(step)) for step in STEPS}
    check(given(), files)
    files["path@900"]["0.bias"][0] = np.nan
    with pytest.raises(InputError, match=r"path@900: expected finite numbers, got"):
        check(given(), files)
