"""All eigenvalues of small operators, from their dense matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.dense import DenseParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.curvature.operators import (
    DENSE_BLOCK,
    batch_key,
    dense_matrices,
    product_bytes,
    shared_bytes,
    size_of,
    tile_operator,
)
from curvflow.tasks.networks.problems import grouped
from curvflow.tasks.registry import Machine, computes


def _params(member: Member) -> DenseParams:
    return cast("DenseParams", member.params)


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory: products and four matrices."""
    size = size_of(member)
    return product_bytes(member, min(DENSE_BLOCK, size)) + 4 * 8 * size**2


@computes("probe.dense", member_bytes=member_bytes, data_bytes=shared_bytes)
def dense(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Form each matrix from products with the identity, and decompose it.

    Args:
        members: inputs of an operator, and parameters that differ in the seed.
        machine: the device to compute on.

    Returns:
        Per member all eigenvalues and the quantities derived from them.

    Raises:
        InputError: an operator is too large, or products hold NaN or infinity.
    """
    for member in members:
        size, most = size_of(member), _params(member).max_size
        if size > most:
            raise InputError(
                f"max_size: expected an operator of dimension at most {most}, got "
                f"{size}. Take probe.spectrum or probe.trace, layers, or raise "
                "max_size."
            )
    return grouped(members, batch_key, partial(_together, machine=machine))


def _together(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    size = size_of(members[0])
    tile = tile_operator(members, machine, columns=min(DENSE_BLOCK, size))
    matrices_MDD = dense_matrices(tile.operator).cpu()
    values_MD = torch.linalg.eigvalsh((matrices_MDD + matrices_MDD.mT) / 2)
    eps = size**0.5 * float(torch.finfo(tile.operator.dtype).eps)
    return [
        _outcome(values_D, _params(member), eps=eps)
        for member, values_D in zip(members, values_MD, strict=True)
    ]


def _outcome(values_D: Tensor, params: DenseParams, *, eps: float) -> Outcome:
    size = len(values_D)
    damped_D = values_D + params.damping
    is_positive = bool((damped_D > 0).all())
    logdet = damped_D.log().sum() if is_positive else torch.tensor(torch.nan).double()
    largest = values_D.abs().max()
    rounding, zero = eps * largest, params.zero_width * largest
    return Outcome(
        {
            "eigenvalues": values_D.numpy(),
            "trace": values_D.sum().numpy(),
            "frobenius": values_D.norm().numpy(),
            "least": values_D[0].numpy(),
            "greatest": values_D[-1].numpy(),
            "logdet": logdet.numpy(),
            "positive_definite": np.array(is_positive),
            "zero_mass": (values_D.abs() <= zero).double().mean().numpy(),
            "negative_mass": (values_D < -zero).double().mean().numpy(),
            "ritz_values": values_D[None].numpy(),
            "ritz_weights": np.full((1, size), 1 / size),
            "ritz_residuals": rounding.expand(1, size).numpy(),
            "size": np.array(size, dtype=np.int64),
            "num_matvecs": np.array(size, dtype=np.int64),
        }
    )
