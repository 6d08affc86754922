"""Log-determinants of curvature operators and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature import ritz_data
from curvflow.tasks.curvature.operators import (
    FACTORS,
    MATRIX,
    as_data,
    data_operator,
    dense_matrices,
    size_of,
    tile_operator,
)
from curvflow.tasks.curvature.preconditioned_lanczos import (
    PreconditionedRuns,
    lower_bound,
    preconditioned_bytes,
    preconditioned_runs,
    runs_of_model,
)
from curvflow.tasks.curvature.stored_factors import (
    PRECONDITIONER,
    preconditioner_key,
)
from curvflow.tasks.networks.problems import Apart, grouped
from curvflow.tasks.numerics.estimators.logdets import (
    Controls,
    LogDet,
    by_chebyshev,
    by_entropy,
    by_quadrature,
    exactly,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes
from curvflow.tasks.numerics.operators.matrices import gershgorin_bounds
from curvflow.tasks.registry import Machine, computes

# Largest number of moments for the density of a preconditioned spectrum.
MAX_ORDERS = 40
# Rows of a matrix that `auto` takes as a whole.
MOST_ROWS = 1024
# Rounding of a whole matrix, relative to the value, that is enough where none is asked.
ENOUGH = 0.01
# Damping advised, in parts of the largest eigenvalue.
ABOVE_ROUNDING = 1e-6


def _params(member: Member) -> LogdetParams:
    return cast("LogdetParams", member.params)


def method(member: Member) -> str:
    """Return the method of a member; `auto` depends on its operator."""
    requested = _params(member).method
    if requested != "auto":
        return requested
    if _params(member).reorthogonalize == "none":
        return "slq"
    if PRECONDITIONER in member.inputs:
        return "preconditioned_slq"
    if _is_small(member):
        return "dense"
    has_entries = MATRIX in member.inputs and (
        str(member.one(MATRIX)["form"].item()) in ("dense", "kernel")
    )
    refines = _params(member).rel_error is not None
    return "preconditioned_meme" if has_entries and not refines else "slq"


def _is_small(member: Member) -> bool:
    """Return whether the whole matrix takes no more products than the runs would.

    It has to fit as well, and log to be more accurate than the runs are: eigenvalues
    near zero are lost in single precision. What tells how to take the runs asks for
    them.
    """
    params = _params(member)
    asks_for_runs = params.floor is not None or params.num_moments is not None
    if ritz_data.has_stored(member) or params.dtype != "float64" or asks_for_runs:
        return False
    size = size_of(member)
    return size <= min(MOST_ROWS, params.num_runs * min(params.num_steps, size))


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory."""
    most = ritz_data.member_bytes(member)
    if method(member).startswith("preconditioned"):
        most += preconditioned_bytes(member)
    if method(member) == "dense" or _params(member).compare:
        most += 4 * 8 * size_of(member) ** 2
    return most


def _group_key(member: Member) -> object:
    key = ritz_data.batch_key(member)
    if isinstance(key, Apart):
        return key
    return key, method(member), preconditioner_key(member)


