"""Curvature of chains of dense layers, layer by layer from the outputs back.

With h_l = W_l a_{l-1} + b_l, a_l = phi(h_l), the Hessian of a sample's loss by h_l is

    H_l = B W' H_{l+1} W B + D, B = diag phi'(h_l), D = diag(W' dl/dh_{l+1} phi''(h_l))

and its block by W_l is H_l x a a'. Without D it is that of the Gauss-Newton matrix; of
means over samples in place of every sample's own it is the recursive approximation.

Letters of shapes, besides M models and N samples: O units of a layer, I inputs of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.kronecker.forms import Block, Product, dense_block
from curvflow.tasks.numerics.kronecker.layers import Piece
from curvflow.tasks.numerics.kronecker.moments import add_to
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Rows, Use

# An activation is entry by entry if derivatives agree within this.
ENTRYWISE = 1e-6


@dataclass(frozen=True)
class Link:
    """A layer of a chain, at the samples of a pass.

    Attributes:
        use: of the layer.
        weight: W, (M, O, I).
        slope: phi' of the activation behind it, (M, N, O); None of the last layer.
        bend: phi'' of it.
    """

    use: Use
    weight: Tensor
    slope: Tensor | None
    bend: Tensor | None

    @property
    def inputs(self) -> Tensor:
        """Inputs of the layer, (M, N, I)."""
        return self.use.inputs.detach().expand(len(self.weight), -1, -1)


def links_of(of: Recorded, part: Part) -> tuple[Tensor, list[Link]]:
    """Return outputs and the chain's layers in order.

    Raises:
        InputError: the network is no chain of dense layers.
    """
    outputs, record, _ = of.forward(part)
    shapes = dict(zip(of.names, of.shapes, strict=True))
    starts = of.starts()
    _check_chain(of, outputs, record)
    links = []
    for number, use in enumerate(record):
        assert isinstance(use, Use)
        start, (rows, columns) = starts[use.weight], shapes[use.weight]
        flat = part.weights[:, start : start + rows * columns]
        slope, bend = None, None
        if number + 1 < len(record):
            slope, bend = _derivatives(use, record[number + 1])
        links.append(Link(use, flat.view(-1, rows, columns), slope, bend))
    return outputs, links


def _check_chain(of: Recorded, outputs: Tensor, record: Sequence[AnyUse]) -> None:
    """Refuse a network that is no chain.

    Raises:
        InputError: a layer is not dense, is used twice, or does not end it.
    """
    used = [name for use in record for name in (use.weight, use.bias) if name]
    wrong = sorted({name for name in of.names if used.count(name) != 1})
    for use in record:
        is_dense = isinstance(use, Use) and isinstance(use.form, Rows)
        if not is_dense or use.outputs[0].ndim != 3 - use.apart:
            wrong.append(use.weight)
    # Where memory is counted there are no numbers to compare.
    is_end = outputs.is_meta or not record
    if not (wrong or is_end or _agree(_together(record[-1].outputs), outputs, 0.0)):
        wrong.append(record[-1].weight)
    if wrong:
        raise InputError(_no_chain(wrong[0]))


def _no_chain(name: str) -> str:
    return (
        "fisher_type: expected dense layers one after another, with an activation of "
        f"each entry between them, for curvature hessian or training, got '{name}'. "
        "Take type-2, or mlp, autoencoder or deep_linear."
    )


def _derivatives(use: Use, following: AnyUse) -> tuple[Tensor, Tensor]:
    """Return phi' and phi'' of the activation between two layers.

    Raises:
        InputError: it is no function of each entry by itself.
    """
    outputs, a_MNO = use.outputs, following.inputs
    h_MNO = _together(outputs)
    if a_MNO.shape != h_MNO.shape:
        raise InputError(_no_chain(following.weight))
    varied = 1.5 + torch.arange(h_MNO.shape[2]).to(h_MNO).cos()
    slopes = torch.autograd.grad(
        a_MNO.sum(), outputs, create_graph=True, allow_unused=True
    )
    if any(slope is None for slope in slopes):  # layers side by side
        raise InputError(_no_chain(following.weight))
    slope = _together(slopes)
    mixed = _together(
        torch.autograd.grad((varied * a_MNO).sum(), outputs, retain_graph=True)
    )
    if not (mixed.is_meta or _agree(mixed, varied * slope)):
        raise InputError(_no_chain(following.weight))
    bend = torch.zeros_like(slope)
    if slope.requires_grad:
        gradients = torch.autograd.grad(
            slope.sum(), outputs, retain_graph=True, allow_unused=True
        )
        if all(gradient is not None for gradient in gradients):
            bend = _together(gradients)
    return slope.detach(), bend


def _together(tensors: Sequence[Tensor]) -> Tensor:
    """Return a tensor of all models (M, N, O), of one or of one of each, (N, O)."""
    return tensors[0] if tensors[0].ndim > 2 else torch.stack(list(tensors))


def _agree(actual: Tensor, expected: Tensor, within: float = ENTRYWISE) -> bool:
    """Return whether numbers agree; of models that have diverged there are none."""
    if actual.shape != expected.shape:
        return False
    are_numbers = torch.isfinite(actual) & torch.isfinite(expected)
    actual, expected = (each.where(are_numbers, 0.0) for each in (actual, expected))
    return torch.allclose(actual, expected, rtol=within, atol=within)


def check_chain(of: Recorded) -> None:
    """Refuse networks that are no chains of dense layers, by a few samples.

    Args:
        of: networks and data.

    Raises:
        InputError: they are not.
    """
    links_of(of, next(of.parts()).first(2))


def is_chain(of: Recorded) -> bool:
    """Return whether networks are chains of dense layers, by a few samples."""
    try:
        check_chain(of)
    except InputError:
        return False
    return True


def _hessians(
    of: Recorded, part: Part, links: Sequence[Link], outputs: Tensor
) -> list[Tensor]:
    """Return H_l of each sample, (M, N, O, O) of each layer."""
    assert of.slopes is not None
    delta_MNO = of.slopes(part, outputs.detach())
    matrices = [output_matrices(of, part, outputs)]
    for link, after in zip(links[-2::-1], links[:0:-1], strict=True):
        assert link.slope is not None
        assert link.bend is not None
        back_MNO = torch.einsum("moi,mno->mni", after.weight, delta_MNO)
        weight_M1OI = after.weight.unsqueeze(1)
        inner = weight_M1OI.mT @ matrices[-1] @ weight_M1OI
        inner = link.slope.unsqueeze(3) * inner * link.slope.unsqueeze(2)
        matrices.append(inner + torch.diag_embed(back_MNO * link.bend))
        delta_MNO = back_MNO * link.slope
    return matrices[::-1]


def output_matrices(of: Recorded, part: Part, outputs: Tensor) -> Tensor:
    """Return the matrix of each sample by its outputs, (M, N, C, C)."""
    roots_MNRC = of.roots(part, outputs.detach())
    return roots_MNRC.mT @ roots_MNRC


def _output_total(of: Recorded, part: Part, outputs: Tensor) -> Tensor:
    """Return the sum over samples of their matrices by the outputs, (M, C, C)."""
    if of.variances is not None:
        return torch.diag_embed(of.variances(outputs.detach()).sum(1))
    rows_MSC = of.roots(part, outputs.detach()).flatten(1, 2)
    return rows_MSC.mT @ rows_MSC


def hessian_blocks(
    of: Recorded, pieces: Sequence[Piece], *, is_dense: bool
) -> list[Block]:
    """Return the diagonal blocks of the Hessian of the mean loss.

    Args:
        of: networks and data, with slopes; its roots are those of the loss's own
            Hessian.
        pieces: the blocks wanted.
        is_dense: exact blocks, else products of the means of both factors.

    Returns:
        The blocks.

    Raises:
        InputError: the network is no chain of dense layers.

    Reference:
        Botev (2020), lemma 3.16.
    """
    left: dict[str, list[Tensor]] = {piece.name: [] for piece in pieces}
    right: dict[str, list[Tensor]] = {piece.name: [] for piece in pieces}
    for part in of.parts():
        outputs, links = links_of(of, part)
        hessians = _hessians(of, part, links, outputs)
        by_weight = {
            link.use.weight: (link, h) for link, h in zip(links, hessians, strict=True)
        }
        for piece in pieces:
            link, hessian_MNOO = by_weight[piece.layer.weight]
            rows_MNI = _given(piece, link)
            if is_dense:
                add_to(left[piece.name], part, _product_sum(hessian_MNOO, rows_MNI))
            else:
                add_to(left[piece.name], part, hessian_MNOO.sum(1).unsqueeze(1))
                moment = (rows_MNI.mT @ rows_MNI).unsqueeze(1)
                add_to(right[piece.name], part, moment)
    count = of.num_samples

    def mean(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts)) / count

    if is_dense:
        return [dense_block(p.name, p.columns, mean(left[p.name])) for p in pieces]
    return [
        Product(
            p.name,
            p.columns,
            mean(left[p.name]),
            mean(right[p.name]),
            is_semidefinite=False,
        )
        for p in pieces
    ]


def _given(piece: Piece, link: Link) -> Tensor:
    """Return the columns' side of a block, (M, N, I), with ones for the bias."""
    inputs = link.inputs
    parts = [inputs] if piece.has_weight else []
    parts += [torch.ones_like(inputs[..., :1])] if piece.has_bias else []
    return torch.cat(parts, dim=2)


