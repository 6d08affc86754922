"""Blocks of the Fisher matrix of a batch: their factors, averages and inverses.

A part of a network has a tuple of tensors, the first dimension of each the model. Its
matrix is stored as

- of a piece of a layer: both factors, (M, G, O, O) and (M, G, I, I);
- of a scale: the matrix, (M, P, P);
- of the rest: a number, (M, 1).

Its inverse is stored as

- of a piece, factored: the inverses of both damped factors;
- of a piece, exact: eigenvectors and eigenvalues of both factors;
- of a scale: eigenvectors and eigenvalues;
- of the rest: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.tasks.numerics.kronecker.chains import recursive_factors
from curvflow.tasks.numerics.kronecker.forms import (
    Eigenpairs,
    balance,
    damped_values,
    decomposed,
    diagonal_block,
)
from curvflow.tasks.numerics.kronecker.moments import Moments, squares_along
from curvflow.tasks.numerics.kronecker.uses import Scaling
from curvflow.tasks.rules.shared.kfac_networks import Networks, Swept, labels_of
from curvflow.tasks.rules.shared.kfac_parts import Parts, Rest, Scale
from curvflow.tasks.training.step_context import Hyper

# Tensors of each part.
Held = tuple[tuple[Tensor, ...], ...]


def no_blocks(parts: Parts, weights_MD: Tensor) -> Held:
    """Return the blocks before the first batch."""

    def zeros(*shape: int) -> Tensor:
        return weights_MD.new_zeros(len(weights_MD), *shape)

    blocks: list[tuple[Tensor, ...]] = []
    for piece in parts.pieces:
        groups, rows, columns = piece.sizes
        blocks.append((zeros(groups, rows, rows), zeros(groups, columns, columns)))
    sizes = [len(scale.columns) for scale in parts.scales]
    blocks += [(zeros(size, size),) for size in sizes]
    return (*blocks, *((zeros(1),) for _ in parts.rest))


def no_inverses(parts: Parts, weights_MD: Tensor, inverse: str) -> Held:
    """Return the inverses before the first batch."""

    def zeros(*shape: int) -> Tensor:
        return weights_MD.new_zeros(len(weights_MD), *shape)

    blocks: list[tuple[Tensor, ...]] = []
    for piece in parts.pieces:
        groups, rows, columns = piece.sizes
        both = zeros(groups, rows, rows), zeros(groups, columns, columns)
        values = zeros(groups, rows), zeros(groups, columns)
        blocks.append(both if inverse == "factored" else (*both, *values))
    sizes = [len(scale.columns) for scale in parts.scales]
    blocks += [(zeros(size, size), zeros(size)) for size in sizes]
    return (*blocks, *(() for _ in parts.rest))


def no_corrections(parts: Parts, weights_MD: Tensor) -> tuple[Tensor, ...]:
    """Return the corrected eigenvalues before the first batch."""
    models = len(weights_MD)
    return tuple(weights_MD.new_zeros(models, *piece.sizes) for piece in parts.pieces)


def batch_blocks(
    networks: Networks,
    weights_MD: Tensor,
    parts: Parts,
    hyper: Hyper,
) -> Held:
    """Return the blocks of a batch.

    Args:
        networks: of the step.
        weights_MD: where to take the blocks.
        parts: of the network.
        hyper: with the choices fisher_type, mc_samples and kfac_approx.
    """
    rule = hyper.rule
    if rule.fisher_type == "recursive":  # of dense layers, which have all parameters
        pieces = [matrix.piece for matrix in parts.pieces]
        return tuple(recursive_factors(networks.recorded(weights_MD), pieces))
    labels = labels_of(rule, networks.problem)
    moments = [
        Moments(
            matrix.piece,
            rule.kfac_approx,
            networks.count,
            has_spread=False,
            is_joined=True,
        )
        for matrix in parts.pieces
    ]
    scales: list[list[Tensor]] = [[] for _ in parts.scales]
    rest: list[list[Tensor]] = [[] for _ in parts.rest]
    signed = bool(parts.rest)
    for swept in networks.swept(weights_MD, labels, parts, is_signed=signed):
        for moment in moments:
            moment.add(swept.pass_)
        for scale, into in zip(parts.scales, scales, strict=True):
            into.append(_of_scale(scale, swept))
        for entry, into in zip(parts.rest, rest, strict=True):
            into.append(_of_rest(entry, swept))
    blocks: list[tuple[Tensor, ...]] = [moment.matrices() for moment in moments]
    blocks += [(torch.cat(several),) for several in scales]
    blocks += [(torch.cat(several),) for several in rest]
    return tuple(blocks)


def _of_scale(scale: Scale, swept: Swept) -> Tensor:
    use = swept.pass_.record[scale.use]
    assert isinstance(use, Scaling)
    deltas = swept.pass_.deltas[scale.use]
    rows = torch.cat([use.rows(delta) for delta in deltas], dim=1)
    return rows.mT @ rows / swept.pass_.samples


def _of_rest(rest: Rest, swept: Swept) -> Tensor:
    """Return the mean of the diagonal of a tensor's block, (M, 1).

    With random signs the square of the sum over samples has as its mean the sum of the
    squares.
    """
    assert swept.signed is not None
    rows = swept.signed[:, rest.columns]
    return rows.square().mean(1, keepdim=True) / swept.pass_.samples


def corrected(
    networks: Networks, weights_MD: Tensor, parts: Parts, hyper: Hyper, inverses: Held
) -> tuple[Tensor, ...]:
    """Return second moments along the eigenvectors of each piece, (M, G, O, I).

    Args:
        networks: of the step, whose labels are those of its blocks.
        weights_MD: where to take them.
        parts: of the network.
        hyper: with the choices fisher_type and mc_samples.
        inverses: exact inverses, which hold eigenvectors.

    Returns:
        The moments.

    Reference:
        George et al. (2018), arXiv:1806.03884.
    """
    labels = labels_of(hyper.rule, networks.problem)
    scales: list[list[Tensor]] = [[] for _ in parts.pieces]
    for swept in networks.swept(weights_MD, labels, parts, is_signed=False):
        models = swept.pass_.part.models
        for each, (left, right, *_), into in zip(
            parts.pieces, inverses[: len(scales)], scales, strict=True
        ):
            sides = [pair for _, pair in each.piece.sides(swept.pass_)]
            squares = squares_along(sides, left[models], right[models])
            into.append(squares / swept.pass_.samples)
    return tuple(torch.cat(several) for several in scales)


def averaged(before: Held, now: Held, share_M1: Tensor) -> Held:
    """Return moving averages, in which what was before has a share.

    New tensors are overwritten: memory that has not been touched costs as much.
    """
    if not share_M1.any():
        return now

    def mean(old: Tensor, new: Tensor) -> Tensor:
        return new.lerp_(old, share_M1.view(-1, *[1] * (new.ndim - 1)))

    return tuple(
        tuple(map(mean, old, new)) for old, new in zip(before, now, strict=True)
    )


def inverses(blocks: Held, parts: Parts, hyper: Hyper, damping_M1: Tensor) -> Held:
    """Return what the inverses of blocks are multiplied by.

    Those of matrices that are not definite are NaN.

    Args:
        blocks: of each part.
        parts: of the network.
        hyper: with the choices inverse and pi, or a number pi of each model.
        damping_M1: added to blocks.
    """
    inverted: list[tuple[Tensor, ...]] = []
    pieces, scales, rest = _by_kind(blocks, parts)
    for left, right in pieces:
        if hyper.rule.inverse == "factored":
            inverted.append(_factored(left, right, hyper, damping_M1.double()))
        else:
            (values, vectors), (right_values, right_vectors) = map(
                _decomposed, (left, right)
            )
            inverted.append((vectors, right_vectors, values, right_values))
    for (matrix,) in scales:
        values, vectors = _decomposed(matrix)
        inverted.append((vectors, values))
    return (*inverted, *(() for _ in rest))


def _by_kind(several: Held, parts: Parts) -> tuple[Held, Held, Held]:
    first, last = len(parts.pieces), len(parts.pieces) + len(parts.scales)
    return several[:first], several[first:last], several[last:]


def _decomposed(matrices: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = decomposed(matrices.double())
    return values.clamp(min=0).to(matrices), vectors.to(matrices)


def _factored(
    left: Tensor, right: Tensor, hyper: Hyper, damping_M1: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the inverses of two factors, each with its share of the damping's root."""
    ratio_MG = pi(left, right, hyper)
    root_M1 = damping_M1.sqrt()
    return (
        _inverse(left, root_M1 / ratio_MG).to(left),
        _inverse(right, root_M1 * ratio_MG).to(right),
    )


