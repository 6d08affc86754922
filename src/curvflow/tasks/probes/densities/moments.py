"""Spectral moments of an operator, by random vectors or from Ritz data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.densities.moments import MomentsParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.operators import (
    TileOperator,
    as_data,
    atom_arrays,
    atoms_of,
    batch_key,
    block_of,
    is_plain_graph,
    is_semidefinite,
    product_bytes,
    shared_bytes,
    size_of,
    tile_operator,
)
from curvflow.tasks.curvature.ritz_data import has_stored, stored_node
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.estimators.moments import (
    MomentDraws,
    SupportError,
    atom_moments,
    mean_covariance,
    moment_draws,
    moment_intervals,
    ritz_moments,
)
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import RitzData, lanczos
from curvflow.tasks.numerics.krylov.quadrature import is_all_eigenvalues
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.operators.deflation import Atoms
from curvflow.tasks.registry import Machine, computes

# Vectors multiplied in one pass; a constant, so that sums keep their order.
BLOCK = 16

# Fraction of the range of the Ritz values added to the support, since the Ritz values
# of a single vector lie inside the spectrum.
MARGIN = 0.05


def _params(member: Member) -> MomentsParams:
    return cast("MomentsParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products and a basis."""
    params = _params(member)
    if has_stored(member):
        return 64 * int(stored_node(member)["ritz_values"].nbytes)
    columns = _columns(member)
    # A basis is of the precision of the products.
    dtype: torch.dtype = getattr(torch, params.dtype)
    steps = params.support_steps if params.support is None else 0
    if is_plain_graph(member):
        rows = max(2 * columns, steps + 3 if steps else 0)
        return shared_bytes(member) + 8 * size_of(member) * rows
    vectors = size_of(member) * (64 * columns + dtype.itemsize * steps)
    return product_bytes(member, columns) + vectors


def _columns(member: Member) -> int:
    """Return how many vectors are multiplied at once."""
    most = _params(member).num_probes
    return min(BLOCK, most) if as_data(member) is None else block_of(member, most)


def data_bytes(member: Member) -> int:
    """Return the part of `member_bytes` that members with the same data share."""
    return 0 if has_stored(member) else shared_bytes(member)


