"""The number of a study's nodes, counted from its axes before any node is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from curvflow.errors import StudyError
from curvflow.schemas.nodes import Weights
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.study import Study

VALUES_PER_NODE = 100  # of its parameters, if all nodes had so many
SAMPLES = 1000  # labels at which epochs are counted
FEW = 6  # axes that a message lists
REMEDY = "Use fewer labels or checkpoints, or raise the limit with --max-nodes."


class Offer(Protocol):
    """Points of the dimensions that a producer and a stage share."""

    @property
    def shared(self) -> Sequence[str]:
        """The shared dimensions."""

    def num_points(self) -> int:
        """Return the number of points, each epoch a separate one; 0 without epochs."""


def _num_chosen(stage: Stage, producer: Stage) -> int:
    """Return the number of checkpoints that a stage takes, 0 if networks differ."""
    checkpoints = producer.kind.checkpoints
    if checkpoints is None or not stage.at.adds_epoch:
        return 0
    samples = list(islice(producer.template.samples(), SAMPLES + 1))
    if len(samples) > SAMPLES:
        return 0
    with suppress(StudyError):  # it is met where the nodes are made
        kept = [checkpoints(producer.params(labels)) for labels in samples]
        numbers = {len(stage.epochs(epochs)) if epochs else 0 for epochs in kept}
        return numbers.pop() if len(numbers) == 1 else 0
    return 0


class NodeCount:
    """The nodes of a study: of stages that are made, and of the others by their axes.

    Raises StudyError, also when it is made, as soon as they are too many.
    """

    def __init__(self, study: Study) -> None:
        """Count each stage by its axes, and by its epochs where all have as many."""
        self._study = study
        self._axes = {name: len(axis.labels) for name, axis in study.axes.items()}
        stages = study.stages.values()
        self._epochs: dict[str, int] = {}
        for stage in stages:
            self._epochs[stage.name] = self._num_epochs(stage)
        self._with_epochs = {name for name, number in self._epochs.items() if number}
        self._counts = {
            stage.name: self._product(stage.dims) * max(1, self._epochs[stage.name])
            for stage in stages
        }
        self._total = sum(self._counts.values())
        self._check()
        for stage in stages:
            self._check_values(stage)

    def update(self, stage: Stage, number: int) -> None:
        """Count a stage by its nodes."""
        self._total += number - self._counts[stage.name]
        self._counts[stage.name] = number
        self._check()

    def foresee(self, stage: Stage, offers: Iterable[Offer]) -> None:
        """Count a stage's nodes with its epochs, before they are made.

        Args:
            stage: the stage.
            offers: what its producers offer.
        """
        if "epoch" not in stage.dims:
            return
        number = 0
        for offer in offers:
            others = [dim for dim in stage.dims if dim not in offer.shared]
            number = max(number, offer.num_points() * self._product(others))
        self._with_epochs.add(stage.name)
        self.update(stage, number)

    def _num_epochs(self, stage: Stage) -> int:
        """Return the number of a stage's epochs; 0 if it has none or they differ."""
        if "epoch" not in stage.dims:
            return 0
        numbers = [0]
        for name, producers in stage.inputs.items():
            for producer in (self._study.stages[p] for p in producers):
                if "epoch" in producer.dims:
                    numbers.append(self._epochs[producer.name])
                elif issubclass(stage.kind.inputs[name].edge, Weights):
                    numbers.append(_num_chosen(stage, producer))
        return max(numbers)

    def _product(self, dims: Iterable[str]) -> int:
        return math.prod(self._axes[dim] for dim in dims if dim in self._axes)

    def _check_values(self, stage: Stage) -> None:
        """Refuse parameters that are long at each of many points."""
        points, values = self._product(stage.own_axes), stage.template.num_values()
        most = VALUES_PER_NODE * self._study.max_nodes
        if points * values > most:
            message = (
                f"expected at most {most:,} values of parameters in all, got "
                f"{values:,} at each of {points:,} points"
            )
            raise stage.error((), message, "Put data into files, or use fewer labels.")

    def _check(self) -> None:
        most, total = self._study.max_nodes, self._total
        if total <= most:
            return
        stage = self._study.stages[max(self._counts, key=self._counts.__getitem__)]
        sizes = [f"{d} {self._axes[d]:,}" for d in stage.dims if d in self._axes]
        listed = " x ".join([*sizes[:FEW], *(["..."] if len(sizes) > FEW else [])])
        listed += " x its epochs" if stage.name in self._with_epochs else ""
        # Python writes no number of more than 4300 digits.
        got = f"{total:,}" if total < 1e18 else f"about 10^{math.log10(total):.0f}"
        of = f", most of them by {listed}" if listed else ""
        message = f"expected at most {most:,} nodes of the study, got {got}{of}"
        raise stage.error((), message, REMEDY)
