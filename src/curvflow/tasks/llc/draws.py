"""Quantities of draws of a posterior, and of the Hessian that goes with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes
from curvflow.tasks.numerics.sampling.diagnostics import failed

# Variables of `probe.llc`, of a node or by name.
Draws = NodeData | Mapping[str, Array]


@dataclass(frozen=True)
class Mean:
    """A mean over draws or runs.

    Attributes:
        value: the mean; NaN if every chain failed.
        sem: its standard error; 0 if it is exact.
    """

    value: float
    sem: float


def number(draws: Draws, name: str) -> float:
    """Return one of the numbers of draws."""
    return float(draws[name])


def posterior_of(draws: Draws) -> dict[str, Array]:
    """Return the temperature and localization of draws."""
    return {name: draws[name] for name in ("nbeta", "localization")}


def is_wbic(draws: Draws) -> bool:
    """Return whether draws are at nbeta = n / ln n."""
    count = number(draws, "num_samples")
    return math.isclose(number(draws, "nbeta"), count / math.log(count), rel_tol=1e-9)


def energies(draws: Draws) -> tuple[Mean, Array]:
    """Average the loss of all samples, n L, over draws.

    Args:
        draws: with the losses of chains, of which some may have failed.

    Returns:
        n E L over the chains that did not fail, with the whole error of the draws, and
        of each chain, NaN if it failed.
    """
    losses_CK = torch.as_tensor(draws["loss_trace"], dtype=torch.float64)
    failed_C = failed(losses_CK, torch.as_tensor(draws["failed_at"]))
    count = number(draws, "num_samples")
    mean_C = torch.where(failed_C, torch.nan, count * losses_CK.mean(1))
    if failed_C.all():
        return Mean(math.nan, math.nan), mean_C.numpy()
    sem = count / number(draws, "nbeta") * number(draws, "llc_sem")
    return Mean(float(mean_C[~failed_C].mean()), sem), mean_C.numpy()


def wbic_arrays(draws: Draws) -> dict[str, Array]:
    """Return the variables of `probe.wbic` from draws at nbeta = n / ln n.

    Args:
        draws: at that temperature.
    """
    mean, mean_C = energies(draws)
    training = number(draws, "num_samples") * number(draws, "init_loss")
    return {
        "wbic": np.array(mean.value),
        "wbic_sem": np.array(mean.sem),
        "wbic_per_chain": mean_C,
        "training_loss": np.array(training),
        "penalty": np.array(mean.value - training),
        "num_samples": np.array(draws["num_samples"], dtype=np.int64),
        **posterior_of(draws),
        "verdict": np.array(draws["verdict"]),
    }


def ritz_of(member: Member) -> RitzData:
    """Return the Ritz data of the Hessian that goes with draws.

    Args:
        member: with `draws` and `ritz`.

    Returns:
        One member's runs.

    Raises:
        InputError: the operator is not of the parameters that moved.
    """
    node, draws = member.one("ritz"), member.one("draws")
    size, moved = int(node["size"]), int(draws["num_parameters"])
    if size != moved:
        raise InputError(
            f"ritz: expected the Hessian of the {moved} parameters that moved in "
            f"'{draws.stage}', got {size} rows of '{node.stage}'. Give both the same "
            "layers."
        )
    values, weights, residuals = (
        torch.as_tensor(node[f"ritz_{name}"], dtype=torch.float64)[None]
        for name in ("values", "weights", "residuals")
    )
    return RitzData(values, weights, residuals, values.isfinite().sum(2), size)


def localization(draws: NodeData) -> float:
    """Return gamma.

    Args:
        draws: of a localised posterior.

    Returns:
        The precision of the prior that the localization is.

    Raises:
        InputError: the draws have no localization.
    """
    gamma = number(draws, "localization")
    if gamma <= 0:
        raise InputError(
            f"draws: expected a localization above 0 in '{draws.stage}', got {gamma}. "
            "Raise it."
        )
    return gamma


def mass_below(ritz: RitzData, limit: float) -> float:
    """Return the fraction of the eigenvalues below a limit, by the rules alone."""
    below = (nodes(ritz) < limit).to(torch.float64)
    return float((ritz.weights * below).sum(2).mean())


def negative_mass(ritz: RitzData) -> float:
    """Return the fraction of the eigenvalues below zero, beyond rounding."""
    return mass_below(ritz, -1e-9 * float(nodes(ritz).abs().max()))
