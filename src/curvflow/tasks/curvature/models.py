"""From the members of a probe's tile to one operator over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import (
    OperatorName,
    OperatorParams,
    OrderName,
)
from curvflow.schemas.nodes import Member
from curvflow.tasks.networks.problems import (
    Problem,
    Told,
    data_shapes,
    load_samples,
    numberless,
    read,
)
from curvflow.tasks.numerics.derivatives.batches import sample_losses
from curvflow.tasks.numerics.derivatives.differentiation_modes import Trial, tried
from curvflow.tasks.numerics.derivatives.gauss_newton import (
    BatchedGaussNewton,
    BatchedResidual,
)
from curvflow.tasks.numerics.derivatives.gauss_newton import Kind as GaussNewton
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.passes import Averaged
from curvflow.tasks.numerics.operators.algebra import PrincipalBlock
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.registry import Machine


def network_text(member: Member) -> str:
    """Return the JSON that describes the network of a member's weights."""
    return str(member.one("weights")["network"].item())


def described(member: Member) -> Problem:
    """Return the network and the loss that a member's weights belong to."""
    return read(network_text(member))


def same_problem(member: Member) -> object:
    """Return what members of one batched operator must have in common."""
    return network_text(member), data_shapes(member.one("data"))


def stacked_weights(
    members: Sequence[Member], machine: Machine, *, dtype: str
) -> Tensor:
    """Bring the weights of all members to the device.

    Args:
        members: each with `weights` (D,).
        machine: where to.
        dtype: `float32` or `float64`.

    Returns:
        Parameters and statistics, (M, D + S).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    weights_MW = np.stack([member.one("weights")["weights"] for member in members])
    if not np.isfinite(weights_MW).all():
        raise InputError(
            "weights: expected finite numbers, got NaN or infinity. Probe weights of "
            "training that has not diverged."
        )
    return torch.as_tensor(
        weights_MW, dtype=getattr(torch, dtype), device=machine.device
    )


def batched_operator(
    members: Sequence[Member],
    machine: Machine,
    params: Sequence[OperatorParams],
    *,
    names: tuple[str, ...],
    columns: int,
) -> BatchedOperator:
    """Build the curvature matrices that parameters ask for, of all members, as one.

    Args:
        members: each with `weights` and `data`, of the same problem.
        machine: where to compute.
        params: of each member; they differ in the seed at most.
        names: the parameter tensors whose diagonal block is looked at.
        columns: vectors that will be multiplied at once.

    Returns:
        The operator, shape (M, D, D), D the size of all tensors named.

    Raises:
        InputError: a weight is NaN or infinite.
    """
    asked = params[0]
    layout = described(members[0]).network.layout
    build = _BUILDERS[asked.operator]
    operator = build(_ground(members, machine, asked.dtype, columns), params)
    if names == layout.names:
        return operator
    owner_D = torch.repeat_interleave(torch.tensor(layout.sizes))
    wanted = [number for number, name in enumerate(layout.names) if name in names]
    return PrincipalBlock(
        operator, torch.isin(owner_D, torch.tensor(wanted)).nonzero().squeeze(1)
    )


def batched_hessian(
    members: Sequence[Member], machine: Machine, *, dtype: str, columns: int
) -> BatchedHessian:
    """Build the Hessians of the mean training loss of all members as one operator.

    The loss is the one trained with, averaged over the samples (for sse too); weight
    decay and other regularisers of the learning rule do not enter.

    Args:
        members: each with `weights` and `data`, of the same problem.
        machine: where to compute.
        dtype: precision of the products.
        columns: vectors that will be multiplied at once.

    Returns:
        The operator, shape (M, D, D).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    return _hessian(_ground(members, machine, dtype, columns))


@dataclass(frozen=True)
class _Ground:
    """A problem, and where and over what its curvature is taken."""

    problem: Problem
    data: Told
    record: Callable[[str], None]


def _ground(
    members: Sequence[Member], machine: Machine, dtype: str, columns: int
) -> _Ground:
    problem = described(members[0])
    weights_MW = stacked_weights(members, machine, dtype=dtype)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    data = [member.one("data") for member in members]
    samples = load_samples(data, "", machine.device, weights_MD.dtype)
    on_cpu = weights_MD.device.type == "cpu"
    most = problem.models_per_pass(samples.count, columns) if on_cpu else len(members)
    told = Told(
        weights_MD=weights_MD,
        inputs=samples.inputs,
        targets=samples.targets,
        fixed_MS=statistics_MS,
        batch_size=problem.rows_per_pass(columns),
        models_per_pass=max(2, most),
    )
    return _Ground(problem, told, machine.partial.record)


def _hessian(
    ground: _Ground, order: OrderName = "forward_over_reverse"
) -> BatchedHessian:
    def tell(trial: Trial) -> None:
        ground.record(f"order of differentiation: {trial.order} was the fastest")

    return BatchedHessian(
        ground.problem.losses,
        **ground.data,
        order=order,
        key=ground.problem.text,
        tell=tell,
    )


def _residual(ground: _Ground, params: Sequence[OperatorParams]) -> BatchedOperator:
    problem = ground.problem
    return BatchedResidual(
        problem.network.outputs,
        sample_losses(problem.loss),
        **ground.data,
        order=params[0].order,
    )


def _gauss_newton(
    kind: GaussNewton, ground: _Ground, params: Sequence[OperatorParams]
) -> BatchedOperator:
    problem = ground.problem
    return BatchedGaussNewton(
        problem.network.outputs,
        sample_losses(problem.loss),
        **ground.data,
        kind=kind,
        loss=problem.loss,
        mc_samples=params[0].mc_samples,
        seeds=[one.seed for one in params],
    )


_BUILDERS: dict[
    OperatorName, Callable[[_Ground, Sequence[OperatorParams]], BatchedOperator]
] = {
    "hessian": lambda ground, params: _hessian(ground, params[0].order),
    "residual": _residual,
    "ggn": partial(_gauss_newton, "ggn"),
    "fisher_type2": partial(_gauss_newton, "type-2"),
    "fisher_mc": partial(_gauss_newton, "mc"),
    "fisher_empirical": partial(_gauss_newton, "empirical"),
    "gradient_covariance": partial(_gauss_newton, "covariance"),
}


def product_bytes(member: Member, params: OperatorParams, columns: int) -> int:
    """Return the estimated peak bytes of one member's products.

    Args:
        member: with `weights` and `data`.
        params: which operator, in which order of differentiation and precision.
        columns: vectors multiplied at once.
    """
    # What else there is to say makes no difference to memory.
    asked = OperatorParams(
        operator=params.operator,
        order=params.order,
        dtype=params.dtype,
        mc_samples=params.mc_samples,
    )
    count = partial(_counted, asked)
    return described(member).product_bytes(member.one("data"), columns, count)


@lru_cache(maxsize=256)
def _counted(
    asked: OperatorParams, text: str, rows: int, samples: int, columns: int
) -> int:
    """Return half the peak bytes of products of two models."""
    if asked.order == "auto":
        orders = tried(keeps=rows == samples, columns=columns)
        some = [asked.model_copy(update={"order": order}) for order in orders]
        return max(_counted(one, text, rows, samples, columns) for one in some)
    problem = read(text)
    told = numberless(problem, rows, samples, getattr(torch, asked.dtype))
    ground = _Ground(problem, told, lambda _: None)
    operator = cast("Averaged", _BUILDERS[asked.operator](ground, [asked, asked]))
    return operator.product_bytes(columns) // 2
