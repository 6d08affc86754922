"""Hutch++ and XTrace."""

import numpy as np
import pytest
import torch
from scipy.special import stdtrit

from curvflow.tasks.numerics import BatchedDense, estimate
from curvflow.tasks.numerics.estimators.batch_traces import BatchTrace
from curvflow.tasks.numerics.estimators.forms import spread_tells
from curvflow.tasks.numerics.estimators.intervals import interval_of_draws
from curvflow.tasks.numerics.estimators.layer_intervals import layer_intervals
from curvflow.tasks.numerics.estimators.sketched_traces import (
    Hutchinson,
    HutchPlusPlus,
    XTrace,
    traces,
)
from curvflow.tasks.numerics.krylov.low_rank import new_directions
from tests.tasks.toys import random_symmetric, with_spectrum

METHODS = [HutchPlusPlus, XTrace]
LAWS = ["rademacher", "gaussian"]
SIZES = [12, 5, 13]
DECAY = 1 / np.arange(1, 31) ** 1.5


def probed(
    method, A_MDD, seeds, law="rademacher", *, counts=(12,), block=5, sizes=None
):
    result = method(
        BatchedDense(A_MDD),
        seeds,
        sizes=sizes or SIZES,
        distribution=law,
        block=block,
    )
    for count in counts:
        result.grow(count)
    return result


