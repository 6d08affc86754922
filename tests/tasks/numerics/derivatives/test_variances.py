"""Variances between samples, against every sample and every batch."""

from itertools import combinations

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics import BatchedDense, dense_hessian, estimate
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.variances import (
    batch_variance,
    batches,
    curvature_variances,
    gradient_variance,
    spread_of_distances,
    spread_of_few,
)
from tests.tasks.toys import random_symmetric

N, SIZES = 7, [4, 2]


def losses(weights_MD, inputs, targets):
    """A net of two weights a unit, tanh, on three features: (M, N)."""
    first, last = weights_MD[:, :4].unflatten(1, (2, 2)), weights_MD[:, 4:]
    hidden = torch.tanh(torch.einsum("mhi,mni->mnh", first, inputs))
    return (torch.einsum("mh,mnh->mn", last, hidden) - targets).square()


def problem():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(6, generator=generator, dtype=torch.float64)
    inputs = torch.randn(N, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(N, generator=generator, dtype=torch.float64)
    return weights, inputs, targets


def matrices():
    """Return the Hessian of each sample, (N, D, D)."""
    w, x, y = problem()
    each = [dense_hessian(losses, w, x[n : n + 1], y[n : n + 1]) for n in range(N)]
    return torch.stack(each)


def of_matrices(A_NDD):
    def sampled(models_R, rows_RB):
        return BatchedDense(A_NDD[rows_RB].mean(1))

    return sampled


def exact_variance(A_NDD):
    return A_NDD.var(dim=0).sum()


def curvature_draws(sampled, size, num_samples, **given):
    asked = {"batch_size": 1, "num_batches": num_samples, "num_probes": 400, **given}
    return curvature_variances(
        sampled,
        [0, 1],
        size=size,
        num_samples=num_samples,
        distribution="rademacher",
        batches_per_pass=3,
        **asked,
    )


@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize("num_batches", [2, "all"])
def test_curvature_variances_are_within_five_standard_errors(batch_size, num_batches):
    A_NDD = torch.stack([random_symmetric(5, seed) for seed in range(N)])
    count = N // batch_size if num_batches == "all" else num_batches
    draws = curvature_draws(
        of_matrices(A_NDD), 5, N, batch_size=batch_size, num_batches=count
    )
    for result, exact in (
        (estimate(draws.variance), exact_variance(A_NDD)),
        (estimate(draws.squared_mean), A_NDD.mean(0).square().sum()),
    ):
        assert ((result.mean - exact).abs() < 5 * result.sem).all()
        assert (result.sem > 0).all()


def test_the_estimate_is_unbiased_over_all_vectors_and_batches():
    """Every sign vector and every pair of batches, against the exact variance."""
    A_NDD = torch.stack([random_symmetric(3, seed) for seed in range(5)])
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * 3)
    y_ZND = torch.einsum("nij,zj->zni", A_NDD, signs)
    result = []
    for four in combinations(range(5), 4):
        for half in combinations(four, 2):
            other = [n for n in four if n not in half]
            gap = y_ZND[:, list(half)].mean(1) - y_ZND[:, other].mean(1)
            result.append(2 * gap.square().sum(1) / 2)
    exact = exact_variance(A_NDD)
    assert torch.cat(result).mean() == pytest.approx(exact.item(), rel=1e-12)
    plug_in = (y_ZND.square().sum(2).mean(1) - y_ZND.mean(1).square().sum(1)).mean()
    assert plug_in == pytest.approx(0.8 * exact.item(), rel=1e-12)


def test_the_plug_in_of_one_vector_is_biased_where_ours_is_not():
    A_NDD = torch.stack([random_symmetric(5, seed) for seed in range(N)])
    draws = curvature_draws(of_matrices(A_NDD), 5, N, num_batches=2)
    ours = estimate(draws.variance[0])
    # Two samples, divisor 2: half of the variance is missing.
    plug_in = estimate(draws.variance[0] / 2)
    exact = exact_variance(A_NDD)
    assert (ours.mean - exact).abs() < 5 * ours.sem
    assert (plug_in.mean - exact).abs() > 10 * plug_in.sem


