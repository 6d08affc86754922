"""The number of a study's nodes, counted from its axes before any node is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from curvflow.errors import StudyError
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.study import Study

VALUES_PER_NODE = 100  # of its parameters, if all nodes had so many
FEW = 6  # axes that a message lists
REMEDY = "Use fewer labels or checkpoints, or raise the limit with --max-nodes."


class Offer(Protocol):
    """What a producer offers to a stage: points of the dimensions they share."""

    @property
    def shared(self) -> Sequence[str]:
        """The shared dimensions."""

    def num_points(self) -> int:
        """Return the number of points, each epoch one of its own; 0 without epochs."""


def check_axes_product(study: Study) -> None:
    """Refuse a study whose axes alone give too many nodes; StudyError."""
    check_made(study, {})
    for stage in study.stages.values():
        _check_values(study, stage)


def _check_values(study: Study, stage: Stage) -> None:
    """Refuse parameters that are long at each of many points; StudyError."""
    points, values = _product(study, stage.own_axes), stage.template.num_values()
    most = VALUES_PER_NODE * study.max_nodes
    if points * values > most:
        message = (
            f"expected at most {most:,} values of parameters in all, got {values:,} at "
            f"each of {points:,} points"
        )
        raise stage.error((), message, "Put data into files, or use fewer labels.")


def check_epochs(
    study: Study, stage: Stage, offers: Iterable[Offer], made: Mapping[str, int]
) -> None:
    """Refuse a stage whose epochs give too many nodes, before they are; StudyError.

    Args:
        study: the study.
        stage: whose nodes are about to be made.
        offers: what its producers offer.
        made: nodes of each stage before it.
    """
    if "epoch" not in stage.dims:
        return
    number = 0
    for offer in offers:
        others = [dim for dim in stage.dims if dim not in offer.shared]
        number = max(number, offer.num_points() * _product(study, others))
    check_made(study, {**made, stage.name: number})


def check_made(study: Study, made: Mapping[str, int]) -> None:
    """Refuse a study with too many nodes of some stages, with those to come."""
    counts = {**_counts(study), **made}
    if (total := sum(counts.values())) > study.max_nodes:
        largest = study.stages[max(counts, key=counts.__getitem__)]
        more = " x its epochs" if "epoch" in largest.dims else ""
        raise _too_many(study, largest, total, more)


def _counts(study: Study) -> dict[str, int]:
    """Return the nodes of each stage by its axes alone, one checkpoint of each."""
    return {name: _product(study, stage.dims) for name, stage in study.stages.items()}


def _product(study: Study, dims: Iterable[str]) -> int:
    axes: Mapping[str, Sequence[Label]] = {n: a.labels for n, a in study.axes.items()}
    return math.prod(len(axes[dim]) for dim in dims if dim in axes)


def _too_many(study: Study, stage: Stage, total: int, more: str) -> StudyError:
    sizes = [
        f"{dim} {len(study.axes[dim].labels):,}"
        for dim in stage.dims
        if dim in study.axes
    ]
    listed = " x ".join([*sizes[:FEW], *(["..."] if len(sizes) > FEW else [])])
    # Python writes no number of more than 4300 digits.
    got = f"{total:,}" if total < 1e18 else f"about 10^{math.log10(total):.0f}"
    of = f", most of them by {listed}{more}" if listed or more else ""
    message = f"expected at most {study.max_nodes:,} nodes of the study, got {got}{of}"
    return stage.error((), message, REMEDY)
