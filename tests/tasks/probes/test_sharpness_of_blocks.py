"""Sharpness as K-FAC sees it, whose preconditioner has a block for each layer."""

import numpy as np
import pytest
import torch

from curvflow.tasks.networks.problems import read
from curvflow.tasks.numerics.kronecker.flat_blocks import flattened, from_flat
from curvflow.tasks.numerics.kronecker.forms import Eigenpairs, diagonal_block
from tests.tasks.probes.kronecker.nets import sequences
from tests.tasks.probes.test_sharpness import kept
from tests.tasks.toys import (
    as_data,
    assert_declared,
    blobs,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
)

TOKENS = {"kind": "transformer", "layers": 1, "width": 4, "heads": 2, "hidden": 3,
          "vocabulary": 5, "positions": "learned"}  # fmt: skip
MODELS = {
    "dense": ({"kind": "mlp", "hidden": [4], "activation": "tanh"}, blobs),
    "tokens": (TOKENS, lambda: labelled()),
    "module": ({"factory": "tests.tasks.toys:make_frozen_first"}, blobs),
}
# A P that stays as it is from the first step on.
FIXED = {
    "rule": "kfac", "fisher_type": "type-2", "step": "lr", "lr": 0.5, "damping": 0.1,
    "damping_adaptation_interval": None, "factor_update_steps": 100,
    "inv_update_steps": 100,
}  # fmt: skip
HOW = {
    "factored": {},
    "exact": {"inverse": "exact", "l2": 0.02},
    "apart": {"separate_weight_and_bias": True, "pi": 0.5, "l2": 0.02},
    "ekfac": {"inverse": "exact", "structure": "ekfac"},
}


def labelled():
    data = sequences()
    return as_data({**data.arrays, "targets": np.arange(12) % 3}, "labelled")


def trained(model, data, **fields):
    rule, count = {**FIXED, **fields}, len(data["inputs"])
    return train_all(
        [
            train_member(
                data, model=model, rule=rule, seed=seed, epochs=3, batch_size=count,
                checkpoints={"every": 1}, keep_preconditioner=True,
            )
            for seed in (0, 1)
        ]
    )  # fmt: skip


def gradient_of(outcome, data, row):
    problem = read(str(outcome.arrays["network"]))
    labels = data["targets"].astype(np.int64)
    weights = torch.from_numpy(outcome.arrays["weights"][row]).requires_grad_()
    inputs = torch.from_numpy(data["inputs"])[None]
    losses = problem.losses(weights[None], inputs, torch.from_numpy(labels)[None])
    return torch.autograd.grad(losses.mean(), weights)[0]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_the_gradient_divided_by_what_is_kept(name, how):
    model, make = MODELS[name]
    data = make()
    for outcome in trained(model, data, **HOW[how]):
        assert_declared("train", outcome)
        size = int(outcome.arrays["num_parameters"])
        kept_numbers = torch.from_numpy(outcome.arrays["preconditioner"])
        assert torch.isnan(kept_numbers[0]).any()
        weights = torch.from_numpy(outcome.arrays["weights"])
        for row in (1, 2):
            gradient = gradient_of(outcome, data, row)[:size]
            gradient = gradient + HOW[how].get("l2", 0) * weights[row, :size]
            P = from_flat(kept_numbers[row : row + 1], size)
            divided = P.scaled(gradient[None], lambda block: 1 / block.values)[0]
            step = weights[row + 1, :size] - weights[row, :size]
            torch.testing.assert_close(step, -0.5 * divided, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_edge_is_that_of_the_dense_matrix(momentum):
    data = blobs()
    model = MODELS["dense"][0]
    several = trained(model, data, momentum=momentum, inverse="exact")
    probes = [
        member("probe.sharpness", {"tol": 1e-10}, weights=kept(one, row), data=data)
        for one in several
        for row in (0, 1, 3)
    ]
    found = compute("probe.sharpness", probes)
    for probe, outcome in zip(probes, found, strict=True):
        assert_declared("probe.sharpness", outcome)
        numbers = torch.from_numpy(probe.one("weights")["preconditioner"])
        H = dense_of(probe)
        arrays = outcome.arrays
        if not torch.isfinite(numbers).all():
            assert np.isnan(arrays["sharpness"])
            continue
        eye = torch.eye(len(H)).double()
        P = (from_flat(numbers[None], len(H)) @ eye[None])[0]
        expected = torch.linalg.eigvals(torch.linalg.solve(P, H)).real.max()
        np.testing.assert_allclose(arrays["sharpness"], expected, rtol=1e-7)
        assert arrays["rule_lr"] == 0.5
        assert arrays["stable_up_to"] == 2 * (1 + momentum)
        edge = 0.5 * float(expected) / (2 * (1 + momentum))
        assert arrays["edge"] == pytest.approx(edge)
        assert arrays["critical_converged"]


def test_training_below_the_edge_of_a_quadratic_shrinks_and_above_it_grows():
    data = blobs()
    found = {}
    for lr in (0.9, 1.1):
        # P + 0 is H itself of a linear model with squared errors.
        twice = as_data({**data.arrays, "targets": data["inputs"][:, :1]}, "linear")
        made = train_member(
            twice, model={"kind": "linear"}, loss="mse", epochs=12, batch_size=30,
            rule={**FIXED, "inverse": "exact", "damping": 1e-9, "lr": 2 * lr},
            keep_preconditioner=True, diverged_above=None,
        )  # fmt: skip
        (outcome,) = train_all([made])
        probe = member("probe.sharpness", weights=kept(outcome), data=twice)
        edge = float(compute("probe.sharpness", [probe])[0].arrays["edge"])
        losses = outcome.arrays["train_loss"]
        found[lr] = edge, losses[-1] < losses[1]
    assert found[0.9][0] == pytest.approx(0.9, rel=1e-5)
    assert found[1.1][0] == pytest.approx(1.1, rel=1e-5)
    assert (found[0.9][1], found[1.1][1]) == (True, False)


def test_blocks_in_a_row_are_what_they_were():
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    places = torch.randperm(29, generator=generator)
    blocks = [
        Eigenpairs(
            "a", places[:24], drawn(2, 2, 3, 3), drawn(2, 2, 4, 4), drawn(2, 2, 3, 4)
        ),
        diagonal_block("b", places[24:], drawn(2, 5)),
    ]
    found = from_flat(flattened(blocks), 29)
    for block, other in zip(blocks, found.blocks, strict=True):
        for name in ("columns", "left", "right", "values"):
            assert torch.equal(getattr(block, name), getattr(other, name))
