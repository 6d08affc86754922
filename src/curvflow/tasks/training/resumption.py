"""Training resumed: from a kept state, or from the end of a shorter one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.trained import PRECONDITIONER, RECORDED
from curvflow.schemas.kinds.train import KIND, TrainParams
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.registry import Partial
from curvflow.tasks.training.endings import Arrived
from curvflow.tasks.training.fit import Fit
from curvflow.tasks.training.state import Part, as_arrays, restored


def end_of(member: Member, problem: Problem) -> int:
    """Return the epoch that a member's training can go on from.

    Args:
        member: may hold the result of shorter training.
        problem: what it is to be trained on.

    Returns:
        The last epoch of the shorter training; 0 if there is none to go on from, it
        diverged, lacks a variable, trained another network or is not shorter.
    """
    earlier, how = member.earlier, KIND.continues
    if earlier is None or how is None or earlier.status != "ok":
        return 0
    optional = {variable.name for variable in KIND.outputs if variable.optional}
    if not set(how.parts or ()) - optional <= earlier.arrays.keys():
        return 0
    if str(earlier["network"]) != problem.text:
        return 0
    end = int(earlier["epoch"][-1])
    return end if end < cast("TrainParams", member.params).epochs else 0


def go_on(fit: Fit, members: Sequence[Member]) -> None:
    """Bring a training that has not begun to the end of its members' shorter ones.

    Where the rules' states do not fit, it is left at its beginning.

    Args:
        fit: the training.
        members: one per model, all of one `end_of`, not 0.
    """
    results = [member.earlier for member in members if member.earlier is not None]
    stored_MW = torch.stack([torch.tensor(one["weights"][-1]) for one in results])
    stored_MD, statistics_MS = fit.problem.network.split(stored_MW.to(fit.weights))
    states = [torch.tensor(one["rule_state"]) for one in results]
    weights_MD = fit.updates.take(states, stored_MD)
    if weights_MD is None:
        return
    fit.statistics = statistics_MS
    first = [float(one["train_loss"][0]) for one in results]
    first_M = torch.tensor(first, dtype=torch.float64, device=weights_MD.device)
    fit.divergence.judge(0, first_M, torch.isfinite(first_M))
    for model, one in enumerate(results):
        fit.curves.take(model, one.arrays)
        kept = one["checkpoint"].tolist()
        fit.checkpoints.take(model, kept, torch.tensor(one["weights"]))
        if fit.scales is not None:
            fit.scales.take(model, kept, _scales(one))
        if fit.arrivals is not None and float(one["reached_epoch"]) >= 0:
            fit.arrivals.take(model, int(one["reached_epoch"]), _arrived(one))
    end = int(results[0]["epoch"][-1])
    fit.batches.skip(end)
    fit.begin(end + 1, weights_MD)


def _arrived(earlier: NodeData) -> Arrived:
    # From its arrival on a model's curves and weights stay as they were then.
    last = [float(earlier[n][-1]) if n in earlier else torch.nan for n in RECORDED]
    return Arrived(
        torch.tensor(last, dtype=torch.float64),
        torch.tensor(earlier["weights"][-1]),
        torch.tensor(earlier["rule_state"]),
        _scales(earlier)[-1] if PRECONDITIONER[0] in earlier else None,
    )


def _scales(earlier: NodeData) -> Tensor:
    diagonal_CD, *numbers = (torch.tensor(earlier[name]) for name in PRECONDITIONER)
    return torch.cat([diagonal_CD, torch.stack(numbers, dim=1)], dim=1)


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
