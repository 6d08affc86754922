"""Distance of Kronecker factors from the matrix that they stand for."""

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
from curvflow.schemas.kinds.probes.kronecker.factor_error import FactorErrorParams
from curvflow.schemas.kinds.shared.operators import OperatorParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature import network_operators
from curvflow.tasks.curvature.network_operators import problem_key, problem_of
from curvflow.tasks.curvature.stored_factors import block_operator, factors_key
from curvflow.tasks.networks.problems import grouped, probed_bytes
from curvflow.tasks.numerics.estimators.forms import Error, freedom, shrunk
from curvflow.tasks.numerics.estimators.intervals import (
    positive_interval,
    student_interval,
    wider_interval,
)
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.factor_errors import (
    COLUMNS,
    BlockDraws,
    block_draws,
    logdet_difference,
    preconditioned_ritz,
    squared_distances,
)
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import extremes, nodes
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.registry import Machine, computes

FACTORS, EXACT = "factors", "exact"


def _params(member: Member) -> FactorErrorParams:
    return cast("FactorErrorParams", member.params)


def _as_operator(member: Member) -> OperatorParams:
    params = _params(member)
    return OperatorParams(
        operator=params.operator, seed=params.seed, dtype=params.dtype
    )


def _names(member: Member) -> tuple[str, ...]:
    """Return the parameter tensors of the blocks, in the order of the network."""
    inside = {
        name
        for block in member.one(FACTORS)["block"].tolist()
        for name in block.split(" and ")
    }
    return tuple(n for n in problem_of(member).network.layout.names if n in inside)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products, a basis, and the blocks."""
    params, node = _params(member), member.one(FACTORS)
    operator = _as_operator(member)
    columns = min(COLUMNS, params.num_probes * len(node["block"]))
    columns = max(columns, params.num_runs)
    products = network_operators.product_bytes(
        member, operator, columns, _names(member)
    )
    # A basis of all runs, and vectors beside those that products count.
    vectors = params.num_runs * (params.num_steps + 4) + columns
    bases = 8 * int(node["size"]) * vectors
    several = [node, *member.inputs.get(EXACT, ())]
    arrays = [array for part in several for array in part.arrays.values()]
    return products + bases + 2 * sum(array.nbytes for array in arrays)


@computes("probe.factor_error", member_bytes=member_bytes, data_bytes=probed_bytes)
def factor_error(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Hold factors against products with the matrix.

    Args:
        members: `factors`, with the `weights` and `data` that they are of, maybe the
            `exact` ones of these, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member errors by block and in total, each with its own standard error.

    Raises:
        InputError: weights or products hold NaN or infinity, or `exact` has other
            blocks.

    Reference:
        Hutchinson (1989), doi:10.1080/03610918908812806; Golub and Meurant (2010).
    """
    return grouped(members, _key, partial(_together, machine=machine))


def _key(member: Member) -> object:
    blocks = factors_key(member.one(FACTORS))
    exact = member.inputs.get(EXACT, ())
    if any(factors_key(node) != blocks for node in exact):
        raise InputError(
            "exact: expected the blocks of factors, got others. Take factors of the "
            "same structure and layers."
        )
    return problem_key(member), blocks, bool(exact)


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    params = _params(members[0])
    dtype = getattr(torch, params.dtype)
    nodes_M = [member.one(FACTORS) for member in members]
    # Products alone are of the precision asked for.
    blocks = block_operator(nodes_M, machine.device)
    operator = network_operators.batched_operator(
        members,
        machine,
        [_as_operator(member) for member in members],
        names=_names(members[0]),
        columns=COLUMNS,
    )
    seeds = [_params(member).seed for member in members]
    exact = _exact(members, machine)
    draws = block_draws(
        operator, blocks, seeds, num_probes=params.num_probes, exact=exact
    )
    apart = None if exact is None else squared_distances(blocks, exact)
    by_damping = [
        _at_damping(operator, blocks, damping, seeds, params)
        for damping in params.dampings
    ]
    count = params.num_probes * len(blocks.blocks)
    rounding = blocks.shape[1] * torch.finfo(dtype).eps
    outcomes = []
    for number in range(len(members)):
        arrays = _of_blocks(draws, blocks, number, rounding)
        if apart is not None:
            arrays |= _split(draws, apart[number], number, rounding)
        each = [numbers[number] for numbers in by_damping]
        steps = sum(int(numbers.pop("steps")) for numbers in each)
        arrays |= {
            name: np.stack([numbers[name] for numbers in each]) for name in each[0]
        }
        arrays["num_matvecs"] = np.array(count + steps, dtype=np.int64)
        outcomes.append(Outcome(arrays))
    return outcomes


