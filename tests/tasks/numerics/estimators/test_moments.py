"""Moments of spectra from one recurrence."""

from itertools import product

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, estimate
from curvflow.tasks.numerics.estimators.moments import (
    MomentDraws,
    mean_covariance,
    moment_draws,
    moment_intervals,
    ritz_moments,
)
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from tests.tasks.toys import random_symmetric, with_spectrum

VALUES = np.linspace(-1, 3, 12)
SUPPORT = torch.tensor([[-1.5, 3.5]])


class Counting(BatchedDense):
    """A dense operator that counts the columns it is multiplied with."""

    columns = 0

    def __matmul__(self, columns):
        self.columns += columns.shape[2]
        return super().__matmul__(columns)


def found_of(
    A_MDD,
    seeds,
    *,
    num_moments=7,
    num_probes=200,
    block=64,
    support=None,
    law="gaussian",
):
    return moment_draws(
        BatchedDense(A_MDD),
        seeds,
        num_moments=num_moments,
        num_probes=num_probes,
        distribution=law,
        block=block,
        support_M2=support,
    )


def drawn(A_MDD, seeds, **given):
    return found_of(A_MDD, seeds, **given).draws


def repeated(support, count):
    return None if support is None else support.expand(count, -1)


def polynomials(values, num_moments, support=None):
    """Return each polynomial at each eigenvalue, (K + 1, D)."""
    x = torch.as_tensor(values)
    if support is None:
        return torch.stack([x.pow(k) for k in range(num_moments + 1)])
    low, high = support[0]
    angle = torch.acos((2 * x - low - high) / (high - low))
    return torch.stack([torch.cos(k * angle) for k in range(num_moments + 1)])


def exact(values, num_moments, support=None):
    return polynomials(values, num_moments, support).mean(1)


