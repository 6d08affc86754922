"""Moments of a spectrum as densities take them, with the errors of random vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.curvature.operators import atoms_of
from curvflow.tasks.numerics.estimators.cumulatives import (
    angles,
    linear_errors,
    step_bounds,
)
from curvflow.tasks.numerics.estimators.intervals import HIGH
from curvflow.tasks.numerics.estimators.moments import atom_moments
from curvflow.tasks.numerics.estimators.polynomials import Support, converted
from curvflow.tasks.numerics.estimators.traces import Estimate
from curvflow.tasks.numerics.graphs.gaps import atoms_below
from curvflow.tasks.numerics.krylov.quadrature import score_interval
from curvflow.tasks.numerics.operators.deflation import Atoms


@dataclass(frozen=True)
class MeasuredMoments:
    """Moments of the orders 0 .. K, and what they are of.

    Attributes:
        means: over random vectors, (K + 1,).
        covariance: of these, (K + 1, K + 1); NaN of one vector.
        basis: polynomials.
        support: their interval.
        freedom: degrees of freedom of the covariance; NaN if not known.
        size: eigenvalues that they are of, D.
        atoms: those of them that are known exactly.
    """

    means: Tensor
    covariance: Tensor
    basis: str
    support: Support
    freedom: float
    size: int
    atoms: Atoms

    @property
    def share(self) -> float:
        """Fraction of the eigenvalues that is not known exactly."""
        return (self.size - self.atoms.total) / self.size

    @property
    def num_draws(self) -> dict[str, Array]:
        """The number of random vectors, where it is known."""
        if math.isnan(self.freedom):
            return {}
        return {"num_draws": np.array(self.freedom + 1, dtype=np.int64)}

    def without_atoms(self) -> MeasuredMoments:
        """Return the moments of the eigenvalues that are not known exactly."""
        if not self.atoms.total:
            return self
        ends = torch.tensor(self.support) if self.basis == "chebyshev" else None
        orders = len(self.means) - 1
        known = atom_moments(self.atoms, num_moments=orders, support_2=ends)
        means = (self.means - known / self.size) / self.share
        return replace(self, means=means, covariance=self.covariance / self.share**2)

    def apart(self) -> MeasuredMoments:
        """Return the same, where there must be some that are known.

        Raises:
            InputError: there is none.
        """
        if not self.atoms.total:
            raise InputError(
                "atoms: expected moments with eigenvalues taken out to set apart, got "
                "none. Set deflate in the probe.moments, or atoms to within."
            )
        return self.without_atoms()

    def in_basis(self, basis: str) -> MeasuredMoments:
        """Return those of other polynomials."""
        means, turn_KK = converted(self.means, self.basis, basis, self.support)
        covariance = turn_KK @ self.covariance @ turn_KK.T
        return replace(self, means=means, covariance=covariance, basis=basis)

    def below(
        self, points_G: Tensor, fraction_G: Tensor, *, right: bool = False
    ) -> Tensor:
        """Return the fraction of all eigenvalues below points.

        Args:
            points_G: the points.
            fraction_G: that of the eigenvalues not known exactly.
            right: counts those known exactly that are at the points.
        """
        known_G = atoms_below(self.atoms, points_G, right=right) / self.size
        if not self.share:
            return known_G
        return known_G + self.share * fraction_G

    def cumulative_bounds(self, points_G: Tensor) -> dict[str, Array]:
        """Return intervals of 95 % at least of the fraction of eigenvalues."""
        rest = self.without_atoms().in_basis("chebyshev")
        low_G, high_G = rest.fraction_interval(angles(points_G, self.support))
        return {
            "cumulative_low": self.below(points_G, low_G).numpy(),
            "cumulative_high": self.below(points_G, high_G, right=True).numpy(),
        }

    def fraction_interval(self, theta_G: Tensor) -> tuple[Tensor, Tensor]:
        """Return intervals of 95 % at least of the eigenvalues up to points.

        The means of `step_bounds`, each moved outwards by Student's quantile of the
        error that it has at the end of the interval: draws of a fraction that happen to
        lie close to 0 or 1 also lie close together.

        Args:
            theta_G: the points, as angles.

        Returns:
            Lower ends, which hold for the fraction below the points too, and upper
            ones; NaN where the errors are not known.
        """
        t = float(stdtrit(np.float64(self.freedom), HIGH))
        ends = []
        for rows_GK in step_bounds(theta_G, len(self.means) - 1):
            errors_G = linear_errors(rows_GK, self.covariance)
            mean_G = rows_GK @ self.means
            freedom_G = torch.full_like(errors_G, self.freedom)
            fraction = Estimate(mean_G[None], mean_G, errors_G, 1, freedom_G)
            low_G, high_G = score_interval(fraction, t)
            ends.append((low_G + 0 * errors_G, high_G + 0 * errors_G))
        (low_G, _), (_, high_G) = ends
        return low_G, high_G


def measured_moments(node: NodeData, num_moments: int | None) -> MeasuredMoments:
    """Read moments.

    Args:
        node: of `probe.moments`.
        num_moments: highest order; None takes all that there are.

    Returns:
        The moments up to that order, in their own basis.

    Raises:
        InputError: fewer are measured than requested.
    """
    num_given = len(node["moments"]) - 1
    count = num_given if num_moments is None else num_moments
    if count > num_given:
        raise InputError(
            f"num_moments: expected at most the {num_given} moments given, got "
            f"{count}. "
            "Measure more of them in probe.moments."
        )
    covariance = torch.as_tensor(node["moments_covariance"], dtype=torch.float64)
    draws = node.arrays.get("num_draws", np.array(math.nan))
    return MeasuredMoments(
        torch.as_tensor(node["moments"], dtype=torch.float64)[: count + 1],
        covariance[: count + 1, : count + 1],
        str(node["basis"].item()),
        cast("Support", tuple(node["support"].tolist())),
        float(draws) - 1,
        int(node["size"]),
        atoms_of(node),
    )
