"""Arrays of a file in the order of a network's weights, and the losses there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.shared.imported import ImportedParams, prefixes
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.networks.network import Layout, Network
from curvflow.tasks.networks.problems import Problem, load_samples


def arranged(
    params: ImportedParams, network: Network, arrays: Mapping[str, Array], source: str
) -> Array:
    """Return a network's weights, followed by its statistics, from named arrays.

    Args:
        params: what the arrays are called.
        network: whose tensors they are.
        arrays: of one file, with whatever else it holds.
        source: the parameter that names the file, for messages.

    Returns:
        Weights and statistics, shape (D + S,), in float64.

    Raises:
        InputError: a tensor lacks an array or its array has another shape, or an array
            belongs to no tensor.
    """
    layouts = network.layout, network.statistics
    names = [name for layout in layouts for name in layout.names]
    wanted = [params.names.get(name, name) for name in names]
    below = _below_prefix(params, arrays, wanted, source)
    renamed = _renamed(params, below)
    _check_names(layouts, renamed, source)
    return np.concatenate([_vector(layout, renamed) for layout in layouts])


def _below_prefix(
    params: ImportedParams,
    arrays: Mapping[str, Array],
    wanted: Sequence[str],
    source: str,
) -> dict[str, Array]:
    """Return the arrays of the network, without what all their names begin with."""
    prefix = params.prefix
    if prefix is None:
        found = prefixes(arrays, wanted)
        if len(found) > 1 and "" not in found:
            raise InputError(
                f"{source}: expected the network once, got it below "
                f"{', '.join(found)}. Choose one by `prefix`."
            )
        prefix = "" if "" in found or not found else found[0]
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _renamed(params: ImportedParams, arrays: Mapping[str, Array]) -> dict[str, Array]:
    ours = {theirs: name for name, theirs in params.names.items()}
    # PyTorch counts a batch norm's batches, on which no output depends.
    return {
        ours.get(name, name): array
        for name, array in arrays.items()
        if not name.endswith("num_batches_tracked")
    }


def _check_names(
    layouts: tuple[Layout, ...], arrays: Mapping[str, Array], source: str
) -> None:
    required = {
        name: shape
        for layout in layouts
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    for name, shape in required.items():
        if name not in arrays:
            raise InputError(
                f"{source}: expected an array '{name}' of shape {shape}, got none. "
                f"{nearest(name, arrays)} Map its name under `names`."
            )
        if arrays[name].shape != shape:
            raise InputError(
                f"{source}: expected shape {shape} of the array '{name}', got "
                f"{arrays[name].shape}"
            )
    for name in arrays:
        if name not in required:
            raise InputError(
                f"{source}: expected arrays of {', '.join(required)}, got '{name}' "
                "too. Remove it from the file, or take the model that has it."
            )


def _vector(layout: Layout, arrays: Mapping[str, Array]) -> Array:
    parts = [arrays[name].astype(np.float64).ravel() for name in layout.names]
    return np.concatenate([np.zeros(0), *parts])


def mean_losses(
    problem: Problem, weights_MW: Array, data: NodeData, prefix: str
) -> Array:
    """Return the loss of each model over a data set, NaN without samples.

    Args:
        problem: the network and its loss.
        weights_MW: weights and statistics of M models, (M, D + S).
        data: the data set.
        prefix: `test_` for its test samples, empty for those trained on.

    Returns:
        Mean losses, of sse their sum, (M,).
    """
    samples = load_samples(problem, [data], prefix, "cpu", torch.float64)
    num_models = len(weights_MW)
    if not samples.count:
        return np.full(num_models, np.nan)
    weights = torch.as_tensor(weights_MW)
    total_M, rows = torch.zeros(num_models).double(), problem.rows_per_pass(num_models)
    with torch.no_grad():
        for start in range(0, samples.count, rows):
            chunk = samples.rows(slice(start, start + rows))
            total_M += problem.losses(weights, chunk.inputs, chunk.targets).sum(1)
    losses: Array = total_M.numpy()
    return losses if problem.loss == "sse" else losses / samples.count
