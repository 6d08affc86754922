"""Uses of parameters in any torch module, noted where torch's functions are called."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from curvflow.tasks.numerics.autograd_nodes import nodes_of
from curvflow.tasks.numerics.derivatives.precision import padding_stopped
from curvflow.tasks.numerics.kronecker.uses import (
    AnyUse,
    Form,
    Lookup,
    Manner,
    Rows,
    Scaling,
    Use,
    Windows,
    unlike_names,
    unlike_use,
    without_names,
)

Called = TypeVar("Called")

# Functions whose results may decide which rows are of which samples.
_PICKING = frozenset(
    (
        *("nonzero", "argwhere", "unique", "unique_consecutive", "masked_select"),
        *("sort", "argsort", "msort", "topk", "item", "tolist"),
    )
)
_INDEXING = frozenset(("__getitem__", "__setitem__"))

_NORMS = (F.batch_norm, F.layer_norm, F.group_norm, F.rms_norm)


class UseRecorder(TorchFunctionMode):
    """Notes each call of a layer's function with parameters of one model.

    A parameter is known by its identity, so that a layer that is used twice or a weight
    that two layers share, is noted under one name.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        unselected: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """Take the parameters of the model by name; of several names the first.

        Args:
            tensors: parameters that are looked at.
            unselected: others, by whose layers biases among the former are known.
        """
        super().__init__()
        self.uses: list[AnyUse] = []
        self._names: dict[int, str] = {}
        self._tensors = tensors
        for name, tensor in (*tensors.items(), *unselected.items()):
            self._names.setdefault(id(tensor), name)
        self._tokens_first = False
        self._copies = False
        self._picks = False
        self._versions: list[tuple[Tensor, int]] = []

    def recorded(self, call: Callable[[], Called]) -> Called:
        """Return what a call returns, and note its uses.

        What comes back through outputs that are overwritten, as by an activation in
        place, comes through what they have become. They are overwritten in copies.
        """
        with self:
            result = call()
        if any(outputs._version != version for outputs, version in self._versions):
            self.uses.clear()
            self._copies = True
            with self:
                result = call()
        self._versions.clear()
        doubtful = self._touched(result)
        self.uses = [
            replace(
                use, is_doubtful=self._picks or bool({use.weight, use.bias} & doubtful)
            )
            for use in self.uses
        ]
        return result

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, and note what it does with parameters."""
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self._within_attention():
                return func(*args, **kwargs)
        outputs = func(*args, **kwargs)
        noted = len(self.uses)
        bound = _bound(func, args, kwargs) if func in (*_NORMS, *_NOTES) else {}
        if func in _NORMS:
            self._norm(func, bound, outputs)
        elif func in _NOTES:
            _NOTES[func](self, bound, outputs)
        self._picks = self._picks or self._is_picking(func, args)
        last = self.uses[-1] if len(self.uses) > noted else None
        if last is None:
            return outputs
        self._versions.append((outputs, outputs._version))
        outputs = outputs.clone() if self._copies else outputs
        return _constant_padding(func, bound, outputs)

    def _touched(self, result: Any) -> set[str]:
        """Return the names of tensors that results are made of in uses not noted."""
        nodes, edges = _graph(result)
        for use in self.uses:
            if use.outputs[0].grad_fn in nodes:
                edges.subtract(self._edge(name) for name in (use.weight, use.bias))
        return {name for name in self._tensors if edges[self._edge(name)] > 0}

    def _edge(self, name: str | None) -> Any:
        """Return where a tensor stands in the graph; None of none."""
        tensor = None if name is None else self._tensors.get(name)
        return None if tensor is None else (tensor.grad_fn, tensor.output_nr)

    def _is_picking(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Return whether rows of other samples may come from a call, by its numbers."""
        name = getattr(func, "__name__", "")
        if name not in _INDEXING or id(args[0]) in self._names:
            return name in _PICKING
        return any(isinstance(index, Tensor) for index in _flat(args[1:2]))

    @contextmanager
    def _within_attention(self) -> Iterator[None]:
        """Note the projections within torch's attention, which has tokens first."""
        asks = F.has_torch_function  # type: ignore[attr-defined] # as torch imports it
        F.has_torch_function = lambda _: False  # type: ignore[attr-defined]
        self._tokens_first = True
        try:
            with self:
                yield
        finally:
            F.has_torch_function = asks  # type: ignore[attr-defined]
            self._tokens_first = False

    def dense(self, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note a dense layer, but for one of a vector."""
        if given["weight"].ndim == 2:
            self._note(given, outputs, Rows(tokens_first=self._tokens_first))

    def convolution(self, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note a convolution."""
        sides = given["weight"].ndim - 2
        if given["input"].ndim != given["weight"].ndim:  # a single image, of no sample
            return

        def each(value: int | tuple[int, ...]) -> tuple[int, ...]:
            return (value,) * sides if isinstance(value, int) else tuple(value)

        dilation, padding = each(given["dilation"]), given["padding"]
        if isinstance(padding, str):
            kernel = given["weight"].shape[2:]
            total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
            room = total if padding == "same" else [0] * sides
            pads = tuple((t // 2, t - t // 2) for t in room)
        else:
            pads = tuple((p, p) for p in each(padding))
        form = Windows(each(given["stride"]), pads, dilation, given["groups"])
        self._note(given, outputs, form)

    def lookup(self, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note a table of rows."""
        if given["max_norm"] is None and not given["scale_grad_by_freq"]:
            self._note(given, outputs, Lookup(given["padding_idx"]))

    def _norm(self, func: Any, given: Mapping[str, Any], outputs: Tensor) -> None:
        """Note the scale and the shift behind a norm of one dimension."""
        weight = given["weight"]
        name, added = self._layer(given)
        if name is None or weight.ndim != 1 or _is_mapped(outputs):
            return
        unused = {"weight", "bias"}
        if given.get("training"):  # else it would move the running moments twice
            unused |= {"running_mean", "running_var"}
        bare = {k: None if k in unused else v for k, v in given.items()}
        normed = func(**bare).detach()
        channel = 2 if func in (F.batch_norm, F.group_norm) else normed.ndim
        self.uses.append(Scaling(name, added, normed[None], (outputs,), channel, True))

    def _note(self, given: Mapping[str, Any], outputs: Tensor, form: Form) -> None:
        name, added = self._layer(given)
        if name is not None and not _is_mapped(outputs):
            inputs = given["input"][None]
            self.uses.append(Use(name, added, inputs, (outputs,), form, True))

    def _layer(self, given: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the names of a weight and a bias, of none that is looked at None."""
        both = given["weight"], given.get("bias")
        weight, bias = (self._names.get(id(t)) if t is not None else None for t in both)
        bias = bias if bias in self._tensors else None
        is_chosen = weight in self._tensors or bias is not None
        return (weight if is_chosen else None), bias


def _bound(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    names = _ARGUMENTS.get(func)
    if names is None:
        bound = inspect.signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    return names | dict(zip(names, args, strict=False)) | dict(kwargs)


_LINEAR: dict[str, Any] = {"input": None, "weight": None, "bias": None}
_CONVOLUTION = _LINEAR | {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}

# Of builtins, which tell no signature.
_ARGUMENTS: dict[Any, dict[str, Any]] = {
    F.linear: _LINEAR,
    torch.conv1d: _CONVOLUTION,
    torch.conv2d: _CONVOLUTION,
    torch.conv3d: _CONVOLUTION,
}

_NOTES: dict[Any, Callable[[UseRecorder, Mapping[str, Any], Tensor], None]] = {
    F.linear: UseRecorder.dense,
    F.embedding: UseRecorder.lookup,
    torch.conv1d: UseRecorder.convolution,
    torch.conv2d: UseRecorder.convolution,
    torch.conv3d: UseRecorder.convolution,
}


def _constant_padding(func: Any, given: Mapping[str, Any], outputs: Tensor) -> Tensor:
    """Return outputs through which nothing comes back to the padding of a table."""
    if func is not F.embedding or given["padding_idx"] is None:
        return outputs
    padding = given["padding_idx"] % len(given["weight"])
    return padding_stopped(outputs, given["input"], padding)


def _is_mapped(outputs: Tensor) -> bool:
    """Return whether a tensor is one within vmap, and gone behind it."""
    # Of which no public name tells.
    return torch._C._functorch.is_functorch_wrapped_tensor(outputs)


def _graph(result: Any) -> tuple[set[Any], Counter[Any]]:
    """Return the nodes that results are made of, and how often each is a part."""
    tensors = [part for part in _flat([result]) if isinstance(part, Tensor)]
    nodes = set(nodes_of(tensors))
    return nodes, Counter(edge for node in nodes for edge in node.next_functions)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values, and those within lists of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def stacked_uses(per_model: list[list[AnyUse]]) -> list[AnyUse]:
    """Return the uses of several models as one list of uses of all of them.

    Of a tensor that models do not use alike, as where numbers decide which samples go
    through a layer, there is one that says so.

    Args:
        per_model: those of each model.
    """
    first, *rest = ([_shaped(use) for use in uses] for uses in per_model)
    unlike = {name for shaped in rest for name in unlike_names(first, shaped)}
    alike = [without_names(uses, unlike) for uses in per_model]
    stacked = [_stacked(uses) for uses in zip(*alike, strict=True)]
    return [*stacked, *map(unlike_use, sorted(unlike))]


def _shaped(use: AnyUse) -> Manner:
    form = use.form if isinstance(use, Use) else use.channel
    how = use.bias, form, use.inputs.shape, use.outputs[0].shape
    return Manner(use.weight, use.bias, how)


def _stacked(uses: tuple[AnyUse, ...]) -> AnyUse:
    inputs = torch.cat([use.inputs for use in uses])
    doubtful = any(use.is_doubtful for use in uses)
    outputs = tuple(use.outputs[0] for use in uses)
    return replace(uses[0], inputs=inputs, outputs=outputs, is_doubtful=doubtful)
