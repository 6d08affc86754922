"""`at:`, the epochs of its weights that a stage looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curvflow.schemas.document import Document
from curvflow.schemas.written import Path, shown


@dataclass(frozen=True)
class At:
    """Which checkpoints a stage looks at.

    Attributes:
        choice: how they are chosen.
        every: multiples of this, where `choice` is `every`.
        epochs: these, as written, where `choice` is `listed`; of `one` the only one.
    """

    choice: Literal["final", "one", "all", "every", "listed"] = "final"
    every: int = 1
    epochs: tuple[int, ...] = ()

    @property
    def adds_epoch(self) -> bool:
        """Whether results get the dimension `epoch`."""
        return self.choice not in ("final", "one")

    def select(self, checkpoints: Sequence[int]) -> tuple[int, ...]:
        """Return those checkpoints that are chosen, ascending."""
        if self.choice == "final":
            return (checkpoints[-1],)
        if self.choice in ("one", "listed"):
            return tuple(sorted(set(self.epochs) & set(checkpoints)))
        return tuple(epoch for epoch in checkpoints if epoch % self.every == 0)


def read_at(document: Document, path: Path) -> At:
    """Read an `at:`.

    Args:
        document: the resolved study.
        path: of the `at:`.

    Returns:
        The choice, `final` if nothing is written.

    Raises:
        StudyError: it is not `final`, `all`, an epoch, `{every: n}` or a list of
            epochs.
    """
    item = document.at(path)
    if item is None or item.value == "final":
        return At()
    if item.value == "all":
        return At("all")
    value = item.plain()
    if type(value) is int:
        return At("one", epochs=(_integer(document, path, 0),))
    if isinstance(value, dict) and set(value) == {"every"}:
        return At("every", every=_integer(document, (*path, "every"), 1))
    if isinstance(value, list) and value:
        steps = [(*path, index) for index in range(len(value))]
        epochs = tuple(_integer(document, step, 0) for step in steps)
        for index, epoch in enumerate(epochs):
            if epoch in epochs[:index]:
                message = f"expected each epoch once, got {epoch} a second time"
                raise document.complain(steps[index], message, "Remove one of them.")
        return At("listed", epochs=epochs)
    what = "'final', 'all', an epoch, {every: n} or a list of epochs"
    raise document.complain(path, f"expected {what}, got {shown(value)}")


def _integer(document: Document, path: Path, least: int) -> int:
    item = document.at(path)
    value: Any = item.plain() if item else None
    if type(value) is int and value >= least:
        return value
    message = f"expected an integer of at least {least}, got {shown(value)}"
    raise document.complain(path, message)