def block_traces(A_MDD):
    diagonal = A_MDD.diagonal(dim1=1, dim2=2)
    parts = torch.split(diagonal, SIZES, dim=1)
    return torch.stack([part.sum(1) for part in parts], dim=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("law", LAWS)
def test_low_rank_is_exact_in_every_block_and_every_draw(method, law):
    A_MDD = torch.stack([with_spectrum([5, 3, -2, 1] + [0] * 26, s) for s in range(3)])
    draws = probed(method, A_MDD, [0, 1, 2], law).draws()
    exact = block_traces(A_MDD).unsqueeze(2).expand_as(draws)
    torch.testing.assert_close(draws, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("law", LAWS)
def test_means_over_repetitions_are_the_traces_of_the_blocks(method, law):
    A_DD = with_spectrum(np.r_[DECAY[:-2], -0.5, -1.0], 4)
    A_MDD = A_DD.expand(300, -1, -1)
    draws = probed(method, A_MDD, range(300), law, counts=(6,)).draws()
    over = estimate(draws.mean(2).T)
    exact = block_traces(A_MDD)[0]
    assert ((over.mean - exact).abs() < 5 * over.sem).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("law", LAWS)
def test_stated_intervals_cover_the_trace(method, law):
    A_MDD = with_spectrum(DECAY, 1).expand(300, -1, -1)
    result = probed(method, A_MDD, range(300), law, counts=(16,))
    whole = estimate(result.draws().sum(1))
    student = 2.36 if method is HutchPlusPlus else 2.13
    within = (whole.mean - DECAY.sum()).abs() <= student * result.spread * whole.sem
    assert 0.9 <= within.double().mean() <= 0.985


def test_they_beat_plain_vectors_at_equal_products_where_eigenvalues_decay():
    A_MDD = with_spectrum(DECAY, 1).expand(100, -1, -1)

    def error(method, count):
        result = probed(method, A_MDD, range(100), counts=(count,))
        means = result.draws().sum(1).mean(1)
        return result.num_matvecs, (means - DECAY.sum()).square().mean().sqrt()

    plain = error(Hutchinson, 24)
    sketched, crossed = error(HutchPlusPlus, 16), error(XTrace, 12)
    assert plain[0] == sketched[0] == crossed[0] == 24
    assert sketched[1] < plain[1] / 3
    assert crossed[1] < sketched[1]


@pytest.mark.parametrize("method", METHODS)
def test_growing_wastes_no_product_and_ends_where_one_step_does(method):
    A_MDD = with_spectrum(DECAY, 1)[None]
    once = probed(method, A_MDD, [3], counts=(16,))
    slowly = probed(method, A_MDD, [3], counts=(4, 8, 16))
    assert once.num_matvecs == slowly.num_matvecs
    torch.testing.assert_close(once.draws(), slowly.draws(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_draws_depend_on_neither_siblings_nor_blocks(method):
    A_MDD = torch.stack([random_symmetric(30, seed) for seed in range(3)])
    together = probed(method, A_MDD, [0, 1, 2], block=12)
    apart = probed(method, A_MDD[1:2], [1], block=4)
    expected = apart.draws()
    torch.testing.assert_close(together.draws()[1:2], expected, atol=1e-9, rtol=0)
    together.select(torch.tensor([1, 1]))
    together.grow(16)
    apart.grow(16)
    for one in together.draws():
        torch.testing.assert_close(one, apart.draws()[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_more_vectors_than_dimensions_are_exact(method):
    A_MDD = random_symmetric(4, 0)[None]
    draws = probed(method, A_MDD, [1], counts=(12,), sizes=[4]).draws()
    torch.testing.assert_close(
        draws, A_MDD[0].trace().expand_as(draws), rtol=1e-9, atol=1e-9
    )


def test_new_directions_are_orthogonal_and_none_where_there_is_nothing_new():
    basis = torch.linalg.qr(random_symmetric(8, 0)[:, :3]).Q[None]
    fresh = random_symmetric(8, 1)[None, :, :2]
    columns = torch.cat([basis @ torch.ones(1, 3, 1).double(), fresh], dim=2)
    added = new_directions(columns, basis)
    whole = torch.cat([basis, added], dim=2)[0]
    expected = torch.diag(torch.tensor([1.0, 1, 1, 1, 1, 0]).double())
    torch.testing.assert_close(whole.T @ whole, expected, rtol=0, atol=1e-13)


def random_blocks(rng):
    """Draw a matrix with some large eigenvalues, and the sizes of its two blocks."""
    size = int(rng.integers(12, 40))
    values = 10 ** rng.uniform(-3, -1, size)
    values[: rng.integers(1, 5)] = 10 ** rng.uniform(-1, 1)
    if rng.random() < 0.4:
        values *= rng.choice([-1, 1], size)
    basis_DD = np.linalg.qr(rng.normal(size=(size, size))).Q
    first = int(rng.integers(1, size))
    return torch.as_tensor(basis_DD * values @ basis_DD.T), [first, size - first]


@pytest.mark.parametrize("method", ["hutchinson", "hutch++", "xtrace"])
def test_intervals_of_random_blocks_hold_their_traces(method):
    repetitions, plain, stated = 120, [], []
    for case in range(24):
        rng = np.random.default_rng(case)
        A_DD, sizes = random_blocks(rng)
        most = len(A_DD) // 3 + 1 if method == "xtrace" else 40
        found = traces(
            BatchedDense(A_DD.expand(repetitions, -1, -1)),
            sizes,
            range(repetitions),
            method=method,
            num_probes=int(rng.integers(min(8, most - 1), most)),
            distribution=str(rng.choice(LAWS)),
            block=40,
        )
        exact_L = torch.stack([part.sum() for part in A_DD.diagonal().split(sizes)])
        draws_MLS = torch.stack([one.draws for one in found])
        sem_ML = torch.stack([one.layer_sem for one in found])
        low_ML, high_ML = interval_of_draws(draws_MLS, sem_ML)
        slack_L = 1e-9 * exact_L.abs()
        held_ML = (low_ML <= exact_L + slack_L) & (exact_L - slack_L <= high_ML)
        apart_ML = (draws_MLS.mean(2) - exact_L).abs()
        stated.append(held_ML.double().mean())
        plain.append((apart_ML <= 1.96 * sem_ML + slack_L).double().mean())
    stated_C = torch.stack(stated)
    assert 0.95 - 3 * stated_C.std() / len(stated) ** 0.5 < stated_C.mean() < 0.98
    assert stated_C.min() > 0.95 - 4 * (0.95 * 0.05 / repetitions) ** 0.5
    assert torch.stack(plain).mean() < stated_C.mean() - 0.02


def test_few_signs_that_agree_by_chance_have_no_small_error():
    # Spectra that hardly decay, where a sketch has little to find.
    shares = []
    for case in range(12):
        rng = np.random.default_rng(case)
        size = int(rng.integers(30, 60))
        A_DD = with_spectrum(np.arange(1, size + 1) ** -rng.uniform(0, 0.6), case)
        found = traces(
            BatchedDense(A_DD.expand(200, -1, -1)),
            [size],
            range(200),
            method="xtrace",
            num_probes=int(rng.integers(6, 10)),
            distribution="rademacher",
            block=40,
        )
        apart_M = torch.stack([one.draws.sum(0).mean() for one in found]) - A_DD.trace()
        half_M = torch.stack(
            [stdtrit(float(one.freedom), 0.975) * one.sem for one in found]
        )
        shares.append(float((apart_M.abs() <= half_M).double().mean()))
    assert np.mean(shares) > 0.95 - 3 * (0.95 * 0.05 / 2400) ** 0.5
    assert min(shares) > 0.95 - 4 * (0.95 * 0.05 / 200) ** 0.5


PAIRS = torch.block_diag(
    torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([[1.0, 0.3], [0.3, 2.0]])
).double()


def ends_of_pairs(law, count, repetitions=1000, A_DD=PAIRS):
    """Return the ends of intervals of two blocks of two, (M, L) each."""
    found = traces(
        BatchedDense(A_DD.expand(repetitions, -1, -1)),
        [2, 2],
        range(repetitions),
        method="hutchinson",
        num_probes=count,
        distribution=law,
        block=32,
    )
    ends = [layer_intervals(one, 4, law) for one in found]
    return [torch.stack(several) for several in zip(*ends, strict=True)]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 8, 16, 24])
@pytest.mark.parametrize("law", LAWS)
def test_intervals_of_blocks_of_two_hold_their_traces_or_are_none(law, count):
    low_ML, high_ML = ends_of_pairs(law, count)
    exact_L = torch.tensor([2.0, 3.0]).double()
    is_none_ML = low_ML.isnan()
    assert torch.equal(is_none_ML, high_ML.isnan())
    held_ML = (low_ML <= exact_L) & (exact_L <= high_ML)
    if law == "rademacher" and not spread_tells(4, count):
        assert is_none_ML.all()
        return
    assert is_none_ML.double().mean() < (0.02 if law == "rademacher" else 1e-9)
    shares = held_ML.sum(0) / (~is_none_ML).sum(0)
    # Few Gaussian vectors do not show how skewed their forms are.
    is_short = law == "gaussian" and count < 8
    least = 0.88 if is_short else 0.95 - 3 * (0.95 * 0.05 / 1000) ** 0.5
    assert shares.min() > least


def test_many_signs_that_agree_know_the_trace():
    low_ML, high_ML = ends_of_pairs("rademacher", 24, 2, torch.eye(4).double())
    assert low_ML.tolist() == high_ML.tolist() == [[2.0, 2.0]] * 2


@pytest.mark.parametrize(("count", "is_none"), [(4, True), (12, True), (24, False)])
def test_batches_whose_pairs_agree_tell_no_interval_of_few(count, is_none):
    sem = torch.tensor(0.3).double()
    of = BatchTrace(
        torch.rand(2, count).double(),
        torch.tensor([0.1, 0.1]).double(),
        torch.zeros(2).double(),
        sem,
        sem,
        sem,
        count,
        2 * count,
        reached=True,
    )
    for end_L in layer_intervals(of, 40, "rademacher"):
        assert end_L.isnan().tolist() == [is_none] * 2