@computes("probe.logdet", member_bytes=member_bytes, data_bytes=ritz_data.data_bytes)
def logdet(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate log det(A + damping I).

    Args:
        members: inputs of an operator or Ritz data, and parameters that differ in the
            seed.
        machine: the device to compute on.

    Returns:
        Per member the estimate with its standard error, draws and flags.

    Raises:
        InputError: the damped operator is not positive definite, weights or products
            are not finite, or the method needs more than Ritz data.

    Reference:
        Granziol (2020), chapter 2; docs/moments.md describes the methods.
    """
    return grouped(members, _group_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    method_name, params = method(members[0]), _params(members[0])
    if method_name not in ("slq", "chebyshev", "meme") and ritz_data.has_stored(
        members[0]
    ):
        raise InputError(
            "method: expected slq, chebyshev or meme of stored Ritz data, got "
            f"{method_name}. "
            "Take one of these, or weights or a matrix."
        )
    ends = _ends(members, machine)
    wants_dense = method_name == "dense" or params.compare
    exact: Sequence[LogDet | None] = [None] * len(members)
    if wants_dense:
        exact = _dense(members, machine)
    if method_name == "dense":
        ends = [replace(known, certified="cholesky") for known in ends]
        size = size_of(members[0])
        work = [{"num_matvecs": size, "rank": 0, "smallest": math.nan}] * len(members)
        estimates = cast("list[LogDet]", exact)
        return [*map(_outcome, members, estimates, work, ends, exact)]
    if method_name.startswith("preconditioned"):
        runs = preconditioned_runs(members, machine)
        return [*map(_outcome, members, *_preconditioned(members, runs), ends, exact)]
    known = {id(of): facts for of, *facts in zip(members, ends, exact, strict=True)}

    def judge(part: Sequence[Member], ritz: RitzData) -> list[tuple[Outcome, bool]]:
        of_some, values = zip(*(known[id(member)] for member in part), strict=True)
        judged = _unpreconditioned(part, ritz, of_some)
        outcomes = map(_outcome, part, *judged, of_some, values)
        return [(outcome, bool(outcome.arrays["converged"])) for outcome in outcomes]

    return ritz_data.until_resolved(members, machine, judge)


Work = dict[str, float]


def _unpreconditioned(
    members: Sequence[Member], ritz: RitzData, ends: Sequence[_Ends]
) -> tuple[list[LogDet], list[Work]]:
    estimates, work = [], []
    for m, member in enumerate(members):
        params = _params(member)
        runs = runs_of_model(ritz, m)
        runs = replace(runs, values=runs.values + params.damping)
        smallest = _least_positive(params, runs)
        _check_floor(params, smallest)
        num_matvecs = int(ritz_data.num_products(member, ritz, m))
        work.append({"num_matvecs": num_matvecs, "rank": 0, "smallest": smallest})
        estimates.append(_estimated(params, method(member), runs, ends[m]))
    return estimates, work


def _check_floor(params: LogdetParams, smallest: float) -> None:
    """Raise InputError if a Ritz value lies below what eigenvalues should be above."""
    if params.floor is not None and smallest < params.floor * (1 - 1e-9):
        raise InputError(
            f"floor: expected at most the least eigenvalue, which is {smallest:.6g} or "
            f"less, got {params.floor:g}. Lower it, or leave it out."
        )


def _least_positive(params: LogdetParams, runs: RitzData) -> float:
    """Return the least Ritz value.

    Raises:
        InputError: it is not positive, or of all eigenvalues it is zero up to rounding.
    """
    smallest = float(nodes(runs).min())
    if smallest > _rounding_of_all(runs):
        return smallest
    enough = _enough(params, smallest, float(nodes(runs).max()))
    raise InputError(
        "damping: expected a positive definite operator, got the least Ritz value "
        f"{smallest:.4g} with damping {params.damping:g}. Set damping to at least "
        f"{enough:.2g}, or take an operator without negative eigenvalues."
    )


def _rounding_of_all(runs: RitzData) -> float:
    """Return what the least of all eigenvalues is off by; 0 where some are known."""
    is_one = runs.values.shape[1:] == (1, runs.size)
    are_all = is_one and bool((runs.weights == 1 / runs.size).all())
    return float(runs.residuals.min()) if are_all else 0.0


def _enough(params: LogdetParams, smallest: float, largest: float) -> float:
    """Return a damping by which the least eigenvalue is above zero and rounding."""
    return max(1.1 * (params.damping - smallest), ABOVE_ROUNDING * largest) or 1e-6


def _estimated(
    params: LogdetParams, method_name: str, runs: RitzData, ends: _Ends
) -> LogDet:
    if method_name == "slq":
        return by_quadrature(runs, floor=ends.floor, relative=params.rel_error)
    orders = params.num_moments or max(params.num_steps, runs.values.shape[2])
    high = ends.scale or _largest(runs)
    if method_name == "chebyshev":
        low = float(nodes(runs).min()) / 2 if ends.least is None else ends.least
        return by_chebyshev(
            runs,
            degree=orders,
            low=low,
            high=high,
            floor=ends.floor,
            relative=params.rel_error,
        )
    # On the interval (0, 1), as in the source; on (0, lambda_u) powers overflow.
    unit = replace(runs, values=runs.values / high, residuals=runs.residuals / high)
    law = "flat" if params.prior == "auto" else params.prior
    low = 0.0 if law != "log" else (ends.least or float(nodes(runs).min()) / 2) / high
    fitted = by_entropy(
        unit,
        num_moments=orders,
        support=(low, 1.0),
        law=law,
        basis=params.basis,
        floor=ends.floor and ends.floor / high,
    )
    return _shifted(fitted, runs.size * math.log(high))


def _largest(runs: RitzData) -> float:
    """Return an upper bound of the eigenvalues: Ritz value plus residual."""
    return 1.001 * float((runs.values + runs.residuals).nan_to_num(nan=0).max())


def _shifted(estimate: LogDet, shift: float) -> LogDet:
    return replace(
        estimate,
        draws=estimate.draws + shift,
        low=estimate.low + shift,
        high=estimate.high + shift,
    )


def _preconditioned(
    members: Sequence[Member], runs_of_members: PreconditionedRuns
) -> tuple[list[LogDet], list[Work]]:
    leading_M = runs_of_members.preconditioner.logdet().cpu()
    rank = runs_of_members.rank
    estimates, work = [], []
    for m, member in enumerate(members):
        params, runs = _params(member), runs_of_model(runs_of_members.ritz, m)
        _check_positive(float(nodes(runs).min()))
        remainder = _remainder(
            params,
            method(member),
            runs,
            runs_of_members.controls[m],
            runs_of_members.floors[m],
        )
        estimates.append(_shifted(remainder, float(leading_M[m])))
        num_matvecs = rank + int(runs_of_members.ritz.steps[m].sum())
        work.append({"num_matvecs": num_matvecs, "rank": rank, "smallest": math.nan})
    return estimates, work


def _check_positive(smallest: float) -> None:
    """Raise InputError if a Ritz value of a preconditioned operator is not positive."""
    if not smallest > 0:
        raise InputError(
            "damping: expected a positive definite operator, got the least Ritz value "
            f"{smallest:.4g} after preconditioning. Raise damping; method slq reports "
            "by how much."
        )


def _remainder(
    params: LogdetParams,
    method_name: str,
    runs: RitzData,
    controls: Controls | None,
    floor: float | None,
) -> LogDet:
    """Estimate the log-determinant of the preconditioned operator."""
    if method_name == "preconditioned_slq":
        return by_quadrature(runs, controls=controls, floor=floor)
    values = nodes(runs)
    support = (0.5 * float(values.min()), 1.05 * float(values.max()))
    orders = params.num_moments or min(MAX_ORDERS, 2 * runs.values.shape[2] - 1)
    law = "log" if params.prior == "auto" else params.prior
    return by_entropy(
        runs,
        num_moments=orders,
        support=support,
        law=law,
        basis=params.basis,
        controls=controls,
    )


def _dense(members: Sequence[Member], machine: Machine) -> list[LogDet]:
    """Return the log-determinants by Cholesky of the matrices.

    Raises:
        InputError: a matrix is not positive definite.
    """
    operator = tile_operator(members, machine, columns=64).operator
    size = operator.shape[1]
    eye = torch.eye(size, dtype=torch.float64, device=operator.device)
    matrices_MDD = dense_matrices(operator) + _params(members[0]).damping * eye
    symmetric_MDD = (matrices_MDD + matrices_MDD.mT) / 2
    params = _params(members[0])
    return [
        exactly(
            _cholesky_logdet(params, A_DD),
            _rounding(A_DD, operator.dtype),
            relative=params.rel_error or ENOUGH,
        )
        for A_DD in symmetric_MDD
    ]


def _rounding(A_DD: Tensor, dtype: torch.dtype) -> float:
    """Return how far log det may be off by the rounding of single precision products.

    Infinite where an eigenvalue is below it; that of double precision counts as none.
    """
    if dtype == torch.float64:
        return 0.0
    values_D = torch.linalg.eigvalsh(A_DD)
    parts_D = torch.finfo(dtype).eps * values_D[-1] / values_D
    return float(-torch.log1p(-parts_D.clamp(max=1)).sum())


def _cholesky_logdet(params: LogdetParams, A_DD: Tensor) -> float:
    L_DD, failed = torch.linalg.cholesky_ex(A_DD)
    if int(failed):
        smallest, largest = torch.linalg.eigvalsh(A_DD)[[0, -1]].tolist()
        raise InputError(
            "damping: expected a positive definite operator, got the least eigenvalue "
            f"{smallest:.4g} with damping {params.damping:g}. Set damping to at least "
            f"{_enough(params, smallest, largest):.2g}."
        )
    return 2 * float(L_DD.diagonal().log().sum())


def _outcome(
    member: Member,
    estimate: LogDet,
    work: Work,
    ends: _Ends,
    exact: LogDet | None,
) -> Outcome:
    size, scale = _size(member), ends.scale or 1.0
    shift = size * math.log(scale)
    arrays: dict[str, Array] = {
        "logdet": np.array(estimate.value),
        "logdet_sem": np.array(estimate.sem),
        "logdet_vectors": np.array(estimate.vectors),
        "logdet_quadrature": np.array(estimate.quadrature),
        "logdet_low": np.array(estimate.low),
        "logdet_high": np.array(estimate.high),
        "definite": np.array(ends.certified or _shown(estimate)),
        "gap": np.array(estimate.gap),
        "strain": np.array(estimate.strain),
        "converged": np.array(estimate.converged),
        "scale": np.array(scale),
        "logdet_scaled": np.array(estimate.value - shift),
        "smallest": np.array(work["smallest"]),
        "rank": np.array(work["rank"], dtype=np.int64),
        "size": np.array(size, dtype=np.int64),
        "num_matvecs": np.array(work["num_matvecs"], dtype=np.int64),
    }
    if method(member) != "dense":
        arrays["logdet_draws"] = estimate.draws.numpy()
    if exact is not None:
        gap = abs(estimate.value - exact.value)
        arrays["exact"] = np.array(exact.value)
        arrays["error"] = np.array(_relative(gap, exact.value))
        arrays["error_scaled"] = np.array(_relative(gap, exact.value - shift))
    return Outcome(arrays)


def _relative(gap: float, exact: float) -> float:
    """Return a distance over what it is from; NaN from zero, as of the identity."""
    if exact:
        return gap / abs(exact)
    return math.nan if gap else 0.0


def _shown(estimate: LogDet) -> str:
    """Return how far the runs themselves show that an operator is definite."""
    return "assumed" if estimate.floor is None else "tested"


def _size(member: Member) -> int:
    if ritz_data.has_stored(member):
        return int(ritz_data.stored_node(member)["size"])
    return size_of(member)


@dataclass(frozen=True)
class _Ends:
    """Bounds of a damped operator's eigenvalues, known before any product.

    Attributes:
        least: they are not below it, by the operator and the parameters; or None.
        floor: they are above it, so that the operator is positive definite; or None.
        certified: how that is known; empty without.
        scale: Gershgorin's bound of a matrix; None of other operators.
    """

    least: float | None
    floor: float | None
    certified: str
    scale: float | None


def _bounds(member: Member, machine: Machine) -> tuple[float, float] | None:
    """Return bounds of eigenvalues of stored matrices; of factors they are known."""
    if FACTORS in member.inputs:
        values = member.one(FACTORS)["values"]
        return float(values.min()), float(values.max())
    return gershgorin_bounds(data_operator(member, machine, torch.float64))


def _ends(members: Sequence[Member], machine: Machine) -> list[_Ends]:
    """Return the known bounds of each member's eigenvalues, matrices read once."""
    read: dict[int, tuple[float, float] | None] = {}
    ends = []
    for member in members:
        params, given = _params(member), as_data(member)
        if given is not None and id(given) not in read:
            read[id(given)] = _bounds(member, machine)
        bounds = read.get(id(given))
        floor, certified = None, ""
        if bounds and bounds[0] + params.damping > 0:
            how = "eigenvalues" if FACTORS in member.inputs else "gershgorin"
            floor, certified = bounds[0] + params.damping, how
        least = lower_bound(member)
        if least is not None and (floor is None or least > floor):
            floor, certified = least, "floor" if params.floor else "damping"
        scale = bounds and bounds[1] + params.damping
        ends.append(_Ends(least, floor, certified, scale or None))
    return ends
