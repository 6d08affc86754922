"""Log-determinants of curvature operators and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
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
    MATRIX,
    dense_matrices,
    matrix_operator,
    size_of,
    tile_operator,
)
from curvflow.tasks.curvature.preconditioned_lanczos import (
    PreconditionedRuns,
    lower_bound,
    preconditioned_runs,
    preconditioner_bytes,
    runs_of_model,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.numerics.estimators.logdets import (
    Controls,
    LogDet,
    by_chebyshev,
    by_entropy,
    by_quadrature,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes
from curvflow.tasks.numerics.operators.matrices import norm_bound
from curvflow.tasks.registry import Machine, computes

# Orders that a density of a preconditioned spectrum is fitted to at most.
ORDERS = 40


def _params(member: Member) -> LogdetParams:
    return cast("LogdetParams", member.params)


def method(member: Member) -> str:
    """Return the method of a member, which `auto` leaves to what it looks at."""
    asked = _params(member).method
    if asked != "auto":
        return asked
    has_entries = MATRIX in member.inputs and (
        str(member.one(MATRIX)["form"].item()) in ("dense", "kernel")
    )
    return "preconditioned_meme" if has_entries else "slq"


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory."""
    most = ritz_data.member_bytes(member)
    if method(member).startswith("preconditioned"):
        most += preconditioner_bytes(member)
    if method(member) == "dense" or _params(member).compare:
        most += 4 * 8 * size_of(member) ** 2
    return most


def _alike(member: Member) -> object:
    return ritz_data.batch_key(member), method(member)


