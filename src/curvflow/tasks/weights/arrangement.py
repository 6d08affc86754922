"""Arrays of a file in the order of a network's weights, and the losses there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import Samples
from curvflow.schemas.kinds.shared.imported import (
    ImportedParams,
    prefixes,
    starts_below,
    unwrapped,
    whole_prefix,
    without_ignored,
)
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.planned import planned_problem
from curvflow.tasks.networks.problems import Problem, load_samples

FEW = 6  # names that a message lists


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
    tensors = _tensors(params, network, arrays, source)
    flat = [array.astype(np.float64).ravel() for array in tensors]
    return np.concatenate([np.zeros(0), *flat])


def check_tensors(
    params: ImportedParams,
    samples: Samples,
    arrays: Mapping[str, Array],
    source: str,
) -> None:
    """Check arrays against the tensors of a model that is to fit samples of some form.

    Args:
        params: the model, and what its arrays are called.
        samples: form of the samples, with shape, targets and outputs.
        arrays: of one file, with whatever else it holds.
        source: the parameter that names the file, for messages.

    Raises:
        InputError: a tensor lacks an array or its array has another shape, or an array
            belongs to no tensor.
    """
    network = planned_problem(params.model, params.loss, samples).network
    _tensors(params, network, arrays, source)


def _tensors(
    params: ImportedParams, network: Network, arrays: Mapping[str, Array], source: str
) -> list[Array]:
    """Return the arrays of a network's tensors and statistics, in its order."""
    layouts = network.layout, network.statistics
    names = [name for layout in layouts for name in layout.names]
    # A file may hold a tensor that has several names under one of them alone.
    sure = [name for name in names if name not in network.aliases.values()] or names
    wanted = [params.names.get(name, name) for name in sure]
    below = _below_prefix(params, arrays, wanted, source)
    needed = {params.names.get(name, name) for name in (*names, *network.aliases)}
    below = without_ignored(params, below, needed)
    renamed = _without_others(network, _renamed(params, below), names, source)
    _check_names(network, renamed, source)
    for name in names:
        _check_numbers(name, renamed[name], network, source)
    return [renamed[name] for name in names]


def _check_numbers(name: str, array: Array, network: Network, source: str) -> None:
    """Refuse an array that holds other than finite real numbers.

    Raises:
        InputError: it does; it is named.
    """
    if array.dtype.kind not in "fiub":
        kinds = {"c": "complex numbers", "U": "texts", "S": "bytes", "M": "dates"}
        kind = kinds.get(array.dtype.kind, str(array.dtype))
        raise InputError(
            f"{source}: expected real numbers, got {kind} in the array '{name}'. Save "
            "them as floats; the real and the imaginary part of complex ones as two "
            "tensors, which the model must have."
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(
            f"{source}: expected finite numbers, got {bad} NaN or infinite of "
            f"{array.size} in the array '{name}'. Take a checkpoint that has not "
            "diverged."
        )
    if name in network.layout.names and array.dtype.kind != "f":
        raise InputError(
            f"{source}: expected real numbers of the parameter '{name}', got "
            f"{array.dtype}, which are the codes of quantised weights, or a mask. "
            "Save it as floats."
        )


def _below_prefix(
    params: ImportedParams,
    arrays: Mapping[str, Array],
    wanted: Sequence[str],
    source: str,
) -> dict[str, Array]:
    """Return the arrays of the network, without what all their names begin with."""
    given = whole_prefix(params.prefix or "", arrays)
    arrays, given = unwrapped(arrays, given, wanted)
    matching = prefixes(arrays, wanted)
    below = starts_below(params.prefix, given, matching)
    # A network that lacks a tensor is not replaced by a copy of it further below.
    if given and any(given + name in arrays for name in wanted):
        below = [given]
    if len(below) > 1:
        listed = ", ".join(f"'{start}'" for start in below)
        raise InputError(
            f"{source}: expected the network once, got it below {listed}. Choose one "
            "by `prefix`."
        )
    if below:
        prefix = below[0]
    else:
        prefix = given if params.prefix is not None else _likeliest(arrays, wanted)
    copies = [start for start in matching if start.startswith(prefix)]
    copies = [start for start in copies if start != prefix]
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix) and not name.startswith(tuple(copies))
    }


