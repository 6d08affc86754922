"""Kronecker factors as stored arrays and back, and beside what they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import Eigenpairs
from curvflow.tasks.registry import Machine

_FLAT = ("values", "left_vectors", "right_vectors", "left_values", "right_values")


def stored_blocks(operator: BlockOperator) -> list[dict[str, Array]]:
    """Return the blocks of each model, as arrays.

    Args:
        operator: of several models.
    """
    blocks = [block.eigenpairs for block in operator.blocks]
    sizes = np.array([block.values.shape[1:] for block in blocks], dtype=np.int64)
    columns = np.concatenate([block.columns.cpu().numpy() for block in blocks])
    shared = {
        "block": np.array([block.name for block in blocks]),
        "groups": sizes[:, 0],
        "left_size": sizes[:, 1],
        "right_size": sizes[:, 2],
        "columns": columns.astype(np.int64),
    }
    flat = {
        "values": [block.values for block in blocks],
        "left_vectors": [block.left for block in blocks],
        "right_vectors": [block.right for block in blocks],
        "left_values": [_values(b.left_values, b.left) for b in blocks],
        "right_values": [_values(b.right_values, b.right) for b in blocks],
    }
    rows = {name: _joined(parts) for name, parts in flat.items()}
    return [
        {**shared, **{name: np.array(of_all[model]) for name, of_all in rows.items()}}
        for model in range(operator.shape[0])
    ]


def _values(values: Tensor | None, vectors: Tensor) -> Tensor:
    return vectors.new_full(vectors.shape[:-1], torch.nan) if values is None else values


def _joined(parts: Sequence[Tensor]) -> Array:
    """Return tensors of all models side by side, a row of each model."""
    flat = torch.cat([part.detach().flatten(1) for part in parts], dim=1)
    return np.asarray(flat.double().cpu().numpy())


def factors_key(node: NodeData) -> object:
    """Return what results of one batched operator share: names and sizes of blocks."""
    sizes = (node[name].tobytes() for name in ("groups", "left_size", "right_size"))
    return tuple(node["block"].tolist()), *sizes, node["columns"].tobytes()


def block_operator(
    nodes: Sequence[NodeData],
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> BlockOperator:
    """Return stored factors as one operator.

    Args:
        nodes: results of the edge type Factors, with equal `factors_key`.
        device: to compute on.
        dtype: precision of the products.

    Returns:
        The operator of all of them, (M, D, D).
    """
    first = nodes[0]
    left = {
        name: torch.as_tensor(
            np.stack([node[name] for node in nodes]), device=device, dtype=dtype
        )
        for name in _FLAT
    }
    columns = torch.as_tensor(first["columns"]).to(device)
    blocks = []
    sizes = zip(first["groups"], first["left_size"], first["right_size"], strict=True)
    for name, (groups, rows, across) in zip(first["block"], sizes, strict=True):
        g, o, i = int(groups), int(rows), int(across)
        shapes = (g, o, i), (g, o, o), (g, i, i), (g, o), (g, i)
        parts = {}
        for key, shape in zip(_FLAT, shapes, strict=True):
            size = math.prod(shape)
            parts[key], left[key] = left[key][:, :size], left[key][:, size:]
            parts[key] = parts[key].reshape(-1, *shape)
        block, columns = columns[: g * o * i], columns[g * o * i :]
        blocks.append(_block(str(name), block, parts))
    return BlockOperator(blocks, int(first["size"]))


def _block(name: str, columns: Tensor, parts: dict[str, Tensor]) -> Eigenpairs:
    is_product = not bool(parts["left_values"].isnan().any())
    return Eigenpairs(
        name,
        columns,
        parts["left_vectors"],
        parts["right_vectors"],
        parts["values"],
        parts["left_values"] if is_product else None,
        parts["right_values"] if is_product else None,
    )


PRECONDITIONER = "preconditioner"


def preconditioner_of(
    members: Sequence[Member], machine: Machine, size: int
) -> BlockOperator | None:
    """Return the factors given with an operator, or None.

    Args:
        members: of one `preconditioner_key`.
        machine: the device to compute on.
        size: parameters of their operator, D.

    Returns:
        The factors in double precision, (M, D, D).

    Raises:
        InputError: the factors are of other parameters.
    """
    if PRECONDITIONER not in members[0].inputs:
        return None
    nodes = [member.one(PRECONDITIONER) for member in members]
    return given_factors(nodes, machine, size)


def given_factors(
    nodes: Sequence[NodeData], machine: Machine, size: int
) -> BlockOperator:
    """Return factors that stand for an operator.

    Args:
        nodes: of each model, of one `factors_key`.
        machine: the device to compute on.
        size: parameters of their operator, D.

    Returns:
        The factors in double precision, (M, D, D).

    Raises:
        InputError: the factors are of other parameters.
    """
    blocks = block_operator(nodes, machine.device, torch.float64)
    if blocks.shape[1] != size:
        raise InputError(
            f"preconditioner: expected factors of {size} parameters, got "
            f"'{nodes[0].stage}' of {blocks.shape[1]}. Give both the same layers."
        )
    return blocks


def preconditioner_key(member: Member) -> object:
    """Return what members share whose factors are one batched operator."""
    if PRECONDITIONER not in member.inputs:
        return None
    return factors_key(member.one(PRECONDITIONER))


def given_bytes(member: Member) -> int:
    """Return the bytes of one member's factors: as stored, as blocks, at work."""
    if PRECONDITIONER not in member.inputs:
        return 0
    arrays = member.one(PRECONDITIONER).arrays.values()
    return 3 * sum(array.nbytes for array in arrays)
