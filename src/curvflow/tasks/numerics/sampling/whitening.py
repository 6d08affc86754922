"""Maps under which a posterior about weights is nearer to round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import Eigenpairs

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
        Without localization, flat ones are as wide as rounding resolves.
        """
        rest = self.curvatures[-1]
        known = torch.where(self.curvatures.isnan(), rest, self.curvatures)
        return _widths(nbeta * known.abs() + localization)


def _widths(precision: Tensor) -> Tensor:
    """Return the widths of precisions, floored by the largest of each row."""
    least = ROUNDING * precision.amax(-1, keepdim=True)
    return precision.clamp_min(torch.where(least > 0, least, 1.0)).rsqrt()


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

    def select(self, groups: Tensor) -> Whitening:
        """Return the maps of some groups, by their numbers (g,)."""
        return Whitening(self.vectors[groups], self.scales[groups], self.rest[groups])


@dataclass(frozen=True)
class BlockWhitening:
    """Symmetric maps S = (nbeta |K| + localization)^-1/2 of G groups of chains.

    K is given by blocks of eigenpairs, such as Kronecker factors.

    Attributes:
        roots: S on the parameters in blocks, (G, D, D).
        rest: S of the others, 0 of those in blocks, (G, D, 1).
    """

    roots: BlockOperator
    rest: Tensor

    @classmethod
    def of(
        cls,
        blocks: BlockOperator,
        nbeta: Tensor,
        localization: Tensor,
        *,
        free: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> BlockWhitening:
        """Take the roots of blocks.

        Args:
            blocks: K of the free parameters, in double precision.
            nbeta: inverse temperatures, (G,).
            localization: of the posterior, (G,).
            free: whether a parameter moves, (D,); None lets all move.
            dtype: of the vectors that are mapped.

        Returns:
            The maps, of full size. Directions without curvature are as wide as the
            localization has it, or as rounding resolves.
        """
        pairs = [block.eigenpairs for block in blocks.blocks]
        values_GF = torch.cat([each.values.flatten(1) for each in pairs], dim=1)
        nbeta_G1, gamma_G1 = (
            each.to(values_GF).reshape(-1, 1) for each in (nbeta, localization)
        )
        # One number more than the blocks have: of a parameter that is in none.
        curvature_GF = torch.nn.functional.pad(values_GF.abs(), (0, 1))
        widths_GF = _widths(nbeta_G1 * curvature_GF + gamma_G1)
        sizes = [each.values[0].numel() for each in pairs]
        *parts, rest_G1 = torch.split(widths_GF, [*sizes, 1], dim=1)
        size = blocks.shape[1]
        places = torch.arange(size, device=values_GF.device)
        if free is not None:
            size, places = len(free), free.nonzero().flatten().to(places)
        roots = [
            _root(block, widths_GF.reshape_as(block.values), places, dtype)
            for block, widths_GF in zip(pairs, parts, strict=True)
        ]
        rest_GD = rest_G1.to(dtype).repeat(1, size)
        for root in roots:
            rest_GD[:, root.columns] = 0.0
        return cls(BlockOperator(roots, size), rest_GD[..., None])

    @property
    def is_a_factor(self) -> bool:
        """False: directions are not known to be scaled alike."""
        return False

    def __call__(self, vectors_CD: Tensor) -> Tensor:
        """Map a vector of each chain, those of a group in succession."""
        size = vectors_CD.shape[1]
        each_GDB = vectors_CD.reshape(len(self.rest), -1, size).mT
        mapped_GDB = (self.roots @ each_GDB).addcmul_(self.rest, each_GDB)
        return mapped_GDB.mT.reshape_as(vectors_CD)

    def select(self, groups: Tensor) -> BlockWhitening:
        """Return the maps of some groups, by their numbers (g,)."""
        return BlockWhitening(self.roots.select(groups), self.rest[groups])


def _root(
    block: Eigenpairs, widths: Tensor, places: Tensor, dtype: torch.dtype
) -> Eigenpairs:
    """Return a block with other eigenvalues, on other places of a vector."""
    return replace(
        block,
        places=places[block.columns],
        left=block.left.to(dtype),
        right=block.right.to(dtype),
        values=widths.to(dtype),
        left_values=None,
        right_values=None,
    )


def _placed(vectors_FK: Tensor, free: Tensor) -> Tensor:
    placed_DK = vectors_FK.new_zeros(len(free), vectors_FK.shape[1])
    placed_DK[free] = vectors_FK
    return placed_DK
