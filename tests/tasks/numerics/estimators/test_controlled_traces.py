"""Traces beside a matrix of known trace: unbiased, honest, never much worse."""

import pytest
import torch

from curvflow.tasks.numerics import BatchedDense, traces
from curvflow.tasks.numerics.estimators.controlled_traces import controlled_traces
from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.numerics.estimators.layer_intervals import layer_intervals
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import dense_block, diagonal_block
from tests.tasks.toys import with_spectrum

SIZE, SIZES, TIMES = 30, [12, 18], 200
LAWS = ["rademacher", "gaussian"]
A = with_spectrum(torch.logspace(-3, 1, SIZE).tolist(), 0)
OTHER = with_spectrum(torch.logspace(-3, 1, SIZE).tolist(), 1)
NEAR = A + 0.1 * with_spectrum(torch.linspace(0, 1, SIZE).tolist(), 2)
SPIKE = with_spectrum([30.0] + [0.0] * (SIZE - 1), 3)


def as_blocks(matrix, times=1):
    whole = matrix.expand(times, -1, -1).clone()
    return BlockOperator([dense_block("w", torch.arange(SIZE), whole)], SIZE)


def both(control, law, count):
    """Return traces of many seeds with the control and without."""
    operator, seeds = BatchedDense(A.expand(TIMES, -1, -1)), list(range(TIMES))
    given = {"num_probes": count, "distribution": law, "block": 7}
    controlled = controlled_traces(
        operator, as_blocks(control, TIMES), SIZES, seeds, **given
    )
    plain = traces(operator, SIZES, seeds, method="hutchinson", **given)
    return controlled, plain


def means(found):
    return torch.stack([each.draws.sum(0).mean() for each in found])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("factor", [1.0, -0.3])
def test_a_multiple_of_the_matrix_leaves_nothing(law, factor):
    operator, control = BatchedDense(A[None]), as_blocks(factor * A)
    given = {"num_probes": 4, "distribution": law, "block": 7}
    (found,) = controlled_traces(operator, control, SIZES, [0], **given)
    expected = [part.sum() for part in torch.split(A.diagonal(), SIZES)]
    torch.testing.assert_close(found.draws.mean(1), torch.stack(expected))
    assert float(found.control.coefficient) == pytest.approx(1 / factor)
    assert found.sem < 1e-7 * A.trace()
    assert found.control.left < 1e-12


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("control", [NEAR, OTHER, SPIKE], ids=["near", "other", "one"])
@pytest.mark.parametrize("count", [8, 64])
def test_intervals_hold_the_trace_and_the_variance_is_never_much_more(
    law, control, count
):
    controlled, plain = both(control, law, count)
    errors = means(controlled) - A.trace()
    assert abs(errors.mean()) < 4 * errors.std() / TIMES**0.5
    assert errors.var() <= 1.1 * means(plain).var()
    held = 0
    for each in controlled:
        mean = each.draws.sum(0).mean()
        low, high = student_interval(mean, each.sem, each.freedom)
        held += bool(low <= A.trace() <= high)
    # 200 trials at 95 %: 179 or fewer happen once in a thousand.
    assert held >= 180
    left = torch.stack([each.control.left for each in controlled]).mean()
    ratio = errors.var() / means(plain).var()
    assert 0.6 < ratio / left < 1.6


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("control", [NEAR, SPIKE], ids=["near", "one"])
def test_intervals_of_blocks_hold_their_traces(law, control):
    exact_L = torch.stack([part.sum() for part in A.diagonal().split(SIZES)])
    controlled, _ = both(control, law, 16)
    ends = [layer_intervals(each, SIZE, law) for each in controlled]
    low_ML, high_ML = (torch.stack(several) for several in zip(*ends, strict=True))
    held_ML = (low_ML <= exact_L) & (exact_L <= high_ML)
    # 200 trials at 95 %: 179 or fewer happen once in a thousand.
    assert held_ML.sum(0).min() >= 180


def test_a_diagonal_tells_signs_nothing():
    operator = BatchedDense(A[None])
    control = BlockOperator(
        [diagonal_block("w", torch.arange(SIZE), A.diagonal()[None])], SIZE
    )
    given = {"num_probes": 16, "distribution": "rademacher", "block": 7}
    (found,) = controlled_traces(operator, control, SIZES, [0], **given)
    (plain,) = traces(operator, SIZES, [0], method="hutchinson", **given)
    assert float(found.control.coefficient) == 0
    torch.testing.assert_close(found.draws, plain.draws)


def test_models_stop_by_themselves_and_as_alone():
    operator = BatchedDense(torch.stack([A, OTHER]))
    control = BlockOperator(
        [dense_block("w", torch.arange(SIZE), torch.stack([NEAR, NEAR]))], SIZE
    )
    given = {
        "num_probes": 8,
        "distribution": "rademacher",
        "block": 5,
        "rel_sem": 0.02,
        "max_probes": 256,
    }
    near, far = controlled_traces(operator, control, SIZES, [0, 1], **given)
    assert near.reached
    assert near.num_matvecs == 8 < far.num_matvecs
    few = torch.tensor([1, 1])
    (alone, _) = controlled_traces(
        operator.select(few), control.select(few), SIZES, [1, 1], **given
    )
    torch.testing.assert_close(alone.draws, far.draws, rtol=0, atol=0)
