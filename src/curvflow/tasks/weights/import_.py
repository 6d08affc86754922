"""Import of weights trained elsewhere, from a file of named arrays or tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.weights.import_ import ImportParams, prefixes
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.networks.network import Layout, Network
from curvflow.tasks.networks.problems import Problem, load_samples, pose
from curvflow.tasks.registry import Machine, computes_each


@computes_each("weights.import")
def import_(member: Member, machine: Machine) -> Outcome:
    """Arrange the arrays of the user's file in the order of the network's weights.

    Args:
        member: `data`, the network, its loss and the arrays of the file.
        machine: not used.

    Returns:
        Weights, followed by statistics such as a batch norm's, in float64, with the
        mean losses there (sums for sse), which show that the network is the trained
        one.

    Raises:
        InputError: a tensor lacks an array or its array has another shape, or an array
            belongs to no tensor.
    """
    params = cast("ImportParams", member.params)
    data = member.one("data")
    problem = pose(params.model, params.loss, data)
    network = problem.network
    layouts = network.layout, network.statistics
    names = [name for layout in layouts for name in layout.names]
    # A file may hold a tensor that has several names under one of them alone.
    sure = [name for name in names if name not in network.aliases.values()] or names
    wanted = [params.names.get(name, name) for name in sure]
    arrays = _renamed(params, _below_prefix(params, member.files["path"], wanted))
    arrays = _without_others(network, arrays, names)
    _check_names(layouts, arrays)
    weights_W = np.concatenate([_vector(layout, arrays) for layout in layouts])
    return Outcome(
        {
            "final_train_loss": _loss(problem, weights_W, data, ""),
            "final_test_loss": _loss(problem, weights_W, data, "test_"),
            "num_parameters": np.array(problem.network.num_parameters, dtype=np.int64),
            "weights": weights_W,
            "network": np.array(problem.text),
        }
    )


def _below_prefix(
    params: ImportParams, arrays: Mapping[str, Array], wanted: Sequence[str]
) -> dict[str, Array]:
    """Return the arrays of the network, without what all their names begin with."""
    prefix = params.prefix
    if prefix is None:
        found = prefixes(arrays, wanted)
        if len(found) > 1 and "" not in found:
            raise InputError(
                f"path: expected the network once, got it below {', '.join(found)}. "
                "Choose one by `prefix`."
            )
        prefix = "" if "" in found or not found else found[0]
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _renamed(params: ImportParams, arrays: Mapping[str, Array]) -> dict[str, Array]:
    ours = {theirs: name for name, theirs in params.names.items()}
    return {ours.get(name, name): array for name, array in arrays.items()}


def _without_others(
    network: Network, arrays: Mapping[str, Array], names: Sequence[str]
) -> dict[str, Array]:
    """Return the arrays of these names, without those that say nothing new.

    Raises:
        InputError: a tensor that has two names has two values, or a constant of the
            module has another.
    """
    # PyTorch counts a batch norm's batches, on which no output depends.
    kept = {
        name: array
        for name, array in arrays.items()
        if name in names or not name.endswith("num_batches_tracked")
    }
    for alias, first in network.aliases.items():
        if alias in kept:
            array = kept.pop(alias)
            _check_equal(alias, kept.setdefault(first, array), array, f"'{first}'")
    for name, tensor in network.constants.items():
        if name in kept:
            array = kept.pop(name)
            _check_equal(name, tensor.numpy(), array, "the module's own")
    return kept


def _check_equal(name: str, ours: Array, theirs: Array, whose: str) -> None:
    if not np.array_equal(ours, theirs):
        raise InputError(
            f"path: expected the array '{name}' to be equal to {whose}, got other "
            "values. Let the factory make the network that the file is of."
        )


def _check_names(layouts: tuple[Layout, ...], arrays: Mapping[str, Array]) -> None:
    required = {
        name: shape
        for layout in layouts
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    for name, shape in required.items():
        if name not in arrays:
            raise InputError(
                f"path: expected an array '{name}' of shape {shape}, got none. "
                f"{nearest(name, arrays)} Map its name under `names`."
            )
        if arrays[name].shape != shape:
            raise InputError(
                f"path: expected shape {shape} of the array '{name}', got "
                f"{arrays[name].shape}"
            )
    for name in arrays:
        if name not in required:
            raise InputError(
                f"path: expected arrays of {', '.join(required)}, got '{name}' too. "
                "Remove it from the file, or take the model that has it."
            )


def _vector(layout: Layout, arrays: Mapping[str, Array]) -> Array:
    parts = [arrays[name].astype(np.float64).ravel() for name in layout.names]
    return np.concatenate([np.zeros(0), *parts])


def _loss(problem: Problem, weights_W: Array, data: NodeData, prefix: str) -> Array:
    samples = load_samples(problem, [data], prefix, "cpu", torch.float64)
    if not samples.count:
        return np.array(np.nan)
    weights_MW = torch.as_tensor(weights_W)[None]
    total, rows = 0.0, problem.rows_per_pass(1)
    with torch.no_grad():
        for start in range(0, samples.count, rows):
            chunk = samples.rows(slice(start, start + rows))
            losses_MN = problem.losses(weights_MW, chunk.inputs, chunk.targets)
            total += float(losses_MN.sum())
    return np.array(total if problem.loss == "sse" else total / samples.count)
