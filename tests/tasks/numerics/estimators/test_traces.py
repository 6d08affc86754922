"""Traces from random vectors."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, estimate, traces
from curvflow.tasks.numerics.estimators import traces as module
from curvflow.tasks.numerics.estimators.traces import random_vectors
from tests.tasks.toys import random_symmetric

LAWS = ["rademacher", "gaussian"]


def draw(A_MDD, seeds, law, *, num_probes=400, sizes=None, block=64):
    sizes = sizes or [A_MDD.shape[1]]
    found = traces(
        BatchedDense(A_MDD),
        sizes,
        seeds,
        method="hutchinson",
        num_probes=num_probes,
        distribution=law,
        block=block,
    )
    return torch.stack([one.draws for one in found])


@pytest.mark.parametrize("law", LAWS)
def test_traces_are_within_five_standard_errors(law):
    A_MDD = torch.stack([random_symmetric(20, seed) for seed in range(3)])
    result = estimate(draw(A_MDD, [0, 1, 2], law).sum(1))
    exact = A_MDD.diagonal(dim1=1, dim2=2).sum(1)
    assert result.count == 400
    assert ((result.mean - exact).abs() < 5 * result.sem).all()
    assert (result.sem > 0).all()


@pytest.mark.parametrize("law", LAWS)
def test_blocks_have_their_own_traces_and_add_up(law):
    A_MDD = random_symmetric(12, 5)[None].expand(2, -1, -1)
    draws = draw(A_MDD, [0, 1], law, sizes=[5, 4, 3])
    parts = estimate(draws)
    diagonal = A_MDD[0].diagonal()
    exact = torch.stack([part.sum() for part in diagonal.split([5, 4, 3])])
    assert ((parts.mean - exact).abs() < 5 * parts.sem).all()
    whole = draw(A_MDD, [0, 1], law)
    torch.testing.assert_close(draws.sum(1), whole[:, 0], rtol=1e-10, atol=1e-12)


def test_signs_give_the_trace_of_a_diagonal_matrix_without_spread():
    d_D = torch.arange(-3.0, 8.0, dtype=torch.float64)
    result = estimate(draw(torch.diag(d_D)[None], [0], "rademacher", num_probes=2))
    assert result.mean.item() == pytest.approx(d_D.sum().item(), rel=1e-12)
    assert result.sem.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_draws_depend_on_neither_siblings_nor_blocks(law):
    A_MDD = torch.stack([random_symmetric(9, seed) for seed in range(3)])
    together = draw(A_MDD, [0, 1, 2], law, num_probes=10, block=10)
    apart = draw(A_MDD[1:2], [1], law, num_probes=10, block=3)
    torch.testing.assert_close(together[1:2], apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_vectors_are_the_same_however_many_are_drawn_at_once(law, monkeypatch):
    together = random_vectors([0, 1], 9, range(2, 9), law)
    monkeypatch.setattr(module, "DRAWN", 20)
    torch.testing.assert_close(
        random_vectors([0, 1], 9, range(2, 9), law), together, rtol=0, atol=0
    )


def test_more_probes_continue_the_same_draws():
    A_MDD = random_symmetric(9, 0)[None]
    few, many = (draw(A_MDD, [0], "gaussian", num_probes=n) for n in (5, 8))
    torch.testing.assert_close(many[..., :5], few, rtol=1e-12, atol=1e-12)


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="got NaN or infinity"):
        draw(torch.full((1, 3, 3), torch.inf).double(), [0], "rademacher")


@pytest.mark.parametrize("law", LAWS)
def test_vectors_are_the_same_in_single_precision(law):
    double = random_vectors([3], 50, range(2), law)
    single = random_vectors([3], 50, range(2), law, torch.float32)
    assert single.dtype == torch.float32
    assert torch.equal(single, double.float())