@computes("probe.moments", member_bytes=member_bytes, data_bytes=data_bytes)
def moments(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate tr p_k(A) / D for k = 0 .. K, with the covariance of all orders.

    Args:
        members: inputs of an operator, or Ritz data, which need no product; and
            parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member the moments, their covariance and the draws.

    Raises:
        InputError: products are not finite, the support lacks part of the spectrum, or
            Ritz data have too few nodes.
    """
    if has_stored(members[0]):
        return [_from_ritz_data(member) for member in members]
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params = _params(members[0])
    columns = _columns(members[0])
    tile = tile_operator(members, machine, columns=columns)
    seeds = [_params(member).seed for member in members]
    drawn, support_M2, steps_M = _drawn(tile, seeds, params, columns)
    products = params.num_probes * math.ceil(params.num_moments / 2)
    size = tile.operator.shape[1]
    return [
        _outcome(
            params,
            MomentDraws(draws, spreads, drawn.freedom, cubes),
            support_2,
            size=size,
            atoms=tile.atoms,
            products=products + int(steps),
            is_positive=is_semidefinite(members[0]),
        )
        for draws, spreads, cubes, support_2, steps in zip(
            drawn.draws, drawn.spreads, drawn.cubes, support_M2, steps_M, strict=True
        )
    ]


def _drawn(
    tile: TileOperator, seeds: Sequence[int], params: MomentsParams, columns: int
) -> tuple[MomentDraws, Tensor, Tensor]:
    """Return draws, their intervals (M, 2), and the products for these, (M,).

    An interval that proves too narrow is widened once.

    Raises:
        SupportError: it still is, or the parameters have set it.
    """
    support_M2, steps_M = _support(tile.operator, seeds, params)

    def draw() -> MomentDraws:
        return moment_draws(
            tile.operator,
            seeds,
            num_moments=params.num_moments,
            num_probes=params.num_probes,
            distribution=params.distribution,
            block=columns,
            support_M2=support_M2 if params.basis == "chebyshev" else None,
        )

    support_M2 = _over_atoms(params, support_M2, tile.atoms)
    try:
        return draw(), support_M2, steps_M
    except SupportError as error:
        if params.support is not None:
            raise
        wider = _widened(tile.operator, seeds, params, error.models, support_M2)
    support_M2, steps_M = wider[0], steps_M + wider[1]
    return draw(), support_M2, steps_M


def _support(
    operator: BatchedOperator, seeds: Sequence[int], params: MomentsParams
) -> tuple[Tensor, Tensor]:
    """Return an interval for each model, (M, 2), and its number of products, (M,)."""
    models, size, _ = operator.shape
    if params.support is not None:
        given_2 = torch.tensor(params.support, dtype=torch.float64)
        return given_2.expand(models, 2), torch.zeros(models, dtype=torch.int64)
    steps = min(size, params.support_steps)
    ritz = _run(operator, seeds, params, params.num_probes, params.distribution)
    ends = [_ends(v, r) for v, r in zip(ritz.values, ritz.residuals, strict=True)]
    support_M2, steps_M = torch.stack(ends), torch.full((models,), steps)
    # A run that ends early may have missed an eigenvector: signs often do.
    early_M = ritz.steps.flatten() < steps
    if early_M.any():
        wider = _widened(operator, seeds, params, early_M, support_M2)
        support_M2, steps_M = wider[0], steps_M + wider[1]
    return support_M2, steps_M


def _widened(
    operator: BatchedOperator,
    seeds: Sequence[int],
    params: MomentsParams,
    models_M: Tensor,
    support_M2: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return intervals that hold what a Gaussian vector sees beyond, and its products.

    Signs are orthogonal to an eigenvector of equal entries, as of regular graphs, by a
    chance that falls with the root of D alone; Gaussian vectors never are.
    """
    ritz = _run(operator, seeds, params, params.num_probes + 1, "gaussian")
    ends = [_ends(v, r) for v, r in zip(ritz.values, ritz.residuals, strict=True)]
    (low_M, high_M), (least_M, greatest_M) = support_M2.T, torch.stack(ends).T
    is_less_M = ritz.values.nan_to_num(torch.inf).amin((1, 2)) < low_M
    is_more_M = ritz.values.nan_to_num(-torch.inf).amax((1, 2)) > high_M
    ends_M2 = torch.stack(
        [
            torch.where(models_M & is_less_M, least_M, low_M),
            torch.where(models_M & is_more_M, greatest_M, high_M),
        ],
        dim=1,
    )
    steps = min(operator.shape[1], params.support_steps)
    return ends_M2, steps * models_M


def _run(
    operator: BatchedOperator,
    seeds: Sequence[int],
    params: MomentsParams,
    row: int,
    distribution: str,
) -> RitzData:
    """Run Lanczos from one vector of each model, behind those of the average."""
    size = operator.shape[1]
    start_MD1 = random_vectors(seeds, size, range(row, row + 1), distribution)
    return lanczos(operator, start_MD1, num_steps=min(size, params.support_steps))


def _ends(values: Tensor, residuals: Tensor) -> Tensor:
    low, high = values.nan_to_num(torch.inf), values.nan_to_num(-torch.inf)
    least, greatest = low.argmin(), high.argmax()
    errors = residuals.nan_to_num(0.0).flatten()
    ends = torch.stack([low.min(), high.max()])
    scale = torch.maximum(ends[1] - ends[0], 1e-3 * ends.abs().max()).clamp_min(1e-300)
    reach = torch.stack([errors[least], errors[greatest]]) + MARGIN * scale
    return ends + reach * torch.tensor([-1.0, 1.0], dtype=torch.float64)


def _from_ritz_data(member: Member) -> Outcome:
    params, ritz = _params(member), stored_node(member)
    if params.operator != "hessian" or params.layers:
        raise InputError(
            f"operator: {params.operator} with layers {params.layers} cannot be "
            "combined with Ritz data. Remove them."
        )
    values, weights, residuals = (
        torch.as_tensor(ritz[f"ritz_{name}"])
        for name in ("values", "weights", "residuals")
    )
    atoms = atoms_of(ritz)
    size = int(ritz["size"]) - atoms.total
    _check_degree(params, values, size)
    if params.support is None:
        support_2 = _ends(values, residuals)
    else:
        support_2 = torch.tensor(params.support, dtype=torch.float64)
    support_2 = _over_atoms(params, support_2, atoms)
    draws = ritz_moments(
        values,
        weights,
        num_moments=params.num_moments,
        support_2=support_2 if params.basis == "chebyshev" else None,
    )
    steps = values.isfinite().sum(1)
    whole = RitzData(values[None], weights[None], residuals[None], steps[None], size)
    return _outcome(
        params,
        draws,
        support_2,
        size=size,
        atoms=atoms,
        products=0,
        is_exact=is_all_eigenvalues(whole),
    )


def _check_degree(params: MomentsParams, values: Tensor, size: int) -> None:
    # A run that ended early is exact for its vector.
    complete = values.isnan().any(1) | torch.tensor(values.shape[1] >= size)
    exact = 2 * values.shape[1] - 1
    if params.num_moments > exact and not complete.all():
        raise InputError(
            f"num_moments: expected at most {exact}, the exact moments of "
            f"{values.shape[1]} Lanczos steps, got {params.num_moments}. Lower it, or "
            "take more steps."
        )


@dataclass(frozen=True)
class _Moments:
    """Moments of the orders 0 .. K with their errors.

    Attributes:
        draws: of each vector, (S, K + 1).
        means: of the draws, (K + 1,).
        errors: standard errors of the means.
        low: lower ends of intervals of 95 %.
        high: upper ends.
        covariance: of the means, (K + 1, K + 1).
    """

    draws: Tensor
    means: Tensor
    errors: Tensor
    low: Tensor
    high: Tensor
    covariance: Tensor

    @classmethod
    def of(
        cls, draws: MomentDraws, intervals: tuple[Tensor, Tensor, Tensor] | None
    ) -> _Moments:
        """Take draws, and their errors and intervals; None of exact ones."""
        means, (count, orders) = draws.draws.mean(0), draws.draws.shape
        errors, low, high = intervals or (torch.zeros_like(means), means, means)
        covariance = torch.full((orders, orders), torch.nan, dtype=torch.float64)
        if count > 1:
            covariance = mean_covariance(draws.draws)
        return cls(draws.draws, means, errors, low, high, covariance)

    def beside(self, known: Tensor, share: float) -> _Moments:
        """Return a share of these and the known rest, which are together all."""
        return _Moments(
            known + share * self.draws,
            known + share * self.means,
            share * self.errors,
            known + share * self.low,
            known + share * self.high,
            share**2 * self.covariance,
        )


def _outcome(
    params: MomentsParams,
    draws: MomentDraws,
    support_2: Tensor,
    *,
    size: int,
    atoms: Atoms,
    products: int,
    is_positive: bool = False,
    is_exact: bool = False,
) -> Outcome:
    intervals = None
    if not is_exact:
        intervals = moment_intervals(
            draws, size=size, basis=params.basis, is_positive=is_positive
        )
    estimated, whole = _Moments.of(draws, intervals), size + atoms.total
    if atoms.total:
        estimated = _beside_atoms(params, estimated, support_2, size, atoms)
    shift, scale = _of_order_one(params, support_2, whole)
    return Outcome(
        {
            **_arrays(estimated),
            "basis": np.array(params.basis),
            "support": support_2.numpy(),
            "trace": (shift + scale * estimated.means[1]).numpy(),
            "trace_sem": (scale * estimated.errors[1]).numpy(),
            "trace_low": (shift + scale * estimated.low[1]).numpy(),
            "trace_high": (shift + scale * estimated.high[1]).numpy(),
            "size": np.array(whole, dtype=np.int64),
            "num_matvecs": np.array(products, dtype=np.int64),
            **(atom_arrays(atoms) if atoms.total or params.deflate else {}),
        }
    )


def _arrays(estimated: _Moments) -> dict[str, Array]:
    count, orders = estimated.draws.shape
    return {
        "order": np.arange(orders, dtype=np.int64),
        "moments": estimated.means.numpy(),
        "moments_sem": estimated.errors.numpy(),
        "moments_low": estimated.low.numpy(),
        "moments_high": estimated.high.numpy(),
        "moments_covariance": estimated.covariance.numpy(),
        "moment_draws": estimated.draws.numpy(),
        "num_draws": np.array(count, dtype=np.int64),
    }


def _beside_atoms(
    params: MomentsParams, rest: _Moments, support_2: Tensor, size: int, atoms: Atoms
) -> _Moments:
    """Return the moments of all eigenvalues from those of the ones not taken out."""
    interval_2 = support_2 if params.basis == "chebyshev" else None
    orders, whole = len(rest.means), size + atoms.total
    known = atom_moments(atoms, num_moments=orders - 1, support_2=interval_2)
    return rest.beside(known / whole, size / whole)


def _over_atoms(params: MomentsParams, support: Tensor, atoms: Atoms) -> Tensor:
    """Return intervals (..., 2) that hold the eigenvalues taken out as well.

    Raises:
        InputError: the one that is given does not.
    """
    if not atoms.total:
        return support
    low, high = float(atoms.values.min()), float(atoms.values.max())
    given = params.support
    if given is None:
        ends = support[..., 0].clamp_max(low), support[..., 1].clamp_min(high)
        return torch.stack(ends, dim=-1)
    if params.basis == "chebyshev" and not given[0] <= low <= high <= given[1]:
        raise InputError(
            "support: expected an interval that holds the eigenvalues taken out, from "
            f"{low:.6g} to {high:.6g}, got {list(given)}. Widen it."
        )
    return support


def _of_order_one(
    params: MomentsParams, support_2: Tensor, size: int
) -> tuple[float, float]:
    """Return a and b of the trace a + b m, with m the moment of order one."""
    if params.basis == "power":
        return 0.0, float(size)
    low, high = support_2.tolist()
    return size * (low + high) / 2, size * (high - low) / 2
