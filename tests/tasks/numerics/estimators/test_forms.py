"""Errors of quadratic forms, against draws of many."""

from math import sqrt

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics.estimators.forms import (
    Error,
    FormErrors,
    shrunk,
    sphere_error,
)
from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.numerics.estimators.traces import estimate
from tests.tasks.toys import random_symmetric

LAWS = ["rademacher", "gaussian"]
SIZE = 25


def drawn(law, *shape):
    if law == "gaussian":
        return torch.randn(*shape, dtype=torch.float64)
    return torch.randint(0, 2, shape).double() * 2 - 1


def variance(A_DD, law):
    """Return the variance of z.Az."""
    on_diagonal = A_DD.diagonal().square().sum() if law == "rademacher" else 0.0
    return float(2 * (A_DD.square().sum() - on_diagonal))


def random_case(number):
    """Return a symmetric matrix of a random law, of which few eigenvalues may count."""
    draw = np.random.default_rng(number)
    values_D = torch.from_numpy(10 ** draw.uniform(-draw.uniform(0, 8), 0, SIZE))
    values_D[: draw.integers(0, 3)] *= 10 ** draw.uniform(0, 3)
    if number % 3 == 0:
        values_D[draw.random(SIZE) < 0.4] *= -1
    basis_DD, _ = np.linalg.qr(draw.normal(size=(SIZE, SIZE)))
    basis_DD = torch.from_numpy(basis_DD if number % 4 else np.eye(SIZE))
    return basis_DD @ torch.diag(values_D) @ basis_DD.T


def forms_of(A_MDD, z_MDS, law, *, block=5):
    forms = FormErrors(law)
    for part_MDS in z_MDS.split(block, dim=2):
        images_MDS = A_MDD @ part_MDS
        forms.add(part_MDS * images_MDS, images_MDS)
    return forms


@pytest.mark.parametrize("law", LAWS)
def test_the_square_of_the_error_is_unbiased(law):
    torch.manual_seed(0)
    A_DD = random_symmetric(SIZE, 0) + torch.diag(torch.linspace(0, 9, SIZE).double())
    A_MDD = A_DD.expand(2000, -1, -1)
    error = forms_of(A_MDD, drawn(law, 2000, SIZE, 7), law).error()
    told_M, truth = error.sem.square() * 7, variance(A_DD, law)
    assert abs(told_M.mean() - truth) < 5 * told_M.std() / sqrt(2000)
    # Much better than by the spread of seven draws, whose relative error is 0.58.
    assert told_M.std() < 0.2 * truth
    assert (error.freedom >= 6).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", [2, 4, 10])
def test_intervals_of_random_matrices_cover(law, count):
    torch.manual_seed(count)
    held = []
    for number in range(60):
        A_DD = random_case(number)
        A_MDD, z_MDS = A_DD.expand(50, -1, -1), drawn(law, 50, SIZE, count)
        mean_M = (z_MDS * (A_MDD @ z_MDS)).sum(1).mean(1)
        error = forms_of(A_MDD, z_MDS, law).error()
        low_M, high_M = student_interval(mean_M, *error)
        truth, slack = float(A_DD.trace()), 1e-9
        inside_M = (low_M <= truth + slack) & (truth - slack <= high_M)
        held.append(inside_M.double().mean())
    assert 0.935 < np.mean(held) < 0.985
    assert np.min(held) > 0.8


@pytest.mark.parametrize("law", LAWS)
def test_blocks_of_vectors_and_selected_models_change_nothing(law):
    torch.manual_seed(1)
    A_MDD = torch.stack([random_symmetric(SIZE, seed) for seed in range(3)])
    z_MDS = drawn(law, 3, SIZE, 12)
    at_once = forms_of(A_MDD, z_MDS, law, block=12).error()
    forms = forms_of(A_MDD, z_MDS[..., :5], law, block=2)
    forms.select(torch.tensor([2, 0]))
    rest_MDS = z_MDS[[2, 0], :, 5:]
    images_MDS = A_MDD[[2, 0]] @ rest_MDS
    forms.add(rest_MDS * images_MDS, images_MDS)
    for whole, parts in zip(at_once, forms.error(), strict=True):
        torch.testing.assert_close(parts, whole[[2, 0]])


