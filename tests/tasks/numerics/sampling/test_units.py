"""One step in the units of others, and its random numbers."""

from types import SimpleNamespace

import pytest
import torch

from curvflow.tasks.numerics.sampling.methods import METHODS
from curvflow.tasks.numerics.sampling.posteriors import Steps, Stream
from curvflow.tasks.numerics.sampling.step_context import (
    PAGE,
    RandomNumbers,
    StepContext,
    draw_block,
)
from tests.tasks.numerics.sampling.bowls import (
    GAMMA,
    NBETA,
    about_zero,
    bowl,
    sample_chains,
)

LIKE = torch.zeros(2, 6, dtype=torch.float64)
STREAMS = [Stream(0, 0), Stream(0, 1)]


def block_draws(streams=STREAMS, batch_size=8):
    sizes = {"num_samples": 64, "batch_size": batch_size}
    return draw_block(0, streams, 128, **sizes, device=torch.device("cpu"))


def random_numbers(streams=STREAMS, like=LIKE, batch_size=8, **how):
    return RandomNumbers(streams, like, num_samples=64, batch_size=batch_size, **how)


def one_step():
    """Weights before and after a step, its gradient, noise, rows and lr."""
    losses = bowl(minimum=1.0)
    posterior = about_zero(losses, 2)
    drawn = sample_chains(posterior, "sgld", num_draws=3, batch_size=8)
    numbers, before_CD = random_numbers(), drawn.weights[:, 1]
    rows_CB, _ = numbers.batch(1)
    _, gradient_CD = losses.gradients(before_CD, rows_CB)
    lr = 0.2 / (NBETA * 1.5 + GAMMA)
    moved_CD = drawn.weights[:, 2] - before_CD
    return losses, before_CD, moved_CD, gradient_CD, numbers.noise(1), rows_CB, lr


def test_a_step_is_that_of_devinterp():
    _, w_CD, moved_CD, gradient_CD, noise_CD, _, lr = one_step()
    dw_CD = gradient_CD * NBETA + GAMMA * w_CD
    torch.testing.assert_close(moved_CD, -0.5 * lr * dw_CD + lr**0.5 * noise_CD)


def test_a_step_is_that_of_posteriors():
    """lr' = lr nbeta / 2, T = 1 / nbeta, prior of precision gamma / nbeta."""
    _, w_CD, moved_CD, gradient_CD, noise_CD, _, lr = one_step()
    rate, temperature = lr * NBETA / 2, 1 / NBETA
    log_posterior_CD = -gradient_CD - GAMMA / NBETA * w_CD
    step_CD = rate * log_posterior_CD + (2 * rate * temperature) ** 0.5 * noise_CD
    torch.testing.assert_close(moved_CD, step_CD)


def test_a_step_is_that_of_saghir():
    """Saghir et al., equation 21, with its 1 / m and noise of variance epsilon."""
    losses, w_CD, moved_CD, _, noise_CD, rows_CB, lr = one_step()
    log_p_CD = -(losses.slopes_ND[rows_CB] + losses.h_D * w_CD[:, None]).sum(1)
    drift_CD = NBETA / rows_CB.shape[1] * log_p_CD + GAMMA * (0 - w_CD)
    torch.testing.assert_close(moved_CD, lr / 2 * drift_CD + lr**0.5 * noise_CD)


@pytest.mark.parametrize("method", ["sghmc", "sgnht"])
def test_at_full_friction_a_first_step_is_that_of_sgld(method):
    posterior = about_zero(bowl(), 2)
    drawn = sample_chains(posterior, method, num_draws=2, friction=1.0)
    plain = sample_chains(posterior, "sgld", num_draws=2)
    torch.testing.assert_close(drawn.weights, plain.weights)


def test_batches_and_acceptance_draws_depend_on_the_stream_alone():
    both, second = block_draws(), block_draws(STREAMS[1:])
    other = block_draws([Stream(1, 0)])
    for name in ("rows", "acceptance"):
        assert torch.equal(getattr(both, name)[1:], getattr(second, name))
        assert not torch.equal(getattr(both, name)[:1], getattr(second, name))
        assert not torch.equal(getattr(both, name)[:1], getattr(other, name))


