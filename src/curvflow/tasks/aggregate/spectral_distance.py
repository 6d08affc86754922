"""Distances of spectra along axes, or from a target."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from typing import cast

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.spectral_distance import (
    ENTROPIC,
    SpectralDistanceParams,
)
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.numerics.estimators.divergences import (
    EntropicMeasure,
    Family,
    Measure,
    entropic_measure,
    heat_distance,
    js,
    kl,
    symmetric_kl,
    wasserstein1,
)
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import are_numbers

# Times at which NetLSD compares heat traces.
TIMES = torch.logspace(-2, 2, 250, dtype=torch.float64)
# Largest exponent of a heat trace: eigenvalues of 0 may come out a little below it.
STEEPEST = 1.0
Distance = Callable[..., Tensor]


@dataclass(frozen=True)
class _Item:
    """A spectrum with its labels.

    Attributes:
        name: its labels, after the name of the stage where there are several.
        labels: on each axis; text.
        value: its label if it is a number; else NaN.
        measure: versions: the measured one, B others, and B with the errors of these
            reversed; None of a node that diverged.
        floor: distance of two halves of the vectors.
        freedom: degrees of freedom of the errors.
        converged: whether it is.
    """

    name: str
    labels: Sequence[str]
    value: float
    measure: Measure | None
    floor: float
    freedom: float
    converged: bool


@computes_each("aggregate.spectral_distance")
def spectral_distance(member: Member, machine: Machine) -> Outcome:
    """Compare spectra in pairs, and state what random vectors add to the distances.

    Args:
        member: densities of largest entropy, or other spectra; a target maybe.
        machine: not used.

    Returns:
        A row per pair, and the matrix of all.

    Raises:
        InputError: there is nothing to compare, or supports, priors or polynomials
            differ.
    """
    params = cast("SpectralDistanceParams", member.params)
    distance = DISTANCES[params.divergence]
    both = [node for nodes in member.inputs.values() for node in nodes]
    orders = max((len(n["multipliers"]) for n in both if "multipliers" in n), default=0)
    several = len({node.stage for node in member.inputs["of"]}) > 1
    items = [
        _item(node, params, orders, names_stage=several) for node in member.inputs["of"]
    ]
    pairs = list(_pairs(items, params))
    if "target" in member.inputs:
        target = _item(member.one("target"), params, orders, names_stage=True)
        pairs = [(item, target) for item in items]
    if not pairs:
        raise InputError(
            f"along: expected two spectra or more, got {items[0].name or 'one'} alone. "
            "Name an axis, or give a target."
        )
    rows = [_row(first, other, distance, params) for first, other in pairs]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Outcome(
        table
        | _tables_of_items(items, params)
        | {"matrix": _matrix(items, pairs, table["distance"], params)}
    )


DISTANCES: dict[str, Distance] = {
    "symmetric_kl": symmetric_kl,
    "kl": kl,
    "js": js,
    "wasserstein1": wasserstein1,
    "heat_trace": heat_distance,
}


def _item(
    node: NodeData,
    params: SpectralDistanceParams,
    orders: int,
    *,
    names_stage: bool,
) -> _Item:
    labels = [node.coords[axis] for axis in params.along if axis in node.coords]
    texts = [str(node.coords.get(axis, "")) for axis in params.along]
    stage = [node.stage] if names_stage else []
    is_value = len(labels) == 1 and are_numbers(labels)
    measure, freedom, floor = None, np.inf, np.nan
    if node.status == "ok":
        measure, freedom = _measure(node, params, orders)
        count = params.num_resamples + 1
        halves = [measure.versions(s) for s in (slice(1, count), slice(count, None))]
        floor = float(DISTANCES[params.divergence](*halves).mean())
    return _Item(
        ", ".join([*stage, *map(str, labels)]),
        [*stage, *texts],
        float(cast("float", labels[0])) if is_value else np.nan,
        measure,
        floor,
        freedom,
        bool(node.arrays.get("converged", True)),
    )


def _measure(
    node: NodeData, params: SpectralDistanceParams, orders: int
) -> tuple[Measure, float]:
    """Return the compared numbers of a spectrum, and its degrees of freedom."""
    measure, freedom = _versions(node, params, orders)
    if params.divergence == "heat_trace":
        given = params.times
        times = TIMES if given is None else torch.tensor(given, dtype=torch.float64)
        least = float(measure.points[0])
        if -least * float(times.max()) > STEEPEST:
            raise InputError(
                f"divergence: expected a spectrum of 0 or more for heat_trace, got "
                f"{least:.3g} in '{node.stage}'. Take wasserstein1."
            )
        return measure.heat_traces(times), freedom
    if params.divergence in ("kl", "symmetric_kl"):
        assert isinstance(measure, EntropicMeasure)
        return measure.without_weights(), freedom
    return measure, freedom


def _versions(
    node: NodeData, params: SpectralDistanceParams, orders: int
) -> tuple[Measure, float]:
    """Return the versions of a spectrum, and the degrees of freedom of its errors."""
    text = ", ".join([node.stage, *(f"{a}={x}" for a, x in node.coords.items())])
    random = np.random.default_rng([params.seed, zlib.crc32(text.encode())])
    draws = partial(_normal, random, params.num_resamples)
    if "ritz_values" in node:
        return _ritz_measure(node, draws)
    if "multipliers_covariance" in node:
        freedom = float(node.arrays.get("num_draws", np.array(np.inf))) - 1
        return _entropic_measure(node, draws, orders), freedom
    if params.divergence in ENTROPIC:
        raise InputError(
            f"of: expected densities with what their multipliers are of, got "
            f"'{node.stage}' stored before these were kept. Compute it again."
        )
    weights_G = torch.as_tensor(node["mass"])
    unknown = torch.full((2 * params.num_resamples, len(weights_G)), torch.nan)
    points_G = torch.as_tensor(node["grid"])
    return Measure(points_G, torch.cat([weights_G[None], unknown.double()])), np.inf


def _normal(random: np.random.Generator, count: int, size: int) -> Tensor:
    """Return normal numbers, each row but the first also reversed; the first is 0."""
    half = torch.as_tensor(random.standard_normal((count, size)))
    return torch.cat([torch.zeros(1, size, dtype=torch.float64), half, -half])


def _entropic_measure(
    node: NodeData, draws: Callable[[int], Tensor], orders: int
) -> Measure:
    low, high = (float(end) for end in node["support"])
    first, last = (float(end) for end in node["basis_support"])
    family = Family((low, high), str(node["prior"]), str(node["basis"]), (first, last))
    alpha_K = torch.as_tensor(node["multipliers"])
    covariance_KK = torch.as_tensor(node["multipliers_covariance"])
    changes_RK = draws(len(alpha_K))
    if bool(covariance_KK.isnan().any()):
        changes_RK[1:] = torch.nan
    else:
        values_K, turn_KK = torch.linalg.eigh(covariance_KK)
        changes_RK = changes_RK * values_K.clamp_min(0).sqrt() @ turn_KK.T
    return entropic_measure(
        alpha_K + changes_RK, family, len(node["grid"]), num_moments=orders
    )


def _ritz_measure(
    node: NodeData, draws: Callable[[int], Tensor]
) -> tuple[Measure, float]:
    """Return the rules of all runs, and others whose mean has the same covariance."""
    values = torch.as_tensor(node["ritz_values"])
    weights = torch.as_tensor(node["ritz_weights"])
    runs, there = len(values), values.isfinite()
    number = torch.arange(runs)[:, None].expand_as(values)[there]
    points_G, order = values[there].sort(stable=True)
    changes = draws(runs)
    if runs > 1:
        changes -= changes.mean(1, keepdim=True)
        changes /= (runs * (runs - 1)) ** 0.5
    elif _is_even(weights[there], int(node["size"])):  # all, without an error
        changes *= 0
    else:
        changes[1:] = torch.nan
    shares = (1 / runs + changes)[:, number[order]]
    freedom = runs - 1 if runs > 1 else np.inf
    return Measure(points_G, shares * weights[there][order]), freedom


def _is_even(weights: Tensor, size: int) -> bool:
    """Return whether there is one weight for each eigenvalue, as a dense probe has it.

    Those of as many steps from a single random vector are any.
    """
    even = torch.full_like(weights, 1 / size)
    return len(weights) == size and torch.allclose(weights, even)


def _pairs(
    items: Sequence[_Item], params: SpectralDistanceParams
) -> Iterator[tuple[_Item, _Item]]:
    if params.to is None:
        # Only relative entropies differ by their direction.
        yield from (permutations if params.divergence == "kl" else combinations)(
            items, 2
        )
        return
    named = [item for item in items if item.name == str(params.to)]
    if len(named) != 1:
        raise InputError(
            f"to: expected the labels of one spectrum, got '{params.to}'. Name one of "
            f"{', '.join(item.name for item in items[:3])}."
        )
    yield from ((item, named[0]) for item in items if item is not named[0])


def _row(
    first: _Item, other: _Item, distance: Distance, params: SpectralDistanceParams
) -> dict[str, object]:
    values = np.full(2, np.nan)
    if first.measure is not None and other.measure is not None:
        values = distance(first.measure, other.measure).numpy()
    # What is 0 may come out as minus a rounding error.
    estimate, versions = float(np.maximum(values[0], 0)), values[1:]
    sem = float(versions.std(ddof=1)) if len(versions) > 1 else np.nan
    bias = float(versions.mean()) - estimate
    freedom = min(first.freedom, other.freedom, 1e12)
    half = float(stdtrit(freedom, (1 + params.confidence) / 2)) * sem
    return {
        "quantity": f"distance: {first.name} against {other.name}",
        "label": first.name,
        "against": other.name,
        "value": first.value,
        "distance": estimate,
        "distance_sem": sem,
        "bias": bias,
        "distance_low": np.maximum(estimate - bias - half, 0),
        "distance_high": np.maximum(estimate - bias + half, 0),
        "floor": (first.floor + other.floor) / 2,
        "converged": first.converged and other.converged,
        "diverged": (first.measure is None) + (other.measure is None),
    }


def _tables_of_items(
    items: Sequence[_Item], params: SpectralDistanceParams
) -> dict[str, Array]:
    names = [item.name for item in items]
    stage = ["stage"] if len(items[0].labels) > len(params.along) else []
    axes = [*stage, *params.along] or [""]
    return {
        "axis": np.array(axes),
        "item": np.array(names),
        "other_item": np.array(names),
        "labels": np.array([[*item.labels] or [""] for item in items]),
    }


def _matrix(
    items: Sequence[_Item],
    pairs: Sequence[tuple[_Item, _Item]],
    distances: Array,
    params: SpectralDistanceParams,
) -> Array:
    place = {id(item): number for number, item in enumerate(items)}
    matrix = np.full((len(items), len(items)), np.nan)
    for (first, other), value in zip(pairs, distances, strict=True):
        if id(other) in place:
            matrix[place[id(first)], place[id(other)]] = value
            if params.divergence != "kl":
                matrix[place[id(other)], place[id(first)]] = value
    np.fill_diagonal(matrix, 0.0)
    return matrix
