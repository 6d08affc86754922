"""Samplers against what theory says of them on quadratic losses.

Chains are independent, so that the spread of their means gives the standard error. Of
six parameters none may be 4 of it off: by chance one case in 2600 is.
"""

from dataclasses import replace

import pytest
import torch

from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.sampling.methods.adam_sgld import MOMENTUM
from curvflow.tasks.numerics.sampling.whitening import Eigenvectors, Whitening
from tests.tasks.numerics.sampling.bowls import (
    GAMMA,
    NBETA,
    Bowl,
    about_zero,
    bowl,
    curvatures,
    sample_chains,
    z_scores,
)

LONG = {"num_draws": 40, "num_burnin_steps": 200, "num_steps_bw_draws": 5}


def squares(method, losses, stiffness, num_chains=500, **how):
    drawn = sample_chains(
        about_zero(losses, num_chains), method, stiffness, **LONG | how
    )
    return drawn, drawn.weights.square()


@pytest.mark.parametrize("stiffness", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_sgld_spreads_as_steps_and_batches_heat_it(stiffness, batch_size):
    losses = bowl(spread=1.0)
    drawn, squares_CKD = squares("sgld", losses, stiffness, batch_size=batch_size)
    c_D, lr = curvatures(losses), stiffness / curvatures(losses).max()
    heat = 1 if batch_size is None else 1 + lr * NBETA**2 / (4 * batch_size)
    expected_D = heat / (c_D * (1 - lr * c_D / 4))
    assert (z_scores(squares_CKD, expected_D) < 4).all()
    coefficient_CK = NBETA * (drawn.losses - losses.offsets_N.mean())
    expected = NBETA / 2 * (losses.h_D * expected_D).sum()
    assert z_scores(coefficient_CK[..., None], expected) < 4


@pytest.mark.parametrize("stiffness", [0.5, 2.0])
def test_mala_is_exact_whatever_its_steps(stiffness):
    losses = bowl(minimum=0.3)
    drawn, _ = squares("mala", losses, stiffness, num_steps_bw_draws=10)
    c_D = curvatures(losses)
    mean_D = NBETA * losses.h_D * 0.3 / c_D
    assert (z_scores(drawn.weights, mean_D) < 4).all()
    assert (z_scores((drawn.weights - mean_D).square(), 1 / c_D) < 4).all()


def turned(curvatures_D, seed=0):
    """Orthonormal eigenvectors that are not the axes, (D, D)."""
    source = torch.Generator().manual_seed(seed)
    size = len(curvatures_D)
    return torch.linalg.qr(torch.randn(size, size, generator=source).double())[0]


# Whatever the posterior is whitened by, right or wrong, whole or in part.
@pytest.mark.parametrize("known", ["none", "all", "some", "wrong"])
@pytest.mark.parametrize("stiffness", [0.5, 50.0])
def test_multiscale_mala_is_exact_whatever_its_steps(known, stiffness):
    losses = bowl(minimum=0.3)
    c_D = curvatures(losses)
    vectors = {
        "none": None,
        "all": torch.eye(6, dtype=torch.float64),
        "some": torch.eye(6, dtype=torch.float64)[:, 2:4],
        "wrong": turned(c_D),
    }[known]
    posterior = about_zero(losses, 500)
    if vectors is not None:
        values = losses.h_D if known != "some" else losses.h_D[2:4]
        curvatures_K = torch.cat([values, losses.h_D.mean()[None]])
        group = Eigenvectors(vectors, curvatures_K), NBETA, GAMMA
        whitening = Whitening.of([group], None, posterior.centre)
        posterior = replace(posterior, whitening=whitening)
    how = LONG | {"num_steps_bw_draws": 10}
    drawn = sample_chains(posterior, "multiscale_mala", stiffness, **how)
    mean_D = NBETA * losses.h_D * 0.3 / c_D
    assert (z_scores(drawn.weights, mean_D) < 4).all()
    assert (z_scores((drawn.weights - mean_D).square(), 1 / c_D) < 4).all()
    paced = drawn.state["whitened_pace"] > 0
    assert paced.all() == (known != "none")


@pytest.mark.parametrize("seed", range(3))
def test_whitening_is_the_root_of_the_inverse(seed):
    h_D = torch.tensor([3.0, -0.5, 0.0, 1e-6, 2.0], dtype=torch.float64)
    vectors = turned(h_D, seed)
    A = vectors @ torch.diag(h_D.abs() * NBETA + GAMMA) @ vectors.mT
    known = Eigenvectors(vectors, torch.cat([h_D, torch.zeros(1)]))
    free = torch.tensor([True, True, False, True, True, True])
    like = torch.zeros(2, 6, dtype=torch.float64)
    whitening = Whitening.of([(known, NBETA, GAMMA)] * 2, free, like)
    x = torch.randn(4, 6, dtype=torch.float64) * free
    twice = whitening(whitening(x))
    assert torch.equal(twice[:, 2], torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(twice[:, free] @ A, x[:, free])


def test_without_localization_flat_directions_are_as_wide_as_rounding_allows():
    vectors = torch.eye(3).double()
    known = Eigenvectors(vectors, torch.tensor([1.0, 0.0, -1e-18, 0.0]).double())
    widths = known.scales(100.0, 0.0)
    torch.testing.assert_close(widths, torch.tensor([0.1, 1e5, 1e5, 1e5]).double())
    flat = Eigenvectors(vectors[:, :0], torch.zeros(1).double())
    assert flat.scales(100.0, 0.0) == 1


def test_a_chain_that_starts_nowhere_near_starts_at_the_weights():
    posterior = about_zero(bowl(), 4)
    known = Eigenvectors(torch.eye(6).double(), torch.zeros(7).double())
    whitening = Whitening.of([(known, NBETA, 1e-30)], None, posterior.centre)
    wide = replace(posterior, whitening=whitening)
    how = {"num_draws": 1, "measure_acceptance": False}
    drawn = sample_chains(wide, "multiscale_mala", 1e-12, **how)
    rise_C = NBETA * (drawn.losses[:, 0] - posterior.losses.offsets_N.mean())
    assert (rise_C < 0.1).all()


def test_chains_start_apart_where_the_loss_has_not_risen_too_far():
    posterior = about_zero(bowl(), 6)
    known = Eigenvectors(torch.eye(6).double(), torch.zeros(7).double())
    whitening = Whitening.of([(known, NBETA, 1e-8)], None, posterior.centre)
    wide = replace(posterior, whitening=whitening)
    how = {"num_draws": 1, "measure_acceptance": False}
    drawn = sample_chains(wide, "multiscale_mala", 1e-12, **how)
    rise_C = NBETA * (drawn.losses[:, 0] - posterior.losses.offsets_N.mean())
    assert (rise_C[1::2] > 1).all()
    assert (rise_C[1::2] < 7).all()
    assert (rise_C[::2] < 0.1).all()


def random_posterior(case, num_chains):
    """Six directions, steep, flat or held still, of which some do not move."""
    source = torch.Generator().manual_seed(case)
    losses = bowl(spread=0.0)
    losses.h_D = 2 * torch.rand(6, generator=source).double()
    losses.h_D[torch.rand(6, generator=source) < 0.3] = 0.0
    losses.h_D[0] += 0.1
    free = torch.rand(6, generator=source) < 0.8
    free[0] = True
    posterior = about_zero(losses, num_chains, free=free)
    gamma = 10 ** (3 * torch.rand(1, generator=source).double() - 1)
    return replace(posterior, localization=gamma.expand(num_chains))


@pytest.mark.parametrize("case", range(12))
def test_draws_of_sgld_measure_what_its_steps_raise(case):
    posterior = random_posterior(case, 500)
    h_D = posterior.losses.h_D[posterior.free]
    c_D = NBETA * h_D + posterior.localization[0]
    stiffness = (0.1, 0.5, 2.0)[case % 3]
    lr = stiffness / c_D.max()
    how = {"num_draws": 8, "num_burnin_steps": int(12 / (lr * c_D.min()))}
    asked = float(stiffness * (NBETA * 1.5 + GAMMA) / c_D.max())
    drawn = sample_chains(posterior, "sgld", asked, measure_acceptance=True, **how)
    grown_D = 1 / (1 - lr * c_D / 4)
    raised = (NBETA * h_D / c_D / 2 * (grown_D - 1)).sum()
    assert z_scores(drawn.raised[:, None, None], raised) < 4
    rise_CK = NBETA * (drawn.losses - posterior.losses.offsets_N.mean())
    true = (NBETA * h_D / c_D / 2).sum()
    assert z_scores(rise_CK[..., None] - true, raised) < 4


def test_in_a_metric_draws_measure_what_steps_taken_there_raise():
    posterior = about_zero(bowl(spread=0.0), 500)
    h_D = posterior.losses.h_D
    vectors, values = turned(h_D), torch.cat([h_D, torch.zeros(1)])
    known = Eigenvectors(vectors, values.double())
    whitening = Whitening.of([(known, NBETA, GAMMA)], None, posterior.centre)
    moved = replace(posterior, whitening=whitening)
    how = {"num_draws": 8, "num_burnin_steps": 200, "measure_acceptance": True}
    lr, eye = 0.4, torch.eye(6, dtype=torch.float64)
    drawn = sample_chains(moved, "sgld", lr * (NBETA * 1.5 + GAMMA), **how)
    S = whitening(eye)
    A = S @ torch.diag(curvatures(posterior.losses)) @ S
    spread = S @ torch.linalg.inv(A @ (eye - lr / 4 * A)) @ S
    rise = NBETA / 2 * (h_D * (spread.diag() - 1 / curvatures(posterior.losses))).sum()
    assert z_scores(drawn.raised[:, None, None], rise) < 4


class Quartic(Bowl):
    """Mean over samples of a_n + 1/2 sum h w^4."""

    def gradients(self, weights_CD, rows_CB):
        losses_C = (self.h_D / 2 * weights_CD**4).sum(1) + self.offsets_N.mean()
        return losses_C, 2 * self.h_D * weights_CD**3


def test_of_a_loss_of_fourth_power_draws_bound_what_steps_raise():
    flat = bowl()
    losses = Quartic(flat.h_D, flat.slopes_ND, flat.offsets_N)
    posterior = replace(about_zero(losses, 1000), localization=torch.zeros(1000))
    how = {"num_draws": 40, "num_burnin_steps": 500, "num_steps_bw_draws": 25}
    drawn = sample_chains(posterior, "sgld", 1.0, measure_acceptance=True, **how)
    rise_C = NBETA * (drawn.losses - losses.offsets_N.mean()).mean(1)
    added = rise_C.mean() - 6 / 4
    error = float(rise_C.std() / 1000**0.5)
    assert 8 * error < added < drawn.raised.mean()


@pytest.mark.parametrize("friction", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_sghmc_spreads_as_its_linear_recursion(friction, batch_size):
    losses = bowl(spread=0.3)
    _, squares_CKD = squares(
        "sghmc", losses, 0.5, friction=friction, batch_size=batch_size
    )
    c_D, lr = curvatures(losses), 0.5 / curvatures(losses).max()
    kick = friction * lr
    if batch_size is not None:
        kick += (lr * NBETA / 2 * 0.3) ** 2 / batch_size
    expected_D = torch.stack([_of_recursion(lr * c / 2, friction, kick) for c in c_D])
    assert (z_scores(squares_CKD, expected_D) < 4).all()


def _of_recursion(pull, friction, kick):
    """Stationary variance of w + v, v = (1 - a) v - pull w + noise, by Lyapunov."""
    keep = 1 - friction
    A = torch.tensor([[1 - pull, keep], [-pull, keep]], dtype=torch.float64)
    Q = torch.full((4,), float(kick), dtype=torch.float64)
    system = torch.eye(4, dtype=torch.float64) - torch.kron(A, A)
    return torch.linalg.solve(system, Q)[0]


@pytest.mark.parametrize(("friction", "stiffness"), [(0.05, 0.1), (0.3, 0.2)])
def test_sgnht_finds_the_temperature_that_batches_raise(friction, stiffness):
    losses = bowl(spread=0.5)
    long = {"num_burnin_steps": 1000, "batch_size": 4, "friction": friction}
    _, cool_CKD = squares("sgnht", losses, stiffness, **long)
    _, hot_CKD = squares("sghmc", losses, stiffness, **long)
    c_D = curvatures(losses)
    assert (c_D * hot_CKD.mean((0, 1)) - 1).min() > 0.3
    assert (c_D * cool_CKD.mean((0, 1)) - 1).abs().max() < 0.06


def test_sgnht_is_right_for_small_steps():
    losses = bowl()
    _, squares_CKD = squares("sgnht", losses, 0.05, num_burnin_steps=500)
    assert (z_scores(squares_CKD, 1 / curvatures(losses)) < 4).all()


def test_rmsprop_that_rests_spreads_as_scaled_steps_do():
    losses, stiffness = bowl(), 0.2
    drawn, squares_CKD = squares("rmsprop_sgld", losses, stiffness, damping=1.0)
    c_D, lr = curvatures(losses), stiffness / curvatures(losses).max()
    scale_CD = 1 / (drawn.state["square"].sqrt() + 1.0)
    scaled_CKD = squares_CKD * (c_D * (1 - lr * scale_CD * c_D / 4))[:, None]
    assert (z_scores(scaled_CKD, 1.0) < 4).all()


def test_adam_is_right_for_small_steps():
    losses = bowl()
    _, squares_CKD = squares(
        "adam_sgld", losses, 0.01, damping=1.0, num_burnin_steps=1500
    )
    assert (z_scores(squares_CKD, 1 / curvatures(losses)) < 4).all()


@pytest.mark.parametrize("batch_size", [None, 4])
def test_adam_spreads_as_its_lag_and_batches_heat_it(batch_size):
    losses, stiffness, damping = bowl(spread=0.3), 0.1, 100.0
    _, squares_CKD = squares(
        "adam_sgld",
        losses,
        stiffness * damping,
        damping=damping,
        num_burnin_steps=600,
        batch_size=batch_size,
    )
    c_D, lr = curvatures(losses), stiffness / curvatures(losses).max()
    noise = 0.0 if batch_size is None else (lr * NBETA / 2 * 0.3) ** 2 / batch_size
    pulls_D = lr * losses.h_D * NBETA / 2, lr * (c_D - losses.h_D * NBETA) / 2
    expected_D = torch.stack(
        [_of_mean(*pulls, lr, noise) for pulls in zip(*pulls_D, strict=True)]
    )
    assert (z_scores(squares_CKD, expected_D) < 4).all()
    bound_D = 1 + find("adam_sgld").lag * lr * c_D / 4
    if batch_size is None:
        assert (expected_D * c_D / bound_D - 1).abs().max() < 0.02


def _of_mean(pull, hold, lr, noise):
    """Stationary variance of w - pull m - hold w, m the mean of w, by Lyapunov."""
    lag = MOMENTUM
    A = torch.tensor(
        [[1 - pull * (1 - lag) - hold, -pull * lag], [1 - lag, lag]],
        dtype=torch.float64,
    )
    # The batch's noise enters the mean, here in units of the pull, and by it the step.
    kick = torch.tensor([-(1 - lag), (1 - lag) / pull], dtype=torch.float64)
    Q = noise * torch.outer(kick, kick)
    Q[0, 0] += lr
    system = torch.eye(4, dtype=torch.float64) - torch.kron(A, A)
    return torch.linalg.solve(system, Q.flatten())[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sgld_diverges_where_its_steps_exceed_four_over_the_curvature(dtype):
    posterior = about_zero(bowl(dtype=dtype), 3)
    stable = sample_chains(posterior, "sgld", 3.6, num_draws=500)
    unstable = sample_chains(posterior, "sgld", 8.0, num_draws=500)
    assert (stable.failed_at == -1).all()
    assert (unstable.failed_at > 0).all()
