"""Spectrum of a curvature matrix by stochastic Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.probes.densities.spectrum import SpectrumParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.operators import atom_arrays
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
from curvflow.tasks.numerics.krylov.ritz_spectra import UNSURE, degeneracy, mass
from curvflow.tasks.numerics.operators.deflation import Atoms
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
    ritz, atoms = ritz_data(members, machine)
    whole = _with_atoms(ritz, atoms)
    low_M, high_M = extremes(whole)
    largest_M = torch.maximum(low_M.abs(), high_M.abs())
    threshold_M = params.zero_width * torch.where(largest_M > 0, largest_M, 1.0)
    endless_M = torch.full_like(threshold_M, -torch.inf)
    # The largest number below minus the threshold, which itself counts as zero.
    below_M = torch.nextafter(-threshold_M, endless_M)
    trace = functional(ritz, lambda x: x)
    trace = replace(trace, mean=trace.mean + float(atoms.trace(lambda x: x)))
    trace_low, trace_high = student_interval(trace.mean, trace.sem, trace.freedom)
    nearest = degeneracy(whole, params.degenerate_nodes)
    values = {
        "ritz_values": ritz.values,
        "ritz_weights": ritz.weights,
        "ritz_residuals": ritz.residuals,
        "largest": high_M,
        "largest_residual": _residual(whole, high_M),
        "smallest": low_M,
        "smallest_residual": _residual(whole, low_M),
        "trace": trace.mean,
        "trace_sem": trace.sem,
        "trace_low": trace_low,
        "trace_high": trace_high,
        "zero_threshold": threshold_M,
        **_fraction("zero_mass", ritz, atoms, (-threshold_M, threshold_M)),
        **_fraction("negative_mass", ritz, atoms, (endless_M, below_M)),
        "rank_degeneracy": nearest.weight.mean,
        "rank_degeneracy_sem": nearest.weight.sem,
        "rank_degeneracy_value": nearest.value.mean,
    }
    extra = atom_arrays(atoms) if params.deflate else {}
    if ritz.has_copies:
        extra = {**extra, "reorthogonalized": np.array(False)}
    outcomes = [_outcome(number, values, ritz) for number in range(len(members))]
    size = {"size": np.array(whole.size, dtype=np.int64)}
    return [Outcome({**arrays, **size, **extra}) for arrays in outcomes]


def _with_atoms(ritz: RitzData, atoms: Atoms) -> RitzData:
    """Return rules of all eigenvalues: those of the rest, and exact nodes."""
    size, shape = ritz.size + atoms.total, (*ritz.steps.shape, len(atoms.values))
    values = torch.cat([ritz.values, torch.tensor(atoms.values).expand(shape)], dim=2)
    shares = torch.tensor(atoms.counts / size).expand(shape)
    weights = torch.cat([ritz.weights * (ritz.size / size), shares], dim=2)
    residuals = torch.cat([ritz.residuals, torch.zeros(shape).double()], dim=2)
    values, order = values.sort(dim=2)  # NaN comes last
    weights, residuals = weights.gather(2, order), residuals.gather(2, order)
    return replace(
        ritz,
        values=values,
        weights=weights,
        residuals=residuals,
        steps=ritz.steps + shape[2],
        size=size,
    )


def _residual(ritz: RitzData, value_M: Tensor) -> Tensor:
    """Return the residual of a Ritz value, the least if several runs have it."""
    is_it = nodes(ritz) == value_M[:, None, None]
    residuals = ritz.residuals.masked_fill(~is_it, torch.inf)
    least_M = residuals.nan_to_num(nan=torch.inf).amin((1, 2))
    return UNSURE * least_M if ritz.has_copies else least_M


def _fraction(
    name: str, ritz: RitzData, atoms: Atoms, ends: tuple[Tensor, Tensor]
) -> dict[str, Tensor]:
    fraction, size = mass(ritz, *ends), ritz.size + atoms.total
    share = ritz.size / size
    values = torch.tensor(atoms.values)
    is_inside = (ends[0][:, None] <= values) & (values <= ends[1][:, None])
    known_M = (is_inside * torch.tensor(atoms.counts / size)).sum(1)
    low, high = fraction.interval()
    return {
        name: known_M + share * fraction.estimate.mean,
        f"{name}_sem": share * fraction.estimate.sem,
        f"{name}_low": known_M + share * low,
        f"{name}_high": known_M + share * high,
    }


def _outcome(
    number: int, values: dict[str, Tensor], ritz: RitzData
) -> dict[str, Array]:
    arrays: dict[str, Array] = {
        name: value[number].numpy() for name, value in values.items()
    }
    num_matvecs = np.array(int(ritz.steps[number].sum()), dtype=np.int64)
    return {**arrays, "num_matvecs": num_matvecs}
