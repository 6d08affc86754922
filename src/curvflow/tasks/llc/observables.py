"""Observables of stored draws: losses by group, and averages as variables of a kind.

Letters: I observables; C chains that did not fail; K draws of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.observables import Observed
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.numerics.sampling.covariances import MIN_ESS, Averages
from curvflow.tasks.numerics.sampling.diagnostics import failed
from curvflow.tasks.numerics.sampling.verdicts import MAX_R_HAT

# Verdicts on chains that are stationary: that a coefficient is of its localization says
# nothing against averages over the draws.
STATIONARY = ("converged", "held")


@dataclass(frozen=True)
class Observables:
    """Losses at the draws, of chains that did not fail.

    Attributes:
        names: of each, such as `train 3` or `test label 0`.
        values: at the draws, (I, C, K).
        at_weights: at the weights w*, (I,).
    """

    names: tuple[str, ...]
    values: Tensor
    at_weights: Tensor

    def before(self, others: Observables) -> Observables:
        """Return these, and others after them."""
        return Observables(
            self.names + others.names,
            torch.cat([self.values, others.values]),
            torch.cat([self.at_weights, others.at_weights]),
        )


def whole_loss(draws: NodeData) -> Observables:
    """Return the mean loss over all the training data.

    Args:
        draws: with losses at the draws, of chains of which one or more did not fail.
    """
    losses_CK = torch.as_tensor(draws["loss_trace"], dtype=torch.float64)
    init_loss = torch.as_tensor(draws["init_loss"], dtype=torch.float64)
    return Observables(
        ("loss",), losses_CK[_finite_chains(draws)][None], init_loss.reshape(1)
    )


def observables(draws: NodeData, wanted: Observed, field: str) -> Observables:
    """Return losses that were kept, each by itself or averaged over groups.

    Args:
        draws: with kept losses.
        wanted: which, and how they are grouped.
        field: name of the parameter, for messages.

    Returns:
        The observables, at least one.

    Raises:
        InputError: nothing of the split was kept or counts, the data have no labels or
            tokens to group by, or a subset names samples that were not observed.
    """
    is_there_O = _is_of(draws, wanted.split)
    if not is_there_O.any():
        raise InputError(
            f"{field}.split: expected losses of {wanted.split} samples in "
            f"'{draws.stage}', got none. Set observed of '{draws.stage}' to both."
        )
    count_O = np.where(is_there_O, draws["observed_count"], 0)
    if not count_O.any():
        raise InputError(
            f"{field}.split: expected {wanted.split} samples with a label that counts "
            f"in '{draws.stage}', got none. Observe some that have one."
        )
    groups = dict(_groups(draws, wanted, field, np.flatnonzero(count_O)))
    losses_CKO, init_O = (
        torch.as_tensor(draws[f"observed_{name}"], dtype=torch.float64)
        for name in ("losses", "init_losses")
    )
    losses_CKO = losses_CKO[_finite_chains(draws)]
    weights = [torch.as_tensor(count_O[rows]).double() for rows in groups.values()]
    shares = [each / each.sum() for each in weights]
    pairs = [*zip(groups.values(), shares, strict=True)]
    return Observables(
        tuple(groups),
        torch.stack([losses_CKO[..., rows] @ share for rows, share in pairs]),
        torch.stack([init_O[rows] @ share for rows, share in pairs]),
    )


def _is_of(draws: NodeData, split: str) -> Array:
    """Return which of the kept losses are of a split, (O,)."""
    is_of_O: Array = draws["observed_is_test"] == (split == "test")
    return is_of_O


def _finite_chains(draws: NodeData) -> Tensor:
    losses_CK = torch.as_tensor(draws["loss_trace"], dtype=torch.float64)
    return ~failed(losses_CK, torch.as_tensor(draws["failed_at"]))


# Name of each observable, and the numbers of the kept losses it is the mean of.
Groups = Iterator[tuple[str, Array]]


def _groups(draws: NodeData, wanted: Observed, field: str, numbers_o: Array) -> Groups:
    """Yield the groups of those numbers that are of the split."""
    row_o, token_o, label_o = (
        draws[f"observed_{name}"][numbers_o] for name in ("row", "token", "label")
    )
    if wanted.subsets is not None:
        yield from _subsets(draws, wanted, field, numbers_o)
    elif wanted.by == "all":
        yield wanted.split, numbers_o
    elif wanted.by == "kept":
        each = zip(numbers_o, row_o, token_o, label_o, strict=True)
        for number, row, token, label in each:
            yield f"{wanted.split} {_name(row, token, label)}", np.array([number])
    else:
        by_o = {"sample": row_o, "token": token_o, "label": label_o}[wanted.by]
        if by_o.max() < 0:
            raise InputError(
                f"{field}.by: expected losses with a {wanted.by} in '{draws.stage}', "
                "got none. Set it to kept."
            )
        for value in np.unique(by_o[by_o >= 0]):
            yield f"{wanted.split} {wanted.by} {value}", numbers_o[by_o == value]


def _subsets(draws: NodeData, wanted: Observed, field: str, numbers_o: Array) -> Groups:
    row_o = draws["observed_row"][numbers_o]
    observed = draws["observed_row"][_is_of(draws, wanted.split)]
    for name, rows in (wanted.subsets or {}).items():
        missing = sorted(set(rows) - set(row_o.tolist()))
        if missing and missing[0] in observed:
            raise InputError(
                f"{field}.subsets: expected samples with a label that counts, got "
                f"{missing[0]} of '{draws.stage}' without. Leave it out."
            )
        if missing:
            raise InputError(
                f"{field}.subsets: expected numbers of the samples that "
                f"'{draws.stage}' observes, got {missing[0]}. Lower it."
            )
        yield name, numbers_o[np.isin(row_o, rows)]


def _name(row: int, token: int, label: int) -> str:
    if row < 0:
        return f"label {label}"
    return f"sample {row}" if token < 0 else f"sample {row} token {token}"


def average_arrays(name: str, averages: Averages, draws: NodeData) -> dict[str, Array]:
    """Return averages over draws as variables, with whether they have converged.

    Args:
        name: of the average.
        averages: of any shape.
        draws: that they are over.

    Returns:
        The variables of `average_variables`, coordinates not included.
    """
    verdict, is_stationary = str(draws["verdict"]), draws["verdict"] in STATIONARY
    converged = averages.is_converged & bool(is_stationary)
    num_unconverged = int((~converged).sum())
    r_hat = averages.r_hat[~averages.r_hat.isnan()]
    worst = float(r_hat.max()) if len(r_hat) else np.nan
    least = float(averages.ess.min())
    text = f"R-hat up to {worst:.3f}, {least:.0f} effective draws at the least"
    if not is_stationary:
        reason = f"the chains are {verdict}: {draws['reason']}"
    elif num_unconverged:
        verdict = "drifting"
        reason = (
            f"{num_unconverged} of {converged.numel()} averages have R-hat above "
            f"{MAX_R_HAT} or fewer than {MIN_ESS} effective draws: {text}. Raise "
            f"num_draws of '{draws.stage}'."
        )
    else:
        verdict, reason = "converged", text
    return {
        name: averages.value.numpy(),
        f"{name}_sem": averages.sem.numpy(),
        "r_hat": averages.r_hat.numpy(),
        "ess": averages.ess.numpy(),
        "converged": converged.numpy(),
        "max_r_hat": np.array(worst),
        "min_ess": np.array(least),
        "num_averages": np.array(converged.numel(), dtype=np.int64),
        "num_unconverged": np.array(num_unconverged, dtype=np.int64),
        "verdict": np.array(verdict),
        "reason": np.array(reason),
    }
