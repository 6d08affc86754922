"""Short chains at neighbouring settings, which look for a plateau of the estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.chain_results import (
    ChainResults,
    biases,
    results_of,
    slow_directions,
)
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
from curvflow.tasks.numerics.sampling.posteriors import Steps
from curvflow.tasks.numerics.sampling.verdicts import MAX_BIAS

# Chains and draws of each trial, and the factors of the swept setting.
TRIAL_CHAINS, TRIAL_DRAWS = 2, 120
SWEEPS = {
    "localization": [10**-1, 10**-0.5, 1.0, 10**0.5, 10],
    "lr": [1 / 4, 1 / 2, 1.0],
}
CHOSEN = 2

# Chains of one target that are sampled at once, at most.
CHAINS = TRIAL_CHAINS * max(map(len, SWEEPS.values()))

# Estimates agree within AGREEING, relative, or twice their joint error; but an error so
# many times what the other would tolerate alone agrees with anything, and so with none.
AGREEING = 0.05
HOPELESS = 20.0

# Excess by steps and batches that trials allow: they measure that of long chains to a
# fifth or so where few directions count, and a verdict forgives nothing.
MOST_BIAS = 0.6 * MAX_BIAS

# Share of an estimate above which excess is not in proportion to the step. Where no
# trial has less, shorter ones are tried, in so many sweeps.
PROPORTIONAL = 0.5
MOST_SWEEPS = 3

# Relative error of a measured excess: where losses rise as a fourth power it is twice
# what is there.
UNSURE = 0.25


def swept(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    settings: Sequence[ChainSettings],
) -> list[ChainSettings]:
    """Sweep the settings, and take the step at which the sweep ends.

    Args:
        targets: the weights and losses.
        options: of each target; a step that they give is kept.
        settings: of each target, of one method.

    Returns:
        The settings, with the trials.
    """
    parameter = "localization" if find(settings[0].method).is_exact else "lr"
    confirmed, numbers = list(settings), list(range(len(settings)))
    for left in reversed(range(MOST_SWEEPS)):
        sweeps = _sweeps(targets, options[0], confirmed, numbers, parameter)
        numbers = []
        for number, sweep in sweeps.items():
            now, keeps_step = confirmed[number], options[number].lr is not None
            if left and parameter == "lr" and not (keeps_step or sweep.informs.any()):
                confirmed[number] = _shortened(now, sweep)
                numbers.append(number)
            else:
                confirmed[number] = _after(now, sweep, parameter, keeps_step=keeps_step)
    return confirmed


@dataclass(frozen=True)
class Sweep:
    """Trials about one target, in the order of the swept setting.

    Attributes:
        estimates: of the coefficient, (T,), NaN where a chain failed.
        errors: their standard errors, (T,).
        lacking: means that directions too slow for the trials leave out, (T,).
        spread: standard errors of these, (T,).
        biases: excess by steps and batches, as shares of the estimates, (T,).
        acceptance: mean of each, (T,).
        steps: of each chain, adapted if the method adapts, (T, C).
        work: gradients over all data.
    """

    estimates: Tensor
    errors: Tensor
    lacking: Tensor
    spread: Tensor
    biases: Tensor
    acceptance: Tensor
    steps: Tensor
    work: float

    @property
    def informs(self) -> Tensor:
        """Mask of the trials whose excess is in proportion to the step, (T,)."""
        return self.estimates.isfinite() & (self.biases <= PROPORTIONAL)


def _sweeps(
    targets: ChainTargets,
    options: SamplingOptions,
    settings: Sequence[ChainSettings],
    numbers: Sequence[int],
    parameter: str,
) -> dict[int, Sweep]:
    """Sample the trials of the targets of these numbers."""
    alike = [
        (settings[n].batch_size, settings[n].num_burnin_steps, settings[n].in_metric)
        for n in numbers
    ]
    sweeps: dict[int, Sweep] = {}
    for places in by_key(alike):
        part = [numbers[place] for place in places]
        chosen = [settings[number] for number in part]
        swept = _sampled(targets, options, chosen, part, parameter)
        sweeps |= dict(zip(part, swept, strict=True))
    return sweeps


def _sampled(
    targets: ChainTargets,
    options: SamplingOptions,
    settings: Sequence[ChainSettings],
    numbers: Sequence[int],
    parameter: str,
) -> list[Sweep]:
    """Sample the trials of targets that are alike in one program."""
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
    results = [
        results_of(draws, slice(start, start + TRIAL_CHAINS), None)
        for start in range(0, len(lr_C), TRIAL_CHAINS)
    ]
    trials = len(SWEEPS[parameter])
    parts = [slice(n, n + trials) for n in range(0, len(results), trials)]
    return [
        _summarised(targets, options, each, steps, groups[part], results[part])
        for each, part in zip(settings, parts, strict=True)
    ]


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


def _summarised(
    targets: ChainTargets,
    options: SamplingOptions,
    settings: ChainSettings,
    steps: Steps,
    groups: Sequence[ChainGroup],
    trials: Sequence[ChainResults],
) -> Sweep:
    """Return the estimates of the trials about one target."""
    first, num_free = float(targets.first_losses[groups[0].target]), targets.num_free
    summaries = [
        summarise(each.traces["loss_trace"], first, group.nbeta, each.failed_at)
        for each, group in zip(trials, groups, strict=True)
    ]
    localized = [replace(settings, localization=each.localization) for each in groups]
    slow = [
        _slow(*each, steps, num_free) for each in zip(localized, trials, strict=True)
    ]
    excess = [
        biases(own, each, summary.llc_mean, damping=options.damping, num_free=num_free)
        for own, each, summary in zip(localized, trials, summaries, strict=True)
    ]

    def of_trials(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return Sweep(
        of_trials([math.nan if s.num_failed else s.llc_mean for s in summaries]),
        of_trials([math.nan if s.num_failed else s.llc_sem for s in summaries]),
        of_trials([lacking for lacking, _ in slow]),
        of_trials([spread for _, spread in slow]),
        of_trials([float(np.nansum(each)) for each in excess]),
        of_trials([float(each.acceptance.mean()) for each in trials]),
        torch.stack([each.state["lr"].cpu().double() for each in trials]),
        sum(each.passes for each in trials),
    )


def _slow(
    settings: ChainSettings, trial: ChainResults, steps: Steps, num_free: int
) -> tuple[float, float]:
    """Return the mean that slow directions leave out of a trial, and its error."""
    if not trial.is_finite.all():
        return math.nan, math.nan
    return slow_directions(
        settings,
        trial.state,
        trial.acceptance,
        steps,
        num_steps=TRIAL_DRAWS * steps.num_steps_bw_draws,
        num_free=num_free,
    )


def _shortened(settings: ChainSettings, sweep: Sweep) -> ChainSettings:
    """Return the settings for another sweep, of shorter steps than any so far."""
    shortest, longest = SWEEPS["lr"][0], SWEEPS["lr"][-1]
    most = most_lr(sweep) * longest / shortest
    work = settings.work + sweep.work
    return replace(settings, lr=min(most, settings.lr * shortest), work=work)


def _after(
    settings: ChainSettings, sweep: Sweep, parameter: str, *, keeps_step: bool
) -> ChainSettings:
    """Return the settings with the trials, and the step at which the sweep ends."""
    chosen, on_T = ended(sweep, parameter)
    centre: float = getattr(settings, parameter)
    trials = {
        "trial_parameter": np.array([parameter] * len(on_T)),
        "trial_value": np.array([factor * centre for factor in SWEEPS[parameter]]),
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
    if keeps_step:
        return after
    if parameter == "localization":
        # A chain may adapt near the weights to a step too large for where it goes, or
        # where it goes to one too large for near the weights.
        most = float(sweep.steps[: chosen + 1].min())
        return replace(after, lr=most, first_lr=min(settings.lr, most))
    return replace(
        after, lr=min(settings.lr * SWEEPS[parameter][chosen], most_lr(sweep))
    )


def most_lr(sweep: Sweep) -> float:
    """Return the step whose excess is the most that is allowed.

    What steps and batches add is in proportion to the step while it is small; each
    trial has measured it at few draws, so the mean over those where it is small is
    taken, and that of the shortest step where it is nowhere.

    Args:
        sweep: trials of several steps.

    Returns:
        The step; infinite if no trial has measured an excess.
    """
    over_truth_T = sweep.biases / (1 - sweep.biases).clamp(min=0.01)
    rates_T = over_truth_T / sweep.steps.mean(1)
    known_T = rates_T.isfinite() & (rates_T > 0)
    small_T = known_T & sweep.informs
    rates_T = rates_T[small_T] if small_T.any() else rates_T[known_T][:1]
    return float(MOST_BIAS / rates_T.mean()) if len(rates_T) else math.inf


def ended(sweep: Sweep, parameter: str) -> tuple[int, Tensor]:
    """Return the trial at which the sweep ends, and the plateau about it.

    Of steps it is the longest that is stable and has a shorter one on its plateau; else
    the shortest.

    Args:
        sweep: the trials.
        parameter: the swept setting, `lr` or `localization`.

    Returns:
        Its number, and whether each is on the plateau, (T,).
    """
    if parameter == "localization":
        return CHOSEN, plateau(sweep.estimates, sweep.errors, CHOSEN)
    # Shorter steps explore less: what that leaves out is no bias of long ones. What
    # steps and batches add is known, and bounded by the step that is taken.
    excess_T = sweep.biases * sweep.estimates
    estimates_T = sweep.estimates - excess_T + sweep.lacking
    estimates_T[~sweep.informs] = math.nan
    errors_T = torch.hypot(torch.hypot(sweep.errors, sweep.spread), UNSURE * excess_T)
    for chosen in range(CHOSEN, -1, -1):
        on_T = plateau(estimates_T, errors_T, chosen)
        if chosen == 0 or on_T[chosen - 1]:
            break
    return chosen, on_T


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
