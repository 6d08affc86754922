"""Learning coefficients that are requested and not yet estimated.

A monitor that estimates in the loop has some, too: those that the process of an
earlier program did not live to answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curvflow.flows.monitor import files

Weights = Mapping[str, Any]


class Estimate(NamedTuple):
    """Numbers by name, of a step of the loop."""

    step: int
    numbers: Mapping[str, Any]


class Requests(ABC):
    """Requests in order.

    Attributes:
        weights: of the requests that are not answered, by step.
    """

    def __init__(self, folder: Path | None) -> None:
        """Take no requests yet; a folder keeps the weights of those to come."""
        self.weights: dict[int, Weights] = {}
        self._folder = folder

    def add(self, step: int, weights: Weights) -> None:
        """Take a request behind the others.

        Args:
            step: of the loop.
            weights: tensors on the CPU, by name.

        Raises:
            StoreError: the weights cannot be written.
        """
        self.weights[step] = weights
        if self._folder is not None:
            arrays = {name: np.asarray(tensor) for name, tensor in weights.items()}
            files.write(self._folder / kept_as(step), arrays)

    def cut(self, step: int) -> None:
        """Give up the requests from a step on."""
        for late in [each for each in self.weights if each >= step]:
            self.forget(late)

    def forget(self, step: int) -> None:
        """Remove the weights of a request, whose numbers are kept."""
        del self.weights[step]
        if self._folder is not None:
            (self._folder / kept_as(step)).unlink(missing_ok=True)

    @abstractmethod
    def answers(self, *, wait: bool = False) -> Iterator[Estimate]:
        """Yield the estimates that are there, or wait for all."""


class InLoop(Requests):
    """Requests that are answered as soon as answers are requested."""

    def __init__(
        self, estimate: Callable[[Weights], Mapping[str, Any]], folder: Path | None
    ) -> None:
        """Take no requests yet.

        Args:
            estimate: from weights to numbers by name.
            folder: keeps the weights; None keeps none.
        """
        super().__init__(folder)
        self._estimate = estimate

    def answers(self, *, wait: bool = False) -> Iterator[Estimate]:
        """Yield the estimates of all."""
        del wait
        for step, weights in sorted(self.weights.items()):
            yield Estimate(step, self._estimate(weights))


def kept_as(step: int) -> str:
    """Return the name of the file with the weights of a request."""
    return f"llc-{step}.npz"


def kept_in(folder: Path, last: int) -> dict[int, Weights]:
    """Return the weights of requests that a program did not live to answer.

    Args:
        folder: the store of a monitor.
        last: step that it goes on from; requests behind it are given up.

    Raises:
        StoreError: a file is none of a monitor.
    """
    paths = {int(path.stem[4:]): path for path in folder.glob("llc-*.npz")}
    for step in [each for each in paths if each > last]:
        paths.pop(step).unlink()
    return {step: files.read(path) for step, path in sorted(paths.items())}
