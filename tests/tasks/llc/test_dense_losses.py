"""Losses and gradients written out, against automatic differentiation."""

import itertools

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.llc.losses import SampledLosses, dense_form
from curvflow.tasks.networks.problems import Samples, pose
from curvflow.tasks.numerics.derivatives import dense_gradients
from curvflow.tasks.numerics.sampling import dense_losses

CHAINS, MEMBERS, COUNT, INPUTS, OUTPUTS = 4, 2, 9, (2, 3), 4
OWNER = torch.tensor([0, 0, 1, 1])
MLP = {"kind": "mlp", "hidden": [5, 4, 3]}
AUTOENCODER = {"kind": "autoencoder", "hidden": [5, 2]}
DENSE = [
    *({**MLP, "activation": a} for a in ("relu", "tanh", "gelu", "sigmoid")),
    {**MLP, "activation": "identity"},
    {**MLP, "activation": "tanh", "bias": False},
    {**MLP, "activation": "gelu", "linear_layers": [1, 3]},
    {**MLP, "activation": "relu", "dropout": 0.5},
    {"kind": "mlp", "hidden": [], "bias": False},
    {"kind": "linear"},
    {"kind": "linear", "bias": False},
    {"kind": "deep_linear", "hidden": [3, 5]},
]
LOGISTIC = [{"kind": "logistic"}, {"kind": "logistic", "bias": False}]
MIRRORED = [AUTOENCODER, {**AUTOENCODER, "linear_code": False, "bias": False}]


def posed(model, loss, outputs=OUTPUTS):
    has_labels = loss == "cross_entropy"
    targets = np.zeros(COUNT) if has_labels else np.zeros((COUNT, outputs))
    data = {"inputs": np.zeros((COUNT, *INPUTS)), "targets": targets}
    beside = {"num_classes": outputs, "test_targets": targets[:0]}
    return pose(parse_model(model), loss, data | beside)


def drawn(problem, members, outputs=OUTPUTS):
    """Samples of members, or of one for all, and weights of chains."""
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(members, COUNT, *INPUTS, generator=source).double()
    if problem.loss == "cross_entropy":
        targets = torch.randint(outputs, (members, COUNT), generator=source)
    else:
        targets = torch.randn(members, COUNT, outputs, generator=source).double()
    size = problem.network.num_parameters
    weights_CD = torch.randn(CHAINS, size, generator=source).double()
    return Samples(inputs, targets), weights_CD


def sampled(problem, samples, owner_C=OWNER):
    return SampledLosses(problem, samples, torch.empty(len(owner_C), 0), owner_C)


def batches(size=5):
    source = torch.Generator().manual_seed(2)
    return torch.randint(COUNT, (CHAINS, size), generator=source)


def by_autograd(problem, samples, weights_CD, rows_CB):
    """Mean losses and their gradients, chain by chain."""
    losses, gradients = [], []
    for chain, weights_D in enumerate(weights_CD):
        member = int(OWNER[chain]) if len(samples.inputs) > 1 else 0
        rows = slice(None) if rows_CB is None else rows_CB[chain]
        w_1D = weights_D[None].clone().requires_grad_()
        loss = problem.losses(
            w_1D, samples.inputs[member, rows][None], samples.targets[member, rows]
        ).mean()
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, w_1D)[0][0])
    return torch.stack(losses), torch.stack(gradients)


def assert_exact(problem, samples, weights_CD, rows_CB):
    losses = sampled(problem, samples)
    assert losses._dense is not None
    expected_C, expected_CD = by_autograd(problem, samples, weights_CD, rows_CB)
    exact = {"rtol": 1e-12, "atol": 1e-13}
    found_C, found_CD = losses.gradients(weights_CD, rows_CB)
    torch.testing.assert_close(found_C, expected_C, **exact)
    torch.testing.assert_close(found_CD, expected_CD, **exact)
    assert torch.equal(losses.values(weights_CD, rows_CB), found_C)


CASES = [
    *itertools.product(DENSE, ["mse", "sse", "cross_entropy"]),
    *itertools.product(LOGISTIC, ["cross_entropy"]),
]


@pytest.mark.parametrize(("model", "loss"), CASES)
@pytest.mark.parametrize("members", [1, MEMBERS])
def test_losses_and_gradients_are_those_of_autograd(model, loss, members):
    problem = posed(model, loss)
    samples, weights_CD = drawn(problem, members)
    for rows_CB in (None, batches()):
        assert_exact(problem, samples, weights_CD, rows_CB)


@pytest.mark.parametrize("model", MIRRORED)
def test_those_of_autoencoders_are_too(model):
    problem = posed(model, "mse", outputs=6)
    samples, weights_CD = drawn(problem, 1, outputs=6)
    assert_exact(problem, samples, weights_CD, batches())


@pytest.mark.parametrize("members", [1, MEMBERS])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_parts_of_the_data_add_up_to_the_whole(monkeypatch, members, activation):
    problem = posed({**MLP, "activation": activation}, "cross_entropy")
    samples, weights_CD = drawn(problem, members)
    each = 8 * problem.network.width
    monkeypatch.setattr(dense_losses, "CHAIN_BYTES", 4 * each)
    for rows_CB in (None, batches()):
        assert_exact(problem, samples, weights_CD, rows_CB)