def pi(left: Tensor, right: Tensor, hyper: Hyper) -> Tensor:
    """Return how many times the root of the damping the right factor has, (M, G)."""
    if not isinstance(hyper.rule.pi, str):
        return hyper["pi"].double().expand(len(left), left.shape[1])
    sizes = [_size(matrices, hyper.rule.pi) for matrices in (right, left)]
    return balance(*sizes)


def _size(matrices: Tensor, norm: str) -> Tensor:
    """Return a norm of factors, per row so that their sizes do not matter, (M, G)."""
    match norm:
        case "trace":
            return torch.diagonal(matrices, dim1=-2, dim2=-1).double().mean(-1)
        case "frobenius":
            size: int = matrices.shape[-1]
            return (matrices.double().square().sum((-2, -1)) / size).sqrt()
    return decomposed(matrices.double())[0].amax(-1)


def _inverse(matrices: Tensor, added_MG: Tensor) -> Tensor:
    """Return the inverses of damped matrices, NaN of those that are not definite."""
    damped = matrices.to(torch.float64, copy=True)
    damped.diagonal(dim1=-2, dim2=-1).add_(added_MG.unsqueeze(-1))
    is_finite_MG = torch.isfinite(damped.sum((-2, -1)))
    # What fails or is not finite must not end the training of siblings.
    damped = _replaced(damped, is_finite_MG)
    factor, info_MG = torch.linalg.cholesky_ex(damped)
    is_definite_MG = is_finite_MG & (info_MG == 0)
    if not added_MG.all():
        pivots_MGN = factor.diagonal(dim1=-2, dim2=-1).square()
        added_MG1 = added_MG.unsqueeze(2)
        least_MGN = damped_values(pivots_MGN, added_MG1, matrices.dtype)
        is_definite_MG &= (least_MGN != 0).all(2)
    inverse = torch.cholesky_inverse(_replaced(factor, is_definite_MG))
    if is_definite_MG.all():
        return inverse
    return inverse.masked_fill(~is_definite_MG[..., None, None], torch.nan)


