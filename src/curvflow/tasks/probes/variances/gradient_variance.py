"""Variance of the loss gradient between samples and between batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.variances.gradient_variance import (
    GradientVarianceParams,
)
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.network_operators import (
    problem_key,
    problem_of,
    record_meeting,
    stacked_weights,
)
from curvflow.tasks.networks.problems import (
    grouped,
    load_samples,
    probed_bytes,
    read_bytes,
)
from curvflow.tasks.numerics.derivatives.variances import (
    GradientVariance,
    batch_variance,
    gradient_variance,
)
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes
from curvflow.tasks.training.batch_draws import PairDraws

# Numbers that the gradients of one pass may hold for one model.
PASS_NUMBERS = 1 << 20

# Samples that make up the variance, so that it is not the accident of some of them.
ENOUGH = 10


def _params(member: Member) -> GradientVarianceParams:
    return cast("GradientVarianceParams", member.params)


def _samples_per_pass(size: int) -> int:
    return max(1, min(64, PASS_NUMBERS // size))


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: gradients of a pass, and the data."""
    network = problem_of(member).network
    params = _params(member)
    batch = params.batch_size if params.mode == "train" else 1
    rows = max(1, _samples_per_pass(network.num_parameters) // batch)
    data = member.one("data")
    used = params.num_samples or len(data["inputs"])
    return (
        8 * rows * (6 * network.num_parameters + 4 * batch * network.width)
        + 2 * probed_bytes(member)
        + read_bytes(data, used, 8)
    )


@computes("probe.gradient_variance", member_bytes=member_bytes, data_bytes=probed_bytes)
def variance(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Measure the variance of the samples' gradients.

    Args:
        members: `weights` and `data`, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the variance between samples and between batches, and the squared
        norm of the mean gradient.

    Raises:
        InputError: requested batches or samples exceed the data, or weights hold NaN or
            infinity.
    """
    return grouped(members, problem_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, problem = _params(members[0]), problem_of(members[0])
    count = len(members[0].one("data")["inputs"])
    used = params.num_samples or count
    _check_counts(params, count, used)
    in_training = params.mode == "train"
    batch = params.batch_size if in_training else 1
    used -= used % batch
    if in_training:
        record_meeting(machine, batch)
    weights_MW = stacked_weights(members, machine, dtype=params.dtype)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    data = [member.one("data") for member in members]
    samples = load_samples(problem, data, "", machine.device, weights_MD.dtype)
    seeds = [_params(member).seed for member in members]
    rows_Mn = torch.stack([_rows(seed, count, used, batch) for seed in seeds])
    taken = samples.taken(rows_Mn.to(samples.device))
    result = gradient_variance(
        problem.losses,
        weights_MD,
        taken.inputs,
        taken.targets,
        sizes=problem.network.layout.sizes,
        num_samples=count,
        fixed_MS=statistics_MS,
        samples_per_pass=max(1, _samples_per_pass(weights_MD.shape[1]) // batch),
        batch_size=batch,
        drawn=PairDraws(seeds, weights_MD).of_models if in_training else None,
    )
    return _outcomes(result, params, problem.network.layout.names, count, used)


def _outcomes(
    result: GradientVariance,
    params: GradientVarianceParams,
    names: Sequence[str],
    count: int,
    used: int,
) -> list[Outcome]:
    variance_M = result.layer_variance.sum(1)
    measured = {
        "gradient_variance": variance_M,
        "gradient_variance_sem": result.sem,
        "gradient_variance_low": result.low,
        "gradient_variance_high": result.high,
        "enough_samples": result.effective >= ENOUGH,
        "batch_gradient_variance": batch_variance(variance_M, params.batch_size, count)
        + result.drawn_variance / count,
        "gradient_squared_norm": result.squared_norm,
        "noise_scale": variance_M / result.squared_norm,
        "layer_gradient_variance": result.layer_variance,
    }
    shared = {
        "layer": np.array(names),
        "num_samples_used": np.array(used, dtype=np.int64),
    }
    return [
        Outcome(shared | {name: a[number].numpy() for name, a in measured.items()})
        for number in range(len(variance_M))
    ]


def _check_counts(params: GradientVarianceParams, count: int, used: int) -> None:
    for field, requested in (("batch_size", params.batch_size), ("num_samples", used)):
        if requested > count:
            raise InputError(
                f"{field}: expected at most the {count} samples, got {requested}. "
                "Lower it."
            )
    if params.mode == "train" and used < 2 * params.batch_size:
        raise InputError(
            f"batch_size: expected at most {used // 2}, half of the {used} samples "
            f"used, with mode train, got {params.batch_size}. Lower it: a variance "
            "needs two batches."
        )
    if count < 2:
        raise InputError(
            "data: expected at least two samples, got 1. Take more data: a variance "
            "needs two samples."
        )


def _rows(seed: int, count: int, used: int, batch: int) -> Tensor:
    if used == count and batch == 1:
        return torch.arange(count)
    return torch.randperm(count, generator=stream(seed, "samples"))[:used]
