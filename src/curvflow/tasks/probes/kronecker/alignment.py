"""Directions of factors and of exact solves compared with that of Gauss-Newton.

Letters, besides M members, B batches and D parameters: K directions, T dampings, L
layers; R = M B problems, batch after batch of each member.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.kronecker.alignment import (
    FACTORED,
    FULL,
    AlignmentParams,
)
from curvflow.schemas.kinds.shared.operators import OperatorName, OperatorParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.curvature.network_operators import (
    batched_operator,
    problem_key,
    problem_of,
    product_bytes,
    stacked_weights,
)
from curvflow.tasks.curvature.stored_factors import block_operator, factors_key
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.derivatives.gauss_newton import BatchedGaussNewton
from curvflow.tasks.numerics.estimators.intervals import wider_interval
from curvflow.tasks.numerics.kronecker.alignment import Alignment, alignment
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import Pi
from curvflow.tasks.numerics.krylov.reference_directions import (
    Directions,
    absolute,
    blocks,
    gauss_newton,
    newton,
)
from curvflow.tasks.numerics.operators.base import BatchedOperator, as_sample_mean
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes

# Numbers of a mean over batches, and the ends that its interval is kept within.
MEANS = {
    "cosine": (-1.0, 1.0),
    "layer_cosine": (-1.0, 1.0),
    "step": (-np.inf, np.inf),
    "share": (0.0, 1.0),
    "decrease": (0.0, np.inf),
}
ROUNDING = 1e-12  # of a cosine in double precision, with room

OF_BATCHES = ("cosine", "step", "share")


def _params(member: Member) -> AlignmentParams:
    return cast("AlignmentParams", member.params)


def _factors(member: Member) -> Sequence[NodeData]:
    return member.inputs.get("factors", ())


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, bases, and the factors."""
    params, problem = _params(member), problem_of(member)
    size, layers = problem.network.num_parameters, len(problem.network.layout.modules())
    columns = len(params.damping) * (layers if "blocks" in params.references else 1)
    inverses = 2 if params.inverse == "both" else 1
    directions = len(params.references) + 1 + inverses * len(_factors(member))
    most = max(columns, directions * len(params.damping))
    operator: OperatorName = "hessian" if _takes_hessian(params) else "ggn"
    of = OperatorParams(operator=operator, dtype=params.dtype)
    products = product_bytes(member, of, most, problem.network.layout.names)
    steps = min(params.max_iterations, size) if "absolute" in params.references else 0
    held = 8 * size * params.num_batches * (7 * most + 3 * steps)
    arrays = [array for node in _factors(member) for array in node.arrays.values()]
    return params.num_batches * products + held + 2 * sum(a.nbytes for a in arrays)


