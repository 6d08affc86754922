"""Traces by the method of which a pilot expects the fewest products.

The pilot is Hutch++ of the first vectors. Their images estimate the variance of a plain
vector, and the variance that is left outside of the range at half and at all of its
rank; the residual at more is a power law through both. Products of the pilot serve
whichever method goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.forms import FEW
from curvflow.tasks.numerics.estimators.sketched_traces import (
    METHODS,
    Hutchinson,
    HutchPlusPlus,
    Probed,
    Sketched,
    TraceDraws,
    XTrace,
    looks,
    until_reached,
)
from curvflow.tasks.numerics.operators.base import AnyOperator, as_batched

# What a sketch of one model may take, in copies of all vectors.
SKETCH_BYTES = 1 << 30
SKETCH_COPIES = 16
# The steepest power of the rank by which the variance left is expected to fall.
STEEPEST = -4.0

# Products that so many vectors take, and that the pilot has made of them, per vector.
PRODUCTS = {"hutchinson": 1.0, "hutch++": 1.5, "xtrace": 2.0}
SPENT = {"hutchinson": 1.0, "hutch++": 1.5, "xtrace": 1.5}

P = TypeVar("P", bound=Probed)
Found = list[tuple[str, TraceDraws]]


def most_sketched(size: int) -> int:
    """Return the most vectors of D entries that a sketch is tried with."""
    return SKETCH_BYTES // (8 * SKETCH_COPIES * size)


def piloted_traces(
    operator: AnyOperator,
    sizes: Sequence[int],
    seeds: Sequence[int],
    *,
    num_probes: int,
    distribution: str,
    block: int,
    rel_sem: float,
    max_probes: int,
) -> Found:
    """Estimate traces to an error by the method that seems to take the fewest products.

    Each model has a separate method. A sketch that has not reached the error at
    the most vectors that fit into memory goes on as plain vectors.

    Args:
        operator: symmetric maps of M models, or one, (D, D).
        sizes: sizes of the L consecutive blocks, D in sum.
        seeds: seed of each model's vectors.
        num_probes: vectors of the pilot, 4 or more; the first look.
        distribution: `rademacher` or `gaussian`.
        block: vectors multiplied at once, bounding memory.
        rel_sem: standard error of the whole trace requested, relative to it.
        max_probes: most vectors.

    Returns:
        Per model the method, `hutchinson`, `hutch++` or `xtrace`, and its draws, whose
        work is that of the pilot too.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, piloted_traces
        >>> A = Dense(torch.diag(2.0 ** -torch.arange(60).double()))
        >>> ((method, found),) = piloted_traces(
        ...     A,
        ...     [60],
        ...     [0],
        ...     num_probes=16,
        ...     distribution="gaussian",
        ...     block=16,
        ...     rel_sem=1e-3,
        ...     max_probes=1 << 20,
        ... )
        >>> method, bool(found.reached), found.num_matvecs
        ('hutch++', True, 48)
    """
    operator = as_batched(operator)
    given: dict[str, Any] = {
        "sizes": sizes,
        "distribution": distribution,
        "block": block,
    }
    limit = min(max_probes, most_sketched(operator.shape[1]))
    goal = Goal(num_probes, rel_sem, limit, max_probes)
    if limit < num_probes:
        return _plain_to(goal, Hutchinson(operator, seeds, **given))
    pilot = HutchPlusPlus(operator, seeds, **given)
    methods = _cheapest(pilot, goal)
    results: dict[int, tuple[str, TraceDraws]] = {}
    for method in sorted(set(methods)):
        models = [number for number, name in enumerate(methods) if name == method]
        reached = _to(goal, method, _of(pilot, models, len(methods)))
        results.update(zip(models, reached, strict=False))
    return [results[number] for number in range(len(methods))]


@dataclass(frozen=True)
class Goal:
    """The error to reach, and the vectors that may be drawn for it.

    Attributes:
        num_probes: vectors at the first look.
        rel_sem: standard error requested, relative to the trace.
        sketched: most vectors of a sketch.
        most: most vectors.
    """

    num_probes: int
    rel_sem: float
    sketched: int
    most: int


def _cheapest(pilot: HutchPlusPlus, goal: Goal) -> list[str]:
    """Run the pilot.

    Returns:
        Per model the method that seems to take the fewest further products; plain
        vectors where none is expected to reach the error.
    """
    pilot.grow(goal.num_probes // 2)
    before_M = _left(pilot)
    pilot.grow(goal.num_probes)
    left_M, plain = _left(pilot), _plain(pilot)
    draws_MLS = plain.draws()
    whole_M = plain.error(draws_MLS).sem.square() * goal.num_probes
    allowed_M = (goal.rel_sem * draws_MLS.cpu().sum(1).mean(1)).square()
    slope_M = _slope(before_M, left_M, goal.num_probes)
    costs = {name: torch.full_like(allowed_M, torch.inf) for name in METHODS}
    for look in looks(goal.num_probes, goal.most):
        growth = look / goal.num_probes
        variances = {"hutchinson": whole_M / look}
        if look <= goal.sketched:
            variances["hutch++"] = 2 * left_M * growth**slope_M / look
            # Twice what the spread of its draws tells, at the rank of all vectors.
            variances["xtrace"] = 2 * left_M * (2 * growth) ** slope_M / look
        for name, variance_M in variances.items():
            is_first_M = costs[name].isinf() & (variance_M <= allowed_M)
            products = PRODUCTS[name] * look - SPENT[name] * goal.num_probes
            costs[name][is_first_M] = products
    names, costs_CM = list(costs), torch.stack(list(costs.values()))
    return [names[number] for number in costs_CM.argmin(0).tolist()]


def _left(pilot: HutchPlusPlus) -> Tensor:
    """Return the variance of one vector outside of the range, (M,)."""
    return pilot.error_outside().sem.square() * (pilot.count // 2)


def _slope(before_M: Tensor, left_M: Tensor, num_probes: int) -> Tensor:
    """Return the power of the rank with which the variance left falls."""
    if num_probes // 4 < FEW:
        return torch.zeros_like(left_M)  # half of the pilot tells too little
    slope_M = torch.log2(left_M / before_M).nan_to_num(0.0)
    return slope_M.clamp(STEEPEST, 0.0)


def _to(goal: Goal, method: str, pilot: HutchPlusPlus) -> Found:
    """Draw by a method; what a sketch cannot reach, by plain vectors."""
    if method == "hutchinson":
        return _plain_to(goal, _plain(pilot))
    sketch = pilot if method == "hutch++" else _xtrace(pilot)
    reached = until_reached(sketch, goal.num_probes, goal.rel_sem, goal.sketched)
    best = [(method, draws) for draws in reached]
    going = [number for number, draws in enumerate(reached) if not draws.reached]
    if going and goal.sketched < goal.most:
        # The sketch is left with these models.
        plain = _plain_to(replace(goal, num_probes=goal.sketched), _plain(sketch))
        for number, other in zip(going, plain, strict=False):
            best[number] = min(best[number], other, key=lambda pair: pair[1].sem)
    return best


def _plain_to(goal: Goal, plain: Hutchinson) -> Found:
    reached = until_reached(plain, goal.num_probes, goal.rel_sem, goal.most)
    return [("hutchinson", draws) for draws in reached]


def _of(pilot: HutchPlusPlus, models: list[int], count: int) -> HutchPlusPlus:
    """Return the pilot of some of the models; a model alone with a copy of itself."""
    chosen = copy(pilot)
    if len(models) < count:
        chosen.select(torch.tensor(models * 2 if len(models) == 1 else models))
    return chosen


def _plain(sketch: Sketched) -> Hutchinson:
    """Return plain vectors that go on from the products of a sketch."""
    plain = _like(Hutchinson, sketch)
    plain.add(sketch.vectors_MDS, sketch.images_MDS)
    return plain


def _xtrace(pilot: HutchPlusPlus) -> XTrace:
    """Return XTrace that goes on from the products of the pilot."""
    sketch = _like(XTrace, pilot)
    sketch.vectors_MDS, sketch.images_MDS = pilot.vectors_MDS, pilot.images_MDS
    sketch.basis_MDK, sketch.basis_images_MDK = pilot.basis_MDK, pilot.basis_images_MDK
    sketch.widen(torch.arange(1, pilot.count, 2, device=pilot.operator.device))
    return sketch


def _like(method: type[P], sketch: Sketched) -> P:
    """Return a method without a vector, with the work that a sketch has done."""
    made = method(
        sketch.operator,
        sketch.seeds,
        sizes=sketch.sizes,
        distribution=sketch.distribution,
        block=sketch.block,
    )
    made.count, made.num_matvecs = sketch.count, sketch.num_matvecs
    return made