def test_signs_know_a_diagonal_without_error():
    A_DD = torch.diag(torch.linspace(-3, 8, SIZE).double())
    z_1DS = drawn("rademacher", 1, SIZE, 21)
    assert forms_of(A_DD[None], z_1DS, "rademacher").error().sem.item() == 0
    # As few as six may have seen two dimensions coupled, always with one sign.
    assert forms_of(A_DD[None], z_1DS[..., :6], "rademacher").error().sem.item() > 0


def test_one_vector_tells_no_error():
    forms = FormErrors("gaussian")
    assert forms.error().sem.isnan().all()
    forms.add(torch.ones(1, 3, 1), torch.ones(1, 3, 1))
    assert forms.error().sem.isnan().all()


def test_few_signs_of_few_dimensions_are_not_believed_to_agree():
    A_DD = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double()
    torch.manual_seed(0)
    A_MDD, z_MDS = A_DD.expand(500, -1, -1), drawn("rademacher", 500, 2, 4)
    error = forms_of(A_MDD, z_MDS, "rademacher").error()
    mean_M = (z_MDS * (A_MDD @ z_MDS)).sum(1).mean(1)
    # Vectors that are all in the null space know of nothing else.
    assert ((error.sem > 0) == (mean_M > 0)).all()


def test_the_error_of_directions_is_that_of_their_law():
    values_D = torch.linspace(-1, 3, SIZE, dtype=torch.float64)
    weights_1D = torch.full((1, SIZE), 1 / SIZE).double()
    error = sphere_error(weights_1D, values_D[None], size=SIZE, count=10)
    torch.manual_seed(0)
    z_SD = torch.randn(200_000, SIZE, dtype=torch.float64)
    v_SD = z_SD / z_SD.norm(dim=1, keepdim=True)
    draws_S = SIZE * (v_SD.square() * values_D).sum(1)
    law = float(draws_S.std()) / sqrt(10)  # of Gaussian directions, D / (D + 2) of it
    assert error.sem.item() == pytest.approx(law * sqrt(1 + 2 / SIZE), rel=0.01)
    centred_D = (values_D - values_D.mean()).square()
    alike = float(centred_D.sum() ** 2 / centred_D.square().sum())
    assert error.freedom.item() == pytest.approx(10 * alike)


def test_equal_values_have_no_error():
    error = sphere_error(torch.ones(1, 1), torch.ones(1, 1), size=9, count=3)
    assert error.sem.item() == 0
    assert np.isfinite(error.freedom.item())


def test_the_error_lies_between_that_of_the_draws_and_of_the_law():
    law = Error(torch.ones(5), torch.full((5,), 99.0))
    draws = Error(
        torch.tensor([0.0, 0.5, 2.0, torch.nan, 0.5]),
        torch.tensor([20.0, 20.0, 20.0, 0.0, 1e6]),
    )  # of more vectors than may all agree
    found = shrunk(draws, law, size=SIZE)
    expected = [0, 0.5**0.5, 2**0.5, 1, 0.5]
    assert found.sem.tolist() == pytest.approx(expected, rel=1e-4)
    assert found.freedom[1].item() == pytest.approx(4 / (1 / 99 + 1 / 20))
    assert found.freedom[3].item() == pytest.approx(99)


def test_an_unknown_law_leaves_the_draws():
    law = Error(torch.tensor([torch.nan]), torch.tensor([5.0]))
    found = shrunk(Error(torch.tensor([0.3]), torch.tensor([7.0])), law, size=SIZE)
    assert [found.sem.item(), found.freedom.item()] == pytest.approx([0.3, 7])


