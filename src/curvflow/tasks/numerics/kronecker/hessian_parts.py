"""Both parts of the whole Hessian of chains of dense layers, as operators.

With h_l = W_l a_{l-1} + b_l, g_l the gradient of a sample's loss by h_l, and H_kl its
Hessian by h_k and h_l, the block by W_k and W_l, k > l, is

    H_kl x a_{k-1} a_{l-1}' + (da_{k-1}/dh_l) x g_k x a_{l-1}'

The first term over all blocks is the second-order part, whose diagonal blocks are those
of the Hessian. The other one is the first-order component: first derivatives alone, and
nothing in diagonal blocks. Products take a sweep forward and one back.

Letters of shapes, besides M models and N samples: O units of a layer, I inputs of it, S
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.kronecker.chains import Link, links_of, output_matrices
from curvflow.tasks.numerics.kronecker.moments import add_to
from curvflow.tasks.numerics.kronecker.recorded import Recorded

PartName = Literal["second_order", "first_order"]

# Numbers that the changes of one layer's outputs may be, of all columns at once.
PASS_NUMBERS = 1 << 22


@dataclass(frozen=True)
class _Moved:
    """A layer as its parameters move along columns.

    Attributes:
        link: the layer.
        weight: direction of W, (M, S, O, I).
        below: change of the layer's inputs, (M, S, N, I); zero of the first one.
        outputs: change of h, (M, S, N, O).
    """

    link: Link
    weight: Tensor
    below: Tensor
    outputs: Tensor


class HessianPart:
    """A part of the Hessian of the mean loss of chains, (M, D, D)."""

    def __init__(self, of: Recorded, name: PartName) -> None:
        """Take networks and data, with slopes, and which part.

        Args:
            of: chains of dense layers; its roots are those of the loss's own Hessian.
            name: of the part.
        """
        self._of, self._name = of, name
        models, size = of.weights.shape
        self.shape = (models, size, size)
        self.dtype, self.device = of.weights.dtype, of.weights.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S).

        Raises:
            InputError: the network is no chain of dense layers.

        Reference:
            Botev (2020), lemma 3.15; its products by the rules of Pearlmutter (1994),
            doi:10.1162/neco.1994.6.1.147.
        """
        columns_MDS = columns.reshape(*self.shape[:2], -1)
        sums: list[Tensor] = []
        for part in self._of.parts():
            add_to(sums, part, self._by(part, columns_MDS[part.models]))
        return (torch.cat(sums) / self._of.num_samples).reshape(columns.shape)

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""
        given = {
            name: tensor[models] if len(tensor) > 1 else tensor
            for name in ("inputs", "targets")
            for tensor in [getattr(self._of, name)]
        }
        weights, fixed = self._of.weights[models], self._of.fixed[models]
        of = replace(self._of, weights=weights, fixed=fixed, **given)
        return type(self)(of, self._name)

    def _by(self, part: Part, columns_MDS: Tensor) -> Tensor:
        """Return the sum over the samples of a pass, (M, D, S)."""
        outputs, links = links_of(self._of, part)
        assert self._of.slopes is not None
        gradient = self._of.slopes(part, outputs.detach())
        ends = output_matrices(self._of, part, outputs).unsqueeze(1)
        wide = max(max(link.weight.shape[1:]) for link in links)
        few = max(1, PASS_NUMBERS // (gradient.shape[:2].numel() * wide))
        return torch.cat(
            [
                self._of_few(links, gradient, ends, columns)
                for columns in torch.split(columns_MDS, few, dim=2)
            ],
            dim=2,
        )

    def _of_few(
        self, links: Sequence[Link], gradient: Tensor, ends: Tensor, columns: Tensor
    ) -> Tensor:
        """Return the sum over samples for columns that fit into memory together."""
        starts, product = self._of.starts(), torch.zeros_like(columns)
        moved = _forward(links, columns, starts)
        if self._name == "second_order":
            terms = _second_order(moved, gradient, ends)
        else:
            terms = _first_order(moved, gradient)
        for link, by_weight, by_bias in terms:
            for name, values in (
                (link.use.weight, by_weight),
                (link.use.bias, by_bias),
            ):
                if name is not None:
                    rows = values.flatten(2).mT
                    product[:, starts[name] : starts[name] + rows.shape[1]] = rows
        return product


def _forward(
    links: Sequence[Link], columns_MDS: Tensor, starts: dict[str, int]
) -> list[_Moved]:
    """Return all layers as their parameters move, in order."""

    def direction(name: str, size: int) -> Tensor:
        return columns_MDS[:, starts[name] : starts[name] + size].mT

    moved: list[_Moved] = []
    for link in links:
        rows, inputs = link.weight.shape[1:]
        weight = direction(link.use.weight, rows * inputs)
        weight = weight.reshape(*weight.shape[:2], rows, inputs)
        outputs = link.inputs.unsqueeze(1) @ weight.mT
        if link.use.bias is not None:
            outputs = outputs + direction(link.use.bias, rows).unsqueeze(2)
        below = torch.zeros_like(link.inputs).unsqueeze(1)
        if moved:
            slope = moved[-1].link.slope
            assert slope is not None
            below = slope.unsqueeze(1) * moved[-1].outputs
            outputs = outputs + below @ link.weight.unsqueeze(1).mT
        moved.append(_Moved(link, weight, below, outputs))
    return moved


def _back(
    moved: Sequence[_Moved], gradient_MNO: Tensor
) -> Iterator[tuple[_Moved, Tensor, _Moved | None, Tensor]]:
    """Yield layers from the last to the first, with what comes back through them.

    Yields:
        A layer, g of its outputs (M, N, O), the layer before it, if any, and g of the
        layer's inputs (M, N, I).
    """
    for number in reversed(range(len(moved))):
        before = moved[number - 1] if number else None
        given_MNI = gradient_MNO @ moved[number].link.weight
        yield moved[number], gradient_MNO, before, given_MNI
        if before is not None:
            assert before.link.slope is not None
            gradient_MNO = before.link.slope * given_MNI


def _second_order(
    moved: Sequence[_Moved], gradient_MNO: Tensor, ends_M1NOO: Tensor
) -> Iterator[tuple[Link, Tensor, Tensor]]:
    """Yield layers with products by weight (M, S, O, I) and by bias (M, S, O)."""
    outputs_MSNO = moved[-1].outputs
    change = (ends_M1NOO @ outputs_MSNO.unsqueeze(4)).squeeze(4)
    for layer, _, before, given_MNI in _back(moved, gradient_MNO):
        yield layer.link, change.mT @ layer.link.inputs.unsqueeze(1), change.sum(2)
        if before is not None:
            slope, bend = before.link.slope, before.link.bend
            assert slope is not None
            assert bend is not None
            through = change @ layer.link.weight.unsqueeze(1)
            change = slope.unsqueeze(1) * through
            change = change + (bend * given_MNI).unsqueeze(1) * before.outputs


def _first_order(
    moved: Sequence[_Moved], gradient_MNO: Tensor
) -> Iterator[tuple[Link, Tensor, Tensor]]:
    """Yield layers with products by weight (M, S, O, I) and by bias (M, S, O)."""
    change = torch.zeros_like(moved[-1].outputs)
    for layer, gradient, before, _ in _back(moved, gradient_MNO):
        by_inputs = gradient.unsqueeze(1).mT @ layer.below
        by_weight = change.mT @ layer.link.inputs.unsqueeze(1) + by_inputs
        yield layer.link, by_weight, change.sum(2)
        if before is not None:
            assert before.link.slope is not None
            through = change @ layer.link.weight.unsqueeze(1)
            through = through + gradient.unsqueeze(1) @ layer.weight
            change = before.link.slope.unsqueeze(1) * through
