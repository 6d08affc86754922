"""Verdicts: converged, or the reason why chains cannot be trusted.

Letters: C chains; K draws of each.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

from torch import Tensor

from curvflow.tasks.numerics.sampling.diagnostics import (
    Summary,
    ess_mean,
    failed,
    geweke,
    mcse_mean,
    normal_scores,
)

# 1.01 (Vehtari et al. 2021) wants 400 effective draws of four chains: chains that mix
# have R-hat of about 1 + 1 / (2 ESS of a half). 1.05 goes with the 100 to 200 at which
# the error is a tenth of the spread of the draws.
MAX_R_HAT = 1.05
MIN_ESS = 100

# By 2 standard errors, one good estimate in 20 would be called drifting.
SURE = 3.0
MIN_ACCEPTANCE = 0.15
MAX_BIAS = 0.05
MAX_ERROR = 0.05

# Draws show an error that is expected if they show half of it.
SHOWN = 2.0

# Share of a coefficient held from which on the reason says so.
SHOWN_HOLD = 0.02

# Rounding of losses in single precision, times nbeta, is of this size.
NEGLIGIBLE = 1e-3

# A random walk from the start is 2.8 times as far in its last quarter as in its first.
FASTER_THAN_DIFFUSION = 3.0


@dataclass(frozen=True)
class Chains:
    """Chains about one target, with the numbers by which they are judged.

    Attributes:
        summary: the estimate by these chains.
        losses: mean losses at the draws, at least 8 of each chain, (C, K).
        distances: of the draws from the weights, (C, K).
        acceptance: mean Metropolis acceptance of each chain; NaN if not measured, (C,).
        failed_at: step at which a chain failed, -1 if it did not, (C,).
        init_loss: mean loss at the weights.
        nbeta: inverse temperature.
        localization: gamma.
        num_parameters: number that move, d.
        bias: bound of the relative excess by finite steps and batches; 0 of a sampler
            that accepts or rejects.
        slow_error: predicted error from directions too slow for the chains; NaN if the
            curvature was not measured.
        hold_share: part of the coefficient that the localization takes; NaN if the
            curvature was not measured.
        max_hold: of it, the most allowed; infinite if the localization was given.
        off_plateau: `lr` or `localization` if the chosen value is off the plateau of
            the calibration sweep; else "".
    """

    summary: Summary
    losses: Tensor
    distances: Tensor
    acceptance: Tensor
    failed_at: Tensor
    _: KW_ONLY
    init_loss: float
    nbeta: float
    localization: float
    num_parameters: int
    bias: float = 0.0
    slow_error: float = math.nan
    hold_share: float = math.nan
    max_hold: float = math.inf
    off_plateau: str = ""

    @cached_property
    def sem_per_chain(self) -> Tensor:
        """Standard error of each chain's estimate, (C,)."""
        return self.nbeta * mcse_mean(self.losses[:, None])


def too_large(chains: Chains) -> str:
    """Return a reason if steps are rejected, or bias the estimate; else ""."""
    least = float(chains.acceptance.nan_to_num(1.0).min())
    if least < MIN_ACCEPTANCE:
        return (
            f"a chain accepts {least:.0%} of its steps, below {MIN_ACCEPTANCE:.0%}. "
            "Lower lr."
        )
    if chains.bias > MAX_BIAS:
        return (
            f"finite steps and batches raise the estimate by up to {chains.bias:.1%}, "
            f"above {MAX_BIAS:.0%}. "
            "Lower lr, enlarge batch_size, or take mala."
        )
    if chains.off_plateau == "lr":
        return (
            "trials with smaller or larger steps give other estimates, and lr is on no "
            "plateau. Lower lr."
        )
    return ""


