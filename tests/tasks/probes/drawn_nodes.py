"""Draws in a bowl, with its Hessian, for the tests of what probes make of them."""

import math

import numpy as np
import torch

from curvflow.schemas.nodes import Draws, Ritz
from curvflow.tasks.numerics import BatchedDense, stream
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from tests.tasks.toys import with_spectrum

NUM_SAMPLES, INIT_LOSS, GAMMA = 500, 0.3, 2.0
WBIC = NUM_SAMPLES / math.log(NUM_SAMPLES)
HESSIAN = torch.tensor([3.0, 1.0, 0.3, 0.1, 0.01, 0.0, 0.0, 0.0], dtype=torch.float64)


def bowl(
    seed=0, *, nbeta=WBIC, gamma=GAMMA, chains=4, count=1500, failed=(), excess=0.0
):
    """Independent draws of the posterior of a quadratic loss, as an edge."""
    generator = stream(seed, "bowl")
    shape = (chains, count, len(HESSIAN))
    spread = (nbeta * HESSIAN + (gamma or 1.0)).rsqrt()
    w = torch.randn(shape, generator=generator, dtype=torch.float64) * spread
    losses = INIT_LOSS + excess / nbeta + w.square() @ HESSIAN / 2
    failed_at = torch.full((chains,), -1)
    for chain in failed:
        losses[chain, count // 2 :] = torch.nan
        failed_at[chain] = count // 2
    result = summarise(losses, INIT_LOSS, nbeta, failed_at)
    arrays = {
        "loss_trace": losses.numpy(),
        "failed_at": failed_at.numpy(),
        "verdict": np.array("failed" if failed else "converged"),
        "num_samples": np.array(NUM_SAMPLES),
        "num_parameters": np.array(len(HESSIAN)),
        "init_loss": np.array(INIT_LOSS),
        "nbeta": np.array(nbeta),
        "localization": np.array(gamma),
        "lr": np.array(1e-3),
        "llc_mean": np.array(result.llc_mean),
        "llc_sem": np.array(result.llc_sem),
    }
    assert set(arrays) <= set(Draws.takes)
    return Draws("llc", "probe.llc", {}, arrays, f"draws-{seed}")


def all_eigenvalues(values=HESSIAN):
    """The Hessian as probe.dense tells it."""
    size = len(values)
    return _ritz(values[None], torch.full((1, size), 1 / size))


def runs(values=HESSIAN, num_runs=40, num_steps=6, seed=0):
    """The Hessian as probe.spectrum tells it."""
    matrix = BatchedDense(with_spectrum(values, seed)[None])
    vectors = random_vectors([seed], len(values), range(num_runs), "gaussian")
    result = lanczos(matrix, vectors, num_steps=num_steps)
    return _ritz(result.values[0], result.weights[0], result.residuals[0])


def _ritz(values, weights, residuals=None):
    arrays = {
        "ritz_values": values.numpy(),
        "ritz_weights": weights.double().numpy(),
        "ritz_residuals": 0 * values.numpy()
        if residuals is None
        else residuals.numpy(),
        "size": np.array(len(HESSIAN)),
        "num_matvecs": np.array(0),
    }
    return Ritz("spectrum", "probe.spectrum", {}, arrays, "ritz")