@computes("probe.alignment", member_bytes=member_bytes, data_bytes=probed_bytes)
def directions(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Compare directions of all members and batches at once.

    Args:
        members: `weights`, `data` and any `factors`, and parameters that differ in the
            seed.
        machine: the device to compute on.

    Returns:
        Per member cosines, steps and shares of the decrease, over its batches.

    Raises:
        InputError: weights hold NaN or infinity, there are too few samples, or factors
            are of other parameters.
    """
    return grouped(members, _alike, partial(_together, machine=machine))


def _alike(member: Member) -> object:
    named = tuple((node.stage, factors_key(node)) for node in _factors(member))
    return problem_key(member), named


@dataclass(frozen=True)
class _Exact:
    """Exact quantities of all members and batches.

    Attributes:
        gauss_newton: of each batch, (R, D, D).
        hessian: the same; gauss_newton once more where no reference is of it.
        gradient: with the slope of l2, (R, D).
        shift: added to the diagonals, l2 and each damping, (T,).
        layers: places of the parameters of each layer, by name.
    """

    gauss_newton: BatchedOperator
    hessian: BatchedOperator
    gradient: Tensor
    shift: Tensor
    layers: dict[str, Tensor]


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params, exact = _params(members[0]), _exact(members, machine)
    solved = {
        **_of_factors(members, exact, machine),
        **_of_references(params, exact),
    }
    # Without numbers there is no product: such directions end in a verdict.
    aligned = alignment(
        exact.gauss_newton,
        exact.gradient,
        torch.stack([each.vectors for each in solved.values()], dim=2),
        exact.shift,
        list(exact.layers.values()),
    )
    shared = {
        "direction": np.array(list(solved)),
        "damping": np.array(params.damping),
        "layer": np.array(list(exact.layers)),
        "samples_per_batch": np.array(_batch_size(members[0])),
    }
    count = params.num_batches
    return [
        Outcome(shared | _arrays(aligned, solved, slice(at, at + count)))
        for at in range(0, count * len(members), count)
    ]


def _takes_hessian(params: AlignmentParams) -> bool:
    return not {"newton", "absolute"}.isdisjoint(params.references)


def _batch_size(member: Member) -> int:
    """Return the samples of a batch.

    Raises:
        InputError: there are fewer samples.
    """
    params, count = _params(member), len(member.one("data")["inputs"])
    size = params.batch_size or count // params.num_batches
    if size * params.num_batches > count or not size:
        raise InputError(
            f"num_batches: expected batches of at most the {count} samples in all, got "
            f"{params.num_batches} of {max(size, 1)}. Lower it, or batch_size."
        )
    return size


def _rows(member: Member, size: int) -> Tensor:
    """Return the samples of each batch, (B, n)."""
    params, count = _params(member), len(member.one("data")["inputs"])
    if params.num_batches == 1 and size == count:
        return torch.arange(count).unsqueeze(0)
    order = torch.randperm(count, generator=stream(params.seed, "batches"))
    return order[: params.num_batches * size].view(params.num_batches, size)


def _exact(members: Sequence[Member], machine: Machine) -> _Exact:
    params, problem = _params(members[0]), problem_of(members[0])
    size, batches = _batch_size(members[0]), params.num_batches
    rows_Rn = torch.cat([_rows(member, size) for member in members])
    models_R = torch.arange(len(members)).repeat_interleave(batches)
    layout = problem.network.layout

    def of_batches(operator: OperatorName) -> BatchedOperator:
        of = [OperatorParams(operator=operator, dtype=params.dtype) for _ in members]
        columns = len(params.damping) * len(layout.modules())
        whole = batched_operator(
            members, machine, of, names=layout.names, columns=columns
        )
        return as_sample_mean(whole).of_samples(models_R, rows_Rn)

    ggn = of_batches("ggn")
    hessian = of_batches("hessian") if _takes_hessian(params) else ggn
    gradient_RD = cast("BatchedGaussNewton", ggn).mean_gradient().double()
    if params.l2:
        weights_MW = stacked_weights(members, machine, dtype="float64")
        weights_MD, _ = problem.network.split(weights_MW)
        gradient_RD = gradient_RD + params.l2 * weights_MD[models_R.to(ggn.device)]
    shift_T = torch.tensor(params.damping, dtype=torch.float64) + params.l2
    return _Exact(
        ggn,
        hessian,
        gradient_RD,
        shift_T.to(ggn.device),
        {name: at.to(ggn.device) for name, at in layout.modules().items()},
    )


def _of_references(params: AlignmentParams, exact: _Exact) -> dict[str, Directions]:
    """Return the solved directions, the whole Gauss-Newton one last."""
    given = exact.gradient, exact.shift
    damping_T = exact.shift - params.l2
    solvers = {
        "blocks": partial(
            blocks, exact.gauss_newton, *given, layers=list(exact.layers.values())
        ),
        "newton": partial(newton, exact.hessian, *given),
        "absolute": partial(
            absolute, exact.hessian, exact.gradient, damping_T, shift=params.l2
        ),
        FULL: partial(gauss_newton, exact.gauss_newton, *given),
    }
    return {
        name: solvers[name](tol=params.tol, max_iterations=params.max_iterations)
        for name in (*params.references, FULL)
    }


def _of_factors(
    members: Sequence[Member], exact: _Exact, machine: Machine
) -> dict[str, Directions]:
    """Return the directions of all stages of factors, by their inverses."""
    params = _params(members[0])
    solved_by = {}
    for number, node in enumerate(_factors(members[0])):
        nodes = [_factors(member)[number] for member in members]
        operator = block_operator(nodes, machine.device)
        if operator.shape[1] != exact.gradient.shape[1]:
            raise InputError(
                f"factors: expected those of all {exact.gradient.shape[1]} parameters, "
                f"got '{node.stage}' of {operator.shape[1]}. Remove its layers."
            )
        for name, pi in _inverses(node.stage, params):
            solved_by[name] = _inverted(operator, exact, pi)
    return solved_by


def _inverses(
    stage: str, params: AlignmentParams
) -> Iterator[tuple[str, Pi | float | None]]:
    if params.inverse != "factored":
        yield stage, None
    if params.inverse != "exact":
        yield stage + FACTORED if params.inverse == "both" else stage, params.pi


def _inverted(
    operator: BlockOperator, exact: _Exact, pi: Pi | float | None
) -> Directions:
    models = operator.shape[0]
    right_MDB = -torch.unflatten(exact.gradient, 0, (models, -1)).mT
    each = [operator.solve(right_MDB, float(shift), pi=pi) for shift in exact.shift]
    vectors_RDT = torch.stack(each, dim=3).transpose(1, 2).flatten(0, 1)
    is_finite_RT = torch.isfinite(vectors_RDT).all(1)
    return Directions(
        vectors_RDT,
        torch.zeros_like(vectors_RDT[:, 0]),
        is_finite_RT,
        torch.zeros(len(vectors_RDT), dtype=torch.int64),
    )


def _arrays(
    aligned: Alignment, solved: dict[str, Directions], batches: slice
) -> dict[str, Array]:
    """Return the numbers of one member, means over its batches."""
    residual_BKT, met_BKT = (
        torch.stack(
            [getattr(each, name)[batches].cpu() for each in solved.values()], dim=1
        )
        for name in ("residuals", "converged")
    )
    is_finite_KT = torch.ones_like(met_BKT[0])
    arrays: dict[str, Array] = {}
    for name, ends in MEANS.items():
        values_B = getattr(aligned, name)[batches].cpu()
        arrays |= _mean(name, values_B, ends)
        if name in OF_BATCHES:
            is_finite_KT &= torch.isfinite(values_B).all(0)
            arrays[f"batch_{name}"] = values_B.movedim(0, -1).numpy()
    products = [int(each.num_matvecs[batches].sum()) for each in solved.values()]
    compared = met_BKT.numel()
    converged_KT = ((met_BKT & met_BKT[:, -1:]).all(0) & is_finite_KT).numpy()
    layers = len(arrays["layer_cosine"])
    return {
        **arrays,
        "residual": residual_BKT.amax(0).numpy(),
        "converged": converged_KT,
        "layer_converged": np.stack([converged_KT] * layers),
        "num_products": np.array(products, dtype=np.int64),
        "num_matvecs": np.array(sum(products) + compared, dtype=np.int64),
    }


def _mean(name: str, values_B: Tensor, ends: tuple[float, float]) -> dict[str, Array]:
    """Return the mean over batches, its error, and an interval within the ends.

    Numbers are skewed away from an end that they are near to, and a step from 0: the
    interval holds those of the distances from both ends, and Student's.
    """
    count = len(values_B)
    mean = values_B.mean(0)
    sem = torch.full_like(mean, torch.nan)
    if count > 1:
        sem = values_B.std(0) / count**0.5
    freedom, (bottom, top) = max(count - 1, 1), ends
    least = bottom if math.isfinite(bottom) else 0.0
    low, high = (least + end for end in wider_interval(mean - least, sem, freedom))
    if math.isfinite(top):
        # Values at the end are off it by rounding, which is not skewed.
        away = (top - mean).masked_fill(top - mean < ROUNDING * abs(top), 0)
        above, below = wider_interval(away, sem, freedom)
        low, high = torch.minimum(low, top - below), torch.maximum(high, top - above)
    numbers = {"": mean, "_sem": sem, "_low": low, "_high": high}
    kept = {"_low": low.clamp(*ends), "_high": high.clamp(*ends)}
    return {name + suffix: a.numpy() for suffix, a in {**numbers, **kept}.items()}
