"""Recursions from the outputs back, against Hessians written out and by hand."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import BatchedHessian, fisher_roots
from curvflow.tasks.numerics.kronecker.factors import Choices, factors
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from tests.tasks.numerics.kronecker.cases import case
from tests.tasks.numerics.kronecker.test_factors import within_blocks, written_out
from tests.tasks.rules.checks import started
from tests.tasks.toys import blobs

MODELS = 2
NETS = {
    "tanh": {"kind": "mlp", "hidden": [5, 4], "activation": "tanh"},
    "relu": {"kind": "mlp", "hidden": [5, 4], "activation": "relu"},
    "linear": {"kind": "deep_linear", "hidden": [3, 3]},
}


@cache
def posed(name):
    data = blobs(9)
    problem = pose(parse_model(NETS[name]), "cross_entropy", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    return problem, samples, started(MODELS, problem.network.num_parameters)


def of(name, count=9):
    problem, samples, weights = posed(name)

    def roots(part, outputs):
        return fisher_roots("exact", "cross_entropy", outputs, part.targets)

    def slopes(part, outputs):
        return torch.func.grad(
            lambda f: problem.criterion.of_samples(f, part.targets).sum()
        )(outputs)

    layout, few = problem.network.layout, samples.rows(slice(0, count))
    return Recorded(
        problem.network.outputs_and_uses, layout.names, layout.shapes, weights,
        weights[:, :0], few.inputs, few.targets, roots, 4, MODELS, slopes,
    )  # fmt: skip


def constant(problem):
    """Return the same with a matrix of outputs that is the same for all samples."""

    def roots(_, outputs):
        eye = torch.eye(3, dtype=torch.float64)
        return eye.expand(*outputs.shape[:2], 3, 3)

    return replace(problem, roots=roots)


@pytest.mark.parametrize("name", NETS)
def test_recursive_factors_of_a_diagonal_loss_need_no_roots(name):
    by_roots = replace(
        of(name), roots=lambda _, outputs: torch.diag_embed(outputs.sigmoid())
    )

    def refused(_, outputs):
        raise AssertionError

    by_variances = replace(
        by_roots, roots=refused, variances=lambda outputs: outputs.sigmoid().square()
    )
    matrices = [
        written_out(factors(way, Choices(recursion="recursive")).operator)
        for way in (by_roots, by_variances)
    ]
    torch.testing.assert_close(*matrices, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NETS)
def test_blocks_of_the_hessian(name):
    found = factors(of(name), Choices("block", recursion="hessian")).operator
    problem, samples, weights = posed(name)
    hessian = BatchedHessian(problem.losses, weights, samples.inputs, samples.targets)
    expected = within_blocks(found, written_out(hessian))
    torch.testing.assert_close(written_out(found), expected, rtol=1e-9, atol=1e-10)


def test_hessian_and_gauss_newton_blocks_are_equal_of_relu_and_not_of_tanh():
    for name, are_equal in (("relu", True), ("tanh", False)):
        both = [
            written_out(factors(of(name), Choices("block", recursion=how)).operator)
            for how in ("hessian", None)
        ]
        assert torch.allclose(*both, atol=1e-12) == are_equal


def test_products_of_hessian_means_keep_negative_eigenvalues():
    found = factors(of("tanh"), Choices(recursion="hessian")).operator
    assert found.eigenvalues.min() < 0
    # Of a right factor that is singular, the inverse is of what is added.
    damped = found @ ones(found) + 0.03 * ones(found)
    torch.testing.assert_close(found.solve(damped, 0.03), ones(found))


def ones(operator):
    return torch.ones(operator.shape[:2], dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "count", "is_constant", "exact_from"),
    [("tanh", 1, False, 0), ("linear", 9, True, 0), ("tanh", 9, True, 1)],
    ids=["one-sample", "linear", "last-two"],
)
def test_recursive_factors_are_exact_where_nothing_depends(
    name, count, is_constant, exact_from
):
    problem = constant(of(name, count)) if is_constant else of(name, count)
    recursive = factors(problem, Choices(recursion="recursive")).operator
    exact = factors(problem, Choices()).operator
    pairs = list(zip(recursive.blocks, exact.blocks, strict=True))
    for one, other in pairs[exact_from:]:
        torch.testing.assert_close(one.left_factor, other.left_factor)
        torch.testing.assert_close(one.right_factor, other.right_factor)
    for one, other in pairs[:exact_from]:
        assert not torch.allclose(one.left_factor, other.left_factor, rtol=1e-3)


@pytest.mark.parametrize("name", ["transformer", "vgg", "conv1d_xord"])
def test_what_is_no_chain_is_refused_by_name(name):
    with pytest.raises(InputError, match=r"^fisher_type: expected dense layers one"):
        factors(case(name), Choices(recursion="hessian"))
