"""Chains in a constant metric, against the law that no metric changes."""

from dataclasses import replace

import pytest
import torch

from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import Product, dense_block
from curvflow.tasks.numerics.sampling.whitening import ROUNDING, BlockWhitening
from tests.tasks.numerics.sampling.bowls import (
    GAMMA,
    NBETA,
    about_zero,
    bowl,
    curvatures,
    sample_chains,
    z_scores,
)


def positive(size, seed, models=1):
    """Random positive definite matrices, (M, n, n)."""
    source = torch.Generator().manual_seed(seed)
    root = torch.randn(models, size, 3 * size, generator=source).double()
    return root @ root.mT / size


def by(curvature_DD, chains):
    """The map of a dense matrix, for chains of one group."""
    block = dense_block("all", torch.arange(len(curvature_DD)), curvature_DD[None])
    ones = torch.ones(1, dtype=torch.float64)
    blocks = BlockOperator([block], len(curvature_DD))
    return BlockWhitening.of(blocks, NBETA * ones, GAMMA * ones)


def metrics():
    h_D = bowl().h_D
    return {"exact": torch.diag(h_D), "wrong": positive(6, seed=3)[0]}


def test_the_map_is_the_root_of_the_inverse_in_its_place():
    left, right = positive(2, 0, models=2), positive(3, 1, models=2)
    dense = positive(2, 2, models=2)
    blocks = BlockOperator(
        [
            Product(
                "product",
                torch.tensor([0, 1, 2, 5, 6, 7]),
                left.unsqueeze(1),
                right.unsqueeze(1),
            ),
            dense_block("dense", torch.tensor([3, 8]), dense),
        ],
        9,  # parameter 4 is in none
    )
    nbeta, gamma = torch.tensor([7.0, 50.0]), torch.tensor([0.3, 0.0])
    free = torch.ones(11, dtype=torch.bool)
    free[[1, 6]] = False
    whitening = BlockWhitening.of(blocks, nbeta, gamma, free=free)
    source = torch.Generator().manual_seed(0)
    vectors_CD = torch.randn(6, 11, generator=source).double() * free
    mapped_CD = whitening(vectors_CD)
    eye = torch.eye(9, dtype=torch.float64).expand(2, -1, -1)
    K = blocks @ eye
    for group in (0, 1):
        energy = float(nbeta[group]) * K[group] + float(gamma[group]) * eye[0]
        values = torch.linalg.eigvalsh(energy)
        # Without localization, what is in no block is as wide as rounding allows.
        energy[4, 4] = 1.0
        values_D, vectors = torch.linalg.eigh(energy)
        root = vectors @ torch.diag(values_D.rsqrt()) @ vectors.T
        least = max(float(gamma[group]), ROUNDING * float(values[-1]))
        root[4, 4] = least**-0.5
        rows = slice(3 * group, 3 * group + 3)
        expected = vectors_CD[rows][:, free] @ root
        torch.testing.assert_close(
            mapped_CD[rows][:, free], expected, rtol=1e-9, atol=1e-12
        )
        assert not mapped_CD[rows][:, ~free].any()
    chosen = whitening.select(torch.tensor([1]))
    torch.testing.assert_close(chosen(vectors_CD[3:]), mapped_CD[3:])


LONG = {"num_draws": 20, "num_burnin_steps": 100, "num_steps_bw_draws": 5}


@pytest.mark.parametrize("name", ["exact", "wrong"])
def test_mala_has_the_same_law_in_any_metric(name):
    losses = bowl(minimum=0.3)
    posterior = replace(about_zero(losses, 500), whitening=by(metrics()[name], 500))
    # Of the stiffness that sample_chains divides by its largest curvature.
    stiffness = 77.0 * {"exact": 1.0, "wrong": 0.7}[name]
    drawn = sample_chains(posterior, "mala", stiffness, **LONG)
    c_D = curvatures(losses)
    mean_D = NBETA * losses.h_D * 0.3 / c_D
    assert drawn.acceptance.mean() < 0.99
    assert (z_scores(drawn.weights, mean_D) < 4).all()
    assert (z_scores((drawn.weights - mean_D).square(), 1 / c_D) < 4).all()


@pytest.mark.parametrize("name", ["exact", "wrong"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_sgld_has_the_law_of_its_steps_in_the_metric(name, batch_size):
    losses, lr = bowl(spread=1.0), 0.4
    whitening = by(metrics()[name], 500)
    posterior = replace(about_zero(losses, 500), whitening=whitening)
    drawn = sample_chains(posterior, "sgld", 77.0 * lr, batch_size=batch_size, **LONG)
    eye = torch.eye(6, dtype=torch.float64)
    S = whitening(eye)
    M = S @ torch.diag(curvatures(losses)) @ S
    # u <- (1 - lr/2 M) u + noise of covariance lr + (lr/2)^2 nbeta^2 S S / B.
    slopes_ND = losses.slopes_ND
    apart_ND = slopes_ND - slopes_ND.mean(0)
    noise = lr * eye
    if batch_size is not None:
        between = apart_ND.T @ apart_ND / len(apart_ND) / batch_size
        noise = noise + (lr * NBETA / 2) ** 2 * S @ between @ S
    step = eye - lr / 2 * M
    system = torch.eye(36, dtype=torch.float64) - torch.kron(step, step)
    law = torch.linalg.solve(system, noise.flatten()).view(6, 6)
    expected_D = (S @ law @ S).diagonal()
    assert (z_scores(drawn.weights.square(), expected_D) < 4).all()


def test_exact_factors_make_every_direction_alike():
    losses = bowl()
    whitening = by(torch.diag(losses.h_D), 1)
    S = whitening(torch.eye(6, dtype=torch.float64))
    M = S @ torch.diag(curvatures(losses)) @ S
    torch.testing.assert_close(M, torch.eye(6, dtype=torch.float64))
