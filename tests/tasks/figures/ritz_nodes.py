"""Ritz data and matrices as stages hand them on, for the tests of figures."""

import numpy as np

from curvflow.schemas.nodes import Matrix, Ritz


def lanczos(matrix, steps, seed):
    """Return Ritz values and weights of one run, with full re-orthogonalisation."""
    v = np.random.default_rng(seed).choice([-1.0, 1.0], len(matrix))
    basis = [v / np.linalg.norm(v)]
    for _ in range(steps - 1):
        w = matrix @ basis[-1]
        for _ in range(2):
            w -= np.array(basis).T @ (np.array(basis) @ w)
        basis.append(w / np.linalg.norm(w))
    small = np.array(basis) @ matrix @ np.array(basis).T
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    return values, vectors[0] ** 2


def ritz(matrix, steps=10, runs=1, *, stage="spectrum", diverged=False, **coords):
    results = [lanczos(matrix, steps, seed) for seed in range(runs)]
    arrays = {
        "ritz_values": np.array([values for values, _ in results]),
        "ritz_weights": np.array([weights for _, weights in results]),
        "ritz_residuals": np.zeros((runs, steps)),
        "size": np.array(len(matrix)),
        "num_matvecs": np.array(runs * steps),
    }
    status = "diverged" if diverged else "ok"
    held = {} if diverged else arrays
    return Ritz(stage, "probe.spectrum", coords, held, "", status)


def as_matrix(matrix, form="dense", **coords):
    arrays = {"form": np.array(form), "dense": matrix, "size": np.array(len(matrix))}
    return Matrix("matrix", "data.random_matrix", coords, arrays, "")


def wigner(size, seed=0):
    draws = np.random.default_rng(seed).normal(size=(size, size))
    return np.triu(draws) + np.triu(draws, 1).T


def wishart(size, samples, seed=0):
    draws = np.random.default_rng(seed).normal(size=(size, samples))
    return draws @ draws.T / samples