def _exact(members: Sequence[Member], machine: Machine) -> BlockOperator | None:
    """Return the factors that nothing is drawn or left out of, if they are given."""
    if EXACT not in members[0].inputs:
        return None
    nodes_M = [member.one(EXACT) for member in members]
    return block_operator(nodes_M, machine.device)


def _split(
    draws: BlockDraws, apart_B: Tensor, number: int, rounding: float
) -> dict[str, Array]:
    """Return the parts of what lies within blocks, of one member.

    Args:
        draws: of all members.
        apart_B: squared distances of both factors, by block.
        number: of the member.
        rounding: of products, relative to all of the matrix.
    """
    assert draws.factorisation is not None
    assert draws.interplay is not None
    norm, outside, factorisation, interplay = (
        each[number]
        for each in (
            draws.norm,
            draws.outside,
            draws.factorisation,
            draws.interplay,
        )
    )
    whole, apart = (norm + outside).sum(1), apart_B.expand_as(norm)
    norm = norm.where(_is_seen(norm, whole, rounding), 0.0)
    return {
        **_share("factorisation", factorisation.sum(1), whole),
        **_share("departure", apart.sum(1), whole),
        **_signed("interplay", interplay.sum(1), whole),
        **_share("block_factorisation", factorisation, norm),
        **_share("block_departure", apart, norm),
        **_signed("block_interplay", interplay, norm),
    }


def _of_blocks(
    draws: BlockDraws, blocks: BlockOperator, number: int, rounding: float
) -> dict[str, Array]:
    """Return the errors of one member, by block and in total."""
    smallest = min(len(block.columns) for block in blocks.blocks)
    norm, outside, error, inner, approximation, trace = (
        each[number]
        for each in (
            draws.norm,
            draws.outside,
            draws.error,
            draws.inner,
            draws.approximation,
            draws.trace,
        )
    )
    whole = (norm + outside).sum(1)
    seen = _is_seen(norm, whole, rounding)
    norm_seen, inner_seen = norm.where(seen, 0.0), inner.where(seen, 0.0)
    return {
        **_rooted("rel_error", (error + outside).sum(1), whole),
        **_share("outside", outside.sum(1), whole),
        **_share("within", error.sum(1), whole),
        **_cosine("cosine", inner.sum(1), whole, approximation.sum(1)),
        **_trace("trace_error", trace.sum(1), error.sum(1), blocks.shape[1]),
        "block": np.array([block.name for block in blocks.blocks]),
        **_rooted("block_rel_error", error, norm_seen),
        **_cosine("block_cosine", inner_seen, norm_seen, approximation),
        **_trace("block_trace_error", trace, error, smallest),
    }


def _is_seen(norm: Tensor, whole: Tensor, rounding: float) -> Tensor:
    """Return whether blocks are more than the rounding of products, (B,).

    That of a key's bias in attention is zero, and rounding in products: no number is
    relative to it.

    Args:
        norm: squared lengths within the blocks, (S, B).
        whole: all of them, (S,).
        rounding: of products, relative to the whole.
    """
    return norm.mean(0) > rounding**2 * whole.mean(0)


def _told(
    name: str, value: Tensor, sem: Tensor, ends: tuple[Tensor, Tensor]
) -> dict[str, Array]:
    low, high = ends
    return {
        name: np.asarray(value.numpy()),
        f"{name}_sem": np.asarray(sem.numpy()),
        f"{name}_low": np.asarray(low.numpy()),
        f"{name}_high": np.asarray(high.numpy()),
    }


def _trace(name: str, draws: Tensor, squares: Tensor, size: int) -> dict[str, Array]:
    """Return a mean of z.Ez, of which ||Ez||^2 knows the error too.

    Args:
        name: of the number.
        draws: z.Ez of each vector, (S, ...).
        squares: ||Ez||^2 of each vector, of the same shape.
        size: dimension of E.
    """
    count, half = len(draws), squares.mean(0)
    spread = Error(draws.std(0) / count**0.5, torch.full_like(half, count - 1))
    degrees = freedom(half.flatten(), squares.reshape(count, -1).T, least=count - 1)
    law = Error((2 * half / count).sqrt(), degrees.reshape_as(half))
    sem, known = shrunk(spread, law, size=size)
    mean = draws.mean(0)
    return _told(name, mean, sem, student_interval(mean, sem, known))


