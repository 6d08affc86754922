"""What the groups of a tile have so far, kept so that a kill costs a minute."""

from __future__ import annotations

from curvflow.schemas.nodes import Array
from curvflow.tasks.registry import Partial
from curvflow.tasks.training.state import Part, as_arrays, restored


class Kept:
    """The states of a tile's groups, which are trained one after another.

    Each is kept under a name of its own, so that no group takes another's for its own.
    """

    def __init__(self, partial: Partial) -> None:
        """Look up what an earlier attempt at the same tile kept."""
        self._partial = partial
        self._found = partial.load() or {}
        self._ended: dict[str, Array] = {}
        self._prefix = ""
        self._part: Part | None = None

    def follow(self, name: str, part: Part) -> bool:
        """Turn to the next group, and bring it to where it was kept.

        Args:
            name: of the group; equal only for equal trainings.
            part: all of its training.

        Returns:
            Whether its state was found and fits.
        """
        self._ended |= self._present()
        self._prefix, self._part = f"{name}.", part
        found = {
            key.removeprefix(self._prefix): array
            for key, array in self._found.items()
            if key.startswith(self._prefix)
        }
        return bool(found) and restored(part, found)

    def after_step(self) -> None:
        """Keep the groups' states if it is time.

        Raises:
            Stopped: the run was asked to end.
        """
        if self._partial.is_due():
            self._partial.keep(self._ended | self._present())

    def _present(self) -> dict[str, Array]:
        if self._part is None:
            return {}
        arrays = as_arrays(self._part)
        return {self._prefix + name: array for name, array in arrays.items()}