def test_a_chain_alone_is_bit_for_bit_that_among_others(monkeypatch):
    """Large chains go one by one, whatever their siblings."""
    monkeypatch.setattr(dense_losses, "PASS_BYTES", {"cpu": 1})
    problem = posed({**MLP, "activation": "tanh"}, "mse")
    samples, weights_CD = drawn(problem, MEMBERS)
    rows_CB = batches()
    together = sampled(problem, samples).gradients(weights_CD, rows_CB)
    for chain in range(CHAINS):
        one = slice(chain, chain + 1)
        alone = sampled(problem, samples, OWNER[one]).gradients(
            weights_CD[one], rows_CB[one]
        )
        for found, expected in zip(alone, together, strict=True):
            assert torch.equal(found[0], expected[chain])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("loss", "outputs"), [("cross_entropy", 4), ("mse", 1)])
@pytest.mark.parametrize("turned_from", [1, 1 << 11])
def test_chains_do_not_depend_bit_for_bit_on_how_many_there_are(
    monkeypatch, dtype, loss, outputs, turned_from
):
    monkeypatch.setattr(dense_gradients, "MANY", turned_from)
    problem = posed({"kind": "mlp", "hidden": [16, 16]}, loss, outputs)
    samples, _ = drawn(problem, 1, outputs)
    targets = samples.targets
    samples = Samples(
        samples.inputs.to(dtype), targets.to(dtype) if loss == "mse" else targets
    )
    many, size, source = 40, problem.network.num_parameters, torch.Generator()
    weights_CD = torch.randn(many, size, generator=source.manual_seed(3)).to(dtype)
    rows_CB = torch.randint(COUNT, (many, 8), generator=source)
    owner_C = torch.zeros(many, dtype=torch.int64)
    whole = sampled(problem, samples, owner_C).gradients(weights_CD, rows_CB)
    for few in (2, 3, 7):
        part = sampled(problem, samples, owner_C[:few]).gradients(
            weights_CD[:few], rows_CB[:few]
        )
        for found, expected in zip(part, whole, strict=True):
            assert torch.equal(found, expected[:few])


def test_a_chain_that_is_not_finite_leaves_its_siblings_alone():
    problem = posed(MLP, "cross_entropy")
    samples, weights_CD = drawn(problem, 1)
    hurt_CD = weights_CD.clone()
    hurt_CD[1] = float("nan")
    fine = sampled(problem, samples).gradients(weights_CD, batches())
    hurt = sampled(problem, samples).gradients(hurt_CD, batches())
    for found, expected in zip(hurt, fine, strict=True):
        assert torch.equal(found[[0, 2, 3]], expected[[0, 2, 3]])
        assert found[1].isnan().any()


def test_weights_that_moved_in_place_are_seen():
    problem = posed(MLP, "mse")
    samples, weights_CD = drawn(problem, 1)
    losses = sampled(problem, samples)
    losses.gradients(weights_CD, batches())
    weights_CD *= 0.5
    found_C, found_CD = losses.gradients(weights_CD, batches())
    expected = by_autograd(problem, samples, weights_CD, batches())
    torch.testing.assert_close((found_C, found_CD), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
def test_one_output_is_as_exact_as_several(bias):
    problem = posed({**MLP, "hidden": [5, 1, 3], "bias": bias}, "mse", outputs=1)
    for members in (1, MEMBERS):
        samples, weights_CD = drawn(problem, members, outputs=1)
        for rows_CB in (None, batches()):
            assert_exact(problem, samples, weights_CD, rows_CB)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("members", [1, MEMBERS])
def test_narrow_layers_are_as_exact_turned(monkeypatch, members, bias):
    monkeypatch.setattr(dense_gradients, "MANY", 1)
    problem = posed({**MLP, "hidden": [20, 3], "bias": bias}, "cross_entropy")
    samples, weights_CD = drawn(problem, members)
    for rows_CB in (None, batches()):
        assert_exact(problem, samples, weights_CD, rows_CB)


def test_weights_that_want_gradients_are_taken_as_numbers():
    problem = posed(MLP, "mse")
    samples, weights_CD = drawn(problem, 1)
    losses = sampled(problem, samples)
    expected_C = losses.values(weights_CD, None)
    found_C = losses.values(weights_CD.requires_grad_(), None)
    assert torch.equal(found_C, expected_C)
    assert not found_C.requires_grad


def test_other_networks_keep_autograd():
    wells = {"kind": "quadratic_well", "eigenvalues": [1.0, 2.0]}
    data = {"inputs": np.ones((COUNT, 1)), "targets": np.zeros((COUNT, 2))}
    beside = {"test_targets": data["targets"][:0]}
    problem = pose(parse_model(wells), "sse", data | beside)
    samples = Samples(*(torch.as_tensor(a)[None] for a in data.values()))
    losses = sampled(problem, samples)
    assert dense_form(problem) is losses._dense is None
    weights_CD = torch.arange(8.0).double().reshape(CHAINS, 2)
    found_C, found_CD = losses.gradients(weights_CD, None)
    expected = by_autograd(problem, samples, weights_CD, None)
    torch.testing.assert_close((found_C, found_CD), expected, rtol=1e-12, atol=1e-13)
