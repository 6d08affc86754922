"""Variance of curvature matrices between samples and between batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.hessian_variance import HessianVarianceParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.network_operators import (
    problem_key,
    problem_of,
    stacked_weights,
)
from curvflow.tasks.networks.problems import grouped, load_samples, probed_bytes
from curvflow.tasks.numerics.derivatives.batches import sample_losses
from curvflow.tasks.numerics.derivatives.gauss_newton import BatchedGaussNewton
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.variances import (
    Sampled,
    batch_variance,
    curvature_variances,
)
from curvflow.tasks.numerics.estimators.traces import estimate
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.registry import Machine, computes

# Numbers of the copies of one model's weights in a pass, a copy per batch.
PASS_NUMBERS = 1 << 20


def _params(member: Member) -> HessianVarianceParams:
    return cast("HessianVarianceParams", member.params)


def _batches_per_pass(size: int) -> int:
    return max(1, min(64, PASS_NUMBERS // size))


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: a pass of batches, and the data."""
    network, params = problem_of(member).network, _params(member)
    batches = _batches_per_pass(network.num_parameters)
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
    count = len(members[0].one("data")["inputs"])
    num_batches = _num_batches(params, count)
    draws = curvature_variances(
        _operators_of_samples(members, machine),
        [_params(member).seed for member in members],
        size=size,
        num_samples=count,
        batch_size=params.batch_size,
        num_batches=num_batches,
        num_probes=params.num_probes,
        distribution=params.distribution,
        batches_per_pass=_batches_per_pass(size),
    )
    variance_estimate, mean = estimate(draws.variance), estimate(draws.squared_mean)
    batch_M = batch_variance(variance_estimate.mean, params.batch_size, count)
    return [
        Outcome(
            {
                "hessian_variance": variance_estimate.mean[number].numpy(),
                "hessian_variance_sem": variance_estimate.sem[number].numpy(),
                "hessian_variance_draws": variance_estimate.draws[number].numpy(),
                "hessian_variance_per_parameter": (
                    variance_estimate.mean[number] / size
                ).numpy(),
                "batch_hessian_variance": batch_M[number].numpy(),
                "squared_mean": mean.mean[number].numpy(),
                "squared_mean_sem": mean.sem[number].numpy(),
                "num_draws": np.array(variance_estimate.count, dtype=np.int64),
                "num_matvecs": np.array(
                    variance_estimate.count * num_batches, dtype=np.int64
                ),
            }
        )
        for number in range(len(members))
    ]


def _num_batches(params: HessianVarianceParams, count: int) -> int:
    most = count // params.batch_size
    num_batches = params.num_batches or most
    if not 2 <= num_batches <= most:
        raise InputError(
            f"num_batches: expected 2 to {most}, the batches of {params.batch_size} "
            f"that {count} samples give, got {num_batches}. Lower batch_size or "
            "num_batches."
        )
    return num_batches


def _operators_of_samples(members: Sequence[Member], machine: Machine) -> Sampled:
    """Return a function from models and sample numbers to their mean operators."""
    params, problem = _params(members[0]), problem_of(members[0])
    weights_MW = stacked_weights(members, machine, dtype=params.dtype)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    data = [member.one("data") for member in members]
    samples = load_samples(data, "", machine.device, weights_MD.dtype)

    def sampled(models_R: Tensor, rows_RB: Tensor) -> BatchedOperator:
        models_R, rows_RB = models_R.to(samples.device), rows_RB.to(samples.device)
        sets_R1 = (models_R if len(samples.inputs) > 1 else 0 * models_R).unsqueeze(1)
        inputs, targets = (
            data[sets_R1, rows_RB] for data in (samples.inputs, samples.targets)
        )
        weights_RD, fixed_RS = weights_MD[models_R], statistics_MS[models_R]
        if params.operator == "ggn":
            return BatchedGaussNewton(
                problem.network.outputs,
                sample_losses(problem.loss),
                weights_RD,
                inputs,
                targets,
                fixed_MS=fixed_RS,
            )
        return BatchedHessian(
            problem.losses, weights_RD, inputs, targets, fixed_MS=fixed_RS
        )

    return sampled
