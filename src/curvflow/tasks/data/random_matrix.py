"""Random symmetric matrices."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from curvflow.schemas.kinds.data.random_matrix import RandomMatrixParams
from curvflow.schemas.kinds.shared.datasets import matrix
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.random_matrix")
def random_matrix(member: Member, machine: Machine) -> Outcome:
    """Draw a matrix of the ensemble.

    Args:
        member: the parameters.
        machine: not used.

    Returns:
        The entries.

    Reference:
        Granziol (2020), section 4.5: Wigner matrices, whose semicircle has here the
        radius 2 and not 2 sqrt(D); Marchenko-Pastur; and the spectrum of Figure 4.6,
        where the text leaves out that half of the eigenvalues are zero.
    """
    params = cast("RandomMatrixParams", member.params)
    generator = stream(params.seed, f"data.random_matrix:{params.ensemble}")
    entries = params.scale * _DRAWS[params.ensemble](params, generator)
    symmetric = (entries + entries.T) / 2
    return Outcome(matrix("dense", len(symmetric), dense=symmetric.numpy()))


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def _wigner(params: RandomMatrixParams, generator: torch.Generator) -> Tensor:
    drawn = _normal(params.size, params.size, generator)
    upper = drawn.triu()
    entries: Tensor = (upper + drawn.triu(1).T) / params.size**0.5
    return entries


def _marchenko_pastur(params: RandomMatrixParams, generator: torch.Generator) -> Tensor:
    samples = max(1, round(params.size / params.q))
    X = _normal(params.size, samples, generator)
    product: Tensor = X @ X.T / samples
    return product


def _outliers(params: RandomMatrixParams, generator: torch.Generator) -> Tensor:
    counts = [round(share * params.size) for share in (0.47, 0.02, 0.01)]
    widths = (15.0, 60.0, -10.0)
    values = torch.zeros(params.size, dtype=torch.float64)
    uniform = torch.rand(sum(counts), generator=generator, dtype=torch.float64)
    factors = torch.repeat_interleave(
        torch.tensor(widths, dtype=torch.float64), torch.tensor(counts)
    )
    values[: sum(counts)] = factors * uniform
    return _turned(values, generator)


def _given(params: RandomMatrixParams, generator: torch.Generator) -> Tensor:
    return _turned(torch.tensor(params.eigenvalues, dtype=torch.float64), generator)


def _turned(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return a matrix of these eigenvalues in a basis from Haar's law."""
    Q, R = torch.linalg.qr(_normal(len(values), len(values), generator))
    basis = Q * R.diagonal().sign()
    turned: Tensor = (basis * values) @ basis.T
    return turned


_DRAWS = {
    "wigner": _wigner,
    "marchenko_pastur": _marchenko_pastur,
    "outliers": _outliers,
    "eigenvalues": _given,
}
