"""A short sweep about the settings of chains, before they are walked by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.llc.chain_results import pace
from curvflow.tasks.llc.chain_settings import EXACT, Setting
from curvflow.tasks.llc.targets import Ground, Walkers, by_key, params_of
from curvflow.tasks.numerics.sampling import calibration
from curvflow.tasks.numerics.sampling.bias import Length, slowness
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from curvflow.tasks.numerics.sampling.posteriors import Draws, Steps

# Chains and draws of each trial, and what it multiplies.
TRIAL_CHAINS, TRIAL_DRAWS = 2, 120
SWEEPS = {
    "localization": [10**-1, 10**-0.5, 1.0, 10**0.5, 10],
    "lr": [1 / 4, 1 / 2, 1.0, 2.0, 4.0],
}
CHOSEN = 2

# Chains that walk at once for one member, most.
CHAINS = TRIAL_CHAINS * max(map(len, SWEEPS.values()))


def confirmed(ground: Ground, settings: Sequence[Setting]) -> list[Setting]:
    """Sweep about the settings, and take the step that it ends at.

    Args:
        ground: the members.
        settings: of each of them, of one method.

    Returns:
        The settings with what was tried; a step that was given stays.
    """
    varied = "localization" if settings[0].method == EXACT else "lr"
    together = by_key([(one.batch_size, one.num_burnin_steps) for one in settings])
    found = list(settings)
    for numbers in together:
        trials = _trials(ground, [settings[n] for n in numbers], numbers, varied)
        for number, trial in zip(numbers, trials, strict=True):
            told = _told(settings[number], trial, varied)
            if params_of(ground.members[number]).lr is not None:
                told = replace(told, lr=settings[number].lr, first_lr=None)
            found[number] = told
    return found


@dataclass(frozen=True)
class _Trials:
    values: Tensor  # (T,)
    estimates: Tensor
    errors: Tensor
    lacking: Tensor  # what directions too slow for them leave, on average
    spread: Tensor  # and its standard error
    acceptance: Tensor
    steps: Tensor  # adapted, if the method adapts, of each chain, (T, C)
    work: float


def _trials(
    ground: Ground, settings: Sequence[Setting], numbers: Sequence[int], varied: str
) -> list[_Trials]:
    """Sample every member's sweep, all in one program."""
    walkers = [
        walker
        for number, one in zip(numbers, settings, strict=True)
        for walker in _walkers(ground, number, one, varied)
    ]
    steps = _steps(ground, settings[0], walkers)
    found = ground.walk(walkers, TRIAL_CHAINS, steps)
    first_M, count = ground.first_losses(), len(SWEEPS[varied])
    trials = []
    for row, (number, setting) in enumerate(zip(numbers, settings, strict=True)):
        own = walkers[row * count : (row + 1) * count]
        start, first = row * count * TRIAL_CHAINS, float(first_M[number])
        slow = [
            _slowness(ground, setting, one, found, start + TRIAL_CHAINS * trial, steps)
            for trial, one in enumerate(own)
        ]
        trials.append(_summarised(found, own, start, first, slow, varied))
    return trials


def _slowness(
    ground: Ground,
    setting: Setting,
    walkers: Walkers,
    found: Draws,
    start: int,
    steps: Steps,
) -> tuple[float, float]:
    """Return what slow directions leave of a trial, and its standard error."""
    own = slice(start, start + TRIAL_CHAINS)
    if setting.ritz is None or (found.failed_at[own] >= 0).any():
        return math.nan, math.nan
    state = {name: tensor[own] for name, tensor in found.state.items()}
    length = Length(
        pace(state, found.acceptance[own].cpu(), steps),
        setting.num_burnin_steps,
        TRIAL_DRAWS * steps.num_steps_bw_draws,
        TRIAL_CHAINS,
    )
    hold = walkers.localization
    return slowness(*setting.ritz, ground.num_free, setting.nbeta, hold, length)