@pytest.mark.parametrize("support", [None, SUPPORT], ids=["power", "chebyshev"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_means_are_within_five_standard_errors_of_the_eigenvalues_moments(
    support, seed
):
    A_DD = with_spectrum(VALUES, seed)
    draws = drawn(A_DD[None], [seed], support=support)[0]
    sem = mean_covariance(draws).diagonal().sqrt()
    error = (draws.mean(0) - exact(VALUES, 7, support)).abs()
    assert (error < 5 * sem + 1e-12).all()
    torch.testing.assert_close(
        draws[:, 0], torch.ones(200).double(), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("support", [None, SUPPORT], ids=["power", "chebyshev"])
@pytest.mark.parametrize("num_moments", [0, 1, 2, 5, 6])
def test_every_order_is_that_of_the_polynomial_of_the_matrix(support, num_moments):
    values = torch.as_tensor(VALUES)
    A_DD = torch.diag(values)
    draws = drawn(A_DD[None], [3], num_moments=num_moments, support=support)[0]
    z_DS = random_vectors([3], 12, range(200), "gaussian")[0]
    v_DS = z_DS / z_DS.norm(dim=0)
    if support is None:
        p_KD = torch.stack([values**k for k in range(num_moments + 1)])
    else:
        angle = torch.acos((2 * values - 2) / 5)
        p_KD = torch.stack([torch.cos(k * angle) for k in range(num_moments + 1)])
    torch.testing.assert_close(draws, (p_KD @ v_DS.square()).T, rtol=1e-10, atol=1e-12)


def each(found):
    """Return the draws of each model."""
    parts = zip(found.draws, found.spreads, found.cubes, strict=True)
    return [MomentDraws(d, spread, found.freedom, cube) for d, spread, cube in parts]


@pytest.mark.parametrize("support", [None, SUPPORT], ids=["power", "chebyshev"])
def test_two_orders_cost_one_product(support):
    operator = Counting(with_spectrum(VALUES, 0)[None])
    moment_draws(
        operator,
        [0],
        num_moments=8,
        num_probes=5,
        distribution="rademacher",
        block=2,
        support_M2=support,
    )
    assert operator.columns == 4 * 5


@pytest.mark.parametrize("support", [None, SUPPORT], ids=["power", "chebyshev"])
def test_ritz_data_of_half_as_many_steps_give_the_same_draws(support):
    A_DD = with_spectrum(VALUES, 0)
    direct = drawn(A_DD[None], [0], num_probes=4, support=support)[0]
    start = random_vectors([0], 12, range(4), "gaussian")
    result = lanczos(BatchedDense(A_DD[None]), start, num_steps=4)
    of_ritz, spreads, _, cubes = ritz_moments(
        result.values[0],
        result.weights[0],
        num_moments=7,
        support_2=None if support is None else support[0],
    )
    torch.testing.assert_close(of_ritz, direct, rtol=1e-9, atol=1e-11)
    # The square of order 3 is of order 6, of which four nodes are exact.
    doubled = direct.mean(0)[6]
    expected = doubled if support is None else (doubled + 1) / 2
    expected = expected - direct.mean(0)[3].square()
    assert spreads[3].item() == pytest.approx(expected.item())
    # The cube of order 2 is of order 6, too.
    mean = direct.mean(0)
    tripled = mean[6] if support is None else (mean[6] + 3 * mean[2]) / 4
    second = mean[4] if support is None else (mean[4] + 1) / 2
    expected = tripled - 3 * mean[2] * second + 2 * mean[2] ** 3
    assert cubes[2].item() == pytest.approx(expected.item())


def test_nodes_behind_a_breakdown_do_not_count():
    values = torch.tensor([[2.0, torch.nan]]).double()
    weights = torch.tensor([[1.0, 0.0]]).double()
    powers, *_ = ritz_moments(values, weights, num_moments=3)
    assert powers.tolist() == [[1.0, 2.0, 4.0, 8.0]]


def test_the_covariance_is_that_of_repeated_means():
    A_DD = with_spectrum(VALUES, 0)
    repetitions, probes = 400, 10
    draws = drawn(
        A_DD[None], [0], num_moments=3, num_probes=repetitions * probes, block=50
    )[0]
    grouped = draws.view(repetitions, probes, 4)
    seen = torch.cov(grouped.mean(1).T)[1:, 1:]
    claimed = torch.stack([mean_covariance(d) for d in grouped]).mean(0)[1:, 1:]
    torch.testing.assert_close(claimed, seen, rtol=0.2, atol=0)


def test_draws_depend_on_neither_siblings_nor_blocks():
    A_MDD = torch.stack([random_symmetric(9, seed) / 10 for seed in range(3)])
    together = drawn(A_MDD, [0, 1, 2], num_probes=10, block=10)
    apart = drawn(A_MDD[1:2], [1], num_probes=10, block=3)
    torch.testing.assert_close(together[1:2], apart, rtol=1e-10, atol=1e-14)


def test_a_support_that_lacks_part_of_the_spectrum_is_refused():
    narrow = torch.tensor([[-1.0, 2.0]])
    with pytest.raises(InputError, match=r"support: .* Widen it"):
        drawn(with_spectrum(VALUES, 0)[None], [0], num_moments=40, support=narrow)


@pytest.mark.parametrize("support", [None, SUPPORT], ids=["power", "chebyshev"])
def test_pairs_of_vectors_tell_how_each_order_spreads(support):
    A_MDD = with_spectrum(VALUES, 0).expand(400, -1, -1)
    found = found_of(
        A_MDD,
        range(400),
        num_moments=5,
        num_probes=6,
        block=4,
        support=repeated(support, 400),
    )
    over = estimate(found.spreads.T)
    doubled = exact(VALUES, 10, support)[::2]
    squares = doubled if support is None else (doubled + 1) / 2
    # The mean that is taken off is one of few vectors, which adds its own variance.
    truth = squares - exact(VALUES, 5, support).square()
    assert ((over.mean - truth).abs() < 5 * over.sem + 0.2 * truth + 1e-12).all()
    assert (found.spreads >= 0).all()


@pytest.mark.parametrize("support", [None, SUPPORT], ids=["power", "chebyshev"])
def test_triples_of_vectors_tell_how_each_order_leans(support):
    A_MDD = with_spectrum(VALUES, 0).expand(400, -1, -1)
    found = found_of(
        A_MDD,
        range(400),
        num_moments=3,
        num_probes=16,
        block=8,
        support=repeated(support, 400),
    )
    p_KD = polynomials(VALUES, 3, support)
    truth = (p_KD - p_KD.mean(1, keepdim=True)).pow(3).mean(1)
    over = estimate(found.cubes.T)
    spread = (p_KD - p_KD.mean(1, keepdim=True)).square().mean(1) ** 1.5
    assert ((over.mean - truth).abs() < 5 * over.sem + 0.2 * spread + 1e-12).all()


def test_outliers_are_covered_by_few_vectors_of_each_sort_of_orders():
    values = torch.cat([torch.linspace(0, 1, 57).double(), torch.tensor([9, 12, 40.0])])
    ends = torch.tensor([[-1.0, 42.0]])
    for support, law in product([None, ends], ["rademacher", "gaussian"]):
        found = found_of(
            with_spectrum(values, 0).expand(300, -1, -1),
            range(300),
            num_moments=6,
            num_probes=10,
            block=16,
            support=repeated(support, 300),
            law=law,
        )
        basis, truth = (
            ("power" if support is None else "chebyshev"),
            exact(values, 6, support),
        )
        held = []
        for of in each(found):
            _, low, high = moment_intervals(of, size=60, basis=basis, is_positive=True)
            held.append((low - 1e-9 <= truth) & (truth <= high + 1e-9))
        assert torch.stack(held).double().mean(0)[1:].min() > 0.91


@pytest.mark.parametrize("basis", ["power", "chebyshev"])
@pytest.mark.parametrize("number", [2, 3, 5])
def test_negative_outliers_are_covered_by_very_few_vectors(number, basis):
    for bulk, outlier in ((torch.linspace(-1, 1, 59), -30.0), (torch.zeros(39), -1.0)):
        values = torch.cat([bulk, torch.tensor([outlier])]).double()
        ends = torch.stack([values.min() - 0.1, values.max() + 0.1])[None]
        support = None if basis == "power" else ends
        found = found_of(
            with_spectrum(values, 0).expand(150, -1, -1),
            range(150),
            num_moments=3,
            num_probes=number,
            block=16,
            support=repeated(support, 150),
            law="rademacher",
        )
        held, truth = [], exact(values, 3, support)
        for of in each(found):
            _, low, high = moment_intervals(
                of, size=len(values), basis=basis, is_positive=False
            )
            held.append((low - 1e-9 <= truth) & (truth <= high + 1e-9))
        assert torch.stack(held).double().mean(0)[1:].min() > 0.92


def test_what_hardly_varies_has_a_small_error_and_none_of_zero():
    values = 5.0 + 1e-3 * VALUES
    A_MDD = with_spectrum(values, 0).expand(50, -1, -1)
    found = found_of(A_MDD, range(50), num_moments=1, num_probes=8, block=8)
    law = values.std()
    for of in each(found):
        sem, *_ = moment_intervals(of, size=12, basis="power", is_positive=True)
        assert 0.3 < sem[1].item() / (law * (2 / 14 / 8) ** 0.5) < 3


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
@pytest.mark.parametrize("basis", ["power", "chebyshev"])
def test_intervals_of_random_spectra_cover(law, basis):
    held = []
    for number in range(60):
        draw = np.random.default_rng(number)
        values = 10 ** draw.uniform(-draw.uniform(0, 6), 0, 40)
        values[: draw.integers(0, 4)] *= 10 ** draw.uniform(0, 2)
        is_positive = number % 2 == 0
        values *= 1 if is_positive else draw.choice([1, -0.3], 40)
        ends = [min(values) - 0.1, max(values) + 0.1]
        support = None if basis == "power" else torch.tensor([ends])
        found = found_of(
            with_spectrum(values, number).expand(10, -1, -1),
            range(10),
            num_probes=int(draw.choice([6, 12, 30])),
            block=16,
            support=repeated(support, 10),
            law=law,
        )
        truth = exact(values, 7, support)
        slack = 1e-9 * truth.abs() + 1e-12
        for of in each(found):
            _, low, high = moment_intervals(
                of, size=40, basis=basis, is_positive=is_positive
            )
            inside = (low - slack <= truth) & (truth <= high + slack)
            held.append(inside[1:].double().mean())
    assert 0.93 < np.mean(held) < 0.985


def test_one_draw_of_many_steps_tells_its_error():
    ritz = lanczos(
        BatchedDense(with_spectrum(VALUES, 0)[None]),
        random_vectors([0], 12, range(1), "gaussian"),
        num_steps=8,
    )
    found = ritz_moments(ritz.values[0], ritz.weights[0], num_moments=4)
    sem, low, high = moment_intervals(found, size=12, basis="power", is_positive=False)
    assert sem.isfinite().all()
    truth = exact(VALUES, 4)
    assert ((low <= truth + 1e-9) & (truth - 1e-9 <= high)).all()
