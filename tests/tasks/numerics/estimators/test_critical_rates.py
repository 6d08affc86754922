"""The smallest learning rate that raises the loss."""

import pytest
import torch

from curvflow.tasks.numerics.estimators.learning_rates import critical_rate


def search(losses_at, start, tol=0.01, max_passes=60):
    first = torch.tensor(start, dtype=torch.float64)
    return critical_rate(losses_at, first, tol=tol, max_passes=max_passes)


@pytest.mark.parametrize("start", [1e-6, 0.3, 1e4], ids=["below", "near", "above"])
def test_on_parabolas_it_is_twice_the_rate_to_their_bottom(start):
    bottom = torch.tensor([0.01, 0.7, 30.0]).double()
    result = search(lambda rate: (rate - bottom).square(), [start] * 3)
    assert result.converged.all()
    torch.testing.assert_close(result.rate, 2 * bottom, rtol=0.01, atol=0)


def test_a_few_evaluations_are_enough_from_a_rate_of_the_right_size():
    result = search(lambda rate: (rate - 1).square(), [1.5], tol=0.1)
    assert result.passes.item() <= 6


def test_a_model_takes_the_same_course_whatever_its_siblings():
    bottom = torch.tensor([0.01, 30.0]).double()
    both = search(lambda rate: (rate - bottom).square(), [1.0, 1.0])
    for model in range(2):
        rows_of_model = bottom[model]
        alone = search(
            lambda rate, rows_of_model=rows_of_model: (rate - rows_of_model).square(),
            [1.0],
        )
        assert alone.rate.item() == both.rate[model].item()
        assert alone.passes.item() == both.passes[model].item()


def test_a_loss_that_never_rises_is_flagged():
    result = search(lambda rate: -rate, [1.0])
    assert not result.converged.item()
    assert result.rate.isnan().item()
    assert result.passes.item() == 60


def test_a_loss_that_rises_at_once_is_flagged():
    result = search(lambda rate: rate, [1.0])
    assert not result.converged.item()
    assert result.rate.isnan().item()


def test_losses_that_are_not_finite_count_as_raised():
    def losses(rate):
        return torch.where(rate < 0.5, -rate, torch.inf)

    assert search(losses, [1e-3]).rate.item() == pytest.approx(0.5, rel=0.01)


def test_a_model_whose_loss_is_not_finite_is_flagged():
    result = search(lambda rate: rate * torch.nan, [1.0])
    assert not result.converged.item()
    assert result.passes.item() == 0
