"""Results of the library in a store, under keys of all that they depend on.

A key holds the parameters of the probe and the content of the operator: weights,
buffers and plain attributes of a module, the batches, and the code of the module, the
loss and what else is called. For PyTorch's own code its version stands; for other code
the fingerprints that studies compare. What cannot be known is refused by name.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from inspect import isbuiltin, isclass, isfunction
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np

from curvflow.errors import CorruptPayloadError, InputError, RemovedPayloadError
from curvflow.flows.plan.code.fingerprints import Definitions
from curvflow.flows.plan.code.normal import NORMAL_FORM, Names
from curvflow.flows.plan.code.sources import Sources
from curvflow.schemas.keys import action_key, array_digest, form, sha256
from curvflow.schemas.nodes import Array, Outcome
from curvflow.schemas.records.receipts import Receipt, part_digests, result_digest
from curvflow.stores.base import Store
from curvflow.stores.open import open_store
from curvflow.tasks.library.operators import Probe

# Packages whose version stands for their code.
RELEASED = ("torch", "numpy", "scipy")
PLAIN = (bool, int, float, str, type(None))
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


@dataclass(frozen=True)
class StoreMemory:
    """Runs probes of one operator or module, or reads what they returned before.

    Attributes:
        store: holds the results.
        digest: of its content when it was taken.
        content: returns the digest of the content as it is now.
    """

    store: Store
    digest: str
    content: Callable[[], str]

    def __call__(self, probe: Probe) -> Mapping[str, Array]:
        """Return the variables of a probe's result.

        Raises:
            InputError: it is not there, and what it depends on has changed.
        """
        params = form(probe.params)
        inputs = {"operator": self.digest, **probe.given}
        key = action_key(probe.kind.name, probe.kind.version, params, inputs)
        receipt = self.store.live([key]).get(key)
        if receipt is not None:
            try:
                return self.store.read(receipt, list(receipt.parts))
            except (CorruptPayloadError, RemovedPayloadError):
                self.store.retire([key], "its payload could not be read")
        if self.content() != self.digest:
            raise InputError(
                "store cannot be combined with a module, a loss or data that have "
                "changed since they were taken, as the data of a loader that shuffles "
                "do. Make the operator again, or take a fixed order."
            )
        began = perf_counter()
        arrays = {name: np.asarray(array) for name, array in probe.compute().items()}
        parts = part_digests(probe.kind.outputs, Outcome(arrays))
        receipt = Receipt(
            key=key,
            stage="library",
            coords={},
            kind=probe.kind.name,
            version=probe.kind.version,
            params=params,
            inputs=inputs,
            digest=result_digest(parts, "ok", ""),
            parts=parts,
            payload=self.store.write_payload({n: a[None] for n, a in arrays.items()}),
            seconds=perf_counter() - began,
        )
        self.store.commit([receipt])
        return arrays


def memory(
    store: str | Path,
    name: str,
    *,
    called: Mapping[str, Any],
    settings: Mapping[str, Any],
    data: Any,
) -> StoreMemory:
    """Return the memory of a module, or of an operator of it.

    Args:
        store: path or address of the store, which is made if there is none.
        name: which matrix, or `llc`.
        called: the module and the loss.
        settings: what else it is taken with.
        data: its batches.

    Returns:
        The memory.

    Raises:
        InputError: the content or the code of a part cannot be known; it is named.
    """

    def identities(things: Mapping[str, Any]) -> dict[str, object]:
        return {part: _identity(part, thing) for part, thing in things.items()}

    def content() -> str:
        try:
            parts = [identities(called), identities(settings), _identity("data", data)]
        except RecursionError:
            raise _unknown("an attribute", "a module that holds itself") from None
        return sha256([name, *parts])

    digest = content()
    return StoreMemory(open_store(store, create=True), digest, content)


def matrix_memory(
    store: str | Path, arrays: Mapping[str, Array] | None, **settings: str | float
) -> StoreMemory:
    """Return the memory of a matrix, or of a matrix of a graph.

    Args:
        store: path or address of the store.
        arrays: its entries, or the rows of the graph; None if only products are known.
        **settings: of the matrix of a graph.

    Returns:
        The memory.

    Raises:
        InputError: the entries are not known.
    """
    if arrays is None:
        raise InputError(
            "store cannot be combined with a map known by its products. Pass the "
            "matrix, or leave out store."
        )

    def content() -> str:
        digests = {name: array_digest(array) for name, array in arrays.items()}
        return sha256(digests | settings)

    return StoreMemory(open_store(store, create=True), content(), content)


def _identity(where: str, thing: Any) -> object:
    """Return plain values that are equal for things that compute the same."""
    if isinstance(thing, float) and not math.isfinite(thing):
        return {"float": str(thing)}
    if isinstance(thing, PLAIN):
        return thing
    if isclass(thing) or isfunction(thing):
        return _code(where, thing)
    if hasattr(thing, "named_modules"):
        return _module(where, thing)
    if isinstance(thing, np.ndarray) or hasattr(thing, "detach"):
        return _array(where, thing)
    # Functions alone: other callables of a released package may hold values.
    if isbuiltin(thing) and _is_released(thing):
        return _code(where, thing)
    return _parts(where, thing)


def _array(where: str, thing: Any) -> object:
    """Return the digest of an array or a tensor, with the type if NumPy lacks it."""
    thing = thing.detach().cpu() if hasattr(thing, "detach") else thing
    try:
        array = np.asarray(thing)
    except TypeError:
        try:  # single precision holds the numbers of smaller types
            return [str(thing.dtype), array_digest(np.asarray(thing.float()))]
        except (TypeError, RuntimeError):
            raise _unknown(where, f"a tensor of {thing.layout}") from None
    if array.dtype.kind == "O":
        raise _unknown(where, "an array of objects")
    return array_digest(array)


def _parts(where: str, thing: Any) -> object:
    """Return the identities of what a mapping, a sequence or a loader holds."""
    if isinstance(thing, ref) and hasattr(thing(), "detach"):  # recurrent layers have
        return _array(where, thing())
    if f"{type(thing).__module__}.{type(thing).__name__}" in _NAMED_BY_TEXT:
        return {"text": str(thing)}
    if isinstance(thing, Mapping):
        keys = [_identity(f"{where}, its keys", key) for key in thing]
        values = [_identity(f"{where}.{key}", thing[key]) for key in thing]
        return {"keys": keys, "values": values}
    if isinstance(thing, set | frozenset):
        thing = sorted(thing, key=str)
    # What else can be iterated may hold more than its items; loaders are known by them.
    if isinstance(thing, list | tuple) or (
        where == "data" and hasattr(thing, "__iter__")
    ):
        return [_identity(f"{where}[{n}]", part) for n, part in enumerate(thing)]
    raise _unknown(where, f"a {type(thing).__name__}")


_NAMED_BY_TEXT = ("torch.dtype", "torch.device", "builtins.range", "builtins.bytes")


def _module(where: str, module: Any) -> object:
    """Return the identity of a module: its layers, their code and their content.

    Order is part of it, for sequences are called in theirs, and so is what occurs in
    several places: its first name stands for it in the others.
    """
    (base,) = (
        c for c in type(module).__mro__ if f"{c.__module__}.{c.__name__}" == _BASE
    )
    skipped = set(vars(base())) - {"training"}
    first: dict[int, str] = {}
    layers: list[object] = []
    for name, layer in module.named_modules(remove_duplicate=False):
        place = f"{where}.{name}" if name else where
        is_new = id(layer) not in first
        known = first.setdefault(id(layer), name)
        layers.append([name, _layer(place, layer, skipped) if is_new else known])
    tensors: list[object] = []
    for every in (module.named_parameters, module.named_buffers):
        for name, tensor in every(remove_duplicate=False):
            known = first.setdefault(id(tensor), name)
            content = [_identity(name, tensor), tensor.requires_grad]
            tensors.append([name, content if known == name else known])
    return {"layers": layers, "tensors": tensors}


def _layer(where: str, layer: Any, skipped: set[str]) -> object:
    if any(getattr(layer, hooks) for hooks in HOOKS):
        raise _unknown(where, "a layer with hooks")
    kept = {key: value for key, value in vars(layer).items() if key not in skipped}
    attributes = {key: _identity(f"{where}.{key}", kept[key]) for key in kept}
    return {"code": _code(where, type(layer)), "attributes": attributes}


_BASE = "torch.nn.modules.module.Module"


def _is_released(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in RELEASED


def _code(where: str, thing: Any) -> object:
    """Return the identity of the code of a function or class."""
    home, name = thing.__module__, getattr(thing, "__qualname__", type(thing).__name__)
    if getattr(thing, "__closure__", None) or "<" in name:
        raise _unknown(where, f"{name}, a function within a function")
    if _is_released(thing):
        return f"{home}.{name} {version(home.partition('.')[0])}"
    file = getattr(sys.modules.get(home), "__file__", None)
    if file is None or home == "__main__":
        raise _unknown(where, f"{name} of a program without a name")
    names = home.split(".")
    depth = len(names) - (Path(file).stem != "__init__")
    folder, top = Path(file).parents[depth], names[0]
    sources = Sources(folder, Path(__file__).parents[1])
    definitions = Definitions(Names(sources, frozenset({top})))
    starts = [f"{home}:{name}", *_methods(home, thing)]
    paths = definitions.reached(starts, ())
    if starts[0] not in paths:
        raise _unknown(where, f"{name} without source")
    digests = {reached: definitions.digest(reached) for reached in sorted(paths)}
    return {"normal_form": NORMAL_FORM, "definitions": digests}


def _methods(home: str, thing: Any) -> Iterator[str]:
    if isclass(thing):
        for name, method in vars(thing).items():
            if isfunction(method):
                yield f"{home}:{thing.__qualname__}.{name}"


def _unknown(where: str, what: str) -> InputError:
    return InputError(
        f"store cannot be combined with {what} as {where}: what it computes cannot be "
        "known from one run to the next. Define it in a module, or leave out store."
    )