@pytest.mark.parametrize("size", [2, SIZE])
def test_a_law_without_error_does_not_silence_draws_that_differ(size):
    law, draws = (
        Error(torch.zeros(1), torch.ones(1)),
        Error(torch.ones(1), torch.ones(1)),
    )
    found = shrunk(draws, law, size=size)
    assert [found.sem.item(), found.freedom.item()] == [1, 1]


def test_equal_draws_of_few_signs_in_few_dimensions_keep_their_law():
    law = Error(torch.ones(1), torch.full((1,), 9.0))
    equal = Error(torch.zeros(1), torch.full((1,), 3.0))
    assert shrunk(equal, law, size=2).sem.item() == 1
    assert shrunk(equal, law, size=SIZE).sem.item() == 1  # of one pair alone
    many = Error(torch.zeros(1), torch.full((1,), 20.0))
    assert shrunk(many, law, size=SIZE).sem.item() == 0


@pytest.mark.parametrize("count", [2, 4, 6, 8, 24])
@pytest.mark.parametrize("coupling", [1.0, 20.0])
@pytest.mark.parametrize("rest", [0.0, 1e-3])
def test_two_dimensions_coupled_beyond_all_others_cover(count, coupling, rest):
    torch.manual_seed(count)
    A_DD = torch.diag(torch.arange(1.0, 101.0, dtype=torch.float64))
    A_DD += rest * random_symmetric(100, count)
    A_DD[0, 1] = A_DD[1, 0] = coupling
    z_MDS = drawn("rademacher", 400, 100, count)
    errors = FormErrors("rademacher")
    errors.add(z_MDS * (A_DD @ z_MDS), A_DD @ z_MDS)
    means_M = (z_MDS * (A_DD @ z_MDS)).sum(1).mean(1)
    low_M, high_M = student_interval(means_M, *errors.error())
    truth = float(A_DD.trace())
    # Student's interval of eight draws of two values misses 7 to 1, and 7 % with it.
    assert ((low_M <= truth) & (truth <= high_M)).double().mean() > 0.91


def test_draws_that_are_alike_by_chance_do_not_make_the_error_small():
    torch.manual_seed(3)
    draws_MS = torch.randn(20_000, 3, dtype=torch.float64)
    sample = Error(draws_MS.std(1) / sqrt(3), torch.full((20_000,), 2.0).double())
    law = Error(torch.full_like(sample.sem, 1 / sqrt(3)), sample.freedom + 1000)
    found = shrunk(sample, law, size=SIZE)
    assert (sample.sem < 0.01).any()
    assert (found.sem > 0.5 * law.sem).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("count", [6, 20, 100])
def test_intervals_of_signs_cover_whatever_the_diagonal_has(share, count):
    torch.manual_seed(count)
    held = []
    for number in range(30):
        rest_DD = random_symmetric(SIZE, number)
        rest_DD -= torch.diag(rest_DD.diagonal())
        rest_DD *= ((1 - share) / rest_DD.square().sum()).sqrt()
        diagonal_D = torch.randn(SIZE, dtype=torch.float64)
        diagonal_D *= (share / diagonal_D.square().sum()).sqrt()
        A_DD = rest_DD + torch.diag(diagonal_D)
        z_MDS = drawn("rademacher", 60, SIZE, count)
        draws = estimate((z_MDS * (A_DD @ z_MDS)).sum(1))
        values_D = torch.linalg.eigvalsh(A_DD).expand(60, -1)
        even_MD = torch.full_like(values_D, 1 / SIZE)
        law = sphere_error(even_MD, values_D, size=SIZE, count=count)
        error = shrunk(Error(draws.sem, draws.freedom), law, size=SIZE)
        low_M, high_M = student_interval(draws.mean, *error)
        truth = float(diagonal_D.sum())
        held.append(((low_M <= truth) & (truth <= high_M)).double().mean())
    assert np.mean(held) > 0.93
    if share < 0.5 or count > 20:
        assert np.mean(held) < 0.985