def test_hessians_of_networks_are_sampled_as_they_are():
    w, x, y = problem()

    def sampled(models_R, rows_RB):
        weights_RD = w.repeat(len(models_R), 1)
        return BatchedHessian(losses, weights_RD, x[rows_RB], y[rows_RB])

    ours = curvature_draws(sampled, 6, N, num_probes=5, batch_size=2, num_batches=3)
    dense = curvature_draws(
        of_matrices(matrices()), 6, N, num_probes=5, batch_size=2, num_batches=3
    )
    torch.testing.assert_close(ours.variance, dense.variance, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        ours.squared_mean, dense.squared_mean, rtol=1e-9, atol=1e-12
    )


def test_equal_samples_have_no_variance():
    A_NDD = random_symmetric(5, 0).expand(N, -1, -1)
    draws = curvature_draws(of_matrices(A_NDD), 5, N, num_probes=3)
    assert draws.variance.abs().max() < 1e-12


def test_batches_are_disjoint_and_their_own_for_each_draw():
    first, second = (
        batches([0, 1, 0], draw, num_samples=10, num_batches=3, size=3)
        for draw in (0, 1)
    )
    assert first.shape == (3, 3, 3)
    assert len(set(first[0].flatten().tolist())) == 9
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], second[0])


def sample_gradients():
    w, x, y = problem()

    def each(w_D):
        return losses(w_D[None], x[None], y[None])[0]

    return torch.autograd.functional.jacobian(each, w)


def gradients_of(rows, samples_per_pass=3):
    w, x, y = problem()
    return gradient_variance(
        losses,
        w[None],
        x[None, rows],
        y[None, rows],
        sizes=SIZES,
        num_samples=N,
        fixed_MS=w[None, :0],
        samples_per_pass=samples_per_pass,
    )


@pytest.mark.parametrize("samples_per_pass", [1, 3, 10])
def test_gradient_variance_is_that_of_the_samples(samples_per_pass):
    g_ND = sample_gradients()
    result = gradients_of(list(range(N)), samples_per_pass)
    parts = torch.stack([part.sum() for part in g_ND.var(0).split(SIZES)])
    torch.testing.assert_close(result.layer_variance[0], parts, rtol=1e-10, atol=0)
    norm = g_ND.mean(0).square().sum()
    assert result.squared_norm.item() == pytest.approx(norm.item(), rel=1e-10)
    assert result.sem.item() == 0


@pytest.mark.parametrize("size", [2, 4])
def test_parts_of_the_data_are_unbiased_for_all_of_it(size):
    result = [gradients_of(list(rows)) for rows in combinations(range(N), size)]
    g_ND = sample_gradients()
    variance = torch.stack([one.layer_variance.sum() for one in result]).mean()
    assert variance == pytest.approx(g_ND.var(0).sum().item(), rel=1e-10)
    norm = torch.stack([one.squared_norm[0] for one in result]).mean()
    assert norm == pytest.approx(g_ND.mean(0).square().sum().item(), rel=1e-10)


def test_the_standard_error_of_a_part_is_of_the_size_of_its_errors():
    generator = torch.Generator().manual_seed(0)
    g_ND = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    parts = torch.stack(
        [g_ND[torch.randperm(60, generator=generator)[:30]] for _ in range(300)]
    )
    result = gradient_variance(
        lambda w, x, y: torch.einsum("md,mnd->mn", w, x),
        torch.ones(300, 3).double(),
        parts,
        parts[..., 0],
        sizes=[3],
        num_samples=60,
        fixed_MS=torch.zeros(300, 0).double(),
        samples_per_pass=30,
    )
    errors = result.layer_variance.sum(1) - g_ND.var(0).sum()
    claimed = result.sem.square().mean().sqrt()
    assert claimed == pytest.approx(errors.square().mean().sqrt().item(), rel=0.2)


def masked(order_MN, seed):
    """Return the variance of batches of two inputs, each times a mask of its own."""
    g_ND = torch.arange(12.0, dtype=torch.float64).view(6, 2)
    models, used = order_MN.shape
    generator = torch.Generator().manual_seed(seed)
    masks_MK = torch.randint(0, 2, (models, used), generator=generator).double() * 2

    def losses(w_RD, x_RBD, _, draw):
        return draw((len(w_RD), 1)) * torch.einsum("rd,rbd->rb", w_RD, x_RBD)

    def drawn(_, numbers_n):
        return lambda shape: masks_MK[:, numbers_n].reshape(shape)

    return gradient_variance(
        losses,
        torch.zeros(models, 2).double(),
        g_ND[order_MN],
        g_ND[order_MN][..., 0],
        sizes=[2],
        num_samples=6,
        fixed_MS=torch.zeros(models, 0).double(),
        samples_per_pass=2,
        batch_size=2,
        drawn=drawn,
    )


