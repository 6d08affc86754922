"""Ranks of labels over repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy import stats

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.rank import RankParams
from curvflow.schemas.nodes import Array, Label, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import (
    Cell,
    Place,
    cells,
    left_out,
    named,
    num_unconverged,
)
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.measurements import (
    Measured,
    find_measured,
    judged,
    relied_on,
)


@dataclass(frozen=True)
class Friedman:
    """Whether labels differ in rank; NaN for fewer than three labels or two rows.

    Attributes:
        chi2: the statistic.
        p: from chi2 with k - 1 degrees of freedom.
        p_iman_davenport: from F = (n - 1) chi2 / (n (k - 1) - chi2).
        kendall_w: chi2 / (n (k - 1)).
    """

    chi2: float = math.nan
    p: float = math.nan
    p_iman_davenport: float = math.nan
    kendall_w: float = math.nan


def ranks(values_NK: Array, *, lower_is_better: bool) -> Array:
    """Rank the labels of each repetition.

    Args:
        values_NK: a row per repetition, NaN for what shares the last ranks.
        lower_is_better: whether the least is first.

    Returns:
        Ranks from 1, shape (N, K); equal values share the mean of theirs.
    """
    signed_NK = values_NK if lower_is_better else -values_NK
    worst_NK = np.where(np.isnan(values_NK), np.inf, signed_NK)
    found: Array = stats.rankdata(worst_NK, axis=1)
    return found


def friedman(ranks_NK: Array) -> Friedman:
    """Test that no label is better than another.

    Args:
        ranks_NK: a row per repetition.

    Returns:
        The tests, with ties corrected for.

    Reference:
        Friedman (1937), doi:10.1080/01621459.1937.10503522; Iman and Davenport (1980),
        doi:10.1080/03610928008827904; Kendall and Babington Smith (1939),
        doi:10.1214/aoms/1177732186, for W.
    """
    count, labels = ranks_NK.shape
    if count < 2 or labels < 3 or np.ptp(ranks_NK, axis=1).max() == 0:
        return Friedman()
    found = stats.friedmanchisquare(*ranks_NK.T)
    chi2, most = float(found.statistic), count * (labels - 1)
    freedom = labels - 1, (labels - 1) * (count - 1)
    if chi2 > most * (1 - 1e-12):  # all repetitions agree
        return Friedman(chi2, float(found.pvalue), 0.0, 1.0)
    f = (count - 1) * chi2 / (most - chi2)
    p = float(stats.f.sf(f, *freedom))
    return Friedman(chi2, float(found.pvalue), p, chi2 / most)


def critical_difference(count: int, labels: int, confidence: float) -> float:
    """Return how far apart two mean ranks must be, all pairs being compared.

    Args:
        count: repetitions.
        labels: that are ranked.
        confidence: 1 less the share of families with a false difference.

    Returns:
        q sqrt(k (k + 1) / (6 n)), q being the quantile of the studentized range over
        sqrt(2); NaN for fewer than two labels or repetitions.

    Reference:
        Nemenyi (1963); Demsar (2006), Journal of Machine Learning Research 7, 1-30.
    """
    if count < 2 or labels < 2:
        return math.nan
    q = float(stats.studentized_range.ppf(confidence, labels, np.inf)) / math.sqrt(2)
    return q * math.sqrt(labels * (labels + 1) / (6 * count))


# Of one label: place in `over`, then place in `mean_over`, to what its node says.
Blocks = dict[Place, dict[Place, Cell]]


@computes_each("aggregate.rank")
def rank(member: Member, machine: Machine) -> Outcome:
    """Rank the labels of an axis at each repetition, and average the ranks.

    Args:
        member: the nodes of the stages that measure the variables.
        machine: not used.

    Returns:
        One row per variable, point of `within` and label, each column of shape
        (quantity,).

    Raises:
        InputError: a variable is no number of one of the stages, or has dimensions
            besides epochs, or there are fewer than two labels.
    """
    params = cast("RankParams", member.params)
    nodes = relied_on(member.inputs["of"], params.unconverged)
    found = [
        (find_measured("quantities", name, nodes), lower)
        for names, lower in (
            (params.lower_is_better, True),
            (params.higher_is_better, False),
        )
        for name in names
    ]
    rows = [row for one, lower in found for row in _rows(one, params, lower=lower)]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Outcome(judged((one for one, _ in found), table))


def _rows(
    one: Measured, params: RankParams, *, lower: bool
) -> Iterator[dict[str, object]]:
    first = (*params.within, params.along)
    second = (*params.over, *params.mean_over)

    def number(node: NodeData) -> float:
        return _number(node, one, lower=lower, epochs=params.epochs)

    grid = cells(one, first, second, number)
    size = len(params.within)
    for group in dict.fromkeys(place[:size] for place in grid):
        own = {p[-1]: row for p, row in grid.items() if p[:size] == group}
        if len(own) < 2:
            raise InputError(
                f"along: expected two labels or more of {params.along}, got "
                f"{', '.join(map(str, own))}. There is nothing to rank."
            )
        yield from _of_group(one, own, group, params, lower=lower)


def _number(node: NodeData, one: Measured, *, lower: bool, epochs: str) -> float:
    values = np.asarray(node[one.variable.name], dtype=np.float64)
    if one.variable.dims not in ((), ("epoch",)):
        raise InputError(
            f"{one.variable.name}: expected a number per node or epoch, got it with "
            f"{', '.join(one.variable.dims)}. Choose another variable."
        )
    if epochs == "last" or not one.variable.dims:
        return float(values.flat[-1]) if values.size else np.nan
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.nan
    return float(finite.min() if lower else finite.max())


def _of_group(
    one: Measured,
    own: Mapping[Label, Mapping[Place, Cell]],
    group: Place,
    params: RankParams,
    *,
    lower: bool,
) -> Iterator[dict[str, object]]:
    places = list(dict.fromkeys(place for row in own.values() for place in row))
    # Sorted, so that no bit depends on the order of the nodes.
    blocks = sorted({place[: len(params.over)] for place in places}, key=repr)
    means_NK, gone_NK = (
        np.array([[of(row, block) for row in own.values()] for block in blocks])
        for of in (_mean, _gone)
    )
    values_NK = np.where(gone_NK, np.nan, means_NK)
    whole_N = _whole(own, blocks, params)
    if params.diverged == "leave_out":
        whole_N &= np.isfinite(values_NK).all(axis=1)
    ranks_NK = ranks(values_NK[whole_N], lower_is_better=lower)
    told = _told(ranks_NK, params.confidence)
    columns = {
        **_mean_ranks(ranks_NK, params.confidence),
        "mean_value": statistics(means_NK).mean,
    }
    behind = named(params.within, group)
    for column, (label, row) in enumerate(own.items()):
        name = f"{one.variable.name}: {label}"
        yield {
            "quantity": f"{name}, {behind}" if behind else name,
            "units": one.variable.units,
            "label": str(label),
            **{name: float(values_K[column]) for name, values_K in columns.items()},
            "wins": _wins(ranks_NK, values_NK[whole_N], column),
            "count": len(ranks_NK),
            **left_out(row, len(places)),
            "unconverged": num_unconverged(row),
            "left_out": int((~whole_N).sum()),
            **told,
        }


def _mean_ranks(ranks_NK: Array, confidence: float) -> dict[str, Array]:
    found = statistics(ranks_NK)
    low, high = found.interval(confidence)
    place_K = ranks(found.mean[np.newaxis], lower_is_better=True)[0]
    return {
        "mean_rank": found.mean,
        "sem": found.sem,
        "low": low,
        "high": high,
        "place": np.where(found.count > 0, place_K, np.nan),
    }


def _mean(row: Mapping[Place, Cell], block: Place) -> float:
    own = [cell.value for cell in _of(row, block)]
    return float(statistics(np.array(own, dtype=np.float64)).mean)


def _gone(row: Mapping[Place, Cell], block: Place) -> bool:
    """Return whether one that is averaged diverged, or is not finite."""
    # The mean of the others would reward a label for it.
    return any(cell.status != "ok" for cell in _of(row, block))


def _of(row: Mapping[Place, Cell], block: Place) -> list[Cell]:
    return [cell for place, cell in row.items() if place[: len(block)] == block]


def _whole(
    own: Mapping[Label, Mapping[Place, Cell]],
    blocks: list[Place],
    params: RankParams,
) -> Array:
    """Return at which repetitions every label has a node."""
    size = len(params.over)
    there = [{place[:size] for place in row} for row in own.values()]
    return np.array([all(block in one for one in there) for block in blocks])


def _wins(ranks_NK: Array, values_NK: Array, column: int) -> int:
    is_first_N = ranks_NK[:, column] == ranks_NK.min(axis=1, initial=np.inf)
    # Where everything diverged nobody has won.
    return int((is_first_N & np.isfinite(values_NK[:, column])).sum())


def _told(ranks_NK: Array, confidence: float) -> dict[str, float]:
    found = friedman(ranks_NK)
    count, labels = ranks_NK.shape
    return {
        "friedman": found.chi2,
        "p_friedman": found.p,
        "p_iman_davenport": found.p_iman_davenport,
        "kendall_w": found.kendall_w,
        "critical_difference": critical_difference(count, labels, confidence),
    }