def as_eigenpairs(
    inverses: Held,
    blocks: Held,
    corrections: Sequence[Tensor],
    parts: Parts,
    damping_M1: Tensor,
) -> list[Eigenpairs]:
    """Return the damped blocks whose inverse `preconditioned` multiplies with.

    Args:
        inverses: of the blocks.
        blocks: of each part.
        corrections: as for `preconditioned`.
        parts: of the network.
        damping_M1: added to blocks, where an inverse does not have it.
    """
    pieces, scales, _ = _by_kind(inverses, parts)
    pairs: list[Eigenpairs] = []
    for number, (each, (left, right, *values)) in enumerate(
        zip(parts.pieces, pieces, strict=True)
    ):
        if values:
            products = values[0].unsqueeze(3) * values[1].unsqueeze(2)
            products = corrections[number] if corrections else products
            products = _damped(products, damping_M1[:, :, None, None]).double()
        else:
            (left_values, left), (right_values, right) = (
                decomposed(factor.double()) for factor in (left, right)
            )
            products = 1 / (left_values.unsqueeze(3) * right_values.unsqueeze(2))
        pairs.append(Eigenpairs("", each.piece.columns, left, right, products))
    for scale, (vectors, values_MP) in zip(parts.scales, scales, strict=True):
        damped_M1P = _damped(values_MP.unsqueeze(1), damping_M1.unsqueeze(1))
        left, right = vectors.unsqueeze(1), torch.ones_like(damped_M1P[..., :1, None])
        pairs.append(Eigenpairs("", scale.columns, left, right, damped_M1P[..., None]))
    for rest, (value_M1,) in zip(parts.rest, _by_kind(blocks, parts)[2], strict=True):
        whole_MP = (value_M1 + damping_M1).expand(-1, len(rest.columns))
        pairs.append(diagonal_block("", rest.columns, whole_MP))
    return pairs


def _damped(values: Tensor, damping: Tensor) -> Tensor:
    """Return damped eigenvalues, (M, G, ...); where none is added, zero of rounding."""
    return values + damping if damping.all() else damped_values(values, damping)


def _replaced(matrices: Tensor, is_kept_MG: Tensor) -> Tensor:
    """Return matrices with the identity in place of some."""
    if is_kept_MG.all():
        return matrices
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.where(is_kept_MG[..., None, None], matrices, eye)


def preconditioned(
    gradient_MD: Tensor,
    inverses: Held,
    blocks: Held,
    corrections: Sequence[Tensor],
    parts: Parts,
    damping_M1: Tensor,
) -> Tensor:
    """Return the inverse of the damped blocks times gradients.

    Args:
        gradient_MD: the vectors to be multiplied.
        inverses: of the blocks.
        blocks: of each part.
        corrections: eigenvalues of each piece that stand for those of its product;
            none if they do not.
        parts: of the network.
        damping_M1: added to blocks, where an inverse does not have it.
    """
    pieces, scales, _ = _by_kind(inverses, parts)
    numbers = _by_kind(blocks, parts)[2]
    direction_MD = torch.empty_like(gradient_MD)
    damping_M111 = damping_M1[:, :, None, None]
    for number, (piece, (left, right, *values)) in enumerate(
        zip(parts.pieces, pieces, strict=True)
    ):
        X = piece.taken(gradient_MD)
        if values:
            products = values[0].unsqueeze(3) * values[1].unsqueeze(2)
            products = corrections[number] if corrections else products
            X = left.mT @ X @ right / _damped(products, damping_M111)
            X = left @ X @ right.mT
        else:
            X = left @ X @ right
        piece.put(X, direction_MD)
    for scale, (vectors, values_MP) in zip(parts.scales, scales, strict=True):
        along_MP1 = vectors.mT @ gradient_MD[:, scale.columns].unsqueeze(2)
        damped_M1P = _damped(values_MP.unsqueeze(1), damping_M1.unsqueeze(1))
        along_MP1 = along_MP1 / damped_M1P.mT
        direction_MD[:, scale.columns] = (vectors @ along_MP1).squeeze(2)
    for rest, (value_M1,) in zip(parts.rest, numbers, strict=True):
        divided = gradient_MD[:, rest.columns] / (value_M1 + damping_M1)
        direction_MD[:, rest.columns] = divided
    return direction_MD
