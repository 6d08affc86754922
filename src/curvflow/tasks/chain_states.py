"""Where chains are, as one array that is stored, so that more draws go on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.nodes import Array, NodeData


def packed(state: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return the state of a member's chains as variables of the kind.

    Args:
        state: tensors whose first dimension is the chain, by name; every number is
            exact in double precision.

    Returns:
        `chain_state` (chain, entry) and the `chain_state_form` that cuts it up.
    """
    parts = {name: state[name].cpu() for name in sorted(state)}
    flat = [part.reshape(len(part), -1) for part in parts.values()]
    form = {name: list(part.shape[1:]) for name, part in parts.items()}
    return {
        "chain_state": torch.cat([part.double() for part in flat], dim=1).numpy(),
        "chain_state_form": np.array(json.dumps(form)),
    }


def unpacked(nodes: Sequence[NodeData]) -> dict[str, Tensor]:
    """Return the state of the chains of several stored results, one after the other.

    Args:
        nodes: of one form.

    Returns:
        Tensors in double precision.
    """
    form = json.loads(str(nodes[0]["chain_state_form"].item()))
    whole_CE = torch.cat([torch.tensor(node["chain_state"]) for node in nodes])
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in form.values()]
    pieces = torch.split(whole_CE, sizes, dim=1)
    return {
        name: piece.reshape(-1, *shape)
        for (name, shape), piece in zip(form.items(), pieces, strict=True)
    }
