"""Choose among candidates by the mean of repetitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from curvflow.errors import InputError
from curvflow.schemas.kinds.aggregate.best import BestParams
from curvflow.tasks.cells import Cell, Place, finite
from curvflow.tasks.comparison import are_numbers
from curvflow.tasks.statistics import statistics

ROUNDING = 1e-12  # of means that are equal but for the order of their terms

Rows = Mapping[Place, Mapping[Place, Cell]]


@dataclass
class Choice:
    """A choice among candidates.

    Attributes:
        chosen: the candidate; None if none could be chosen.
        refused: candidates that could not be.
        tied: other candidates with the same mean.
        close: other candidates within a standard error of the best, tied ones too.
    """

    chosen: Place | None = None
    refused: list[Place] = field(default_factory=list)
    tied: list[Place] = field(default_factory=list)
    close: list[Place] = field(default_factory=list)

    def verdict(self, candidate: Place) -> str:
        """Return what became of a candidate."""
        if candidate == self.chosen:
            return "chosen"
        if candidate in self.refused:
            return "refused"
        return "tied" if candidate in self.tied else "not chosen"


def choose(rows: Rows, repetitions: Collection[Place], params: BestParams) -> Choice:
    """Choose the candidate of the best mean over some repetitions.

    Args:
        rows: cells of the variable that decides, by candidate and repetition.
        repetitions: those that decide.
        params: what is best, and how many values a candidate must have.

    Returns:
        The first of the best in the order of the candidates, and what else there was.
    """
    found = Choice()
    means, errors = {}, {}
    for candidate, row in rows.items():
        values = finite({r: c for r, c in row.items() if r in repetitions})
        least = 1.0 if params.diverged == "refuse" else params.least_share
        if not len(values) or len(values) / len(repetitions) < least:
            found.refused.append(candidate)
            continue
        of = statistics(values)
        sign = -1.0 if params.goal == "max" else 1.0
        means[candidate], errors[candidate] = sign * float(of.mean), float(of.sem)
    if not means:
        return found
    least = min(means.values())
    slack = ROUNDING * max(map(abs, means.values()))
    tied = [one for one, mean in means.items() if mean <= least + slack]
    found.chosen, found.tied = tied[0], tied[1:]
    limit = least + max(slack, errors[found.chosen])
    found.close = [c for c, m in means.items() if m <= limit and c != found.chosen]
    return found


def nested(
    rows: Rows, repetitions: Collection[Place], params: BestParams
) -> dict[Place, Place | None]:
    """Choose for each repetition without looking at it, or at its part.

    Args:
        rows: cells of the variable that decides.
        repetitions: all of them, in order.
        params: into how many parts they are dealt in turn; None chooses on all.

    Returns:
        Repetition to candidate chosen; None where none could be.

    Raises:
        InputError: there are fewer repetitions than parts.
    """
    every = [*repetitions]
    if params.folds is None:
        return dict.fromkeys(every, choose(rows, every, params).chosen)
    if params.folds > len(every):
        raise InputError(
            f"folds: expected at most the {len(every)} repetitions, got "
            f"{params.folds}. Lower it, or add repetitions."
        )
    chosen: dict[Place, Place | None] = {}
    for part in range(params.folds):
        own = every[part :: params.folds]
        others = [one for one in every if one not in own]
        chosen |= dict.fromkeys(own, choose(rows, others, params).chosen)
    return {repetition: chosen[repetition] for repetition in every}


def is_at_edge(chosen: Place | None, candidates: Collection[Place]) -> bool:
    """Return whether a choice of one number is the least or the greatest of several."""
    labels = [candidate[0] for candidate in candidates if len(candidate) == 1]
    if chosen is None or len(labels) < 3 or not are_numbers(labels):
        return False
    return chosen[0] in (min(labels, key=float), max(labels, key=float))
