"""Blocks of parameters that are in no layer of outer products."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from curvflow.tasks.numerics.derivatives.fishers import fisher_rows
from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.kronecker.forms import Block, dense_block, diagonal_block
from curvflow.tasks.numerics.kronecker.layers import Places, Read
from curvflow.tasks.numerics.kronecker.moments import add_to, spanned
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from curvflow.tasks.numerics.kronecker.uses import Scaling


def other_blocks(
    of: Recorded, reading: Read, places: Places, is_dense: bool
) -> tuple[list[Block], int]:
    """Return exact blocks of scales and shifts, and one of all that is left.

    Args:
        of: networks and data.
        reading: their record, sorted.
        places: of the tensors looked at.
        is_dense: whole blocks, or their diagonals alone.

    Returns:
        The blocks, none where everything is in a layer; and the number of derivatives
        back through the networks, per sample.
    """
    roots: dict[str, int] = {}
    sums: dict[str, list[Tensor]] = {}
    columns: dict[str, Tensor] = {}

    def add(name: str, part: Part, rows: Tensor) -> None:
        added = rows.mT @ rows if is_dense else rows.square().sum(1)
        add_to(sums.setdefault(name, []), part, added)

    if reading.scalings:
        for pass_ in of.swept(wanted=reading.scalings):
            roots["scalings"] = pass_.num_draws
            for number in reading.scalings:
                use = pass_.record[number]
                assert isinstance(use, Scaling)
                name, columns_of, kept = _chosen(use, places)
                columns[name] = columns_of
                rows = torch.cat([use.rows(d) for d in pass_.deltas[number]], dim=1)
                add(name, pass_.part, rows[..., kept])
    if reading.rest:
        name = " and ".join(reading.rest)
        columns[name] = torch.cat([places.columns(n) for n in reading.rest])
        for part, rows in _rest(of, reading.rest, places):
            roots["rest"] = rows.shape[1] // part.inputs.shape[1]
            add(name, part, rows)
    make = dense_block if is_dense else diagonal_block
    # A block may be the largest of all, so that its sums go before it is decomposed.
    blocks: list[Block] = [
        make(name, columns[name], spanned(sums.pop(name)) / of.num_samples)
        for name in tuple(sums)
    ]
    return blocks, sum(roots.values())


def _chosen(use: Scaling, places: Places) -> tuple[str, Tensor, Tensor]:
    """Return the name of a block, its places, and which entries of rows are its."""
    names = [name for name in (use.weight, use.bias) if name is not None]
    chosen = [name for name in names if name in places.start]
    size = len(places.columns(chosen[0]))
    kept = [torch.arange(size) + names.index(name) * size for name in chosen]
    columns = torch.cat([places.columns(name) for name in chosen])
    return " and ".join(chosen), columns, torch.cat(kept)


def _rest(
    of: Recorded, names: tuple[str, ...], places: Places
) -> Iterator[tuple[Part, Tensor]]:
    """Yield the gradients of samples by some parameters, (M, N R, P)."""
    starts = of.starts()
    each = [starts[n] + torch.arange(len(places.columns(n))) for n in names]
    columns = torch.cat(each).to(of.weights.device)
    for part in of.parts():

        def outputs(chosen: Tensor, inputs: Tensor, part: Part = part) -> Tensor:
            copies = len(chosen) // len(part.weights)
            held = part.full(part.weights).repeat_interleave(copies, dim=0)
            return of.call(held.index_copy(1, columns, chosen), inputs)[0]

        def roots(predicted: Tensor, part: Part = part) -> Tensor:
            return of.roots(part, predicted)

        with torch.enable_grad(), differentiable():
            rows = fisher_rows(outputs, part.weights[:, columns], part.inputs, roots)
        yield part, rows.to(of.weights.dtype)
