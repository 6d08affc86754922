"""Spectrum of a curvature matrix by stochastic Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.probes.spectrum import SpectrumParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.ritz_data import (
    batch_key,
    data_bytes,
    member_bytes,
    ritz_data,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import extremes, functional, nodes
from curvflow.tasks.numerics.krylov.ritz_spectra import Mass, degeneracy, mass
from curvflow.tasks.registry import Machine, computes


@computes("probe.spectrum", member_bytes=member_bytes, data_bytes=data_bytes)
def spectrum(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Run Lanczos from random vectors, and summarise the Ritz data.

    Args:
        members: `weights` and `data`, or `matrix`, and parameters that differ in the
            seed.
        machine: the device to compute on.

    Returns:
        Per member Ritz values, weights and residuals of each run, extreme eigenvalues,
        trace, and the fractions of zero and negative eigenvalues.

    Raises:
        InputError: weights or products hold NaN or infinity.

    Reference:
        Ubaru, Chen and Saad (2017), doi:10.1137/16M1104974. Granziol (2020), section
        5.9.1, for the rank degeneracy.
    """
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params = cast("SpectrumParams", members[0].params)
    ritz = ritz_data(members, machine)
    low_M, high_M = extremes(ritz)
    largest_M = torch.maximum(low_M.abs(), high_M.abs())
    threshold_M = params.zero_width * torch.where(largest_M > 0, largest_M, 1.0)
    endless_M = torch.full_like(threshold_M, -torch.inf)
    # The largest number below minus the threshold, which itself counts as zero.
    below_M = torch.nextafter(-threshold_M, endless_M)
    trace = functional(ritz, lambda x: x)
    trace_low, trace_high = student_interval(trace.mean, trace.sem, trace.freedom)
    atom = degeneracy(ritz, params.degenerate_nodes)
    values = {
        "ritz_values": ritz.values,
        "ritz_weights": ritz.weights,
        "ritz_residuals": ritz.residuals,
        "largest": high_M,
        "largest_residual": _residual(ritz, high_M),
        "smallest": low_M,
        "smallest_residual": _residual(ritz, low_M),
        "trace": trace.mean,
        "trace_sem": trace.sem,
        "trace_low": trace_low,
        "trace_high": trace_high,
        "zero_threshold": threshold_M,
        **_fraction("zero_mass", mass(ritz, -threshold_M, threshold_M)),
        **_fraction("negative_mass", mass(ritz, endless_M, below_M)),
        "rank_degeneracy": atom.weight.mean,
        "rank_degeneracy_sem": atom.weight.sem,
        "rank_degeneracy_value": atom.value.mean,
    }
    return [_outcome(number, values, ritz) for number in range(len(members))]


def _residual(ritz: RitzData, value_M: Tensor) -> Tensor:
    """Return the residual of a Ritz value, the least if several runs have it."""
    is_it = nodes(ritz) == value_M[:, None, None]
    residuals = ritz.residuals.masked_fill(~is_it, torch.inf)
    return residuals.nan_to_num(nan=torch.inf).amin((1, 2))


def _fraction(name: str, fraction: Mass) -> dict[str, Tensor]:
    low, high = fraction.interval()
    return {
        name: fraction.estimate.mean,
        f"{name}_sem": fraction.estimate.sem,
        f"{name}_low": low,
        f"{name}_high": high,
    }


def _outcome(number: int, values: dict[str, Tensor], ritz: RitzData) -> Outcome:
    arrays: dict[str, Array] = {
        name: value[number].numpy() for name, value in values.items()
    }
    counts = {"size": ritz.size, "num_matvecs": int(ritz.steps[number].sum())}
    return Outcome(
        arrays | {name: np.array(n, dtype=np.int64) for name, n in counts.items()}
    )
