"""Parts of a network that K-FAC has matrices for, found before training begins.

Letters of shapes: see `curvflow.tasks.numerics.kronecker.uses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.planned import drawn_networks
from curvflow.tasks.networks.problems import read
from curvflow.tasks.numerics.kronecker.chains import recursive_factors
from curvflow.tasks.numerics.kronecker.layers import (
    Approximation,
    Piece,
    Places,
    Read,
    check_positions,
    pieces,
)
from curvflow.tasks.numerics.kronecker.recorded import (
    Recorded,
    Uniform,
    accounted,
    alike,
)
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Scaling

# Entries of a scale and its shift that have a matrix, and of a tensor in no layer.
MOST_DENSE, MOST_REST = 1 << 10, 1 << 16


@dataclass(frozen=True)
class Matrix:
    """A layer's block, as a matrix of rows of a weight with its bias behind them.

    Attributes:
        piece: the block.
        weight: where the weight begins among the parameters; None without.
        bias: the same of the bias.
    """

    piece: Piece
    weight: int | None
    bias: int | None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """G, O and I of the block."""
        return self.piece.sizes

    def _views(self, vectors_MD: Tensor) -> list[Tensor]:
        """Return views of the weight (M, G, O, I) and of the bias (M, G, O, 1)."""
        groups, rows, columns = self.piece.layer.sizes
        wanted = ((self.weight, columns), (self.bias, 1))
        return [
            vectors_MD[:, start : start + groups * rows * each].view(
                len(vectors_MD), groups, rows, each
            )
            for start, each in wanted
            if start is not None
        ]

    def taken(self, vectors_MD: Tensor) -> Tensor:
        """Return the entries of the block, (M, G, O, I)."""
        views = self._views(vectors_MD)
        return views[0] if len(views) == 1 else torch.cat(views, dim=3)

    def put(self, entries_MGOI: Tensor, into_MD: Tensor) -> None:
        """Write the entries of the block."""
        views = self._views(into_MD)
        sizes = [view.shape[3] for view in views]
        for view, part in zip(
            views, torch.split(entries_MGOI, sizes, dim=3), strict=True
        ):
            view.copy_(part)


@dataclass(frozen=True)
class Scale:
    """A scale and its shift, whose block is exact.

    Attributes:
        use: its number in a record.
        columns: places of its entries.
    """

    use: int
    columns: Tensor


@dataclass(frozen=True)
class Rest:
    """A tensor whose block is a multiple of the identity.

    Attributes:
        columns: places of its entries.
    """

    columns: Tensor


@dataclass(frozen=True)
class Parts:
    """All parameters of a network, each in one part.

    Attributes:
        pieces: blocks of layers, a product of two factors each.
        scales: scales and shifts with a matrix each.
        rest: what has a multiple of the identity.
        manner: of uses in every batch, by whose records parts are numbered.
        reading: of such a record.
    """

    pieces: tuple[Matrix, ...]
    scales: tuple[Scale, ...]
    rest: tuple[Rest, ...]
    manner: Uniform
    reading: Read


@lru_cache(maxsize=64)
def check_chain(text: str) -> None:
    """Refuse a network whose factors do not follow from layer to layer.

    Args:
        text: canonical JSON of the problem.

    Raises:
        InputError: it is no chain of dense layers.
    """
    recursive_factors(drawn_networks(read(text)), ())


@lru_cache(maxsize=64)
def parts_of(text: str, approximation: Approximation, *, separate: bool) -> Parts:
    """Return the parts of a network by the record of a pass over drawn inputs.

    Args:
        text: canonical JSON of the problem.
        approximation: `expand` or `reduce`.
        separate: biases have separate blocks.

    Raises:
        InputError: a large tensor is in no layer that is known.
    """
    problem = read(text)
    network = problem.network
    places = Places.of(
        network.layout.names, network.layout.shapes, set(network.layout.names)
    )
    reading, record, manner = alike(
        drawn_networks(problem), lambda of: _accounted(of, places)
    )
    for layer in reading.layers:
        check_positions(layer, record, approximation)
    several = [
        _matrix(piece, places)
        for layer in reading.layers
        for piece in pieces(layer, places, separate=separate)
    ]
    scales = [_scale(number, record, places) for number in reading.scalings]
    rest = [places.columns(name) for name in reading.rest]
    for name, columns in zip(reading.rest, rest, strict=True):
        if len(columns) > MOST_REST:
            raise InputError(
                f"rule: expected '{name}', of {len(columns)} entries, in a dense "
                "layer, a convolution or an embedding that is known, got a tensor "
                "that is in none. Take another rule or model."
            )
    return Parts(
        tuple(several),
        tuple(scale for scale in scales if len(scale.columns) <= MOST_DENSE),
        tuple(
            Rest(columns)
            for columns in (
                *(scale.columns for scale in scales if len(scale.columns) > MOST_DENSE),
                *rest,
            )
        ),
        Uniform() if network.notes_all else manner,
        reading,
    )


def _accounted(of: Recorded, places: Places) -> tuple[Read, list[AnyUse], Uniform]:
    """Return a record, sorted, and what those of other passes have to be."""
    reading, record = accounted(of, places)
    manner = of.manner.like(reading, record, of.num_samples)
    return reading, record, replace(manner, takes_doubtful=True)


def _matrix(piece: Piece, places: Places) -> Matrix:
    names = piece.layer.weight, piece.layer.bias
    starts = [
        places.start[name] if is_there and name is not None else None
        for name, is_there in zip(
            names, (piece.has_weight, piece.has_bias), strict=True
        )
    ]
    return Matrix(piece, *starts)


def _scale(number: int, record: Sequence[AnyUse], places: Places) -> Scale:
    use = record[number]
    assert isinstance(use, Scaling)
    names = [name for name in (use.weight, use.bias) if name is not None]
    return Scale(number, torch.cat([places.columns(name) for name in names]))


def check_network(network: Network, rule: str) -> None:
    """Refuse a module of the user's own whose samples meet.

    Args:
        network: of the problem.
        rule: its name, for the message.

    Raises:
        InputError: it has a batch norm, whose statistics of a batch are not constant.
    """
    if network.moves_statistics and network.shares:
        raise InputError(
            f"rule: {rule} cannot be combined with a factory whose training moves "
            "buffers, such as a batch norm's. Take a model with batch_norm, a group "
            "norm, or another rule."
        )
