"""Parts of a network that K-FAC has matrices for, found before training begins.

Letters of shapes: see `curvflow.tasks.numerics.kronecker.uses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.problems import Problem, read
from curvflow.tasks.numerics.kronecker.layers import (
    Approximation,
    Piece,
    Places,
    check_positions,
    pieces,
)
from curvflow.tasks.numerics.kronecker.recorded import Recorded, accounted
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Scaling
from curvflow.tasks.numerics.streams import stream

# Entries of a scale and its shift that have a matrix, and of a tensor in no layer.
MOST_DENSE, MOST_REST = 1 << 10, 1 << 16

# Deviation of what is added to initial weights, some of which are zero.
NOISE = 0.1


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
    """

    pieces: tuple[Piece, ...]
    scales: tuple[Scale, ...]
    rest: tuple[Rest, ...]


@lru_cache(maxsize=64)
def parts_of(text: str, approximation: Approximation, *, separate: bool) -> Parts:
    """Return the parts of a network by the record of a pass over two drawn inputs.

    Args:
        text: canonical JSON of the problem.
        approximation: `expand` or `reduce`.
        separate: biases have blocks of their own.

    Raises:
        InputError: a large tensor is in no layer that is known.
    """
    problem = read(text)
    network = problem.network
    places = Places.of(
        network.layout.names, network.layout.shapes, set(network.layout.names)
    )
    found, record = accounted(_drawn(problem), places)
    for layer in found.layers:
        check_positions(layer, record, approximation)
    several = [
        piece
        for layer in found.layers
        for piece in pieces(layer, places, separate=separate)
    ]
    scales = [_scale(number, record, places) for number in found.scalings]
    rest = [places.columns(name) for name in found.rest]
    for name, columns in zip(found.rest, rest, strict=True):
        if len(columns) > MOST_REST:
            raise InputError(
                f"rule: kfac: expected '{name}', of {len(columns)} entries, in a dense "
                "layer, a convolution or an embedding that is known, got a tensor "
                "that is in none. Take another rule or model."
            )
    return Parts(
        tuple(several),
        tuple(one for one in scales if len(one.columns) <= MOST_DENSE),
        tuple(
            Rest(columns)
            for columns in (
                *(one.columns for one in scales if len(one.columns) > MOST_DENSE),
                *rest,
            )
        ),
    )


def _scale(number: int, record: Sequence[AnyUse], places: Places) -> Scale:
    use = record[number]
    assert isinstance(use, Scaling)
    names = [name for name in (use.weight, use.bias) if name is not None]
    return Scale(number, torch.cat([places.columns(name) for name in names]))


def _drawn(problem: Problem) -> Recorded:
    """Return a model with two drawn inputs, by which its record is checked."""
    network, generator = problem.network, stream(0, "kfac")
    weights, statistics = network.split(initial_weights(network, generator, None))
    noise = torch.randn(len(weights), generator=generator, dtype=torch.float64)
    shape = (1, 2, *problem.input_shape)
    if problem.takes_integers:
        inputs = torch.randint(network.vocabulary or 2, shape, generator=generator)
    else:
        inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Recorded(
        call=network.outputs_and_uses,
        names=network.layout.names,
        shapes=network.layout.shapes,
        weights=(weights + NOISE * noise).unsqueeze(0),
        fixed=statistics.unsqueeze(0),
        inputs=inputs,
        targets=torch.zeros(1, 2),
        roots=lambda _, outputs: outputs.unsqueeze(2),
        batch_size=2,
        models_per_pass=1,
    )


def check_network(network: Network) -> None:
    """Refuse a module of the user's own whose samples meet.

    Raises:
        InputError: it has a batch norm, whose statistics of a batch cannot be held.
    """
    if network.moves_statistics and network.shares:
        raise InputError(
            "rule: kfac cannot be combined with a factory whose training moves "
            "buffers, such as a batch norm's. Take a model with batch_norm, a group "
            "norm, or another rule."
        )
