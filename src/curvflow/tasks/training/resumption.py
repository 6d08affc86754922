"""Resumption of training, from a snapshot or from the end of a shorter training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.schemas.kinds.shared.trained import PRECONDITIONER, RECORDED
from curvflow.schemas.kinds.train import KIND, TrainParams
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.tasks.networks.problems import Problem
from curvflow.tasks.registry import Partial
from curvflow.tasks.training.fit import Fit
from curvflow.tasks.training.state import (
    Checkpoints,
    Stateful,
    restore_if_fits,
    state_arrays,
)
from curvflow.tasks.training.stopping_criteria import StoppedModel


def resumable_epoch(member: Member, problem: Problem) -> int:
    """Return the epoch from which a member's training can resume.

    Args:
        member: member that may hold the result of shorter training.
        problem: network and loss of the member.

    Returns:
        The last epoch of the shorter training; 0 if there is none, it diverged, lacks a
        variable, trained another network or is not shorter.
    """
    earlier, continuation = member.earlier, KIND.continues
    if earlier is None or continuation is None or earlier.status != "ok":
        return 0
    optional = {variable.name for variable in KIND.outputs if variable.optional}
    if not set(continuation.parts or ()) - optional <= earlier.arrays.keys():
        return 0
    if str(earlier["network"]) != problem.text:
        return 0
    end = int(earlier["epoch"][-1])
    return end if end < cast("TrainParams", member.params).epochs else 0


def resume(fit: Fit, members: Sequence[Member]) -> None:
    """Resume a training that has not begun at the end of its members' shorter ones.

    If the states of the rules do not fit, it stays at its beginning.

    Args:
        fit: the training.
        members: one per model, all with the same `resumable_epoch`, not 0.
    """
    results = [member.earlier for member in members if member.earlier is not None]
    stored_MW = torch.stack([torch.tensor(result["weights"][-1]) for result in results])
    stored_MD, statistics_MS = fit.problem.network.split(stored_MW.to(fit.weights))
    states = [torch.tensor(result["rule_state"]) for result in results]
    weights_MD = fit.updates.take(states, stored_MD)
    if weights_MD is None:
        return
    fit.statistics = statistics_MS
    first = [float(result["train_loss"][0]) for result in results]
    first_M = torch.tensor(first, dtype=torch.float64, device=weights_MD.device)
    fit.divergence.judge(0, first_M, torch.isfinite(first_M))
    for model, result in enumerate(results):
        fit.curves.take(model, result.arrays)
        kept = result["checkpoint"].tolist()
        fit.checkpoints.take(model, kept, torch.tensor(result["weights"]))
        if fit.scales is not None:
            fit.scales.take(model, kept, _scales(result, fit.scales))
        if fit.early_stopping is not None and float(result["reached_epoch"]) >= 0:
            fit.early_stopping.take(
                model, int(result["reached_epoch"]), _stopped_model(result, fit.scales)
            )
    end = int(results[0]["epoch"][-1])
    fit.batches.skip(end)
    fit.begin(end + 1, weights_MD)


def _stopped_model(earlier: NodeData, scales: Checkpoints | None) -> StoppedModel:
    # The curves and weights of a stopped model stay as they were when it stopped.
    last = [float(earlier[n][-1]) if n in earlier else torch.nan for n in RECORDED]
    return StoppedModel(
        torch.tensor(last, dtype=torch.float64),
        torch.tensor(earlier["weights"][-1]),
        torch.tensor(earlier["rule_state"]),
        None if scales is None else _scales(earlier, scales)[-1],
    )


def _scales(earlier: NodeData, like: Checkpoints) -> Tensor:
    """Return stored scales, with NaN behind a P of fewer numbers than others."""
    numbers_CS, *both = (torch.tensor(earlier[name]) for name in PRECONDITIONER)
    room = like.width - len(both) - numbers_CS.shape[1]
    wide_CS = F.pad(numbers_CS, (0, room), value=torch.nan)
    return torch.cat([wide_CS, torch.stack(both, dim=1)], dim=1)


class GroupSnapshots:
    """Snapshots of a tile's groups, which are trained one after another.

    Each is stored under the name of its group, so that none is mistaken for another's.
    """

    def __init__(self, partial: Partial) -> None:
        """Load the snapshot of an earlier attempt at the same tile."""
        self._partial = partial
        self._loaded = partial.load() or {}
        self._ended: dict[str, Array] = {}
        self._prefix = ""
        self._part: Stateful | None = None

    def begin_group(self, name: str, part: Stateful) -> bool:
        """Begin the next group, and restore it from its snapshot.

        Args:
            name: name of the group; equal only for equal trainings.
            part: state of its training.

        Returns:
            True if a snapshot exists and fits.
        """
        self._ended |= self._present()
        self._prefix, self._part = f"{name}.", part
        arrays = {
            key.removeprefix(self._prefix): array
            for key, array in self._loaded.items()
            if key.startswith(self._prefix)
        }
        return bool(arrays) and restore_if_fits(part, arrays)

    def after_step(self) -> None:
        """Store a snapshot of the groups if it is due.

        Raises:
            Stopped: the run was asked to stop.
        """
        if self._partial.is_due():
            self._partial.keep(self._ended | self._present())

    def _present(self) -> dict[str, Array]:
        if self._part is None:
            return {}
        arrays = state_arrays(self._part)
        return {self._prefix + name: array for name, array in arrays.items()}