def _product_sum(left_MNOO: Tensor, rows_MNI: Tensor) -> Tensor:
    """Return sum_n L_n x r_n r_n', (M, P, P)."""
    whole = torch.einsum("mnop,mni,mnj->moipj", left_MNOO, rows_MNI, rows_MNI)
    return whole.flatten(3, 4).flatten(1, 2)


def recursive_factors(
    of: Recorded, pieces: Sequence[Piece]
) -> list[tuple[Tensor, Tensor]]:
    """Return factors of which the left ones follow from that of the next layer.

    The mean over samples is taken at every layer: of H_{l+1} and of phi' phi'', as if
    they did not depend on each other.

    Args:
        of: networks and data.
        pieces: the blocks wanted.

    Returns:
        Of each block the factor of the rows, (M, 1, O, O), and of the columns.

    Raises:
        InputError: the network is no chain of dense layers.

    Reference:
        Botev, Ritter and Barber (2017), arXiv:1706.03662, KFRA; Botev (2020), section
        4.3.2.
    """
    ends: list[Tensor] = []
    slopes: dict[str, list[Tensor]] = {}
    rights: dict[str, list[Tensor]] = {piece.name: [] for piece in pieces}
    for part in of.parts():
        outputs, links = links_of(of, part)
        add_to(ends, part, _output_total(of, part, outputs))
        by_weight = {link.use.weight: link for link in links}
        for link in links[:-1]:
            assert link.slope is not None
            moment = link.slope.mT @ link.slope
            add_to(slopes.setdefault(link.use.weight, []), part, moment)
        for piece in pieces:
            rows_MNI = _given(piece, by_weight[piece.layer.weight])
            add_to(rights[piece.name], part, (rows_MNI.mT @ rows_MNI).unsqueeze(1))
    count = of.num_samples
    left = {links[-1].use.weight: torch.cat(ends) / count}
    starts = of.starts()
    for link, after in zip(links[-2::-1], links[:0:-1], strict=True):
        start = starts[after.use.weight]
        rows, columns = after.weight.shape[1:]
        weight = of.weights[:, start : start + rows * columns].view(-1, rows, columns)
        inner = weight.mT @ left[after.use.weight] @ weight
        left[link.use.weight] = inner * torch.cat(slopes[link.use.weight]) / count
    return [
        (left[p.layer.weight].unsqueeze(1), torch.cat(rights[p.name]) / count)
        for p in pieces
    ]
