"""Eigenvalues along training, each checkpoint begun where the one before ended."""

from functools import cache

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Trajectory
from curvflow.tasks.curvature.eigensolvers import warm_columns
from curvflow.tasks.registry import find
from tests.tasks.probes.checks import DATA
from tests.tasks.toys import (
    assert_declared,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
    weights_of,
)

KIND = "probe.eigenvalue_tracking"
METHODS = [("power", "LM"), ("lanczos", "LM"), ("lanczos", "SA"), ("lobpcg", "LA")]


@cache
def trained(case):
    model, data, loss = DATA[case]
    rule = {"rule": "sgd", "lr": 0.02, "momentum": 0.9}
    settings = {"model": model, "loss": loss, "rule": rule, "epochs": 12}
    kept = {"checkpoints": {"every": 3}}
    return train_all(
        [train_member(data, **settings, **kept, seed=seed) for seed in range(3)]
    )


def trajectory_of(outcome):
    names = ("weights", "network", "checkpoint")
    arrays = {name: outcome.arrays[name] for name in names}
    return Trajectory("fit", "train", {}, arrays, "t", outcome.status, outcome.reason)


def tracked(case="tanh-ce", count=3, **params):
    data = DATA[case][1]
    return [
        member(KIND, params, trajectory=trajectory_of(fit), data=data)
        for fit in trained(case)[:count]
    ]


@cache
def spectrum(seed, number):
    weights = weights_of(trained("tanh-ce")[seed], number)
    one = member("probe.eigenvalues", weights=weights, data=DATA["tanh-ce"][1])
    return np.linalg.eigvalsh(dense_of(one).numpy())


def exact(seed, number, which, k):
    values = spectrum(seed, number)
    key = {"LM": -np.abs(values), "LA": -values, "SA": values}[which]
    return values[key.argsort(kind="stable")[:k]]


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize(("method", "which"), METHODS)
def test_every_checkpoint_has_the_eigenvalues_of_its_dense_hessian(
    method, which, warm_start
):
    settings = {"method": method, "which": which, "k": 2, "block": 2, "oversampling": 3}
    members = tracked(**settings, warm_start=warm_start, max_iterations=3000)
    for seed, outcome in enumerate(compute(KIND, members)):
        assert_declared(KIND, outcome)
        assert outcome.arrays["checkpoint"].tolist() == [0, 3, 6, 9, 12]
        assert outcome.arrays["all_converged"]
        for number, values in enumerate(outcome.arrays["eigenvalues"]):
            known = exact(seed, number, which, 2)
            np.testing.assert_allclose(values, known, rtol=1e-6)


@pytest.mark.parametrize("method", ["power", "lanczos"])
def test_a_warm_start_takes_fewer_products_after_the_first_checkpoint(method):
    result = {
        warm: compute(KIND, tracked(method=method, block=2, k=2, warm_start=warm))
        for warm in (True, False)
    }
    for warm, cold in zip(result[True], result[False], strict=True):
        outcome, other = (
            outcome.arrays["checkpoint_matvecs"] for outcome in (warm, cold)
        )
        assert outcome[0] == other[0]
        assert outcome[1:].sum() < other[1:].sum()
        assert warm.arrays["num_matvecs"] == outcome.sum()


def test_the_first_checkpoint_is_that_of_a_probe_of_its_own():
    (alone,) = compute(
        "probe.eigenvalues",
        [
            member(
                "probe.eigenvalues",
                {"k": 2},
                weights=weights_of(trained("tanh-ce")[0], 0),
                data=DATA["tanh-ce"][1],
            )
        ]
        * 2,
    )[:1]
    (first, *_) = compute(KIND, tracked(k=2))
    for name in ("eigenvalues", "residuals"):
        np.testing.assert_allclose(
            first.arrays[name][0], alone.arrays[name], rtol=1e-9, atol=1e-12
        )


def test_results_do_not_depend_on_the_width_of_the_tile():
    wide = compute(KIND, tracked(k=2))
    for first, other in zip(compute(KIND, tracked(k=2, count=2)), wide, strict=False):
        for name in ("eigenvalues", "checkpoint_matvecs"):
            np.testing.assert_allclose(
                first.arrays[name], other.arrays[name], rtol=1e-9
            )


def test_eigenvectors_are_stored_for_each_checkpoint():
    (outcome, *_) = compute(KIND, tracked(k=2, eigenvectors=True))
    vectors = outcome.arrays["eigenvectors"]
    assert vectors.shape == (5, 2, 45)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=2), 1, rtol=1e-10)
    assert_declared(KIND, outcome)


def test_an_eigenvalue_that_comes_to_the_fore_is_not_missed():
    # At the first of two diagonal matrices the third unit vector is not wanted, and it
    # is orthogonal to what is found there.
    wanted = torch.eye(5, dtype=torch.float64)[None, :, :2]
    random = torch.randn(1, 5, 2, dtype=torch.float64)
    start = warm_columns(wanted, random)
    assert (start[0, 2].abs() > 0).all()
    assert (start[0, :2].diagonal() > 0.99).all()


@pytest.mark.parametrize(("known", "block"), [(1, 3), (5, 2), (2, 2)])
def test_warm_columns_span_what_is_known_and_are_independent(known, block):
    vectors = torch.linalg.qr(torch.randn(2, 8, known, dtype=torch.float64)).Q
    vectors[1, :, 0] = torch.nan
    start = warm_columns(vectors, torch.randn(2, 8, block, dtype=torch.float64))
    assert start.shape == (2, 8, block)
    assert start.isfinite().all()
    columns = start / start.norm(dim=1, keepdim=True)
    assert (torch.linalg.svdvals(columns) > 1e-6).all()


def test_more_eigenvalues_than_parameters_are_refused():
    with pytest.raises(InputError, match="k: expected at most the 45 parameters"):
        compute(KIND, tracked(k=46))


def test_memory_grows_with_the_eigenvectors_kept():
    plain, kept = tracked(count=1) + tracked(count=1, eigenvectors=True)
    estimate = find(KIND).member_bytes
    assert estimate(kept) - estimate(plain) >= 8 * 3 * 5 * 45
    assert estimate(plain) >= plain.one("trajectory")["weights"].nbytes
