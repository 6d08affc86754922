"""Diagonals by random vectors, for all data and by batches."""

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics import (
    BatchedDense,
    batch_diagonals,
    batch_traces,
    diagonals,
    hessian,
)
from tests.tasks.numerics.estimators.test_batch_traces import module_and_data
from tests.tasks.sample_means import Means, random_means
from tests.tasks.toys import random_symmetric

LAWS = ["rademacher", "gaussian"]
SIZE, REPETITIONS = 20, 200
# Of a share of 95 %, over as many repetitions.
BINOMIAL = (0.95 * 0.05 / REPETITIONS) ** 0.5


def coupled_pairs():
    """Return pairs of dimensions, coupled little or beyond what the diagonal has."""
    couplings = [0.001, 0.2, 0.5, 1.0, 1.0, 1.0, 2.0, 5.0, 20.0, 1.0]
    blocks = [[[1.0, c], [c, 1.0 + n % 2]] for n, c in enumerate(couplings)]
    return torch.block_diag(*(torch.tensor(block).double() for block in blocks))


def of_low_rank():
    torch.manual_seed(0)
    columns = torch.randn(SIZE, 3, dtype=torch.float64)
    return columns @ columns.T


MATRICES = {
    "random": random_symmetric(SIZE, 0),
    "pairs": coupled_pairs(),
    "of low rank": of_low_rank(),
    "almost diagonal": 0.01 * random_symmetric(SIZE, 1)
    + torch.diag(torch.arange(1.0, SIZE + 1).double()),
}


def estimates(A_DD, law="rademacher", *, models=REPETITIONS, sizes=(SIZE,), **given):
    given = {"num_probes": 8, "block": 16, "distribution": law, **given}
    A = BatchedDense(A_DD.expand(models, -1, -1))
    return diagonals(A, list(sizes), range(models), **given)


def by_batches(means, law="rademacher", *, sizes=None, seeds=None, **given):
    given = {"batch_size": 4, "num_probes": 8, "distribution": law, **given}
    seeds = range(means.models) if seeds is None else seeds
    return batch_diagonals(means, sizes or [means.shape[1]], list(seeds), **given)


def stacked(found, name):
    return torch.stack([getattr(one, name) for one in found])


def held(found, exact_D, slack=1e-9):
    """Return whether each interval holds its entry, but for rounding, (M, D)."""
    low_MD, high_MD = stacked(found, "low"), stacked(found, "high")
    return ((low_MD <= exact_D + slack) & (exact_D - slack <= high_MD)).double()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", [4, 5, 6, 7, 8, 16, 24, 64])
def test_intervals_cover_each_entry(count, law):
    # All matrices at once, for equal seeds draw equal vectors, and draw them once.
    A_MDD = torch.stack([*MATRICES.values()]).repeat_interleave(REPETITIONS, 0)
    seeds = [*range(REPETITIONS)] * len(MATRICES)
    given = {"num_probes": count, "block": 16, "distribution": law}
    found = diagonals(BatchedDense(A_MDD), [SIZE], seeds, **given)
    held_MD = held(found, A_MDD.diagonal(dim1=1, dim2=2))
    for name, held_RD in zip(MATRICES, held_MD.split(REPETITIONS), strict=True):
        held_D = held_RD.mean(0)
        # One that counts as often as another, as if all entries were the same.
        assert held_D.mean() > 0.95 - 2 * BINOMIAL, name
        assert held_D.min() > 0.95 - 4.5 * BINOMIAL, name
        if law == "gaussian":
            assert held_D.mean() < 0.95 + 3 * BINOMIAL, name
        elif count >= 16:
            assert held_D.mean() < 0.985, name  # no wider than they need be


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ["random", "almost diagonal"])
def test_entries_are_unbiased_and_squared_errors_too(name, law):
    exact_D, count = MATRICES[name].diagonal(), 12
    found = estimates(MATRICES[name], law, models=1000, num_probes=count)
    off_MD, sem_MD = stacked(found, "value") - exact_D, stacked(found, "sem")
    spread_D = off_MD.square().mean(0).sqrt()
    assert (off_MD.mean(0).abs() < 4.5 * spread_D / 1000**0.5).all()
    told_D = sem_MD.square().mean(0).sqrt()
    torch.testing.assert_close(told_D, spread_D, rtol=0.12, atol=0)
    rest_D = MATRICES[name].square().sum(0) - exact_D.square()
    least = count if law == "rademacher" else count - 2  # the mean of 1 / chi^2
    torch.testing.assert_close(spread_D, (rest_D / least).sqrt(), rtol=0.12, atol=0)


