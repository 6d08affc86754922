"""Local learning coefficient by sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.curvature.network_operators import problem_key, problem_of
from curvflow.tasks.llc.calibration import calibrated, spectrum_bytes
from curvflow.tasks.llc.calibration_sweep import CHAINS
from curvflow.tasks.llc.chain_results import (
    Walked,
    biases,
    packed,
    slow_error,
    unpacked,
    walked,
)
from curvflow.tasks.llc.chain_settings import Setting, given, stored
from curvflow.tasks.llc.losses import PASS_BYTES
from curvflow.tasks.llc.targets import Ground, Walkers, by_key, ground, params_of
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.sampling.diagnostics import Summary, summarise
from curvflow.tasks.numerics.sampling.posteriors import Steps
from curvflow.tasks.numerics.sampling.random_numbers import page_length
from curvflow.tasks.numerics.sampling.verdicts import Verdict, judge
from curvflow.tasks.registry import Machine, computes

# What the statistics of the draws tell as single numbers.
SUMMARISED = ("llc_mean", "llc_std", "llc_sem", "r_hat", "ess_bulk", "ess_tail")

# Numbers of each draw: two losses and a distance.
TRACES = 3

# Vectors of the parameters' size that a chain holds beside its noise.
VECTORS = 12


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: what it measures, then its chains."""
    params, size = params_of(member), problem_of(member).network.num_parameters
    is_measured = params.calibrate == "auto" and _earlier(member) is None
    chains = max(params.num_chains, CHAINS if is_measured else 0)
    numbers = chains * size * (page_length(size) + VECTORS)
    kept = TRACES + size * params.keep_draws
    numbers += 2 * params.num_chains * params.num_draws * kept
    walking = 8 * numbers + PASS_BYTES["cpu"] + probed_bytes(member)
    return max(walking, spectrum_bytes(member)) if is_measured else walking


