"""Variance of curvature matrices between samples and between batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.variances.hessian_variance import (
    HessianVarianceParams,
)
from curvflow.schemas.kinds.shared.operators import OperatorParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.network_operators import (
    batched_operator,
    problem_key,
    problem_of,
    record_meeting,
)
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.derivatives.passes import Averaged
from curvflow.tasks.numerics.derivatives.variances import (
    CurvatureDraws,
    Sampled,
    batch_variance,
    batches_per_pass,
    curvature_variances,
)
from curvflow.tasks.numerics.estimators.intervals import (
    interval_of_squares,
    wider_interval,
)
from curvflow.tasks.numerics.estimators.traces import estimate
from curvflow.tasks.numerics.operators.base import as_sample_mean
from curvflow.tasks.registry import Machine, computes
from curvflow.tasks.training.batch_draws import PairDraws


def _params(member: Member) -> HessianVarianceParams:
    return cast("HessianVarianceParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: a pass of batches, and the data."""
    network, params = problem_of(member).network, _params(member)
    batches = batches_per_pass(network.num_parameters)
    activations = 6 * network.width * params.batch_size
    numbers = batches * (8 * network.num_parameters + activations)
    return 8 * numbers + probed_bytes(member)


@computes("probe.hessian_variance", member_bytes=member_bytes, data_bytes=probed_bytes)
def variance(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate the variance of the curvature of samples, without bias.

    Args:
        members: `weights` and `data`, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the variance between samples and between batches, and the squared
        norm of the mean, with standard errors.

    Raises:
        InputError: requested batches exceed the data, or weights or products hold NaN
            or infinity.

    Reference:
        Granziol (2020), Algorithm 8, corrected: see `curvature_variances`.
    """
    return grouped(members, problem_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, size = _params(members[0]), problem_of(members[0]).network.num_parameters
    num_samples = len(members[0].one("data")["inputs"])
    num_batches = _num_batches(params, num_samples)
    draws = _draws(members, machine, num_samples, num_batches)
    spread, mean = estimate(draws.variance), estimate(draws.squared_mean)
    low_M, high_M = interval_of_squares(
        spread.mean, spread.sem, spread.count - 1, draws.variance
    )
    # Skewed as squares are, and below zero where noise is taken off.
    least_M, most_M = wider_interval(mean.mean, mean.sem, mean.count - 1)
    measured = {
        "hessian_variance": spread.mean,
        "hessian_variance_sem": spread.sem,
        "hessian_variance_low": low_M,
        "hessian_variance_high": high_M,
        "hessian_variance_draws": spread.draws,
        "hessian_variance_per_parameter": spread.mean / size,
        "batch_hessian_variance": batch_variance(
            spread.mean, params.batch_size, num_samples
        ),
        "squared_mean": mean.mean,
        "squared_mean_sem": mean.sem,
        "squared_mean_low": least_M,
        "squared_mean_high": most_M,
    }
    shared = {
        "num_draws": np.array(spread.count, dtype=np.int64),
        "num_matvecs": np.array(spread.count * num_batches, dtype=np.int64),
    }
    return [
        Outcome(shared | {name: a[number].numpy() for name, a in measured.items()})
        for number in range(len(members))
    ]


def _draws(
    members: Sequence[Member], machine: Machine, num_samples: int, num_batches: int
) -> CurvatureDraws:
    """Multiply matrices of batches of samples with random vectors."""
    params, network = _params(members[0]), problem_of(members[0]).network
    matrix = OperatorParams(operator=params.operator, dtype=params.dtype)
    names = network.layout.names
    operator = batched_operator(
        members, machine, [matrix] * len(members), names=names, columns=1
    )
    seeds = [_params(member).seed for member in members]
    if params.mode == "train":
        record_meeting(machine, params.batch_size)
    return curvature_variances(
        as_sample_mean(operator).of_samples
        if params.mode == "eval"
        else _in_training(cast("Averaged", operator), seeds),
        seeds,
        size=network.num_parameters,
        num_samples=num_samples,
        batch_size=params.batch_size,
        num_batches=num_batches,
        num_probes=params.num_probes,
        distribution=params.distribution,
        batches_per_pass=batches_per_pass(network.num_parameters),
    )


def _in_training(operator: Averaged, seeds: Sequence[int]) -> Sampled:
    """Return the operators of batches whose samples meet, each with separate masks.

    The numbers of the calls distinguish these, as they always come in the same order.
    """
    calls = count()
    like = torch.empty(0, dtype=operator.dtype, device=operator.device)

    def sampled(models: Tensor, rows: Tensor) -> Averaged:
        draws = PairDraws(seeds, like, next(calls))
        return operator.of_samples(models, rows).in_training(draws)

    return sampled


def _num_batches(params: HessianVarianceParams, num_samples: int) -> int:
    most = num_samples // params.batch_size
    num_batches = params.num_batches or most
    if not 2 <= num_batches <= most:
        raise InputError(
            f"num_batches: expected 2 to {most}, the batches of {params.batch_size} "
            f"that {num_samples} samples give, got {num_batches}. Lower batch_size or "
            "num_batches."
        )
    return num_batches
