"""Ranks of labels over repetitions, and tests of their differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import scipy

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.rank import RankParams
from curvflow.schemas.nodes import Array, Label, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import (
    Cell,
    Labels,
    cells,
    exclusion_counts,
    labels_text,
    num_unconverged,
)
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.measurements import (
    Measurement,
    drop_unjudged_counts,
    find_measurement,
    mask_unconverged,
)


@dataclass(frozen=True)
class Friedman:
    """Friedman's test of equal ranks; NaN for fewer than three labels or two rows.

    Attributes:
        chi2: the test statistic.
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
        values_NK: a row per repetition; NaN shares the last ranks.
        lower_is_better: the least value has rank 1.

    Returns:
        Ranks from 1, shape (N, K); equal values share their mean rank.
    """
    signed_NK = values_NK if lower_is_better else -values_NK
    worst_NK = np.where(np.isnan(values_NK), np.inf, signed_NK)
    ranks_NK: Array = scipy.stats.rankdata(worst_NK, axis=1)
    return ranks_NK


def friedman(ranks_NK: Array) -> Friedman:
    """Test the hypothesis that no label is better than another.

    Args:
        ranks_NK: a row per repetition.

    Returns:
        The tests, corrected for ties.

    Reference:
        Friedman (1937), doi:10.1080/01621459.1937.10503522; Iman and Davenport (1980),
        doi:10.1080/03610928008827904; Kendall and Babington Smith (1939),
        doi:10.1214/aoms/1177732186, for W.
    """
    count, labels = ranks_NK.shape
    if count < 2 or labels < 3 or np.ptp(ranks_NK, axis=1).max() == 0:
        return Friedman()
    test = scipy.stats.friedmanchisquare(*ranks_NK.T)
    chi2, most = float(test.statistic), count * (labels - 1)
    freedom = labels - 1, (labels - 1) * (count - 1)
    if chi2 > most * (1 - 1e-12):  # all repetitions agree
        return Friedman(chi2, float(test.pvalue), 0.0, 1.0)
    f = (count - 1) * chi2 / (most - chi2)
    p = float(scipy.stats.f.sf(f, *freedom))
    return Friedman(chi2, float(test.pvalue), p, chi2 / most)


def critical_difference(count: int, labels: int, confidence: float) -> float:
    """Return Nemenyi's critical difference of two mean ranks, for all pairs.

    Args:
        count: number of repetitions.
        labels: number of ranked labels.
        confidence: 1 minus the family-wise error rate.

    Returns:
        q sqrt(k (k + 1) / (6 n)), q being the quantile of the studentized range over
        sqrt(2); NaN for fewer than two labels or repetitions.

    Reference:
        Nemenyi (1963); Demsar (2006), Journal of Machine Learning Research 7, 1-30.
    """
    if count < 2 or labels < 2:
        return math.nan
    q = float(
        scipy.stats.studentized_range.ppf(confidence, labels, np.inf)
    ) / math.sqrt(2)
    return q * math.sqrt(labels * (labels + 1) / (6 * count))


# From labels of `over`, then labels of `mean_over`, to the cell, for one label.
Blocks = dict[Labels, dict[Labels, Cell]]


@computes_each("aggregate.rank")
def rank(member: Member, machine: Machine) -> Outcome:
    """Rank the labels of an axis at each repetition, and average the ranks.

    Args:
        member: nodes of the stages that measure the variables.
        machine: not used.

    Returns:
        A row per variable, combination of `within` and label, each column of shape
        (quantity,).

    Raises:
        InputError: a variable is not a number of one of the stages, has dimensions
            other than epochs, or there are fewer than two labels.
    """
    params = cast("RankParams", member.params)
    nodes = mask_unconverged(member.inputs["of"], params.unconverged)
    measurements = [
        (find_measurement("quantities", name, nodes), lower)
        for names, lower in (
            (params.lower_is_better, True),
            (params.higher_is_better, False),
        )
        for name in names
    ]
    rows = [row for m, lower in measurements for row in _rows(m, params, lower=lower)]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Outcome(drop_unjudged_counts((m for m, _ in measurements), table))


def _rows(
    measurement: Measurement, params: RankParams, *, lower: bool
) -> Iterator[dict[str, object]]:
    first = (*params.within, params.along)
    second = (*params.over, *params.mean_over)

    def number(node: NodeData) -> float:
        return _number(node, measurement, lower=lower, epochs=params.epochs)

    grid = cells(measurement, first, second, number)
    size = len(params.within)
    for group in dict.fromkeys(place[:size] for place in grid):
        rows_of_label = {p[-1]: row for p, row in grid.items() if p[:size] == group}
        if len(rows_of_label) < 2:
            raise InputError(
                f"along: expected at least two labels of {params.along}, got "
                f"{', '.join(map(str, rows_of_label))}. There is nothing to rank."
            )
        yield from _rows_of_group(
            measurement, rows_of_label, group, params, lower=lower
        )


def _number(
    node: NodeData, measurement: Measurement, *, lower: bool, epochs: str
) -> float:
    values = np.asarray(node[measurement.variable.name], dtype=np.float64)
    if measurement.variable.dims not in ((), ("epoch",)):
        raise InputError(
            f"{measurement.variable.name}: expected a number per node or epoch, got it "
            "with "
            f"{', '.join(measurement.variable.dims)}. Choose another variable."
        )
    if epochs == "last" or not measurement.variable.dims:
        return float(values.flat[-1]) if values.size else np.nan
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.nan
    return float(finite.min() if lower else finite.max())


def _rows_of_group(
    measurement: Measurement,
    rows_of_label: Mapping[Label, Mapping[Labels, Cell]],
    group: Labels,
    params: RankParams,
    *,
    lower: bool,
) -> Iterator[dict[str, object]]:
    places = {place for row in rows_of_label.values() for place in row}
    # Sorted, so that no bit depends on the order of the nodes.
    blocks = sorted({place[: len(params.over)] for place in places}, key=repr)
    means_NK = _of_blocks(rows_of_label, blocks, _mean)
    failed_NK = _of_blocks(rows_of_label, blocks, _has_failed)
    values_NK = np.where(failed_NK, np.nan, means_NK)
    complete_N = _complete(rows_of_label, blocks, params)
    if params.diverged == "leave_out":
        complete_N &= np.isfinite(values_NK).all(axis=1)
    ranks_NK = ranks(values_NK[complete_N], lower_is_better=lower)
    columns = {
        **_mean_ranks(ranks_NK, params.confidence),
        "mean_value": statistics(means_NK).mean,
        "wins": _wins(ranks_NK, values_NK[complete_N]),
    }
    shared = {
        "units": measurement.variable.units,
        "count": len(ranks_NK),
        "left_out": int((~complete_N).sum()),
        **_test_columns(ranks_NK, params.confidence),
    }
    group_text = labels_text(params.within, group)
    for column, (label, row) in enumerate(rows_of_label.items()):
        name = f"{measurement.variable.name}: {label}"
        yield {
            "quantity": f"{name}, {group_text}" if group_text else name,
            "label": str(label),
            **{name: values_K[column].item() for name, values_K in columns.items()},
            **exclusion_counts(row, len(places)),
            "unconverged": num_unconverged(row),
            **shared,
        }


def _of_blocks(
    rows_of_label: Mapping[Label, Mapping[Labels, Cell]],
    blocks: Sequence[Labels],
    value_of: Callable[[Mapping[Labels, Cell], Labels], float],
) -> Array:
    """Return the value of each label at each repetition, (N, K)."""
    rows = rows_of_label.values()
    return np.array([[value_of(row, block) for row in rows] for block in blocks])


def _mean_ranks(ranks_NK: Array, confidence: float) -> dict[str, Array]:
    rank_statistics = statistics(ranks_NK)
    low, high = rank_statistics.interval(confidence)
    place_K = ranks(rank_statistics.mean[np.newaxis], lower_is_better=True)[0]
    return {
        "mean_rank": rank_statistics.mean,
        "sem": rank_statistics.sem,
        "low": low,
        "high": high,
        "place": np.where(rank_statistics.count > 0, place_K, np.nan),
    }


def _mean(row: Mapping[Labels, Cell], block: Labels) -> float:
    values = [cell.value for cell in _cells_of(row, block)]
    return float(statistics(np.array(values, dtype=np.float64)).mean)


def _has_failed(row: Mapping[Labels, Cell], block: Labels) -> bool:
    """Return whether a cell of the block diverged or is not finite."""
    # The mean of the other cells would reward a label for it.
    return any(cell.status != "ok" for cell in _cells_of(row, block))


def _cells_of(row: Mapping[Labels, Cell], block: Labels) -> list[Cell]:
    return [cell for place, cell in row.items() if place[: len(block)] == block]


def _complete(
    rows_of_label: Mapping[Label, Mapping[Labels, Cell]],
    blocks: list[Labels],
    params: RankParams,
) -> Array:
    """Return a mask of the repetitions at which every label has a node."""
    size = len(params.over)
    repetitions_of = [{place[:size] for place in row} for row in rows_of_label.values()]
    return np.array(
        [
            all(block in repetitions for repetitions in repetitions_of)
            for block in blocks
        ]
    )


def _wins(ranks_NK: Array, values_NK: Array) -> Array:
    """Return how often each label came first; where all diverged none has, (K,)."""
    is_first_NK = ranks_NK == ranks_NK.min(axis=1, initial=np.inf, keepdims=True)
    wins_K: Array = (is_first_NK & np.isfinite(values_NK)).sum(axis=0)
    return wins_K


def _test_columns(ranks_NK: Array, confidence: float) -> dict[str, float]:
    test = friedman(ranks_NK)
    count, labels = ranks_NK.shape
    return {
        "friedman": test.chi2,
        "p_friedman": test.p,
        "p_iman_davenport": test.p_iman_davenport,
        "kendall_w": test.kendall_w,
        "critical_difference": critical_difference(count, labels, confidence),
    }