def _walkers(
    ground: Ground, number: int, setting: Setting, varied: str
) -> list[Walkers]:
    """Return the trials of one member, on chains that its draws do not use."""
    first = params_of(ground.members[0]).num_chains
    plain = Walkers(number, setting.nbeta, setting.localization, setting.lr)
    return [
        replace(
            plain,
            first=first + TRIAL_CHAINS * trial,
            **{varied: factor * getattr(setting, varied)},
        )
        for trial, factor in enumerate(SWEEPS[varied])
    ]


def _steps(ground: Ground, setting: Setting, walkers: Sequence[Walkers]) -> Steps:
    params = params_of(ground.members[0])
    lr_W = torch.tensor([one.lr for one in walkers], dtype=torch.float64)
    return Steps(
        setting.method,
        lr_W.repeat_interleave(TRIAL_CHAINS),
        num_draws=TRIAL_DRAWS,
        num_burnin_steps=setting.num_burnin_steps,
        num_steps_bw_draws=params.num_steps_bw_draws,
        batch_size=setting.batch_size,
        friction=params.friction,
        decay=params.decay,
        damping=params.damping,
        adapt=setting.method == EXACT,
    )


def _summarised(
    found: Draws,
    walkers: Sequence[Walkers],
    start: int,
    first: float,
    slow: Sequence[tuple[float, float]],
    varied: str,
) -> _Trials:
    """Return what the trials of one member say, whose chains begin at `start`."""
    shape = (len(walkers), TRIAL_CHAINS)
    own = slice(start, start + len(walkers) * TRIAL_CHAINS)
    losses = found.losses[own].cpu().double().view(*shape, -1)
    failed = found.failed_at[own].cpu().view(shape)
    summaries = [
        summarise(losses[trial], first, one.nbeta, failed[trial])
        for trial, one in enumerate(walkers)
    ]

    def each(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return _Trials(
        each([getattr(one, varied) for one in walkers]),
        each([math.nan if one.num_failed else one.llc_mean for one in summaries]),
        each([math.nan if one.num_failed else one.llc_sem for one in summaries]),
        each([lacking for lacking, _ in slow]),
        each([spread for _, spread in slow]),
        found.acceptance[own].cpu().double().view(shape).mean(1),
        found.state["lr"][own].cpu().double().view(shape),
        float(found.passes[own].sum()),
    )


def _told(setting: Setting, trials: _Trials, varied: str) -> Setting:
    """Set down the sweep, and the step that it ends at."""
    chosen, estimates_T, errors_T = CHOSEN, trials.estimates, trials.errors
    if varied == "lr":
        # Shorter steps get about less: what that leaves is not what steps add.
        estimates_T = estimates_T + trials.lacking
        errors_T = torch.hypot(errors_T, trials.spread)
    on_T = calibration.plateau(estimates_T, errors_T, chosen)
    while varied == "lr" and chosen > 0 and not on_T[chosen - 1]:
        chosen -= 1
        on_T = calibration.plateau(estimates_T, errors_T, chosen)
    told = {
        "trial_parameter": np.array([varied] * len(on_T)),
        "trial_value": trials.values.numpy(),
        "trial_lr": trials.steps.mean(1).numpy(),
        "trial_llc": trials.estimates.numpy(),
        "trial_sem": trials.errors.numpy(),
        "trial_acceptance": trials.acceptance.numpy(),
        "trial_in_plateau": on_T.numpy(),
    }
    setting = replace(
        setting, told={**setting.told, **told}, work=setting.work + trials.work
    )
    if varied == "localization":
        # A chain may adapt near the weights to a step too large for where it goes, or
        # where it goes to one too large for near the weights.
        most = float(trials.steps[: chosen + 1].min())
        first = min(setting.lr, most)
        return replace(setting, lr=most, first_lr=first)
    return replace(setting, lr=setting.lr * SWEEPS[varied][chosen])