def negative(chains: Chains) -> str:
    """Return a reason if losses are below that at the weights, beyond errors."""
    llc_C = chains.summary.llc_per_chain
    # The least of several: a standard error more than for one.
    low_C = llc_C + (SURE + 1) * chains.sem_per_chain < -NEGLIGIBLE
    mean = chains.summary.llc_mean
    if mean + SURE * chains.summary.llc_sem >= -NEGLIGIBLE and not low_C.any():
        return ""
    return (
        f"the estimate is {mean:.4g} +- {chains.summary.llc_sem:.2g}, of the least "
        f"chain {float(llc_C.min()):.4g}: chains find lower losses than the "
        f"{chains.init_loss:.4g} at the weights, which are no local minimum at this "
        "scale. Train further, or raise localization."
    )


def escaped(chains: Chains) -> str:
    """Return a reason if chains do not stay near the weights; else ""."""
    for test in (_too_far, _too_high, _leaving):
        if reason := test(chains):
            return f"{reason} Raise localization, or lower lr."
    return ""


def _too_far(chains: Chains) -> str:
    # A loss that nowhere falls on the way out from the weights only holds chains nearer
    # than the localization does by itself, be the minimum regular or not.
    if chains.localization == 0:
        return ""
    size = chains.num_parameters
    limit = math.sqrt((size + 5 * math.sqrt(2 * size)) / chains.localization)
    far = float(_quarter(chains.distances, 3).square().mean(1).max().sqrt())
    if far <= limit:
        return ""
    scale = math.sqrt(size / chains.localization)
    return (
        f"a chain ends {far:.3g} from the weights, beyond the {scale:.3g} that "
        "localization alone would let it go: a lower loss further out draws it."
    )


def _too_high(chains: Chains) -> str:
    # Regular minima have 1/2 a parameter, singular ones of smooth losses less; |w|, 1.
    llc_C = chains.summary.llc_per_chain
    if not (llc_C - (SURE + 1) * chains.sem_per_chain > chains.num_parameters).any():
        return ""
    return (
        f"a chain's estimate is {float(llc_C.max()):.4g}, above the "
        f"{chains.num_parameters} parameters: its losses are not those of a minimum "
        "at the weights."
    )


def _leaving(chains: Chains) -> str:
    # Slow spreading along a valley of equal loss is not leaving, nor wrong.
    if chains.losses.shape[1] < 40:  # too few draws in a quarter
        return ""
    before_C = _quarter(chains.distances, 0).mean(1)
    after_C = _quarter(chains.distances, 3).mean(1)
    gone_C = (after_C > FASTER_THAN_DIFFUSION * before_C) & _moved(chains.losses)
    if not gone_C.any():
        return ""
    chain = int((after_C / before_C * gone_C).argmax())
    return (
        f"a chain went from {float(before_C[chain]):.3g} to "
        f"{float(after_C[chain]):.3g} from the weights between its first and last "
        "quarter, faster than a random walk, and its loss changed."
    )


def drifting(chains: Chains) -> str:
    """Return a reason if chains disagree, have a trend, or are too short."""
    summary = chains.summary
    if not chains.distances.any():
        return "the chains have not moved from the weights. Raise lr."
    if not summary.r_hat <= MAX_R_HAT and not math.isnan(summary.r_hat):
        return (
            f"R-hat is {summary.r_hat:.4g}, above {MAX_R_HAT}: the chains, or their "
            "halves, disagree. Draw more, or raise num_burnin_steps."
        )
    # Of scores, for a few draws from a far start would drown in a spread of their own.
    z = float(geweke(normal_scores(chains.losses[None])))
    if abs(z) > SURE:
        way = "rises" if z > 0 else "falls"
        return (
            f"the loss still {way}: its first tenth and last half are {abs(z):.1f} "
            "standard errors apart. Raise num_burnin_steps."
        )
    ess = min(summary.ess_bulk, summary.ess_tail, float(ess_mean(chains.losses[None])))
    if ess < MIN_ESS:
        return (
            f"the draws are worth {ess:.0f} independent ones, below {MIN_ESS}. Take "
            f"{math.ceil(1.2 * MIN_ESS / ess)} times as many, further apart, or "
            "raise num_burnin_steps."
        )
    shown = max(SHOWN * summary.llc_sem, MAX_ERROR * abs(summary.llc_mean))
    if chains.slow_error > shown:
        return (
            "the measured curvature has directions too slow for chains of this length, "
            f"which leave an error of {chains.slow_error:.2g}: the draws show "
            f"{summary.llc_sem:.2g}. Draw more, or raise localization."
        )
    return ""


