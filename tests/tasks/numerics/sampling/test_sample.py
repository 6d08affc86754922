"""Properties that all samplers share."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from curvflow.tasks.numerics.sampling import methods
from curvflow.tasks.numerics.sampling.posteriors import Steps, Stream
from curvflow.tasks.numerics.sampling.sample import sample
from tests.tasks.numerics.sampling.bowls import (
    EXACT,
    GAMMA,
    METHODS,
    NBETA,
    Bowl,
    about_zero,
    bowl,
    sample_chains,
)

FIELDS = ("losses", "batch_losses", "distances", "weights")


def taking(method):
    return {} if method in EXACT else {"batch_size": 8}


def test_every_file_is_a_method_with_tests():
    assert sorted(methods.METHODS) == METHODS


def going(method):
    """Return three chains and how they go, two steps from draw to draw."""
    how = {"num_burnin_steps": 20, "num_steps_bw_draws": 2, **taking(method)}
    how |= {"measure_acceptance": True, "adapt": method in EXACT}
    return partial(sample_chains, about_zero(bowl(), 3), method, **how)


@cache
def walk_of(method):
    """Return the draws of a longer walk."""
    return going(method)(num_draws=150)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("early", [10, 100, 128])
def test_going_on_gives_the_draws_of_a_longer_walk(method, early):
    once = walk_of(method)
    first = going(method)(num_draws=early)
    kept = {name: tensor.double() for name, tensor in first.state.items()}
    then = going(method)(num_draws=150, earlier=kept)
    for name in FIELDS:
        parts = torch.cat([getattr(first, name), getattr(then, name)], 1)
        assert torch.equal(parts, getattr(once, name)), name
    assert torch.equal(then.acceptance, once.acceptance)
    assert first.state.keys() == once.state.keys()


@pytest.mark.parametrize("method", METHODS)
def test_a_chain_does_not_see_its_siblings(method):
    losses = bowl()
    together = sample_chains(
        about_zero(losses, 5), method, num_draws=150, **taking(method)
    )
    alone = sample_chains(
        about_zero(losses, 1), method, num_draws=150, first=3, **taking(method)
    )
    for name in FIELDS:
        torch.testing.assert_close(
            getattr(alone, name)[0], getattr(together, name)[3], rtol=1e-12, atol=1e-14
        )
    assert not torch.allclose(together.weights[3], together.weights[4])


@pytest.mark.parametrize("method", METHODS)
def test_a_chain_that_fails_leaves_its_siblings_alone(method):
    posterior = about_zero(bowl(), 3)
    broken = posterior.nbeta.clone()
    broken[1] = float("nan")
    failing = replace(posterior, nbeta=broken)
    how = {"num_draws": 150, **taking(method)}
    fine, hurt = (
        sample_chains(posterior, method, **how),
        sample_chains(failing, method, **how),
    )
    # The first step ends where no number is; those that reject stay instead.
    assert hurt.failed_at.tolist() == [-1, -1 if method in EXACT else 1, -1]
    assert hurt.losses[1, 0].isfinite()
    assert hurt.losses[1, 1:].isnan().all() or method in EXACT
    for name in FIELDS:
        assert torch.equal(getattr(hurt, name)[[0, 2]], getattr(fine, name)[[0, 2]])


@pytest.mark.parametrize("method", METHODS)
def test_a_chain_whose_loss_is_not_finite_fails_at_once(method):
    posterior = about_zero(bowl(), 2)
    posterior.centre[1, 2] = float("inf")
    drawn = sample_chains(posterior, method, num_draws=5)
    assert drawn.failed_at.tolist() == [-1, 0]
    assert drawn.losses[1].isnan().all()


class Breaking(Bowl):
    """Loses the loss of its last chain over all the data after some passes."""

    passes = 0

    def gradients(self, weights_CD, rows_CB):
        losses_C, gradients_CD = super().gradients(weights_CD, rows_CB)
        self.passes += rows_CB is None
        if rows_CB is None and self.passes > 3:
            losses_C[-1] = torch.inf
        return losses_C, gradients_CD


def test_a_chain_fails_at_the_first_draw_whose_loss_over_all_data_is_not_finite():
    of = bowl()
    losses = Breaking(of.h_D, of.slopes_ND, of.offsets_N)
    how = {"num_draws": 8, "num_burnin_steps": 2, "num_steps_bw_draws": 3}
    drawn = sample_chains(about_zero(losses, 2), "sgld", batch_size=8, **how)
    fine = sample_chains(about_zero(of, 2), "sgld", batch_size=8, **how)
    finite = drawn.losses.isfinite()
    assert finite[0].all()
    lost = int(finite[1].sum())
    assert 0 < lost < 8
    assert finite[1].tolist() == [True] * lost + [False] * (8 - lost)
    assert drawn.failed_at.tolist() == [-1, 2 + 3 * (lost + 1) - 1]
    assert torch.equal(drawn.losses[0], fine.losses[0])
    assert torch.equal(drawn.losses[1, :lost], fine.losses[1, :lost])


def test_a_loss_over_all_data_that_is_not_finite_is_a_failure():
    losses = bowl()
    losses.offsets_N[7] = float("inf")
    drawn = sample_chains(about_zero(losses, 2), "sgld", num_draws=5, batch_size=1)
    assert (drawn.failed_at == 0).all()
    assert drawn.losses.isnan().all()


@pytest.mark.parametrize("method", ["rmsprop_sgld", "adam_sgld"])
@pytest.mark.parametrize(("burnin", "decay"), [(3, 0.9), (40, 0.99)])
def test_mean_squares_of_equal_gradients_are_known(method, burnin, decay):
    of = bowl()
    slopes_D = torch.linspace(-2, 3, 6).double()
    tilted = Bowl(0 * of.h_D, slopes_D.expand_as(of.slopes_ND), of.offsets_N)
    how = {"num_burnin_steps": burnin, "num_draws": 8, "decay": decay}
    drawn = sample_chains(about_zero(tilted, 2), method, **how)
    expected = (1 - decay**burnin) * slopes_D.square()
    torch.testing.assert_close(drawn.state["square"], expected.expand(2, -1))


class Island(Bowl):
    """Has no loss but where it starts, of its second half of chains."""

    def gradients(self, weights_CD, rows_CB):
        losses_C, gradients_CD = super().gradients(weights_CD, rows_CB)
        is_lost_C = (weights_CD != 0).any(1) & (torch.arange(len(weights_CD)) % 2 == 1)
        return losses_C.masked_fill(is_lost_C, torch.nan), gradients_CD


@pytest.mark.parametrize("method", EXACT)
def test_a_proposal_without_a_loss_is_rejected_and_counted_so(method):
    of = bowl()
    island = Island(of.h_D, of.slopes_ND, of.offsets_N)
    how = {"num_draws": 40, "measure_acceptance": True}
    drawn = sample_chains(about_zero(island, 2), method, **how)
    fine = sample_chains(about_zero(of, 2), method, **how)
    assert (drawn.weights[1] == 0).all()
    assert drawn.acceptance[1] == 0
    assert drawn.failed_at.tolist() == [-1, -1]
    assert torch.equal(drawn.weights[0], fine.weights[0])
    assert drawn.acceptance[0] == fine.acceptance[0] > 0


@pytest.mark.parametrize("method", METHODS)
def test_parameters_that_are_not_free_never_move(method):
    free = torch.tensor([True, False, True, True, False, False])
    posterior = about_zero(bowl(minimum=1.0), 2, free=free)
    posterior.centre[:] = 0.25
    drawn = sample_chains(posterior, method, **taking(method))
    assert (drawn.weights[..., ~free] == 0.25).all()
    assert (drawn.weights[:, -1][:, free] != 0.25).all()


def test_control_variates_are_unbiased_and_less_noisy_than_batches():
    posterior = about_zero(bowl(spread=0.5), 200)
    how = {"num_burnin_steps": 50, "batch_size": 4, "num_draws": 20}
    full = sample_chains(posterior, "sgld", **how)
    error = {
        name: (
            sample_chains(posterior, "sgld", at_draws=name, **how).losses - full.losses
        )
        for name in ("control_variate", "batch")
    }
    for error_CK in error.values():
        sem = error_CK.mean(1).std() / len(error_CK) ** 0.5
        assert abs(error_CK.mean()) < 4 * sem
    assert error["control_variate"].var() < 0.6 * error["batch"].var()


@pytest.mark.parametrize("at_draws", ["full", "control_variate", "batch"])
def test_with_all_data_each_step_the_loss_is_full_however_it_is_written(at_draws):
    drawn = sample_chains(about_zero(bowl(), 2), "sgld", at_draws=at_draws)
    assert torch.equal(drawn.losses, drawn.batch_losses)


@pytest.mark.parametrize(
    ("method", "how", "passes"),
    [
        ("sgld", {"at_draws": "batch", "batch_size": 16}, 60 / 4),
        ("sgld", {"at_draws": "full", "batch_size": 16}, 60 / 4 + 20 / 3),
        (
            "sgld",
            {"at_draws": "control_variate", "batch_size": 16},
            60 / 4 + (1 + 20 / 4) / 3,
        ),
        ("sgld", {"measure_acceptance": True}, 60 + 2 * 8),
        (
            "sgld",
            {"measure_acceptance": True, "batch_size": 16, "at_draws": "batch"},
            60 / 4 + (2 + 1 / 4) * 8,
        ),
        ("mala", {}, 61),
    ],
)
def test_work_is_counted_in_gradients_over_all_data(method, how, passes):
    how = {"num_draws": 20, "num_steps_bw_draws": 3, **how}
    drawn = sample_chains(about_zero(bowl(), 2), method, **how)
    assert drawn.passes.tolist() == pytest.approx([passes] * 2, rel=1e-12)


def test_mala_adapts_in_the_burn_in_and_then_rests():
    posterior = about_zero(bowl(), 20)
    how = {"adapt": True, "num_burnin_steps": 500}
    drawn = sample_chains(posterior, "mala", 0.01, num_draws=300, **how)
    assert drawn.acceptance.mean().item() == pytest.approx(0.574, abs=0.04)
    sooner = sample_chains(posterior, "mala", 0.01, num_draws=1, **how)
    assert torch.equal(sooner.state["lr"], drawn.state["lr"])


def test_a_step_adapts_no_further_than_its_bound():
    posterior = about_zero(bowl(), 20)
    how = {"adapt": True, "num_burnin_steps": 500, "num_draws": 300}
    free = sample_chains(posterior, "mala", 0.01, **how).state["lr"]
    bounds = torch.where(torch.arange(20) < 10, free / 4, 4 * free)
    drawn = sample_chains(posterior, "mala", 0.01, most_lr=bounds, **how)
    assert torch.equal(drawn.state["lr"][:10], bounds[:10])
    assert torch.equal(drawn.state["lr"][10:], free[10:])
    assert drawn.acceptance[:10].min() > 0.8


def test_acceptance_of_sgld_falls_with_its_steps():
    posterior = about_zero(bowl(), 50)
    how = {"num_draws": 200, "measure_acceptance": True}
    small, large = (sample_chains(posterior, "sgld", s, **how) for s in (0.01, 2.0))
    exact = sample_chains(posterior, "mala", 0.2, num_draws=600, num_burnin_steps=50)
    near = sample_chains(posterior, "sgld", 0.2, num_draws=200, measure_acceptance=True)
    assert small.acceptance.mean() > 0.98
    assert large.acceptance.mean() < 0.8
    assert near.acceptance.mean().item() == pytest.approx(
        exact.acceptance.mean().item(), abs=0.02
    )
    assert sample_chains(posterior, "sgld").acceptance.isnan().all()


@pytest.mark.parametrize(
    ("method", "how", "noise"),
    [
        ("sgld", {}, 1.0),
        ("sghmc", {"friction": 0.25}, 0.25),
        ("rmsprop_sgld", {"damping": 100.0}, 1.0),
    ],
)
def test_heat_is_that_of_the_batches_in_the_metric_of_the_steps(method, how, noise):
    posterior, stiffness = about_zero(bowl(spread=1.0), 200), 0.2
    how = {"num_draws": 100, "measure_acceptance": True, **how}
    steps = stiffness * how.get("damping", 1.0)
    drawn = sample_chains(posterior, method, steps, batch_size=4, **how)
    # Six slopes of variance 1 between samples, in batches of 4.
    lr = stiffness / (NBETA * 1.5 + GAMMA)
    expected = lr * NBETA**2 * 6 / 4 / 8 / noise
    assert drawn.heat.mean().item() == pytest.approx(expected, rel=0.05)
    whole = sample_chains(posterior, method, steps, **how)
    assert (whole.heat == 0).all()


@pytest.mark.parametrize("method", ["rmsprop_sgld", "adam_sgld"])
def test_acceptance_of_scaled_steps_is_that_of_the_steps_taken(method):
    posterior = about_zero(bowl(), 50)
    how = {"num_draws": 200, "num_burnin_steps": 50, "measure_acceptance": True}
    plain = sample_chains(posterior, "sgld", 0.3, **how).acceptance.mean().item()
    # The gradient is small against this damping, which divides all steps.
    scaled = sample_chains(posterior, method, 0.3 * 100, damping=100.0, **how)
    assert 0.5 < plain < 0.99
    assert scaled.acceptance.mean().item() == pytest.approx(plain, abs=0.03)
    at_once = sample_chains(posterior, method, num_draws=1, measure_acceptance=True)
    assert at_once.acceptance.isfinite().all()


@pytest.mark.parametrize(
    ("method", "how", "message"),
    [
        ("mala", {"batch_size": 4}, "takes all the data"),
        ("sgld", {"batch_size": 65}, "expected 1 to 64"),
        ("sgld", {"adapt": True}, "accepts every step"),
        ("hmc", {}, "expected one of adam_sgld, mala"),
    ],
)
def test_what_a_method_cannot_do_is_refused(method, how, message):
    with pytest.raises(ValueError, match=message):
        sample_chains(about_zero(bowl(), 1), method, **how)


def test_a_stream_is_needed_for_each_chain():
    posterior = about_zero(bowl(), 2)
    with pytest.raises(ValueError, match="expected 2"):
        sample(posterior, Steps("sgld", posterior.nbeta, 1), [Stream(0, 0)])
