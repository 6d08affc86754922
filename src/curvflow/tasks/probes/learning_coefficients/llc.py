"""Local learning coefficient by sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.curvature.network_operators import (
    problem_key,
    problem_of,
    rows_together,
)
from curvflow.tasks.curvature.stored_factors import given_bytes, preconditioner_key
from curvflow.tasks.llc.losses import PASS_BYTES
from curvflow.tasks.llc.observed import ObservedLosses
from curvflow.tasks.llc.outcomes import unpacked
from curvflow.tasks.llc.targets import member_targets, options_of, params_of
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.sampling.calibration_sweep import CHAINS
from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets
from curvflow.tasks.numerics.sampling.coefficient import (
    CoefficientEstimate,
    estimate_coefficients,
    variables,
)
from curvflow.tasks.numerics.sampling.measured_curvature import DENSE, RUNS, STEPS
from curvflow.tasks.numerics.sampling.step_context import page_length
from curvflow.tasks.registry import Machine, computes

# Numbers of each draw: two losses and a distance.
TRACES = 3

# Vectors of the parameters' size that a chain holds in addition to its noise.
VECTORS = 12

# Eigenvectors by which steps are whitened: measured, stacked and stored.
COPIES = 3


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: of its calibration or its chains."""
    params, size = params_of(member), problem_of(member).network.num_parameters
    is_measured = params.calibrate == "auto" and _earlier(member) is None
    chains = max(params.num_chains, CHAINS if is_measured else 0)
    numbers = chains * size * (page_length(size) + VECTORS)
    kept = TRACES + size * params.keep_draws + _num_observed(member)
    numbers += 2 * params.num_chains * params.num_draws * kept
    may_whiten = params.sampling_method in (None, "multiscale_mala")
    if params.calibrate == "auto" and may_whiten:
        numbers += COPIES * size * (size if size <= DENSE else STEPS)
    sampling = 8 * numbers + max(PASS_BYTES["cpu"], _together_bytes(member))
    sampling += probed_bytes(member)
    sampling += given_bytes(member)
    return max(sampling, _spectrum_bytes(member)) if is_measured else sampling


def _together_bytes(member: Member) -> int:
    """Return the bytes of a pass of two chains over samples that meet in a batch."""
    rows = rows_together(member, params_of(member)) or 0
    return 2 * 8 * rows * problem_of(member).network.width


def _num_observed(member: Member) -> int:
    """Return the number of losses that are kept of each draw, at the most."""
    params, data = params_of(member), member.one("data")
    if params.keep_losses is None:
        return 0
    splits = {"train": ["targets"], "test": ["test_targets"]}
    names = splits.get(params.observed) or ["targets", "test_targets"]
    counts = [len(data[name][: params.max_observed]) for name in names]
    shape = data["targets"].shape[1:] if params.keep_losses == "tokens" else ()
    return sum(counts) * math.prod(shape)


def _spectrum_bytes(member: Member) -> int:
    """Return the estimated peak memory of measuring one member's spectrum."""
    problem = problem_of(member)
    size = problem.network.num_parameters
    # In double precision the matrix, its eigenvectors and what finds them; or the basis
    # and a few blocks of vectors.
    vectors = 6 * size if size <= DENSE else RUNS * (STEPS + 10)
    rows = rows_together(member, params_of(member))
    products = problem.product_bytes(member.one("data"), RUNS, rows=rows)
    products += given_bytes(member)
    return products + 8 * size * vectors


@computes("probe.llc", member_bytes=member_bytes, data_bytes=probed_bytes)
def llc(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate nbeta (E L(w) - L(w*)) under the posterior about the weights.

    Args:
        members: `weights` and `data`, factors as `preconditioner` if they are given,
            and parameters that differ in seed, nbeta, lr and localization.
        machine: where to compute.

    Returns:
        Per member the coefficient with its standard error, the state of its chains and
        a verdict; diverged if no chain stayed finite.

    Raises:
        InputError: weights or products hold NaN or infinity, `layers` names no tensor,
            a batch is larger than the data, or factors are of other parameters.

    Reference:
        Lau et al. (2023), arXiv:2308.12108, equation 20. Watanabe (2013), JMLR 14, for
        nbeta = n / ln n.
    """
    return grouped(members, _alike, partial(_sampled, machine=machine))


def _alike(member: Member) -> object:
    earlier = _earlier(member)
    num_earlier = 0 if earlier is None else int(earlier["loss_trace"].shape[1])
    return problem_key(member), preconditioner_key(member), num_earlier


def _earlier(member: Member) -> NodeData | None:
    """Return the stored draws to resume, if there are any."""
    earlier = member.earlier
    return earlier if earlier is not None and earlier.status == "ok" else None


def _sampled(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    targets = member_targets(members, machine)
    stored = [
        unpacked(earlier, params_of(member), targets.num_samples)
        for member in members
        if (earlier := _earlier(member)) is not None
    ]
    options = [options_of(params_of(member)) for member in members]
    estimates = estimate_coefficients(targets, options, stored or None)
    return [
        _outcome(estimate, observed)
        for estimate, observed in zip(estimates, _observed(targets), strict=True)
    ]


@full_precision()
def _observed(targets: ChainTargets) -> list[dict[str, Array]]:
    """Return the observables of each target, and its losses at the weights."""
    count = len(targets.weights)
    if targets.observables is None:
        return [{} for _ in range(count)]
    at = targets.observables(torch.arange(count, device=targets.weights.device))
    assert isinstance(at, ObservedLosses)
    losses_MO = at.values(targets.weights).cpu().double().numpy()
    return [
        {"observed_init_losses": losses_MO[number], **at.observed.description(number)}
        for number in range(count)
    ]


def _outcome(estimate: CoefficientEstimate, observed: Mapping[str, Array]) -> Outcome:
    arrays = {**variables(estimate), **observed}
    if estimate.results.observed is not None:
        arrays["observed_losses"] = estimate.results.observed.numpy()
    if estimate.has_failed:
        return Outcome(arrays, "diverged", estimate.verdict.reason)
    return Outcome(arrays)
