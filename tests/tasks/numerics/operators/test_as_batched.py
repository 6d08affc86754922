"""Functions of batched operators take those of a single model, with the same bits."""

import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import (
    BatchedDense,
    Dense,
    block_power,
    from_scipy,
    lanczos,
    lobpcg,
    moment_draws,
    restarted_lanczos,
    traces,
)
from curvflow.tasks.numerics.krylov.low_rank import nystrom
from curvflow.tasks.numerics.operators.adapters import Single
from curvflow.tasks.numerics.operators.base import as_batched

SIZE = 60


def made():
    """Return a positive definite matrix and a block of columns, (D, D) and (D, 4)."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(SIZE, SIZE + 4, generator=generator, dtype=torch.float64)
    return drawn @ drawn.T / SIZE, drawn[:, -4:]


FUNCTIONS = {
    "lanczos": lambda A, start: lanczos(A, start, num_steps=9, vectors=True),
    "restarted_lanczos": lambda A, start: restarted_lanczos(
        A, start, k=2, tol=1e-6, max_iterations=50
    ),
    "lobpcg": lambda A, start: lobpcg(A, start, k=2, tol=1e-6, max_iterations=90),
    "block_power": lambda A, start: block_power(
        A, start, k=2, tol=1e-6, max_iterations=500
    ),
    "nystrom": lambda A, start: nystrom(A, start, num_blocks=2),
    "traces": lambda A, _: traces(
        A,
        [SIZE],
        [0],
        method="xtrace",
        num_probes=8,
        distribution="rademacher",
        block=4,
    ),
    "hutchinson": lambda A, _: traces(
        A,
        [SIZE],
        [0],
        method="hutchinson",
        num_probes=8,
        distribution="gaussian",
        block=4,
    ),
    "moment_draws": lambda A, _: moment_draws(
        A, [0], num_moments=5, num_probes=4, distribution="rademacher", block=2
    ),
}


def leaves(result):
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, int):
        return [torch.tensor(result)]
    if isinstance(result, list | tuple):
        return [leaf for part in result for leaf in leaves(part)]
    held = (getattr(result, name) for name in result.__dataclass_fields__)
    return [torch.as_tensor(value) for value in held if value is not None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operator_of_one_model_gives_the_bits_of_a_batch_of_one(name):
    matrix, start = made()
    call = FUNCTIONS[name]
    expected = leaves(call(BatchedDense(matrix.unsqueeze(0)), start.unsqueeze(0)))
    single = Single(BatchedDense(matrix.unsqueeze(0)))
    for operator, columns in ((single, start), (single, start.unsqueeze(0))):
        got = leaves(call(operator, columns))
        for tensor, other in zip(got, expected, strict=True):
            assert torch.equal(tensor.isnan(), other.isnan())
            assert torch.equal(tensor.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("make", [Dense, lambda A: from_scipy(A.numpy())])
def test_operators_that_know_no_batches_are_taken_as_well(make):
    matrix, start = made()
    estimated = restarted_lanczos(
        make(matrix), start, k=3, which="LA", tol=1e-9, max_iterations=99
    )
    assert estimated.values.shape == (1, 3)
    torch.testing.assert_close(
        estimated.values[0],
        torch.linalg.eigvalsh(matrix).flip(0)[:3],
        rtol=1e-10,
        atol=0,
    )


def test_a_vector_is_one_start():
    matrix, start = made()
    ritz = lanczos(Dense(matrix), start[:, 0], num_steps=5)
    assert ritz.values.shape == (1, 1, 5)


def test_an_operator_that_is_not_square_is_refused():
    with pytest.raises(InputError, match=r"operator: .* 4 by 3"):
        as_batched(Dense(torch.ones(4, 3)))