@computes("probe.llc", member_bytes=member_bytes, data_bytes=probed_bytes)
def llc(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate nbeta (E L(w) - L(w*)) under the posterior about the weights.

    Args:
        members: `weights` and `data`, and parameters that differ in seed, nbeta, lr and
            localization.
        machine: where to compute.

    Returns:
        Per member the coefficient with its standard error, the state of its chains and
        a verdict; diverged if no chain stayed finite.

    Raises:
        InputError: weights or products hold NaN or infinity, `layers` names no tensor,
            or a batch is larger than the data.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20. Watanabe (2013), JMLR 14, for
        nbeta = n / ln n.
    """
    return grouped(members, _alike, partial(_together, machine=machine))


def _alike(member: Member) -> object:
    return problem_key(member), _draws_before(member)


def _earlier(member: Member) -> NodeData | None:
    """Return the stored draws to go on from, if there are any."""
    earlier = member.earlier
    return earlier if earlier is not None and earlier.status == "ok" else None


def _draws_before(member: Member) -> int:
    earlier = _earlier(member)
    return 0 if earlier is None else int(earlier["loss_trace"].shape[1])


@full_precision()
def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    place = ground(members, machine)
    settings = _settings(place)
    outcomes: dict[int, Outcome] = {}
    for numbers in by_key(
        [
            (one.method, one.batch_size, one.num_burnin_steps, one.first_lr is None)
            for one in settings
        ]
    ):
        chosen = [settings[number] for number in numbers]
        outcomes.update(zip(numbers, _sampled(place, numbers, chosen), strict=True))
    return [outcomes[number] for number in range(len(members))]


def _settings(place: Ground) -> list[Setting]:
    count = place.samples.count
    params = params_of(place.members[0])
    for member in place.members:
        _refuse(params_of(member), count)
    before = [_earlier(member) for member in place.members]
    if before[0] is not None:
        pairs = zip(place.members, before, strict=True)
        return [stored(one, seen, count) for one, seen in pairs if seen is not None]
    if params.calibrate == "none":
        return [given(member, count) for member in place.members]
    return calibrated(place)


def _refuse(params: LlcParams, count: int) -> None:
    if count < 3 and not isinstance(params.nbeta, float):
        raise InputError(
            f"nbeta: expected a number with {count} samples, got {params.nbeta}, which "
            "is n / ln n of three or more. Give it."
        )
    if params.batch_size is not None and params.batch_size > count:
        raise InputError(
            f"batch_size: expected at most the {count} samples, got "
            f"{params.batch_size}. Lower it."
        )


def _sampled(
    place: Ground, numbers: Sequence[int], settings: Sequence[Setting]
) -> list[Outcome]:
    members = [place.members[number] for number in numbers]
    params, before = params_of(members[0]), [_earlier(one) for one in members]
    walkers = [
        Walkers(number, one.nbeta, one.localization, one.lr)
        for number, one in zip(numbers, settings, strict=True)
    ]
    chains, steps = params.num_chains, _steps(params, settings)
    found = place.walk(
        walkers,
        chains,
        steps,
        unpacked([one for one in before if one is not None]) if before[0] else None,
    )
    first_M = place.first_losses()
    return [
        _outcome(
            place,
            setting,
            steps,
            float(first_M[number]),
            walked(found, slice(row * chains, (row + 1) * chains), before[row]),
        )
        for row, (number, setting) in enumerate(zip(numbers, settings, strict=True))
    ]


def _steps(params: LlcParams, settings: Sequence[Setting]) -> Steps:
    setting = settings[0]
    adapt = setting.first_lr is not None

    def each(values: Sequence[float]) -> Tensor:
        one = torch.tensor(values, dtype=torch.float64)
        return one.repeat_interleave(params.num_chains)

    most_C = each([one.lr for one in settings])
    return Steps(
        setting.method,
        each([one.first_lr or one.lr for one in settings]),
        num_draws=params.num_draws,
        num_burnin_steps=setting.num_burnin_steps,
        num_steps_bw_draws=params.num_steps_bw_draws,
        batch_size=setting.batch_size,
        at_draws=params.at_draws,
        friction=params.friction,
        decay=params.decay,
        damping=params.damping,
        adapt=adapt,
        most_lr=most_C if adapt else None,
        keep_draws=params.keep_draws,
    )


def _outcome(
    place: Ground, setting: Setting, steps: Steps, first: float, one: Walked
) -> Outcome:
    found = summarise(one.traces["loss_trace"], first, setting.nbeta, one.failed_at)
    doubts = biases(place, setting, one, found.llc_mean)
    slow = slow_error(place, setting, one, steps)
    bias = sum(value for value in doubts.values() if not math.isnan(value))
    verdict = _judged(place, setting, first, one, found, bias, slow)
    arrays: dict[str, Array] = {
        **{name: np.array(getattr(found, name)) for name in SUMMARISED},
        **_told(place, setting, first, one),
        **{name: np.array(value) for name, value in doubts.items()},
        **{name: trace_CK.numpy() for name, trace_CK in one.traces.items()},
        **setting.told,
        **packed(one.state),
        "llc_per_chain": found.llc_per_chain.numpy(),
        "acceptance_per_chain": one.acceptance.numpy(),
        "lr_per_chain": one.state["lr"].cpu().double().numpy(),
        "failed_at": one.failed_at.numpy(),
        "num_failed": np.array(found.num_failed, dtype=np.int64),
        "verdict": np.array(verdict.name),
        "reason": np.array(verdict.reason),
    }
    if setting.ritz:
        arrays["slow_error"] = np.array(slow)
    if one.weights is not None:
        arrays["draws"] = one.weights.numpy()
    if found.num_failed == len(one.failed_at):
        return Outcome(arrays, "diverged", verdict.reason)
    return Outcome(arrays)


def _judged(
    place: Ground,
    setting: Setting,
    first: float,
    one: Walked,
    found: Summary,
    bias: float,
    slow: float,
) -> Verdict:
    return judge(
        found,
        one.traces["loss_trace"],
        first,
        setting.nbeta,
        setting.localization,
        one.traces["distance_trace"],
        one.acceptance,
        one.failed_at,
        place.num_free,
        bias=bias,
        slow_error=slow,
        wavers_by=setting.wavers_by,
    )


def _told(
    place: Ground, setting: Setting, first: float, one: Walked
) -> dict[str, Array]:
    """Return the setting, and what the walk took."""
    count = place.samples.count
    numbers = {
        "acceptance": float(one.acceptance[one.fine].mean()),
        "distance": float(one.traces["distance_trace"][one.fine, -1].mean()),
        "init_loss": first,
        "nbeta": setting.nbeta,
        "localization": setting.localization,
        "lr": one.lr,
        "gradient_equivalents": one.passes + setting.work,
        "calibration_equivalents": setting.work,
    }
    counts = {
        "batch_size": setting.batch_size or count,
        "num_burnin_steps": setting.num_burnin_steps,
        "num_samples": count,
        "num_parameters": place.num_free,
    }
    return {
        **{name: np.array(value, dtype=np.float64) for name, value in numbers.items()},
        **{name: np.array(value, dtype=np.int64) for name, value in counts.items()},
        "sampling_method": np.array(setting.method),
    }