@pytest.mark.parametrize("used", [4, 6])
def test_squared_norms_are_unbiased_where_batches_draw_masks(used):
    generator = torch.Generator().manual_seed(1)
    order_MN = torch.stack(
        [torch.randperm(6, generator=generator) for _ in range(4000)]
    )
    found = masked(order_MN[:, :used], seed=2)
    g_ND = torch.arange(12.0, dtype=torch.float64).view(6, 2)
    pairs = torch.stack([g_ND[list(b)].mean(0) for b in combinations(range(6), 2)])
    truths = {
        "squared_norm": g_ND.mean(0).square().sum(),
        "drawn_variance": 2 * pairs.square().sum(1).mean(),  # of 0 or 2, a variance 1
    }
    for name, truth in truths.items():
        values_M = getattr(found, name)
        error = values_M.std() / len(values_M) ** 0.5
        assert abs(values_M.mean() - truth) < 5 * error


@pytest.mark.parametrize("size", range(1, N + 1))
def test_batches_without_replacement_follow_the_law(size):
    g_ND = sample_gradients()
    means = torch.stack([g_ND[list(b)].mean(0) for b in combinations(range(N), size)])
    seen = means.var(0, correction=0).sum()
    law = batch_variance(g_ND.var(0).sum(), size, N)
    assert seen.item() == pytest.approx(law.item(), rel=1e-10, abs=1e-14)
    population = g_ND.var(0, correction=0).sum() * (N - size) / (size * (N - 1))
    assert law.item() == pytest.approx(population.item(), rel=1e-10, abs=1e-14)


