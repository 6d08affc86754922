"""Squared Frobenius norms, of all data and of batches."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import (
    BatchedDense,
    batch_squared_norms,
    hessian,
    squared_norms,
)
from tests.tasks.sample_means import Means, random_means
from tests.tasks.toys import random_symmetric

LAWS = ["rademacher", "gaussian"]
REPETITIONS = 200


def by_batches(means, seeds=None, law="rademacher", **given):
    seeds = range(means.models) if seeds is None else seeds
    given = {"batch_size": 3, "num_batches": 4, "num_probes": 16, **given}
    return batch_squared_norms(means, list(seeds), distribution=law, **given)


def scores(found, exact):
    return np.array([float((f.draws.mean() - exact) / f.sem) for f in found])


@pytest.mark.parametrize("law", LAWS)
def test_products_with_the_whole_matrix_are_unbiased(law):
    A_DD = random_symmetric(12, 0)
    A = BatchedDense(A_DD.expand(REPETITIONS, -1, -1))
    found = squared_norms(
        A, range(REPETITIONS), num_probes=16, distribution=law, block=8
    )
    exact = A_DD.square().sum()
    means = torch.stack([f.draws.mean() for f in found])
    error = means.std() / REPETITIONS**0.5
    assert (means.mean() - exact).abs() < 4 * error
    assert (np.abs(scores(found, exact)) < 2).mean() > 0.88
    assert {f.num_matvecs for f in found} == {16}


def test_signs_that_see_one_direction_once_know_that_they_are_uncertain():
    A = BatchedDense(
        torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]]).double().expand(50, -1, -1)
    )
    found = squared_norms(
        A, range(50), num_probes=8, distribution="rademacher", block=8
    )
    differ = [f for f in found if f.draws.std() > 0]
    assert len(differ) > 40
    assert all(f.sem > 0.5 for f in differ)


@pytest.mark.parametrize("case", range(8))
def test_random_means_are_unbiased_by_batches_of_any_size(case):
    rng = np.random.default_rng(case)
    given = {
        "batch_size": int(rng.integers(1, 12)),
        "num_batches": int(rng.integers(2, 9)),
        "law": LAWS[case % 2],
    }
    means = random_means(case, REPETITIONS)
    found = by_batches(means, num_probes=24, **given)
    exact = means.matrices.mean(0).square().sum()
    values = torch.stack([f.draws.mean() for f in found])
    spread = values.std()
    assert (values.mean() - exact).abs() < 4 * spread / REPETITIONS**0.5
    told = torch.stack([f.sem for f in found]).square().mean().sqrt()
    assert told == pytest.approx(spread.item(), rel=0.25)


@pytest.mark.parametrize("kind", ["whole", "batches"])
def test_models_stop_by_themselves_and_go_on_where_they_have_been(kind):
    means = random_means(4, 4)
    matrix = BatchedDense(means.matrices.mean(0).expand(4, -1, -1))
    asked = {"num_probes": 8, "rel_sem": 0.1, "max_probes": 8192}

    def estimated(of, seeds):
        if kind == "batches":
            return by_batches(of, seeds, **asked)
        return squared_norms(of, seeds, distribution="rademacher", block=8, **asked)

    of = means if kind == "batches" else matrix
    together = estimated(of, range(4))
    for seed, found in enumerate(together):
        assert found.reached
        assert found.sem <= 0.1 * found.draws.mean()
        one = of.select(torch.tensor([0, 0]))
        alone, _ = estimated(one, [seed, seed])
        torch.testing.assert_close(alone.draws, found.draws)
        assert alone.num_matvecs == found.num_matvecs


def test_a_module_agrees_with_its_dense_norm():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    ).double()
    x, y = torch.randn(22, 3).double(), torch.randint(0, 3, (22,))
    A = hessian(net, "cross_entropy", (x, y))
    exact = (A @ torch.eye(A.shape[0]).double()).square().sum()
    found = [by_batches(A, [seed])[0] for seed in range(10)]
    assert np.sqrt(np.mean(scores(found, exact) ** 2)) < 2
    assert found[0].num_matvecs == -(-16 * 3 * 4 // 22)


def test_samples_are_too_few_only_if_there_is_one():
    means = random_means(0, 1)
    two = Means(means.matrices[:2], 1)
    assert len(by_batches(two)[0].draws[0]) == 16
    with pytest.raises(InputError, match="expected two samples or more"):
        by_batches(Means(means.matrices[:1], 1))
