"""Errors of chains too short for slow directions, against exact random walks."""

import math

import pytest
import torch

from curvflow.tasks.numerics.sampling.chain_results import Length, slowness

NBETA, GAMMA = 100.0, 2.0
H = torch.tensor([0.02, 0.1, 1.0, 10.0], dtype=torch.float64)
WHOLE = NBETA * H + GAMMA
PART = NBETA * H / WHOLE


def posterior(length):
    return {"nbeta": NBETA, "localization": GAMMA, "length": length}


def spectrum(values):
    """One run whose rule is exact."""
    return values[None], torch.full((1, len(values)), 1 / len(values))


def error(length, values=H):
    return sum(slowness(*spectrum(values), len(values), **posterior(length)))


def walks(length, repeats, seed=0):
    """Estimates by chains from the minimum, without the error of a step, (repeats,)."""
    source = torch.Generator().manual_seed(seed)

    def noise():
        shape = (repeats, length.num_chains, len(H))
        return torch.randn(shape, generator=source, dtype=torch.float64)

    kept = torch.exp(-length.pace * WHOLE / 2)
    w, rise = torch.zeros(repeats, length.num_chains, len(H)), 0.0
    for step in range(length.num_burnin_steps + length.num_steps):
        w = kept * w + ((1 - kept**2) / WHOLE).sqrt() * noise()
        if step >= length.num_burnin_steps:
            rise += NBETA / 2 * (w.square() @ H).mean(1) / length.num_steps
    return rise


@pytest.mark.parametrize(
    ("num_burnin_steps", "num_steps"), [(0, 50), (0, 400), (100, 400), (400, 400)]
)
def test_it_is_the_bias_and_the_spread_of_walks(num_burnin_steps, num_steps):
    length = Length(5e-4, 0.0, num_burnin_steps, num_steps, 4)
    found = walks(length, repeats=1500)
    lacking = error(Length(5e-4, 0.0, num_burnin_steps, num_steps, 10**12))
    whole = float(PART.sum()) / 2
    assert whole - float(found.mean()) == pytest.approx(
        lacking, abs=4 * float(found.std()) / 1500**0.5 + 0.01
    )
    # That of chains which have not arrived is smaller than where they are going.
    spread = error(length) - lacking
    assert spread > 0.9 * float(found.std())
    if num_burnin_steps + num_steps > 700:
        assert spread < 1.4 * float(found.std())


def test_of_long_walks_the_error_is_that_of_draws_that_forget():
    pace, steps = 0.01, 10**7
    found = error(Length(pace, 0.0, 10**6, steps, 4))
    forget = 1 / (pace * WHOLE * steps)
    assert found == pytest.approx(
        math.sqrt(float((PART**2 * forget).sum()) / 4), rel=0.01
    )


def test_of_no_walk_at_all_everything_lacks():
    found = error(Length(1e-9, 0.0, 0, 10, 10**12))
    assert found == pytest.approx(float(PART.sum()) / 2, rel=1e-3)


def test_flat_and_negative_directions_and_runs_that_break_down_add_nothing():
    length = Length(5e-4, 0.0, 100, 400, 4)
    more = torch.cat([H, torch.tensor([0.0, -3.0, torch.nan])])
    weights = torch.cat([torch.full((6,), 1 / 6), torch.zeros(1)])
    found = slowness(more[None], weights[None], 6, **posterior(length))
    assert sum(found) == pytest.approx(error(length))