@pytest.mark.parametrize("size", [6, 1000, PAGE + 5])
def test_noise_of_a_step_does_not_depend_on_the_way_there(size):
    like = torch.zeros(2, size)
    straight = random_numbers(like=like)
    expected = [straight.noise(step).clone() for step in range(140)]
    for way in ([139, 138], [5, 6, 130, 3], [64], [128, 127]):
        numbers = random_numbers(like=like)
        for step in way:
            assert torch.equal(numbers.noise(step), expected[step])
    whole = torch.stack(expected)
    assert len(whole.unique()) > 0.99 * min(whole.numel(), 2**20)


def test_noise_and_batches_depend_on_the_stream_alone():
    like = torch.zeros(2, 3000)
    both, second = random_numbers(like=like), random_numbers(STREAMS[1:], like[1:])
    for step in range(5):
        assert torch.equal(both.noise(step)[1:], second.noise(step))
        for mine, other in zip(both.batch(step), second.batch(step), strict=True):
            assert torch.equal(mine[1:], other)
            assert not torch.equal(mine[:1], other)


def test_noise_is_standard_normal_in_both_precisions():
    single, double = random_numbers(like=LIKE.float()), random_numbers()
    drawn = []
    for step in range(3000):
        drawn.append(double.noise(step).clone())
        assert torch.equal(single.noise(step).double(), drawn[-1])
    z = torch.stack(drawn).flatten()
    root = len(z) ** 0.5
    assert abs(z.mean()) < 4 / root
    assert abs(z.square().mean() - 1) < 4 * 2**0.5 / root
    assert abs(z.pow(4).mean() - 3) < 4 * 96**0.5 / root
    after = torch.stack(drawn[1:]) * torch.stack(drawn[:-1])
    assert abs(after.mean()) < 4 / root


def test_fixed_parameters_get_no_noise():
    free = torch.tensor([True, False] * 3)
    noise_CD = random_numbers(free=free).noise(0)
    assert (noise_CD[:, ~free] == 0).all()
    assert torch.equal(noise_CD[:, free], random_numbers().noise(0)[:, free])


def test_no_batches_are_drawn_where_steps_take_all_data():
    rows_CB, acceptance_C = random_numbers(batch_size=None).batch(0)
    assert rows_CB is None
    assert ((acceptance_C >= 0) & (acceptance_C < 1)).all()


def test_batches_are_drawn_uniformly_with_replacement():
    rows_CTB = block_draws(batch_size=64).rows
    counts = torch.bincount(rows_CTB.flatten(), minlength=64).double()
    expected = rows_CTB.numel() / 64
    assert ((counts - expected).abs() < 5 * expected**0.5).all()
    distinct = torch.tensor([len(rows_B.unique()) for rows_B in rows_CTB[0]])
    assert distinct.double().mean().item() == pytest.approx(
        64 * (1 - (63 / 64) ** 64), abs=1.5
    )


def test_drift_of_a_step_is_the_posteriors():
    posterior = about_zero(bowl(), 2, free=torch.tensor([True] * 5 + [False]))
    weights_CD, gradients_CD = torch.randn(2, 2, 6, dtype=torch.float64)
    drift_CD = StepContext(posterior, Steps("sgld", posterior.nbeta, 1)).drift_of(
        weights_CD, gradients_CD
    )
    torch.testing.assert_close(drift_CD, posterior.drift(weights_CD, gradients_CD))


@pytest.mark.parametrize("method", METHODS)
def test_the_largest_factor_of_a_step_is_that_without_gradients(method):
    of = METHODS[method]
    most = of.most_scale(0.01)
    if of.scale is None:
        assert most == 1
        return
    square_CD = torch.tensor([[0.0, 4.0]], dtype=torch.float64)
    state = {"square": square_CD, "squares": torch.ones(1, 1, dtype=torch.float64)}
    factors_CD = of.scale(state, SimpleNamespace(damping=0.01, decay=0.0))
    expected = torch.tensor([[100, 1 / 2.01]], dtype=torch.float64)
    torch.testing.assert_close(factors_CD, expected)
    assert most == pytest.approx(factors_CD.max().item(), rel=1e-12)
