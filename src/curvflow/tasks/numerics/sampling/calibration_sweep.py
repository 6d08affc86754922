"""Short chains at neighbouring settings, which look for a plateau of the estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.chain_results import slow_directions
from curvflow.tasks.numerics.sampling.chain_targets import (
    ChainGroup,
    ChainSettings,
    ChainTargets,
    SamplingOptions,
    by_key,
    steps_of,
)
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.sampling.posteriors import Draws, Steps

# Chains and draws of each trial, and the factors of the swept setting.
TRIAL_CHAINS, TRIAL_DRAWS = 2, 120
SWEEPS = {
    "localization": [10**-1, 10**-0.5, 1.0, 10**0.5, 10],
    "lr": [1 / 4, 1 / 2, 1.0, 2.0, 4.0],
}
CHOSEN = 2

# Chains of one target that are sampled at once, at most.
CHAINS = TRIAL_CHAINS * max(map(len, SWEEPS.values()))

# Estimates agree within AGREEING, relative, or twice their joint error; but an error so
# many times what the other would tolerate alone agrees with anything, and so with none.
AGREEING = 0.05
HOPELESS = 20.0


def swept(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    settings: Sequence[ChainSettings],
) -> list[ChainSettings]:
    """Sweep about the settings, and take the step at which the sweep ends.

    Args:
        targets: the weights and losses.
        options: of each target; a step that they give is kept.
        settings: of each target, of one method.

    Returns:
        The settings, with the trials.
    """
    parameter = "localization" if find(settings[0].method).is_exact else "lr"
    confirmed = list(settings)
    for numbers in by_key(
        [(each.batch_size, each.num_burnin_steps, each.in_metric) for each in settings]
    ):
        chosen = [settings[number] for number in numbers]
        sweeps = _sweeps(targets, options[0], chosen, numbers, parameter)
        for number, sweep in zip(numbers, sweeps, strict=True):
            after = _after(settings[number], sweep, parameter)
            if options[number].lr is not None:
                after = replace(after, lr=settings[number].lr, first_lr=None)
            confirmed[number] = after
    return confirmed


@dataclass(frozen=True)
class _Sweep:
    """Trials about one target."""

    values: Tensor  # of the swept setting, (T,)
    estimates: Tensor
    errors: Tensor
    lacking: Tensor  # mean that directions too slow for the trial leave out
    spread: Tensor  # and its standard error
    acceptance: Tensor
    steps: Tensor  # adapted, if the method adapts, of each chain, (T, C)
    work: float


def _sweeps(
    targets: ChainTargets,
    options: SamplingOptions,
    settings: Sequence[ChainSettings],
    numbers: Sequence[int],
    parameter: str,
) -> list[_Sweep]:
    """Sample the trials of all targets in one program."""
    groups = [
        group
        for number, each in zip(numbers, settings, strict=True)
        for group in _groups(options.num_chains, number, each, parameter)
    ]
    lr_G = torch.tensor([group.lr for group in groups], dtype=torch.float64)
    lr_C = lr_G.repeat_interleave(TRIAL_CHAINS)
    adapt = find(settings[0].method).is_exact
    steps = steps_of(options, settings[0], lr_C, num_draws=TRIAL_DRAWS, adapt=adapt)
    draws = targets.sample(groups, TRIAL_CHAINS, steps)
    trials, sweeps = len(SWEEPS[parameter]), []
    for row, each in enumerate(settings):
        of_target = groups[row * trials : (row + 1) * trials]
        chains = _of_chains(draws, row * trials * TRIAL_CHAINS, trials * TRIAL_CHAINS)
        sweeps.append(_summarised(targets, each, steps, of_target, chains, parameter))
    return sweeps


def _groups(
    first: int, number: int, settings: ChainSettings, parameter: str
) -> list[ChainGroup]:
    """Return the trials of one target, on chains that its draws do not use."""
    centre = ChainGroup(
        number,
        settings.nbeta,
        settings.localization,
        settings.lr,
        first,
        metric=settings.localization if settings.in_metric else None,
    )
    return [
        replace(
            centre,
            first=first + TRIAL_CHAINS * trial,
            **{parameter: factor * getattr(settings, parameter)},
        )
        for trial, factor in enumerate(SWEEPS[parameter])
    ]


@dataclass(frozen=True)
class _Chains:
    """Some of the chains of draws, on the CPU except for their state."""

    losses: Tensor  # (C, K)
    acceptance: Tensor  # (C,)
    failed_at: Tensor  # (C,)
    work: Tensor  # in passes, (C,)
    state: dict[str, Tensor]

    def only(self, chains: slice) -> _Chains:
        """Return some of the chains."""
        return _Chains(
            self.losses[chains],
            self.acceptance[chains],
            self.failed_at[chains],
            self.work[chains],
            {name: tensor[chains] for name, tensor in self.state.items()},
        )


def _of_chains(draws: Draws, start: int, count: int) -> _Chains:
    chains = slice(start, start + count)
    return _Chains(
        draws.losses[chains].cpu().double(),
        draws.acceptance[chains].cpu(),
        draws.failed_at[chains].cpu(),
        draws.passes[chains],
        {name: tensor[chains] for name, tensor in draws.state.items()},
    )


def _chains_of(trial: int) -> slice:
    return slice(TRIAL_CHAINS * trial, TRIAL_CHAINS * (trial + 1))


def _summarised(
    targets: ChainTargets,
    settings: ChainSettings,
    steps: Steps,
    groups: Sequence[ChainGroup],
    chains: _Chains,
    parameter: str,
) -> _Sweep:
    """Return the estimates of the trials about one target."""
    shape = (len(groups), TRIAL_CHAINS)
    losses_TCK = chains.losses.view(*shape, -1)
    failed_at_TC = chains.failed_at.view(shape)
    first = float(targets.first_losses[groups[0].target])
    summaries = [
        summarise(losses_TCK[trial], first, group.nbeta, failed_at_TC[trial])
        for trial, group in enumerate(groups)
    ]
    slow = [
        _slow(settings, group, chains.only(_chains_of(trial)), steps, targets.num_free)
        for trial, group in enumerate(groups)
    ]

    def of_trials(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return _Sweep(
        of_trials([getattr(group, parameter) for group in groups]),
        of_trials([math.nan if s.num_failed else s.llc_mean for s in summaries]),
        of_trials([math.nan if s.num_failed else s.llc_sem for s in summaries]),
        of_trials([lacking for lacking, _ in slow]),
        of_trials([spread for _, spread in slow]),
        chains.acceptance.double().view(shape).mean(1),
        chains.state["lr"].cpu().double().view(shape),
        float(chains.work.sum()),
    )


def _slow(
    settings: ChainSettings,
    group: ChainGroup,
    chains: _Chains,
    steps: Steps,
    num_free: int,
) -> tuple[float, float]:
    """Return the mean that slow directions leave out of a trial, and its error."""
    if not (chains.failed_at < 0).all():
        return math.nan, math.nan
    return slow_directions(
        replace(settings, localization=group.localization),
        chains.state,
        chains.acceptance,
        steps,
        num_steps=TRIAL_DRAWS * steps.num_steps_bw_draws,
        num_free=num_free,
    )


def _after(settings: ChainSettings, sweep: _Sweep, parameter: str) -> ChainSettings:
    """Return the settings with the trials, and the step at which the sweep ends."""
    chosen, estimates_T, errors_T = CHOSEN, sweep.estimates, sweep.errors
    if parameter == "lr":
        # Shorter steps explore less: what that leaves out is no bias of long ones.
        estimates_T = estimates_T + sweep.lacking
        errors_T = torch.hypot(errors_T, sweep.spread)
    on_T = plateau(estimates_T, errors_T, chosen)
    while parameter == "lr" and chosen > 0 and not on_T[chosen - 1]:
        chosen -= 1
        on_T = plateau(estimates_T, errors_T, chosen)
    trials = {
        "trial_parameter": np.array([parameter] * len(on_T)),
        "trial_value": sweep.values.numpy(),
        "trial_lr": sweep.steps.mean(1).numpy(),
        "trial_llc": sweep.estimates.numpy(),
        "trial_sem": sweep.errors.numpy(),
        "trial_acceptance": sweep.acceptance.numpy(),
        "trial_in_plateau": on_T.numpy(),
    }
    after = replace(
        settings,
        calibration={**settings.calibration, **trials},
        work=settings.work + sweep.work,
    )
    if parameter == "localization":
        # A chain may adapt near the weights to a step too large for where it goes, or
        # where it goes to one too large for near the weights.
        most = float(sweep.steps[: chosen + 1].min())
        return replace(after, lr=most, first_lr=min(settings.lr, most))
    return replace(after, lr=settings.lr * SWEEPS[parameter][chosen])


def plateau(estimates_T: Tensor, errors_T: Tensor, chosen: int) -> Tensor:
    """Return the trials that agree with the chosen one, (T,).

    They agree within 5 % or twice their joint standard error, as must all between them.
    An error above HOPELESS times 5 % of the other estimate, and times its error, is
    that of a chain without information: the two do not agree, whatever they are. At
    least one that agrees with the chosen one makes a plateau.

    Args:
        estimates_T: of trials in the order of the swept setting.
        errors_T: their standard errors.
        chosen: number of the one chosen.

    Returns:
        Whether each is on the plateau; all False if there is none.
    """
    apart_T = (estimates_T - estimates_T[chosen]).abs()
    joint_T = (errors_T.square() + errors_T[chosen].square()).sqrt()
    allowed_T = torch.maximum(AGREEING * estimates_T.abs(), errors_T)
    agrees = apart_T <= torch.maximum(allowed_T[chosen], 2 * joint_T)
    agrees &= errors_T <= HOPELESS * allowed_T[chosen]
    agrees &= errors_T[chosen] <= HOPELESS * allowed_T
    agrees[chosen] = bool(estimates_T[chosen].isfinite())
    on_T = torch.zeros_like(agrees)
    for way in (range(chosen, len(on_T)), range(chosen, -1, -1)):
        for trial in way:
            if not agrees[trial]:
                break
            on_T[trial] = True
    return on_T if on_T.sum() > 1 else torch.zeros_like(on_T)