def _ratio(above: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """Return a ratio of means over paired draws, and its standard error."""
    left_out = (above.sum(0) - above) / (below.sum(0) - below)
    return above.mean(0) / below.mean(0), _jackknife(left_out)


def _jackknife(left_out: Tensor) -> Tensor:
    """Return the standard error of a number, from it without each of the vectors."""
    sem: Tensor = left_out.std(0, correction=0) * math.sqrt(len(left_out) - 1)
    return sem


def _share(name: str, above: Tensor, below: Tensor) -> dict[str, Array]:
    ratio, sem = _ratio(above, below)
    ends = wider_interval(ratio, sem, len(above) - 1)
    return _told(name, ratio, sem, ends)


def _signed(name: str, above: Tensor, below: Tensor) -> dict[str, Array]:
    """Return a share that may be below zero, of draws that are skewed away from it."""
    ratio, sem = _ratio(above, below)
    degrees = len(above) - 1
    low, high = student_interval(ratio, sem, degrees)
    near, far = wider_interval(ratio.abs(), sem, degrees)
    is_apart = low * high > 0  # about zero the skewed one may have no end
    skewed = torch.where(ratio > 0, near, -far), torch.where(ratio > 0, far, -near)
    ends = torch.where(is_apart, skewed[0], low), torch.where(is_apart, skewed[1], high)
    return _told(name, ratio, sem, ends)


def _rooted(name: str, above: Tensor, below: Tensor) -> dict[str, Array]:
    ratio, sem = _ratio(above, below)
    low, high = wider_interval(ratio, sem, len(above) - 1)
    root = ratio.clamp(min=0).sqrt()
    ends = low.clamp(min=0).sqrt(), high.clamp(min=0).sqrt()
    safe = torch.where(root > 0, 2 * root, 1.0)
    return _told(name, root, sem / safe, ends)


def _cosine(
    name: str, inner: Tensor, norm: Tensor, approximation: Tensor
) -> dict[str, Array]:
    """Return <G, K> / (||G|| ||K||), all three by the same vectors.

    The norm of K is known, but with its estimate the vectors cancel where G and K are
    alike. The error is that of a jackknife, and the interval the widest of Student's
    and of those that a positive distance from 1 or -1 has, by half of the vectors: so
    few forms are skewed, and may happen to agree.

    Args:
        name: of the number.
        inner: Gz . Kz of each vector, (S, ...).
        norm: ||Gz||^2.
        approximation: ||Kz||^2.
    """
    means = inner.mean(0), norm.mean(0), approximation.mean(0)
    count, value = len(inner), means[0] / (means[1] * means[2]).sqrt()
    sums = (
        inner.sum(0) - inner,
        norm.sum(0) - norm,
        approximation.sum(0) - approximation,
    )
    left_out = sums[0] / (sums[1] * sums[2]).sqrt()
    sem, apart, degrees = _jackknife(left_out), 1 - value.abs(), count / 2
    near, far = positive_interval(apart, sem, degrees)
    low, high = student_interval(value, sem, degrees)
    lows = torch.where(value < 0, near - 1, 1 - far)
    highs = torch.where(value < 0, far - 1, 1 - near)
    ends = (
        torch.minimum(low, lows).clamp(min=-1),
        torch.maximum(high, highs).clamp(max=1),
    )
    return _told(name, value, sem, ends)


def _at_damping(
    operator: BatchedOperator,
    blocks: BlockOperator,
    damping: float,
    seeds: Sequence[int],
    params: FactorErrorParams,
) -> list[dict[str, Array]]:
    """Return determinants and extreme eigenvalues of each member, at one damping."""
    ritz = preconditioned_ritz(
        operator,
        blocks,
        damping,
        seeds,
        num_runs=params.num_runs,
        num_steps=params.num_steps,
    )
    logdets = blocks.logdet(damping).double().cpu()
    greatest = blocks.eigenvalues[:, -1].double().cpu()
    numbers = []
    for number in range(len(seeds)):
        runs = _of_model(ritz, number)
        floor = None
        if params.operator != "hessian":
            floor = damping / (float(greatest[number]) + damping)
        difference = logdet_difference(runs, floor).of_model(0)
        numbers.append(
            {
                "damping": np.array(damping),
                "steps": np.array(int(runs.steps.sum())),
                "logdet": np.asarray(logdets[number].numpy()),
                **_logdet(difference),
                **_ends(runs),
            }
        )
    return numbers


def _of_model(ritz: RitzData, number: int) -> RitzData:
    few = slice(number, number + 1)
    return replace(
        ritz,
        values=ritz.values[few],
        weights=ritz.weights[few],
        residuals=ritz.residuals[few],
        steps=ritz.steps[few],
    )


def _logdet(difference: Bounded) -> dict[str, Array]:
    numbers = _told(
        "logdet_error",
        difference.estimate.mean,
        difference.total,
        difference.interval(),
    )
    return {**numbers, "converged": np.asarray(difference.converged().numpy())}


def _ends(ritz: RitzData) -> dict[str, Array]:
    low, high = extremes(ritz)
    numbers = {}
    for name, value in (("least", low), ("greatest", high)):
        residuals = ritz.residuals.masked_fill(nodes(ritz) != value[0], torch.inf)
        numbers[name] = np.asarray(value[0].numpy())
        numbers[f"{name}_residual"] = np.asarray(
            residuals.nan_to_num(nan=torch.inf).amin().numpy()
        )
    return numbers
