"""Maps under which a posterior about weights is nearer to round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Of the largest precision: no direction is known to have less than that.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Eigenvectors:
    """Eigenvectors of the Hessian at the weights of one target.

    Attributes:
        vectors: of all directions, or of some, as columns, (D, K).
        curvatures: eigenvalues of these, and that of all other directions, (K + 1,);
            NaN of a vector that is none.
    """

    vectors: Tensor
    curvatures: Tensor

    def scales(self, nbeta: float, localization: float) -> Tensor:
        """Return the widths of the posterior along the vectors and the rest, (K + 1,).

        A direction of negative curvature is as wide as one of the same positive.
        Without localization, flat ones are as wide as rounding can tell from others.
        """
        rest = self.curvatures[-1]
        known = torch.where(self.curvatures.isnan(), rest, self.curvatures)
        precision = nbeta * known.abs() + localization
        least = ROUNDING * float(precision.max()) or 1.0
        return precision.clamp_min(least).rsqrt()


@dataclass(frozen=True)
class Whitening:
    """Symmetric maps S of G groups of chains, V diag(s - r) V^T + r.

    Attributes:
        vectors: V, (G, D, K).
        scales: s - r, (G, 1, K).
        rest: r, (G, 1, 1).
    """

    vectors: Tensor
    scales: Tensor
    rest: Tensor

    @classmethod
    def of(
        cls,
        groups: Sequence[tuple[Eigenvectors, float, float]],
        free: Tensor | None,
        like: Tensor,
    ) -> Whitening:
        """Set the maps of groups side by side.

        Args:
            groups: eigenvectors of the free parameters, nbeta and localization.
            free: whether a parameter moves, (D,); None lets all move.
            like: gives dtype and device.

        Returns:
            The maps, of full size.
        """
        vectors = [each.vectors.to(like) for each, _, _ in groups]
        if free is not None:
            vectors = [_placed(each_FK, free) for each_FK in vectors]
        scales_GK = torch.stack(
            [each.scales(nbeta, gamma) for each, nbeta, gamma in groups]
        ).to(like)
        rest_G1 = scales_GK[:, -1:]
        scales_G1K = (scales_GK[:, :-1] - rest_G1)[:, None]
        return cls(torch.stack(vectors), scales_G1K, rest_G1[:, None])

    @property
    def is_a_factor(self) -> bool:
        """True if all directions are scaled alike."""
        return self.vectors.shape[2] == 0

    def __call__(self, vectors_CD: Tensor) -> Tensor:
        """Map a vector of each chain, those of a group in succession."""
        size = vectors_CD.shape[1]
        each_GBD = vectors_CD.reshape(len(self.vectors), -1, size)
        along_GBK = (each_GBD @ self.vectors).mul_(self.scales)
        return torch.baddbmm(
            each_GBD * self.rest, along_GBK, self.vectors.mT
        ).reshape_as(vectors_CD)


def _placed(vectors_FK: Tensor, free: Tensor) -> Tensor:
    placed_DK = vectors_FK.new_zeros(len(free), vectors_FK.shape[1])
    placed_DK[free] = vectors_FK
    return placed_DK