def held(chains: Chains) -> str:
    """Return a reason if the localization takes more than allowed; else ""."""
    if not chains.hold_share > chains.max_hold:
        return ""
    return (
        f"the localization takes {chains.hold_share:.0%} of the coefficient, above the "
        f"{chains.max_hold:.0%} of max_hold: the estimate is of this localization. "
        "Raise nbeta or num_steps_bw_draws, or give a lower localization."
    )


def well_mixed(chains: Chains) -> str:
    """Return a description of how well chains without fault have mixed."""
    summary = chains.summary
    text = f"R-hat {summary.r_hat:.3f}, {summary.ess_bulk:.0f} effective draws"
    if chains.off_plateau == "localization":
        text += (
            "; the trials held less and more give other estimates: this one is of its "
            "localization"
        )
    elif chains.hold_share > SHOWN_HOLD:
        text += f"; of this localization, which takes {chains.hold_share:.0%}"
    z = float(geweke(chains.distances[None]))
    if z > SURE:
        text += (
            f"; chains still spread along losses alike (distance rises, z {z:.1f}): "
            "the estimate is of where they have been"
        )
    if math.isnan(chains.slow_error):
        text += "; directions too slow for them were not looked for"
    return text


def _quarter(values_CK: Tensor, number: int) -> Tensor:
    return values_CK.tensor_split(4, 1)[number]


def _moved(losses_CK: Tensor) -> Tensor:
    """Return whether all losses of the last quarter pass all of the first, (C,)."""
    before_CK, after_CK = _quarter(losses_CK, 0), _quarter(losses_CK, 3)
    up_C = after_CK.amin(1) > before_CK.amax(1)
    return up_C | (after_CK.amax(1) < before_CK.amin(1))


@dataclass(frozen=True)
class Verdict:
    """Judgement of whether an estimate can be used.

    Attributes:
        name: `converged`, `held`, `drifting`, `escaped`, `negative`, `step too large`
            or `failed`.
        reason: why, in words, with numbers, and what to do about it.
    """

    name: str
    reason: str


def judge(chains: Chains) -> Verdict:
    """Judge whether the chains about one target can be trusted, and if not, why.

    The first of these that holds is the verdict: a chain `failed`; its `step too
    large`, for then nothing else means much; `negative`, it finds lower losses than the
    weights have; `escaped`, it does not stay near them; `drifting`, it is not
    stationary or too short to say; `held`, the localization takes too much; else
    `converged`.

    Args:
        chains: their losses, distances and settings.

    Returns:
        The verdict and its reason.
    """
    failed_C = failed(chains.losses, chains.failed_at)
    if failed_C.any():
        return _failure(failed_C, chains.failed_at)
    chains = replace(
        chains,
        losses=chains.losses.double(),
        distances=chains.distances.double(),
        acceptance=chains.acceptance.double(),
    )
    tests = {
        "step too large": too_large,
        "negative": negative,
        "escaped": escaped,
        "drifting": drifting,
        "held": held,
    }
    for name, test in tests.items():
        if reason := test(chains):
            return Verdict(name, reason)
    return Verdict("converged", well_mixed(chains))


def _failure(failed_C: Tensor, failed_at_C: Tensor) -> Verdict:
    steps = [str(int(at)) for at in failed_at_C[failed_C] if at >= 0]
    where = f", at step {', '.join(steps)}" if steps else ""
    left = "there is no estimate" if failed_C.all() else "the estimate is of the others"
    return Verdict(
        "failed",
        f"{int(failed_C.sum())} of {len(failed_C)} chains left the finite numbers"
        f"{where}; {left}. Lower lr.",
    )