def test_errors_of_few_samples_are_those_of_repeated_draws():
    """Of Gaussian gradients, whose variance of a variance is known."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(4000, 8, 1, generator=generator, dtype=torch.float64)

    def losses(weights, inputs, targets):
        return weights * inputs[..., 0]

    for count in (2, 3, 4, 8):
        found = gradient_variance(
            losses,
            torch.zeros(4000, 1).double(),
            drawn[:, :count],
            torch.zeros(4000, count),
            sizes=[1],
            num_samples=10**9,
            fixed_MS=torch.zeros(4000, 0).double(),
            samples_per_pass=3,
        )
        claimed = found.sem.square().mean().sqrt().item()
        # Of two samples the error is a multiple of the variance, whose square is
        # three times that of its mean.
        known = (2 / (count - 1)) ** 0.5 * (3**0.5 if count == 2 else 1)
        assert claimed == pytest.approx(known, rel=0.1)
        assert (found.sem > 0).all()


def test_distances_that_are_equal_state_no_error():
    for equal in (torch.full((1, 4), 0.3), torch.zeros(1, 2), torch.zeros(1, 5)):
        assert spread_of_distances(equal.double()).isnan().all()
    some = torch.tensor([[0.3, 0.3, 0.4]], dtype=torch.float64)
    assert (spread_of_distances(some) > 0).all()
    assert (spread_of_distances(some[:, :2]) > 0).all()


ENOUGH, DRAWINGS = 10, 100


def random_lengths(rng, shape):
    """Return lengths of gradients that are alike, or spread up to e to either side."""
    law = rng.integers(3)
    if law == 0:
        return np.ones(shape)
    if law == 1:
        return rng.exponential(size=shape)
    return np.exp(rng.uniform(0, 0.7) * rng.normal(size=shape))


def random_populations(seed):
    """Draw squared distances of n of N gradients, and the variance of all of these."""
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(4, 100)), int(rng.integers(1, 20))
    whole = int(count * 10 ** rng.uniform(0.1, 1))
    lengths = random_lengths(rng, (DRAWINGS, whole, 1))
    scales = np.arange(1, size + 1) ** -rng.uniform(0, 1)
    g_MND = torch.as_tensor(rng.normal(size=(DRAWINGS, whole, size)) * scales * lengths)
    few_MnD = g_MND[:, :count]
    distances_Mn = (few_MnD - few_MnD.mean(1, keepdim=True)).square().sum(2)
    return distances_Mn, whole, g_MND.var(1).sum(1)


def test_intervals_of_random_populations_hold_their_variance():
    all_cases, of_enough, plain, called = [], [], [], 0
    for seed in range(120):
        distances_Mn, whole, truth_M = random_populations(seed)
        found = spread_of_few(distances_Mn, whole)
        held_M = ((found.low <= truth_M) & (truth_M <= found.high)).double()
        all_cases.append(held_M.mean())
        is_enough_M = found.effective >= ENOUGH
        called += int(is_enough_M.sum())
        # A case of which few are called enough says little of them.
        if is_enough_M.sum() >= DRAWINGS / 4:
            of_enough.append(held_M[is_enough_M].mean())
        variance_M = distances_Mn.sum(1) / (distances_Mn.shape[1] - 1)
        plain.append(((variance_M - truth_M).abs() <= 2 * found.sem).double().mean())
    share, enough = torch.stack(all_cases), torch.stack(of_enough)
    for of in (share, enough):
        assert of.mean() > 0.95 - 3 * of.std() / len(of) ** 0.5
    assert called > 40 * DRAWINGS
    assert share.mean() < 0.98
    assert share.mean() > torch.stack(plain).mean() + 0.02


MIXED = [(1000, 200), (1000, 50), (100, 20), (60000, 500)]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.45, 0.6])
@pytest.mark.parametrize(("whole", "count"), MIXED)
def test_intervals_of_fitted_samples_hold_the_variance_and_end_near_it(
    share, whole, count
):
    """Of gradients of which a part is a million times as long as the rest."""
    rng = np.random.default_rng([whole, count, int(100 * share)])
    active_MN1 = rng.random((DRAWINGS, whole, 1)) < share
    lengths = np.where(active_MN1, 1, 1e-6)
    few_MnD = torch.as_tensor(rng.normal(size=(DRAWINGS, count, 20)))
    few_MnD = few_MnD * torch.as_tensor(lengths[:, :count])
    # Of Gaussian gradients the variance is 20 for each that is active.
    truth_M = torch.as_tensor(20 * active_MN1.mean((1, 2)))
    distances_Mn = (few_MnD - few_MnD.mean(1, keepdim=True)).square().sum(2)
    found = spread_of_few(distances_Mn, whole)
    held_M = (found.low <= truth_M) & (truth_M <= found.high)
    active = share * count
    variance_M = distances_Mn.sum(1) / (count - 1)
    relative = (found.high / variance_M).median()
    if active < 5:  # where none of two was drawn, nothing shows it
        assert (found.effective >= ENOUGH).double().mean() < 0.2
        assert relative < 30
        return
    assert held_M.double().mean() > 0.95 - 4 * (0.95 * 0.05 / DRAWINGS) ** 0.5
    assert relative < 1 + 12 / active**0.5


@pytest.mark.parametrize("whole", [1000, np.inf])
def test_ends_are_numbers_where_logarithms_spread_beyond_all_bounds(whole):
    large = [1e-4, 1.1e-4, 0.9e-4, 1e-4, 1.2e-4]
    distances_Mn = torch.tensor([[1e-32] * 15 + large, [0.0] * 15 + large]).double()
    found = spread_of_few(distances_Mn, whole)
    assert (found.high < 1e-3).all()
    assert (found.low > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_variance_is_no_less_than_the_part_of_it_that_was_seen(seed):
    distances_Mn, whole, truth_M = random_populations(seed)
    found, count = spread_of_few(distances_Mn, whole), distances_Mn.shape[1]
    least_M = distances_Mn.sum(1) / (whole - 1)
    assert (least_M <= truth_M).all()
    assert (found.low >= least_M * (1 - 1e-12)).all()
    assert (found.effective <= count + 1e-9).all()


def test_few_large_distances_are_few_samples():
    distances_Mn = torch.tensor([[1.0] * 20, [1000.0] + [1.0] * 19]).double()
    distances_Mn[:, -1] += 1e-3
    found = spread_of_few(distances_Mn, 1000)
    assert found.effective[0] == pytest.approx(20, rel=1e-3)
    assert found.effective[1] == pytest.approx(1, rel=0.05)
    assert found.high[1] > 20 * found.high[0]
