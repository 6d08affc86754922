"""Directions, points along them, and the quadratic model of a loss."""

import math

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, stream
from curvflow.tasks.numerics.derivatives.slices import (
    along,
    filter_normalised,
    line_points,
    local_model,
    mean_gradient,
    plane_points,
    principal,
    signed,
)
from tests.tasks.numerics.derivatives.test_hessians import posed
from tests.tasks.toys import TANH_NET, blobs, random_symmetric

SHAPES = ((4, 3, 2, 2), (4,), (5, 4), (5,), (3, 1))
SIZES = [math.prod(shape) for shape in SHAPES]


def normal(*shape, seed=0):
    generator = stream(seed, "test")
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def blocks(columns_MDK):
    return zip(SHAPES, torch.split(columns_MDK, SIZES, dim=1), strict=True)


def turned(count=2, **options):
    weights_MD = normal(3, sum(SIZES), seed=1)
    draws_MDK = normal(3, sum(SIZES), count)
    return weights_MD, filter_normalised(draws_MDK, weights_MD, SHAPES, **options)


def test_filters_of_every_direction_have_the_norms_of_the_weights():
    weights_MD, found_MDK = turned()
    for (shape, rows_of_model), (_, weight) in zip(
        blocks(found_MDK), blocks(weights_MD[..., None]), strict=True
    ):
        if len(shape) > 1:
            norms = rows_of_model.reshape(3, shape[0], -1, 2).norm(dim=2)
            expected = weight.reshape(3, shape[0], -1).norm(dim=2)[..., None]
            torch.testing.assert_close(norms, expected.expand_as(norms))


def test_biases_and_norm_layers_stay_unless_requested():
    weights_MD, found_MDK = turned()
    _, moved_MDK = turned(biases=True)
    for (shape, still), (_, moved), (_, weight) in zip(
        blocks(found_MDK), blocks(moved_MDK), blocks(weights_MD[..., None]), strict=True
    ):
        if len(shape) == 1:
            assert (still == 0).all()
            norms = moved.norm(dim=1)
            torch.testing.assert_close(norms, weight.norm(dim=1).expand_as(norms))
        else:
            assert torch.equal(still, moved)


def test_directions_are_orthogonal_filter_by_filter_where_there_is_room():
    _, found_MDK = turned(count=3)
    for shape, rows_of_model in blocks(found_MDK):
        filters_MFEK = rows_of_model.reshape(3, shape[0], -1, 3)
        if filters_MFEK.shape[2] >= 3:
            gram = filters_MFEK.mT @ filters_MFEK
            off = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
            assert off.abs().max() < 1e-12


def test_the_first_direction_is_its_draw_scaled():
    one = turned(count=1)[1][..., 0]
    filters = one[:, :48].reshape(3, 4, 12)
    draws = normal(3, sum(SIZES), 1)[:, :48, 0].reshape(3, 4, 12)
    cosines = torch.nn.functional.cosine_similarity(filters, draws, dim=2)
    torch.testing.assert_close(cosines, torch.ones_like(cosines))


def test_principal_directions_hold_the_displacements():
    directions_KD = torch.linalg.qr(normal(9, 2)).Q.T
    coordinates_MCK = normal(2, 6, 2, seed=2) * torch.tensor([5.0, 1.0])
    displacements_MCD = coordinates_MCK @ directions_KD
    found_MDK, shares_MK = principal(displacements_MCD, 2)
    torch.testing.assert_close(
        found_MDK.mT @ found_MDK, torch.eye(2).expand(2, 2, 2).double()
    )
    torch.testing.assert_close(shares_MK.sum(1), torch.ones(2, dtype=torch.float64))
    back = displacements_MCD @ found_MDK @ found_MDK.mT
    torch.testing.assert_close(back, displacements_MCD)


def test_more_principal_directions_than_checkpoints_differ_in_are_refused():
    displacements_MCD = torch.outer(torch.arange(4.0), torch.ones(5))[None].double()
    with pytest.raises(
        InputError, match=r"num_directions: expected at most 1, .* got 2"
    ):
        principal(displacements_MCD, 2)


def test_the_largest_entry_of_a_direction_is_positive():
    result = signed(torch.tensor([[[1.0, -1.0], [-3.0, 2.0]]]))
    assert result.tolist() == [[[-1.0, -1.0], [3.0, 2.0]]]


def test_lines_run_along_one_direction_each_and_planes_along_two():
    steps = torch.tensor([-1.0, 0.0, 2.0])
    assert line_points(steps, 2).tolist() == [
        [-1, 0], [0, 0], [2, 0], [0, -1], [0, 0], [0, 2],
    ]  # fmt: skip
    assert plane_points(steps, 3)[1].tolist() == [-1, 0, 0]
    assert plane_points(steps, 3)[3].tolist() == [0, -1, 0]
    assert plane_points(steps, 2).shape == (9, 2)


@pytest.mark.parametrize("points_per_pass", [2, 3, 100])
def test_points_at_once_equal_points_one_by_one(points_per_pass):
    problem, weights_MD, samples = posed(TANH_NET, blobs(), "cross_entropy")

    def measure(points_PD):
        return problem.losses(points_PD, samples.inputs[:1], samples.targets[:1]).mean(
            1
        )[None]

    directions_DK = normal(weights_MD.shape[1], 2)
    points_PK = plane_points(torch.linspace(-1, 1, 3), 2)
    (result,) = along(
        measure,
        weights_MD[0],
        directions_DK,
        points_PK,
        points_per_pass=points_per_pass,
    )
    for value, (a, b) in zip(result, points_PK.double(), strict=True):
        at_D = weights_MD[0] + a * directions_DK[:, 0] + b * directions_DK[:, 1]
        torch.testing.assert_close(value, measure(at_D[None]).squeeze())


@pytest.mark.parametrize("sizes", [{}, {"batch_size": 7, "models_per_pass": 2}])
def test_the_gradient_is_that_of_autograd(sizes):
    problem, weights_MD, samples = posed(TANH_NET, blobs(), "cross_entropy", models=4)
    leaves = weights_MD.clone().requires_grad_()
    problem.losses(leaves, samples.inputs, samples.targets).mean(1).sum().backward()
    result = mean_gradient(
        problem.losses, weights_MD, samples.inputs, samples.targets, **sizes
    )
    torch.testing.assert_close(result, leaves.grad, rtol=1e-12, atol=1e-15)


def test_the_local_model_of_a_quadratic_is_that_quadratic():
    H_MDD = torch.stack([random_symmetric(6, seed) for seed in range(2)])
    gradient_MD, directions_MDK = normal(2, 6), normal(2, 6, 3, seed=3)
    local = local_model(BatchedDense(H_MDD), gradient_MD, directions_MDK)
    t_K = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    moves_MD = directions_MDK @ t_K
    expected_M = (gradient_MD * moves_MD).sum(1) + 0.5 * torch.einsum(
        "md,mde,me->m", moves_MD, H_MDD, moves_MD
    )
    found_M = local.slope @ t_K + 0.5 * t_K @ local.curvature @ t_K
    torch.testing.assert_close(found_M, expected_M, rtol=1e-12, atol=0)


def test_an_eigenvector_has_its_eigenvalue_as_rayleigh_quotient_and_no_residual():
    H_MDD = torch.stack([random_symmetric(5, seed) for seed in range(2)])
    values, vectors = torch.linalg.eigh(H_MDD)
    local = local_model(BatchedDense(H_MDD), normal(2, 5), 3 * vectors)
    torch.testing.assert_close(local.rayleigh, values, rtol=1e-12, atol=1e-14)
    assert local.residuals.max() < 1e-13
