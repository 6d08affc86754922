"""Distance of a block-diagonal matrix from the one it stands for, by products.

A random vector z that is zero but on the parameters of one block l costs one product
Gz. Of its entries those on the block belong to the block of G, and the others to what
lies outside all blocks, so that means of squared lengths over z are squared Frobenius
norms: of G, of what lies outside, of each block's difference from K.

Letters of shapes, besides M models and D parameters: S vectors, B blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.logdets import LOG
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator, DampedBlocks
from curvflow.tasks.numerics.kronecker.forms import Block, Eigenpairs
from curvflow.tasks.numerics.krylov.functionals import Bounded, bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData, lanczos
from curvflow.tasks.numerics.operators.algebra import Whitened, shifted
from curvflow.tasks.numerics.operators.base import BatchedOperator, product

# Vectors multiplied at once.
COLUMNS = 16


@dataclass(frozen=True)
class BlockDraws:
    """Forms of each vector with each block, (M, S, B) each.

    Attributes:
        norm: ||G_l z||^2 of the block of G.
        outside: squared length of Gz outside the block.
        error: ||(G_l - K_l) z||^2.
        inner: G_l z . K_l z.
        approximation: ||K_l z||^2.
        trace: z . (G_l - K_l) z.
        factorisation: ||(G_l - E_l) z||^2 of other factors E; None without.
        interplay: 2 (G_l - E_l) z . (E_l - K_l) z; None without.
    """

    norm: Tensor
    outside: Tensor
    error: Tensor
    inner: Tensor
    approximation: Tensor
    trace: Tensor
    factorisation: Tensor | None = None
    interplay: Tensor | None = None


def block_draws(
    operator: BatchedOperator,
    blocks: BlockOperator,
    seeds: Sequence[int],
    *,
    num_probes: int,
    distribution: str = "rademacher",
    exact: BlockOperator | None = None,
) -> BlockDraws:
    """Multiply random vectors on each block.

    Args:
        operator: G, (M, D, D).
        blocks: K.
        seeds: of each model's vectors.
        num_probes: vectors, S, each of which takes a product for every block.
        distribution: of the entries of the vectors.
        exact: other factors E with the same blocks, if both are to be distinguished.

    Returns:
        The draws.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    size, several = operator.shape[1], blocks.blocks
    pairs = [(probe, number) for probe in range(num_probes) for number in _all(several)]
    draws: list[list[Tensor]] = [[] for _ in range(6 if exact is None else 8)]
    for start in range(0, len(pairs), COLUMNS):
        chunk = pairs[start : start + COLUMNS]
        probes = range(chunk[0][0], chunk[-1][0] + 1)
        drawn_MDS = random_vectors(seeds, size, probes, distribution)
        columns = [
            _only(drawn_MDS[..., probe - probes.start], several[number])
            for probe, number in chunk
        ]
        z_MDC = torch.stack(columns, dim=2).to(operator.device)
        image_MDC, stand_MDC = product(operator, z_MDC), blocks @ z_MDC
        exact_MDC = None if exact is None else exact @ z_MDC
        for place, (_, number) in enumerate(chunk):
            rows = several[number].columns
            whole_MD, k_MP = image_MDC[..., place], stand_MDC[:, rows, place]
            g_MP, z_MP = whole_MD[:, rows], z_MDC[:, rows, place]
            values = _values(whole_MD, g_MP, k_MP, z_MP)
            if exact_MDC is not None:
                e_MP = exact_MDC[:, rows, place]
                left_MP = g_MP - e_MP
                values.append(left_MP.square().sum(1))
                values.append(2 * (left_MP * (e_MP - k_MP)).sum(1))
            for into, value in zip(draws, values, strict=True):
                into.append(value)
    shape = (num_probes, len(several))
    stacked = [torch.unflatten(torch.stack(v, dim=1), 1, shape).cpu() for v in draws]
    return BlockDraws(*stacked)


def _values(whole_MD: Tensor, g_MP: Tensor, k_MP: Tensor, z_MP: Tensor) -> list[Tensor]:
    """Return the draws of a block from G z, and from G z and K z within the block."""
    norm_M, off_MP = g_MP.square().sum(1), g_MP - k_MP
    return [
        norm_M,
        (whole_MD.square().sum(1) - norm_M).clamp(min=0),
        off_MP.square().sum(1),
        (g_MP * k_MP).sum(1),
        k_MP.square().sum(1),
        (off_MP * z_MP).sum(1),
    ]


def squared_distances(blocks: BlockOperator, others: BlockOperator) -> Tensor:
    """Return ||K_l - E_l||_F^2 of blocks of the same forms, in double precision.

    Args:
        blocks: K.
        others: E.

    Returns:
        Squares, (M, B), of matrices (U x V) diag(v) (U x V)' without writing them out.
    """
    pairs = zip(blocks.blocks, others.blocks, strict=True)
    distances = [
        _squared_distance(factor.eigenpairs, other.eigenpairs)
        for factor, other in pairs
    ]
    return torch.stack(distances, dim=1).cpu()


def _squared_distance(first: Eigenpairs, second: Eigenpairs) -> Tensor:
    # Along the eigenvectors of one the entries of the other are no diagonal.
    left, right = (
        (mine.double().mT @ theirs.double()).square()
        for mine, theirs in ((first.left, second.left), (first.right, second.right))
    )
    mine, theirs = first.values.double(), second.values.double()
    inner = (mine * (left @ theirs @ right.mT)).sum((1, 2, 3))
    squares = [values.square().sum((1, 2, 3)) for values in (mine, theirs)]
    return (squares[0] + squares[1] - 2 * inner).clamp(min=0)


def _all(blocks: Sequence[Block]) -> range:
    return range(len(blocks))


def _only(vector_MD: Tensor, block: Block) -> Tensor:
    """Return a vector that is zero but on a block."""
    kept_MD = torch.zeros_like(vector_MD)
    columns = block.columns.to(vector_MD.device)
    kept_MD[:, columns] = vector_MD[:, columns]
    return kept_MD


def preconditioned_ritz(
    operator: BatchedOperator,
    blocks: BlockOperator,
    damping: float,
    seeds: Sequence[int],
    *,
    num_runs: int,
    num_steps: int,
) -> RitzData:
    """Return Ritz data of P^-1/2 (G + damping) P^-1/2, P = K + damping.

    Its eigenvalues are 1 where K is G. The sum of their logarithms is log det(G +
    damping) less log det P.

    Args:
        operator: G.
        blocks: K.
        damping: of both.
        seeds: of each model's vectors.
        num_runs: runs from random vectors.
        num_steps: products per run.

    Returns:
        Ritz values, weights and residuals of each run.

    Raises:
        InputError: a product holds NaN or infinity.
    """
    start = random_vectors(seeds, operator.shape[1], range(num_runs), "rademacher")
    whole = Whitened(shifted(operator, damping), DampedBlocks(blocks, damping))
    return lanczos(whole, start.to(operator.device), num_steps=num_steps)


def logdet_difference(ritz: RitzData, floor: float | None) -> Bounded:
    """Return the sum of the logarithms of the eigenvalues, with both its errors.

    Args:
        ritz: of the preconditioned matrix.
        floor: a lower bound of its eigenvalues; None if none is known.
    """
    return bounded(ritz, LOG, floor=floor)