@pytest.mark.parametrize("law", LAWS)
def test_diagonal_matrices_are_seen_exactly(law):
    exact_D = torch.linspace(-3, 8, SIZE).double()
    (found,) = estimates(torch.diag(exact_D), law, models=1, num_probes=21)
    torch.testing.assert_close(found.value, exact_D, rtol=1e-12, atol=1e-12)
    assert found.sem.max() < 1e-12
    assert (found.high - found.low).max() < 1e-12


def test_few_signs_that_agree_are_not_believed_to_know_an_entry():
    A_DD = torch.block_diag(coupled_pairs(), torch.zeros(1, 1).double())
    found = estimates(A_DD, models=REPETITIONS, num_probes=6, sizes=[SIZE + 1])
    value_MD, sem_MD = stacked(found, "value"), stacked(found, "sem")
    assert ((sem_MD > 0) == (value_MD != 0)).all()
    assert (sem_MD[:, -1] == 0).all()


def test_one_dimension_is_known_by_one_sign():
    (found,) = estimates(torch.tensor([[2.5]]).double(), models=1, sizes=[1])
    assert (found.value.item(), found.sem.item()) == (2.5, 0.0)
    assert (found.low.item(), found.high.item()) == (2.5, 2.5)


@pytest.mark.parametrize("law", LAWS)
def test_blocks_of_vectors_change_nothing_but_rounding(law):
    at_once, parts = (
        estimates(MATRICES["random"], law, models=2, num_probes=12, block=block)
        for block in (12, 5)
    )
    for name in ("value", "sem", "low", "high", "layer_sem"):
        whole, pieces = stacked(at_once, name), stacked(parts, name)
        torch.testing.assert_close(whole, pieces, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", [6, 16])
def test_means_of_layers_have_an_error_that_is_not_too_small(count, law):
    sizes = [1, 5, SIZE - 6]
    found = estimates(MATRICES["random"], law, sizes=sizes, num_probes=count)
    parts = torch.split(MATRICES["random"].diagonal(), sizes)
    exact_L = torch.stack([part.mean() for part in parts])
    off_ML, told_ML = (
        stacked(found, "layer_mean") - exact_L,
        stacked(found, "layer_sem"),
    )
    ratio_L = off_ML.square().mean(0).sqrt() / told_ML.square().mean(0).sqrt()
    assert (ratio_L < 1.15).all()
    assert (ratio_L > 0.9 * 0.5**0.5).all()


def test_models_stop_by_themselves_and_do_not_depend_on_each_other():
    A_DD, asked = MATRICES["random"], {"rel_sem": 0.5, "max_probes": 4096}
    shifted_MDD = torch.stack([A_DD, A_DD + 5 * torch.eye(SIZE).double()])
    given = {"num_probes": 8, "distribution": "rademacher", "block": 16, **asked}
    together = diagonals(BatchedDense(shifted_MDD), [SIZE], [0, 1], **given)
    assert together[0].num_matvecs > together[1].num_matvecs
    for seed, found in enumerate(together):
        alone = BatchedDense(shifted_MDD[[seed, seed]])
        again = diagonals(alone, [SIZE], [seed, seed], **given)[0]
        torch.testing.assert_close(again.value, found.value)
        assert again.num_matvecs == found.num_matvecs
        assert found.reached
        assert found.sem.norm() <= 0.5 * found.value.norm()


def test_intervals_cover_where_a_small_error_ends_the_draws():
    found = estimates(MATRICES["of low rank"], rel_sem=0.3, max_probes=512)
    assert len({one.num_matvecs for one in found}) > 1
    held_D = held(found, MATRICES["of low rank"].diagonal()).mean(0)
    assert held_D.mean() > 0.95 - 2 * BINOMIAL


def pairs_of_samples():
    """Return samples whose coupled pairs differ by half."""
    A_DD, share_N11 = coupled_pairs()[2:, 2:], torch.linspace(0.75, 1.25, 24)
    return Means(A_DD * share_N11[:, None, None].double(), REPETITIONS)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", [4, 8, 12, 16, 48])
@pytest.mark.parametrize("case", ["pairs", 0, 2, 4, 7])
def test_intervals_by_batches_cover_each_entry(case, count, law):
    of_pairs = case == "pairs"
    means = pairs_of_samples() if of_pairs else random_means(case, REPETITIONS)
    found = by_batches(means, law, num_probes=count)
    held_D = held(found, means.matrices.mean(0).diagonal()).mean(0)
    assert held_D.mean() > 0.95 - 3 * BINOMIAL
    assert held_D.min() > 0.95 - 5 * BINOMIAL


def blocks_held(found, means, sizes):
    """Return whether each interval of a block holds its mean, but for rounding."""
    parts = means.matrices.mean(0).diagonal().split(sizes)
    exact_L = torch.stack([part.mean() for part in parts])
    slack_L = 1e-9 * exact_L.abs()
    low_ML, high_ML = stacked(found, "layer_low"), stacked(found, "layer_high")
    return ((low_ML <= exact_L + slack_L) & (exact_L - slack_L <= high_ML)).double()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("per", ["data", "batch"])
def test_intervals_of_random_blocks_cover_their_means(per, law):
    shares = []
    for case in range(12):
        rng = np.random.default_rng([case, LAWS.index(law)])
        means = random_means(int(rng.integers(1000)), REPETITIONS)
        size = means.shape[1]
        sizes = [first := int(rng.integers(1, size)), size - first]
        count, batch_size = int(rng.integers(16, 100)), int(rng.integers(1, 20))
        given = {"num_probes": count, "sizes": sizes}
        if per == "batch":
            found = by_batches(means, law, batch_size=batch_size, **given)
        else:
            given["num_probes"] = count // 4
            found = estimates(means.matrices.mean(0), law, **given)
        shares.append(blocks_held(found, means, sizes).mean(0))
    share_B = torch.cat(shares)
    error = share_B.std() / len(share_B) ** 0.5
    assert share_B.mean() > 0.95 - 2 * error
    assert share_B.min() > 0.95 - 6 * BINOMIAL
    # Of vectors for all data the error is a bound.
    assert share_B.mean() < (0.98 if per == "batch" else 0.99)


@pytest.mark.parametrize("count", [4, 8, 16, 24, 40])
def test_signs_know_the_mean_of_two_entries_as_they_know_one(count):
    A_DD = torch.block_diag(
        torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([[1.0, 0.3], [0.3, 2.0]])
    ).double()
    found = estimates(A_DD, "rademacher", models=1000, sizes=[2, 2], num_probes=count)
    half_ML = stacked(found, "layer_high") - stacked(found, "layer_mean")
    half_MD = stacked(found, "high") - stacked(found, "value")
    # Where signs agree, each entry has a law of its own.
    least_ML = half_MD.unflatten(1, (2, 2)).amin(2)
    assert (half_ML >= least_ML * (1 - 1e-9)).all()
    exact_L = torch.tensor([1.0, 1.5]).double()
    low_ML, high_ML = stacked(found, "layer_low"), stacked(found, "layer_high")
    held_ML = (low_ML <= exact_L + 1e-9) & (exact_L - 1e-9 <= high_ML)
    assert held_ML.double().mean(0).min() > 0.95 - 3 * (0.95 * 0.05 / 1000) ** 0.5


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_of_a_block_of_one_entry_has_the_interval_of_the_entry(law):
    found = estimates(MATRICES["random"], law, models=3, sizes=[1, SIZE - 1])
    for end in ("low", "high"):
        of_block, of_entry = stacked(found, f"layer_{end}"), stacked(found, end)
        assert of_block[:, 0].tolist() == of_entry[:, 0].tolist()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("case", [0, 3, 5])
def test_batches_are_unbiased_and_their_errors_are_what_they_are_told(case, law):
    means = random_means(case, REPETITIONS)
    found = by_batches(means, law, num_probes=48)
    off_MD = stacked(found, "value") - means.matrices.mean(0).diagonal()
    spread_D = off_MD.square().mean(0).sqrt()
    assert (off_MD.mean(0).abs() < 4.5 * spread_D / REPETITIONS**0.5).all()
    told_D = stacked(found, "sem").square().mean(0).sqrt()
    torch.testing.assert_close(told_D, spread_D, rtol=0.25, atol=0)


@pytest.mark.parametrize("count", [8, 16, 90])
def test_entries_by_batches_add_up_to_their_traces(count):
    means = random_means(9, 3)
    sizes = [1, means.shape[1] - 1]
    given = {"batch_size": 4, "num_probes": count, "distribution": "gaussian"}
    found = by_batches(means, "gaussian", sizes=sizes, num_probes=count)
    traced = batch_traces(means, sizes, range(3), **given)
    for one, trace in zip(found, traced, strict=True):
        mean_L, sizes_L = trace.draws.mean(1), torch.tensor(sizes)
        torch.testing.assert_close(one.layer_mean * sizes_L, mean_L)
        torch.testing.assert_close(one.layer_sem * sizes_L, trace.layer_sem)
        assert one.num_matvecs == trace.num_matvecs
        # The first block has one entry, whose error is that of its trace.
        torch.testing.assert_close(one.sem[0], trace.layer_sem[0])


def test_the_batches_of_a_pass_leave_only_the_error_of_vectors():
    means = random_means(5, 2)
    matrices = torch.diag_embed(means.matrices.diagonal(dim1=1, dim2=2))
    given = {"batch_size": 1, "num_probes": 2 * means.num_samples}
    found = by_batches(Means(matrices, 2), **given)
    torch.testing.assert_close(found[0].value, matrices.mean(0).diagonal())
    assert found[0].sem.max() < 1e-12


def test_models_by_batches_stop_by_themselves():
    means = random_means(4, 6)
    asked = {"rel_sem": 0.15, "max_probes": 4096}
    together = by_batches(means, **asked)
    assert len({found.num_matvecs for found in together}) > 1
    for seed, found in enumerate(together):
        (alone,) = by_batches(means.select([0]), seeds=[seed], **asked)
        for name in ("value", "sem", "layer_mean"):
            torch.testing.assert_close(getattr(alone, name), getattr(found, name))
        assert found.reached


@pytest.mark.parametrize("batches", [1, 7])
def test_modules_by_batches_agree_with_their_dense_diagonal(batches):
    net, x, y = module_and_data()
    A = hessian(net, "cross_entropy", (x, y))
    given = {"num_probes": 64, "distribution": "rademacher"}
    sizes, batch_size = list(A.sizes.values()), -(-len(x) // batches)
    (apart,) = batch_diagonals(A, sizes, [0], batch_size=batch_size, **given)
    exact_D = (A @ torch.eye(A.shape[0]).double()).diagonal()
    assert (abs(apart.value - exact_D) < 5 * apart.sem + 1e-12).all()
    if batches == 1:
        (whole,) = diagonals(A, sizes, [0], block=8, **given)
        torch.testing.assert_close(apart.value, whole.value, rtol=1e-9, atol=1e-12)