def _likeliest(arrays: Mapping[str, Array], wanted: Sequence[str]) -> str:
    """Return the prefix below which most names are, where none has all of them."""
    counts = Counter(start for name in wanted for start in prefixes(arrays, [name]))
    return max(counts, key=counts.__getitem__, default="")


def _renamed(params: ImportedParams, arrays: Mapping[str, Array]) -> dict[str, Array]:
    ours = {theirs: name for name, theirs in params.names.items()}
    return {ours.get(name, name): array for name, array in arrays.items()}


def _without_others(
    network: Network, arrays: Mapping[str, Array], names: Sequence[str], source: str
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
            ours = kept.setdefault(first, array)
            _check_equal(source, alias, ours, array, f"'{first}'")
    for name, tensor in network.constants.items():
        if name in kept:
            theirs = kept.pop(name)
            _check_equal(source, name, tensor.numpy(), theirs, "the module's own")
    return kept


def _check_equal(
    source: str, name: str, ours: Array, theirs: Array, whose: str
) -> None:
    if not np.array_equal(ours, theirs):
        raise InputError(
            f"{source}: expected the array '{name}' to be equal to {whose}, got other "
            "values. Let the factory make the network that the file is of."
        )


def _check_names(network: Network, arrays: Mapping[str, Array], source: str) -> None:
    layouts = network.layout, network.statistics
    required = {
        name: shape
        for layout in layouts
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    superfluous = [name for name in arrays if name not in required]
    _refuse_list(arrays, required, source)
    for name, shape in required.items():
        if name not in arrays:
            is_statistic = name in network.statistics.names
            raise InputError(
                f"{source}: expected the {'statistic' if is_statistic else 'tensor'} "
                f"'{name}' of shape {shape}, got none. "
                + _remedy(
                    name,
                    is_statistic,
                    alike=[n for n in superfluous if arrays[n].shape == shape],
                    others=superfluous,
                )
            )
        if (got := arrays[name].shape) != shape:
            is_transposed = len(shape) > 1 and got == shape[::-1]
            raise InputError(
                f"{source}: expected shape {shape} of the array '{name}', got {got}"
                + (", its transpose" if is_transposed else "")
                + ". Take the model that has it."
            )
    for name in superfluous:
        raise InputError(
            f"{source}: expected arrays of the model alone, got '{name}' too. "
            f"{_similar(name, required)}Take the model that has it, or name it in "
            "`ignore`."
        )


def _refuse_list(
    arrays: Collection[str], required: Collection[str], source: str
) -> None:
    """Refuse tensors of a list, which have numbers alone.

    Raises:
        InputError: all names end in a number, below one beginning, and none is wanted.
    """
    parts = [name.rpartition(".") for name in arrays if name not in required]
    below = {before for before, _, _ in parts}
    if len(parts) != len(arrays) or len(below) != 1:
        return
    if all(number.isdecimal() for _, _, number in parts):
        at = f" at '{min(below)}'" if any(below) else ""
        raise InputError(
            f"{source}: expected a dictionary of tensors, got a list of {len(parts)} "
            f"tensors{at}. Write torch.save(module.state_dict(), path), or map each "
            "number under `names`."
        )


def _remedy(
    name: str, is_statistic: bool, *, alike: Sequence[str], others: Sequence[str]
) -> str:
    """Return what to do about a tensor without an array, with the nearest name."""
    if not is_statistic:
        hint = _similar(name, alike or others)
        return f"{hint}Map its name under `names`, or take the model of the file."
    # A network without its statistics is another function: they are never left out.
    last = name.rpartition(".")[2]
    if same := [other for other in alike if other.rpartition(".")[2] == last]:
        return f"{_similar(name, same)}Map its name under `names`."
    return (
        "Save the whole state_dict, in which statistics such as the running mean and "
        "variance of a batch norm are."
    )


def _similar(name: str, known: Collection[str]) -> str:
    """Return a hint with the nearest name, or with the first of them."""
    few = [*known][:FEW]
    listed = ", ".join([*few, *(["..."] if len(known) > FEW else [])])
    hint = nearest(name, known, otherwise=f"There are {listed}." if few else "")
    return f"{hint} " if hint else ""


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
    return losses if problem.criterion.is_sum else losses / samples.count
