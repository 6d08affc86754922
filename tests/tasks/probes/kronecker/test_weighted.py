"""Factors of losses with weights: the dense matrix of the mean that PyTorch takes."""

import numpy as np
import pytest
import torch
from torch.func import hessian, jacrev
from torch.nn import functional as F

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.tasks.curvature.network_operators import problem_of
from curvflow.tasks.curvature.stored_factors import block_operator
from tests.tasks.probes.kronecker.nets import TOKENS, as_factors
from tests.tasks.toys import (
    as_data,
    compute,
    member,
    train_all,
    train_member,
    weights_of,
)


def drawn(seed, *, has_tokens):
    """Return random data and a loss: as a study has it, and as PyTorch does."""
    rng = np.random.default_rng(seed)
    classes, count = int(rng.integers(3, 6)), int(rng.integers(8, 20))
    shape = (count, 4) if has_tokens else (count,)
    labels = rng.choice(classes, size=shape, p=rng.dirichlet(np.ones(classes)))
    labels.flat[:classes] = np.arange(classes)
    if seed % 2:
        labels = np.sort(labels, axis=0)
    settings = {"class_weights": rng.uniform(0.1, 5, classes).tolist()}
    if seed % 3 == 0:
        settings["label_smoothing"] = 0.3
    if seed % 5 == 1:
        settings["class_weights"][-1] = 0.0
    if seed % 4 == 3:
        del settings["class_weights"]
    if seed % 5 < 3:
        labels[rng.random(shape) < 0.3] = -100
        labels.flat[:classes] = np.arange(classes)
    inputs = (
        rng.integers(0, 5, size=shape) if has_tokens else rng.normal(size=(count, 3))
    )
    weight = settings.get("class_weights")

    def of_torch(outputs, targets):
        return F.cross_entropy(
            outputs.flatten(0, -2),
            targets.flatten(),
            weight=None if weight is None else outputs.new_tensor(weight),
            label_smoothing=settings.get("label_smoothing", 0.0),
        )

    data = as_data(dataset(inputs, labels.astype(np.int64)), f"weighted{seed}")
    return data, {"kind": "cross_entropy", **settings}, of_torch


def dense(probe, of_torch):
    """Return J'BJ of all samples together, by torch's own mean, and the Hessian."""
    data, problem = probe.one("data"), problem_of(probe)
    weights = torch.as_tensor(probe.one("weights")["weights"])
    inputs = torch.as_tensor(data["inputs"])
    targets = torch.as_tensor(data["targets"]).long()
    if inputs.is_floating_point():
        inputs = inputs.double()

    def outputs(row):
        return problem.network.outputs(row[None], inputs[None])[0]

    J = jacrev(outputs)(weights).flatten(0, -2)
    found = outputs(weights)
    B = hessian(lambda f: of_torch(f, targets))(found)
    H = hessian(lambda row: of_torch(outputs(row), targets))(weights)
    return J.T @ B.reshape(len(J), len(J)) @ J, H


def dense_of(outcome):
    """Return factors as a matrix, and a function that keeps their blocks of another."""
    operator = block_operator([as_factors(outcome)])

    def kept(whole):
        blocks = torch.zeros_like(whole)
        for block in operator.blocks:
            rows, columns = block.columns[:, None], block.columns
            blocks[rows, columns] = whole[rows, columns]
        return blocks

    eye = torch.eye(operator.shape[1], dtype=torch.float64)
    return (operator @ eye[None])[0], kept


@pytest.mark.parametrize("has_tokens", [False, True], ids=["samples", "tokens"])
@pytest.mark.parametrize("seed", range(8))
def test_factors_of_weighted_and_smoothed_labels_are_those_of_the_mean(
    seed, has_tokens
):
    data, loss, of_torch = drawn(seed, has_tokens=has_tokens)
    hidden = [3 + seed % 3] * (1 + seed % 2)
    net = {"kind": "mlp", "hidden": hidden, "activation": "tanh"}
    model = TOKENS if has_tokens else net
    (fit,) = train_all([train_member(data, model=model, loss=loss, epochs=1)])
    weights = weights_of(fit)

    def made(**given):
        one = member("probe.factors", given, weights=weights, data=data)
        return compute("probe.factors", [one, one])[0]

    G, H = dense(member("probe.factors", weights=weights, data=data), of_torch)
    found, kept = dense_of(made(structure="block"))
    torch.testing.assert_close(found, kept(G), rtol=1e-9, atol=1e-11)
    trace = pytest.approx(float(kept(G).trace()), rel=1e-9)
    for structure in ("ekfac", "diag"):
        assert float(made(structure=structure).arrays["trace"]) == trace
    if not has_tokens:
        found, kept = dense_of(made(structure="block", curvature="hessian"))
        torch.testing.assert_close(found, kept(H), rtol=1e-9, atol=1e-11)
