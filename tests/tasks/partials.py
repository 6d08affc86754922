"""Places where a tile keeps what it has, for the tests of tasks."""

from collections.abc import Callable, Mapping

import numpy as np

from curvflow.errors import Stopped

SIGTERM = 15


class Steps:
    """Counts the steps of a tile, keeps its state at some and stops it at one.

    Attributes:
        kept: what was kept last.
        count: steps done.
        lives: number of states kept.
        told: lines shown.
    """

    def __init__(
        self,
        kept: Mapping[str, np.ndarray] | None = None,
        *,
        due: Callable[[int], bool] = lambda step: False,
        stop: int | None = None,
    ) -> None:
        self.kept = kept
        self.count = self.lives = 0
        self.told: list[str] = []
        self._due, self._stop = due, stop

    def load(self):
        return self.kept

    def tell(self, message: str) -> None:
        self.told.append(message)

    def record(self, message: str) -> None:
        self.told.append(message)

    def is_due(self) -> bool:
        self.count += 1
        return self.count == self._stop or self._due(self.count)

    def keep(self, arrays) -> None:
        # As a disk would: what the tile does with its arrays later changes nothing.
        self.kept = {name: np.array(array) for name, array in arrays.items()}
        self.lives += 1
        if self.count == self._stop:
            raise Stopped(SIGTERM)