@computes("probe.logdet", member_bytes=member_bytes, data_bytes=ritz_data.data_bytes)
def logdet(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate log det(A + damping I).

    Args:
        members: an operator or Ritz data, and parameters that differ in the seed.
        machine: where to compute.

    Returns:
        Per member the estimate with its standard error, its draws and flags.

    Raises:
        InputError: the damped operator is not positive definite, weights or products
            are not finite, or a method needs more than Ritz data.

    Reference:
        Granziol (2020), chapter 2; docs/moments.md has the methods.
    """
    return grouped(members, _alike, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    way, params = method(members[0]), _params(members[0])
    if way not in ("slq", "chebyshev", "meme") and ritz_data.has_stored(members[0]):
        raise InputError(
            f"method: expected slq, chebyshev or meme of stored Ritz data, got {way}. "
            "Take one of these, or weights or a matrix."
        )
    bounds = _bounds(members, machine)
    wants_dense = way == "dense" or params.compare
    exact = _dense(members, machine) if wants_dense else None
    if way == "dense":
        values = cast("list[float]", exact)
        found = [_as_dense(value) for value in values]
        size = size_of(members[0])
        work = [{"num_matvecs": size, "rank": 0, "smallest": math.nan}] * len(members)
    elif way.startswith("preconditioned"):
        found, work = _preconditioned(members, preconditioned_runs(members, machine))
    else:
        found, work = _plain(members, ritz_data.ritz_data(members, machine), bounds)
    return [
        _outcome(member, found[m], work[m], bounds[m], exact[m] if exact else None)
        for m, member in enumerate(members)
    ]


def _as_dense(value: float) -> LogDet:
    return LogDet(torch.tensor([value], dtype=torch.float64), 0.0, 0.0, math.nan, True)


Work = dict[str, float]


def _plain(
    members: Sequence[Member], ritz: RitzData, bounds: Sequence[float | None]
) -> tuple[list[LogDet], list[Work]]:
    found, work = [], []
    for m, member in enumerate(members):
        params = _params(member)
        runs = runs_of_model(ritz, m)
        runs = replace(runs, values=runs.values + params.damping)
        smallest = _positive(params, runs)
        made = int(ritz_data.num_products(member, ritz, m))
        work.append({"num_matvecs": made, "rank": 0, "smallest": smallest})
        found.append(_estimated(params, method(member), runs, bounds[m]))
    return found, work


def _positive(params: LogdetParams, runs: RitzData) -> float:
    """Return the least Ritz value.

    Raises:
        InputError: it is not above zero.
    """
    smallest = float(nodes(runs).min())
    if smallest > 0:
        return smallest
    enough = 1.1 * (params.damping - smallest) or 1e-6
    raise InputError(
        "damping: expected a positive definite operator, got one whose least Ritz "
        f"value is {smallest:.4g} with damping {params.damping:g}. Take damping "
        f"{enough:.2g} or more, or an operator without negative eigenvalues."
    )


def _estimated(
    params: LogdetParams, way: str, runs: RitzData, bound: float | None
) -> LogDet:
    if way == "slq":
        return by_quadrature(runs, floor=lower_bound(params))
    orders = params.num_moments or params.num_steps
    least = lower_bound(params)
    high = bound or _largest(runs)
    if way == "chebyshev":
        low = float(nodes(runs).min()) / 2 if least is None else least
        return by_chebyshev(runs, degree=orders, low=low, high=high)
    # Over the interval (0, 1), as the source has it; on (0, lambda_u) powers overflow.
    unit = replace(runs, values=runs.values / high, residuals=runs.residuals / high)
    law = "flat" if params.prior == "auto" else params.prior
    low = 0.0 if law != "log" else (least or float(nodes(runs).min()) / 2) / high
    fitted = by_entropy(
        unit, num_moments=orders, support=(low, 1.0), law=law, basis=params.basis
    )
    return _moved(fitted, runs.size * math.log(high))


def _largest(runs: RitzData) -> float:
    """Return a bound of the eigenvalues: Ritz value plus residual."""
    return 1.001 * float((runs.values + runs.residuals).nan_to_num(nan=0).max())


def _moved(found: LogDet, by: float) -> LogDet:
    return replace(found, draws=found.draws + by)


def _preconditioned(
    members: Sequence[Member], of: PreconditionedRuns
) -> tuple[list[LogDet], list[Work]]:
    leading_M = of.preconditioner.logdet().cpu()
    rank = of.preconditioner.vectors.shape[2]
    found, work = [], []
    for m, member in enumerate(members):
        params, runs = _params(member), runs_of_model(of.ritz, m)
        _refuse_negative(float(nodes(runs).min()))
        rest = _rest(params, method(member), runs, of.controls[m])
        found.append(_moved(rest, float(leading_M[m])))
        made = rank + int(of.ritz.steps[m].sum())
        work.append({"num_matvecs": made, "rank": rank, "smallest": math.nan})
    return found, work


def _refuse_negative(smallest: float) -> None:
    """Raise InputError if a Ritz value of a preconditioned operator is not positive."""
    if not smallest > 0:
        raise InputError(
            "damping: expected a positive definite operator, got a preconditioned one "
            f"whose least Ritz value is {smallest:.4g}. Take more damping; method slq "
            "tells how much."
        )


def _rest(
    params: LogdetParams, way: str, runs: RitzData, controls: Controls | None
) -> LogDet:
    """Estimate the log-determinant that the preconditioner leaves."""
    if way == "preconditioned_slq":
        return by_quadrature(runs, controls=controls)
    values = nodes(runs)
    support = (0.5 * float(values.min()), 1.05 * float(values.max()))
    orders = params.num_moments or min(ORDERS, 2 * runs.values.shape[2] - 1)
    law = "log" if params.prior == "auto" else params.prior
    return by_entropy(
        runs,
        num_moments=orders,
        support=support,
        law=law,
        basis=params.basis,
        controls=controls,
    )


def _dense(members: Sequence[Member], machine: Machine) -> list[float]:
    """Return the log-determinants by Cholesky of the matrices.

    Raises:
        InputError: a matrix is not positive definite.
    """
    operator = tile_operator(members, machine, columns=64).operator
    size = operator.shape[1]
    eye = torch.eye(size, dtype=torch.float64, device=operator.device)
    matrices_MDD = dense_matrices(operator) + _params(members[0]).damping * eye
    symmetric_MDD = (matrices_MDD + matrices_MDD.mT) / 2
    return [_cholesky_logdet(_params(members[0]), A_DD) for A_DD in symmetric_MDD]


def _cholesky_logdet(params: LogdetParams, A_DD: Tensor) -> float:
    L_DD, failed = torch.linalg.cholesky_ex(A_DD)
    if int(failed):
        smallest = float(torch.linalg.eigvalsh(A_DD)[0])
        raise InputError(
            "damping: expected a positive definite operator, got one whose least "
            f"eigenvalue is {smallest:.4g} with damping {params.damping:g}. Take "
            f"damping {1.1 * (params.damping - smallest):.2g} or more."
        )
    return 2 * float(L_DD.diagonal().log().sum())


def _outcome(
    member: Member,
    found: LogDet,
    work: Work,
    bound: float | None,
    exact: float | None,
) -> Outcome:
    size, scale = _size(member), bound or 1.0
    shift = size * math.log(scale)
    arrays: dict[str, Array] = {
        "logdet": np.array(found.value),
        "logdet_sem": np.array(found.sem),
        "gap": np.array(found.gap),
        "strain": np.array(found.strain),
        "converged": np.array(found.converged),
        "scale": np.array(scale),
        "logdet_scaled": np.array(found.value - shift),
        "smallest": np.array(work["smallest"]),
        "rank": np.array(work["rank"], dtype=np.int64),
        "size": np.array(size, dtype=np.int64),
        "num_matvecs": np.array(work["num_matvecs"], dtype=np.int64),
    }
    if method(member) != "dense":
        arrays["logdet_draws"] = found.draws.numpy()
    if exact is not None:
        gap = abs(found.value - exact)
        arrays["exact"] = np.array(exact)
        arrays["error"] = np.array(gap / abs(exact))
        arrays["error_scaled"] = np.array(gap / abs(exact - shift))
    return Outcome(arrays)


def _size(member: Member) -> int:
    if ritz_data.has_stored(member):
        return int(member.one(ritz_data.RITZ)["size"])
    return size_of(member)


def _bounds(members: Sequence[Member], machine: Machine) -> list[float | None]:
    """Return Gershgorin's bound of each damped matrix; none of other operators."""
    if MATRIX not in members[0].inputs:
        return [None] * len(members)
    nodes_of = {id(member.one(MATRIX)): member.one(MATRIX) for member in members}
    bounds = {
        number: norm_bound(matrix_operator(node, machine, torch.float64))
        for number, node in nodes_of.items()
    }
    found = [bounds[id(member.one(MATRIX))] for member in members]
    return [b and b + _params(m).damping for b, m in zip(found, members, strict=True)]
